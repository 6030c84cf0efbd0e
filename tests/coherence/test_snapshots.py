"""Several artifacts at one moment."""

from __future__ import annotations

import threading

import pytest

from ropewalk.coherence import CoherenceCore, State
from ropewalk.errors import NotFound
from ropewalk.store import MemoryStore
from ropewalk.testing import FaultStore


def test_what_is_published_together_appears_together(core: CoherenceCore) -> None:
    made = core.publish("planner", {"plan": 1, "budget": 2})

    found = core.snapshot("reviewer", ["plan", "budget"])

    assert {name: one.version for name, one in made.items()} == {"plan": 1, "budget": 1}
    assert {name: one.value for name, one in found.items()} == {"plan": 1, "budget": 2}


def test_a_snapshot_with_something_that_is_not_there_is_refused(core: CoherenceCore) -> None:
    core.write("planner", "plan", 1)

    with pytest.raises(NotFound, match="'budget'"):
        core.snapshot("planner", ["plan", "budget"])


def test_a_snapshot_of_few_artifacts_does_not_look_at_all() -> None:
    store = FaultStore(MemoryStore())
    with CoherenceCore(store, bus=False) as core:
        core.publish("planner", {f"artifact-{number}": number for number in range(200)})
        core.snapshot("reviewer", ["artifact-1", "artifact-2"])
        before = len(store.calls)
        found = core.snapshot("reviewer", ["artifact-1", "artifact-2"])

        assert [one.value for one in found.values()] == [1, 2]
        assert set(store.calls[before:]) == {"ref"}


def test_a_snapshot_of_few_artifacts_among_many_is_of_one_moment() -> None:
    store, over = MemoryStore(), threading.Event()
    with CoherenceCore(store) as core, CoherenceCore(store) as other:
        core.publish("planner", {f"artifact-{number}": 0 for number in range(200)})

        def write() -> None:
            number = 0
            while not over.is_set():
                number += 1
                other.publish("writer", {"artifact-1": number, "artifact-2": number})

        writer = threading.Thread(target=write)
        writer.start()
        try:
            found = [core.snapshot("reviewer", ["artifact-1", "artifact-2"]) for _ in range(300)]
        finally:
            over.set()
            writer.join()

    assert [one for one in found if len({each.value for each in one.values()}) != 1] == []


def test_a_snapshot_says_what_the_agent_holds(core: CoherenceCore) -> None:
    core.publish("planner", {"plan": 1, "budget": 2})
    with core.hold("planner", "plan"):
        found = core.snapshot("planner", ["plan", "budget"])

    assert found["plan"].state is State.EXCLUSIVE
    assert found["budget"].state is State.SHARED
