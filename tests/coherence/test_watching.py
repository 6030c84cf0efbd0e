"""Watching artifacts, and their histories."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore
from ropewalk.errors import InvalidInput, NotFound, Rewound, StoreClosed
from ropewalk.store import MemoryStore
from tests.coherence.conftest import OpenCore


def test_changes_can_be_watched(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    core.publish("planner", {"plan": 2, "budget": 1})
    core.delete("reviewer", "plan")

    seen = list(core.watch(after=0, timeout=0.01))
    plans = list(core.watch(["plan"], after=0, timeout=0.01))

    assert [(one.artifact, one.version, one.deleted) for one in seen] == [
        ("plan", 1, False),
        ("plan", 2, False),
        ("budget", 1, False),
        ("plan", 3, True),
    ]
    assert seen[1].sequence == seen[2].sequence
    assert [one.agent for one in plans] == ["planner", "planner", "reviewer"]


def test_a_watcher_is_told_of_what_comes(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)
    changes = core.watch()
    writer = threading.Timer(0.05, core.write, ("planner", "plan", 2))
    writer.start()
    seen = next(changes).version
    writer.join()  # It is told of before the writer is.

    assert seen == 2


def test_an_artifact_has_a_history(core: CoherenceCore) -> None:
    for number in range(3):
        core.write("planner", "plan", {"step": number})

    timeline = core.history("plan")

    assert [step.state for step in timeline.history()] == [
        {"step": 2},
        {"step": 1},
        {"step": 0},
    ]
    with pytest.raises(InvalidInput, match="only their writes add to it"):
        timeline.rollback()


def test_a_watcher_that_is_too_late_is_told_so() -> None:
    core = CoherenceCore()
    for number in range(10_001):
        core.write("planner", "plan", number)

    with pytest.raises(NotFound, match="only the last 10000 changes are kept"):
        next(core.watch(after=0))
    assert next(core.watch(after=1)).version == 2


def test_a_task_that_watches_is_told_at_once(open_core: OpenCore) -> None:
    async def work() -> list[int]:
        async with open_core() as core:
            await core.awrite("planner", "plan", 1)
            changes = core.awatch(after=0)
            seen = [(await anext(changes)).version]
            await core.awrite("planner", "plan", 2)
            return [*seen, (await anext(changes)).version]

    assert asyncio.run(work()) == [1, 2]


def test_whoever_watches_is_told_of_the_end(open_core: OpenCore) -> None:
    core = open_core()
    changes = core.watch()
    closing = threading.Timer(0.05, core.close)
    closing.start()

    with pytest.raises(StoreClosed):
        next(changes)
    closing.join()  # Else the store is closed while its client still lets go of it.


def test_artifacts_below_a_prefix_can_be_watched(core: CoherenceCore) -> None:
    for name in ("a/plan", "b/plan", "a/notes"):
        core.write("planner", name, 1)

    seen = [one.artifact for one in core.watch(prefix="a/", after=0, timeout=0.01)]
    both = [
        one.artifact for one in core.watch(["a/plan", "b/plan"], prefix="a/", after=0, timeout=0.01)
    ]

    assert (seen, both) == (["a/plan", "a/notes"], ["a/plan"])


@pytest.mark.parametrize("wanted", [{"artifacts": ["plan"]}, {"prefix": "pl"}])
def test_a_watcher_of_some_artifacts_ends_whatever_happens_to_others(
    open_core: OpenCore, wanted: Any
) -> None:
    core, over = open_core(), threading.Event()

    def write() -> None:
        while not over.is_set():
            core.write("planner", "budget", 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = list(core.watch(**wanted, timeout=0.2))
    finally:
        over.set()
        writer.join()

    assert seen == []


def test_a_watcher_is_told_that_the_engine_went_back_in_time(tmp_path: Path) -> None:
    place, copy = tmp_path / "shared.ropewalk", tmp_path / "backup"
    with CoherenceCore(place) as core:
        core.write("planner", "plan", 1)
    shutil.copytree(place, copy)
    with CoherenceCore(place) as core:
        core.write("planner", "plan", 2)
        last = next(core.watch(after=1)).sequence
    shutil.rmtree(place)
    copy.rename(place)

    with CoherenceCore(place) as core:
        with pytest.raises(Rewound, match="no longer has the operation 2"):
            next(core.watch(after=last))
        core.write("planner", "plan", 7)
        assert next(core.watch(after=1)).version == 2


@pytest.mark.parametrize("missed", [0, 1, 2])
def test_a_watcher_notices_operations_that_took_the_numbers_of_others(missed: int) -> None:
    # As of a server that may lose its last moments, and did: numbers come a second time.
    old, new = MemoryStore(), MemoryStore()
    for store, values in ((old, [1, 2]), (new, [1, 7, *range(missed)])):
        with CoherenceCore(store.another()) as core:
            for value in values:
                core.write("planner", "plan", value)
    with CoherenceCore(old) as core:
        changes = core.watch(after=0, timeout=0)
        seen = [next(changes).version, next(changes).version]
        old._data = new._data

        assert seen == [1, 2]
        with pytest.raises(Rewound):
            next(changes)


def test_a_watcher_of_artifacts_in_memory_is_told_that_they_are_not_those_it_saw() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", 1)

    with pytest.raises(Rewound, match="changes end with their process"):
        next(core.watch(after=5))
