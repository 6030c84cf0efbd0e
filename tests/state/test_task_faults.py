"""Tasks on a store that fails at every call in turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ropewalk.errors import NotSaved, RopewalkError
from ropewalk.state import State, SuccessEvent, Versioned, events, task
from ropewalk.store import MemoryStore, Store
from ropewalk.testing import Outcome, fail_every_call

ITEMS = ["a", "b", "stop", "c"]


class Stop(Exception):
    """A body fails on purpose."""


class Agent:
    """Runs a few tasks, and remembers what was acknowledged."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.ended: list[str] = []
        self.done: list[str] = []
        self.unsure: list[str] = []

    @task
    def append(self, item: str, state: State) -> str:
        return self._append(item, state)

    @task
    async def append_later(self, item: str, state: State) -> str:
        await asyncio.sleep(0)
        return self._append(item, state)

    def _append(self, item: str, state: State) -> str:
        self.ran.append(item)
        state.setdefault("items", []).append(item)
        state[item] = 1
        if item == "stop":
            raise Stop
        self.ended.append(item)
        return item

    def run(self, store: Store, *, later: bool = False) -> None:
        self.__init__()  # type: ignore[misc]
        state = Versioned(store)
        for item in ITEMS:
            try:
                if later:
                    asyncio.run(self.append_later(item, state=state))
                else:
                    self.append(item, state=state)
            except Stop:
                pass
            except NotSaved as error:
                self.unsure.append(str(error.result))
            except RopewalkError:
                # The function did not begin, or it failed itself when it read something.
                assert item not in self.ended
            else:
                self.done.append(item)

    def check(self, store: Store, outcome: Outcome[Any]) -> None:
        """What was acknowledged is there, once; what failed is not."""
        state = Versioned(store)
        items = list(state.get("items", []))

        assert outcome.error is None or not self.ran, "only opening a state may raise"
        assert len(set(self.ran)) == len(self.ran), "a function ran twice"
        assert [item for item in items if item not in self.unsure] == self.done
        assert len(set(items)) == len(items)
        assert "stop" not in items
        assert sorted(state) == sorted([*items, "items"] if items else [])
        succeeded = [
            one.result for one in events(state, kind=SuccessEvent) if isinstance(one, SuccessEvent)
        ]
        assert succeeded == items, "events and values are of one commit"


def test_nothing_that_was_acknowledged_is_lost_whichever_call_fails() -> None:
    agent = Agent()

    assert fail_every_call(lambda: MemoryStore().another, agent.run, agent.check) > 100


def test_the_same_holds_for_asynchronous_tasks() -> None:
    agent = Agent()

    def run(store: Store) -> None:
        agent.run(store, later=True)

    assert fail_every_call(lambda: MemoryStore().another, run, agent.check) > 100


def test_the_error_of_a_function_is_never_hidden_by_that_of_the_store() -> None:
    raised = []

    @task
    def fail() -> None:
        raised.append(Stop())
        raise raised[-1]

    def run(store: Store) -> None:
        raised.clear()
        state = Versioned(store)
        try:
            fail(state=state)
        except Stop as error:
            raised.remove(error)  # It is the same one.
            raised.append(error)
            return
        except RopewalkError:
            assert not raised
            raise
        raise AssertionError("the error was lost")

    def check(store: Store, outcome: Outcome[None]) -> None:
        assert (outcome.error is None) == bool(raised)

    assert fail_every_call(lambda: MemoryStore().another, run, check) > 10


@pytest.mark.parametrize("later", [False, True])
def test_without_faults_all_is_done(later: bool) -> None:
    agent = Agent()
    with MemoryStore() as store:
        agent.run(store, later=later)

        assert agent.done == ["a", "b", "c"]
        assert Versioned(store)["items"] == ["a", "b", "c"]
