"""A history on a store that fails at every call: nothing is done twice, nothing told is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk.errors import StoreFull
from ropewalk.history import History
from ropewalk.store import FileStore, MemoryStore, SqliteStore, Store
from ropewalk.testing import Fault, FaultStore, Outcome, fail_every_call
from ropewalk.testing.helpers import SPACE

BEGIN: dict[str, Any] = {"task": "find cafes", "found": []}
FOUND: dict[str, Any] = {"task": "find cafes", "found": ["Central"]}
RATED: dict[str, Any] = {**FOUND, "rating": 4}
MERGED: dict[str, Any] = {**RATED, "price": "low"}

# What the branches hold after each operation.
VALUES = [
    {},
    {"main": BEGIN},
    {"main": FOUND},
    {"main": FOUND, "other": FOUND},
    {"main": RATED, "other": FOUND},
    {"main": RATED, "other": {**FOUND, "price": "low"}},
    {"main": MERGED, "other": {**FOUND, "price": "low"}},
    {"main": RATED, "other": {**FOUND, "price": "low"}},
    {"main": RATED},
]


class Agent:
    """Does one thing after another, and knows how many were acknowledged."""

    def __init__(self) -> None:
        self.told = 0

    def __call__(self, store: Store) -> int:
        self.told = 0
        history = History(store, SPACE)
        main = history.open()
        steps: list[Callable[[], object]] = [
            lambda: main.commit(BEGIN),
            lambda: main.commit(FOUND),
            lambda: history.create_branch("other"),
            lambda: main.commit(RATED),
            lambda: history.open("other").commit({**FOUND, "price": "low"}),
            lambda: history.merge("other"),
            history.undo,
            lambda: history.delete_branch("other"),
        ]
        for step in steps:
            step()
            self.told += 1
        store.gc(recent=1)
        return self.told

    def check(self, store: Store, outcome: Outcome[int]) -> None:
        history = History(store, SPACE)
        done = history.operations()
        if outcome.error is None:
            assert len(done) == outcome.result == len(VALUES) - 1
        elif isinstance(outcome.error, StoreFull) and outcome.calls[-1] == "commit":
            assert len(done) == self.told
        else:
            assert self.told <= len(done) <= self.told + 1
        values = {name: history.value(name) for name in history.branches()}
        assert values == VALUES[len(done)]
        assert store.check(read_data=True).problems == ()
        history.open().commit(MERGED)
        assert history.value() == MERGED


@pytest.fixture(params=[MemoryStore, SqliteStore, FileStore])
def fresh(request: pytest.FixtureRequest, memory_folder: Path) -> Callable[[], Callable[[], Store]]:
    engine: type[SqliteStore | FileStore] = request.param
    if request.param is MemoryStore:
        return lambda: MemoryStore().another
    numbers = itertools.count()

    def fresh() -> Callable[[], Store]:
        place = memory_folder / str(next(numbers))
        return lambda: engine(place)

    return fresh


def test_a_history_tells_the_truth_whatever_call_fails(
    fresh: Callable[[], Callable[[], Store]],
) -> None:
    agent = Agent()

    assert fail_every_call(fresh, agent, agent.check) > 4 * len(VALUES)


@pytest.mark.parametrize("fault", [Fault.error, Fault.lost_reply])
def test_a_commit_without_an_answer_is_sent_again_and_made_once(
    fault: Callable[..., Fault],
) -> None:
    store = FaultStore(MemoryStore(), [fault(at=1, method="commit")])
    history = History(store, SPACE)

    history.open().commit(BEGIN)

    assert store.calls.count("commit") == 2
    assert len(history.operations()) == 1
