"""A timeline on a store that fails at every call: no function that succeeded runs again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ropewalk.errors import NotSaved
from ropewalk.store import MemoryStore, Store
from ropewalk.testing import Outcome, fail_every_call
from ropewalk.timeline import Timeline

DONE = {"orders": 1, "retried": True}


class Agent:
    """Runs one function that succeeds and one that fails at first; then branches and merges."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()

    def run(self, store: Store) -> None:
        self.succeeded: Counter[str] = Counter()
        self._failed = False
        timeline = Timeline("agent", store=store)
        ordered, _ = timeline.safe_execute(self._order, {"orders": 0}, description="order")
        retried, _ = timeline.safe_execute(self._flaky, ordered, max_retries=2)
        timeline.branch("side")
        timeline.checkpoint({**retried, "side": True})
        timeline.switch_branch("main")
        timeline.merge("side")
        timeline.undo()

    def check(self, store: Store, outcome: Outcome[None]) -> None:
        assert all(times == 1 for times in self.succeeded.values())
        if isinstance(outcome.error, NotSaved):
            assert outcome.error.result in ({"orders": 1}, DONE)
        timeline = Timeline("agent", store=store)
        if outcome.error is None:
            assert timeline.get_state() == DONE
        assert store.check(read_data=True).problems == ()
        timeline.checkpoint({"after": "the fault"})
        assert timeline.get_state() == {"after": "the fault"}
        self.errors[type(outcome.error).__name__] += 1

    def _order(self, state: dict[str, Any]) -> dict[str, Any]:
        self.succeeded["order"] += 1
        return {**state, "orders": state["orders"] + 1}

    def _flaky(self, state: dict[str, Any]) -> dict[str, Any]:
        if not self._failed:
            self._failed = True
            raise ValueError("the first time")
        self.succeeded["flaky"] += 1
        return {**state, "retried": True}


def test_a_function_that_succeeded_never_runs_again_whatever_call_fails() -> None:
    agent = Agent()

    assert fail_every_call(lambda: MemoryStore().another, agent.run, agent.check) > 50
    assert agent.errors.keys() == {"NoneType", "NotSaved", "StoreFull", "Unavailable"}
