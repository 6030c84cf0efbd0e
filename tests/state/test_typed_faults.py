"""A typed state on a store that fails at every call: as before, or as after, and never between."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ropewalk import AgentState, Externalized, Inline, MemoryStore, Store
from ropewalk.errors import RopewalkError
from ropewalk.state import prune_expired, release
from ropewalk.testing import Outcome, fail_every_call


class Work(AgentState):
    step: Inline[int]
    docs: Externalized[list[Any]]
    page: Externalized[str]


class Agent:
    """Assigns, changes in place, saves and lets go; remembers what was acknowledged."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()

    def run(self, store: Store) -> None:
        self.kept: list[tuple[dict[str, Any], dict[str, Any]]] = []
        state = Work(backend=store, step=0)
        for step in range(2):
            before = state.to_hydrated_dict()
            try:
                state.assign(step=step, docs=[step] * 500, page="x" * step)
                state.docs.append("in place")
            except RopewalkError:
                # What is visible is what was, or all of what was assigned.
                assert state.to_hydrated_dict().get("step") in (before.get("step"), step)
                raise
            self.kept.append((state.to_checkpoint_dict(), state.to_hydrated_dict()))
        lost = Work(backend=store, docs=["let go"] * 300).ref("docs")
        release(lost, store)
        prune_expired(store)

    def check(self, store: Store, outcome: Outcome[None]) -> None:
        for checkpoint, hydrated in self.kept:
            again = Work.from_checkpoint_dict(checkpoint, backend=store)
            assert again.to_hydrated_dict() == hydrated
        assert outcome.error is not None or len(self.kept) == 2
        store.gc(recent=1)
        assert store.check(read_data=True).problems == ()
        for checkpoint, hydrated in self.kept:
            again = Work.from_checkpoint_dict(checkpoint, backend=store)
            assert again.to_hydrated_dict() == hydrated
        self.errors[type(outcome.error).__name__] += 1


def test_no_acknowledged_checkpoint_is_lost_whatever_call_fails() -> None:
    agent = Agent()

    assert fail_every_call(lambda: MemoryStore().another, agent.run, agent.check) > 30
    assert agent.errors.keys() == {"NoneType", "StoreFull", "Unavailable"}
