"""Agents that go on while the engine is away: nothing is invented, nothing is thrown away."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore, CoherenceDegradedWarning, State
from ropewalk.errors import (
    ArtifactHeld,
    InvalidInput,
    NotFound,
    NotStorable,
    StoreClosed,
    Unavailable,
    VersionConflict,
)
from ropewalk.testing.helpers import PATIENCE
from tests.coherence.outages import World

pytestmark = pytest.mark.filterwarnings(
    "ignore::ropewalk.coherence.CoherenceDegradedWarning",
)


def test_a_read_gives_the_last_value_known_with_a_mark(world: World) -> None:
    world.other.write("writer", "plan", {"n": 1})
    world.core.read("reader", "plan")
    world.other.write("writer", "plan", {"n": 2})
    world.store.away = True

    with pytest.warns(CoherenceDegradedWarning, match="the engine is away"):
        found = world.core.read("reader", "plan")

    assert (found.value, found.version, found.degraded) == ({"n": 1}, 1, True)
    assert (found.state, found.agent) == (State.INVALID, "writer")
    assert world.core.is_degraded
    assert world.core.state("reader", "plan") is State.INVALID


def test_what_another_agent_of_this_process_saw_is_known(world: World) -> None:
    world.core.write("writer", "plan", 1)
    world.store.away = True

    assert world.core.read("somebody else", "plan").value == 1


def test_what_nobody_saw_is_not_invented(world: World) -> None:
    world.other.write("writer", "plan", 1)
    world.store.away = True

    for _ in range(2):
        with pytest.raises(Unavailable, match="the engine is away"):
            world.core.read("reader", "plan")
        with pytest.raises(Unavailable):
            world.core.edit("reader", "plan", lambda value: value, default={})
        with pytest.raises(Unavailable):
            world.core.snapshot("reader", ["plan"])
    assert world.core.kept() == []


def test_what_was_found_deleted_is_not_given(world: World) -> None:
    world.core.write("writer", "plan", 1)
    world.other.delete("other", "plan")
    with pytest.raises(NotFound):
        world.core.read("writer", "plan")
    world.store.away = True

    with pytest.raises(Unavailable):
        world.core.read("writer", "plan")


def test_the_engine_is_not_asked_by_who_reads_while_it_is_away(world: World) -> None:
    world.core.write("writer", "plan", 1)
    world.store.away = True
    world.core.read("writer", "plan")
    world.core._degrading._timer.close()  # type: ignore[union-attr]
    asked = world.store.asked

    for _ in range(100):
        assert world.core.read("writer", "plan").degraded

    assert world.store.asked == asked
    assert world.core.degradation_count == 101


def test_what_only_the_engine_can_answer_fails_at_once_while_it_is_away(world: World) -> None:
    world.core.write("a", "plan", 1)
    world.store.away = True
    world.core.read("a", "plan")
    here, asked = threading.get_ident(), []
    world.store.seen = lambda: asked.append(threading.get_ident())
    for call in (
        lambda: world.core.search("a"),
        world.core.artifacts,
        lambda: world.core.hold("a", "plan"),
        lambda: world.core.register_artifact("other", 1),
    ):
        with pytest.raises(Unavailable, match="without the engine"):
            call()

    assert here not in asked


def test_the_warning_names_the_line_of_the_caller(world: World) -> None:
    world.core.write("a", "plan", 1)
    world.store.away = True
    with pytest.warns(CoherenceDegradedWarning) as caught:
        world.core.read("a", "plan")

    assert caught[0].filename == __file__


def test_the_warning_is_one_that_people_see() -> None:
    assert issubclass(CoherenceDegradedWarning, UserWarning)
    assert not issubclass(CoherenceDegradedWarning, RuntimeWarning)


def test_one_warning_for_one_outage(world: World) -> None:
    world.core.write("writer", "plan", 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")  # What other tests left behind may be collected now.
        warnings.simplefilter("always", CoherenceDegradedWarning)
        for outage in range(2):
            world.store.away = True
            for _ in range(5):
                world.core.read("writer", "plan")
            assert len(caught) == outage + 1
            world.come_back()

    assert [one.category for one in caught] == [CoherenceDegradedWarning] * 2


def test_reads_come_back_to_fresh_by_themselves(world: World) -> None:
    world.core.write("writer", "plan", 1)
    world.store.away = True
    assert world.core.read("writer", "plan").degraded
    world.other.write("other", "plan", 2)

    world.come_back()
    found = world.core.read("writer", "plan")

    assert (found.value, found.version, found.degraded) == (2, 2, False)


def test_strict_is_strict() -> None:
    world = World(on_error="strict")
    world.core.write("writer", "plan", 1)
    world.store.away = True

    with pytest.raises(Unavailable):
        world.core.read("writer", "plan")
    with pytest.raises(Unavailable):
        world.core.write("writer", "plan", 2)
    assert (world.core.is_degraded, world.core.degradation_count) == (False, 0)
    assert (world.core.kept(), world.core.reconciled()) == ([], [])


def test_no_other_error_degrades(world: World) -> None:
    world.core.write("writer", "plan", 1)
    calls: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: world.core.read("reader", "absent"), NotFound),
        (lambda: world.core.write("writer", "plan", 2, if_version=7), VersionConflict),
        (lambda: world.core.write("writer", "plan", object()), NotStorable),
        (lambda: world.core.read("", "plan"), InvalidInput),
    ]
    for call, error in calls:
        with pytest.raises(error):
            call()
    with world.other.hold("holder", "plan"), pytest.raises(ArtifactHeld):
        world.core.write("writer", "plan", 2)
    world.store.close()
    with pytest.raises(StoreClosed):
        world.core.read("writer", "plan")

    assert not world.core.is_degraded


def test_a_copy_within_its_bound_bears_no_mark() -> None:
    world = World(strategy="lease", ttl_seconds=1000)
    world.core.write("writer", "plan", 1)
    world.core.write("writer", "notes", 1)
    world.store.away = True
    world.core.write("writer", "notes", 2)

    found = world.core.read("writer", "plan")

    assert (found.value, found.degraded, found.source) == (1, False, "cache_hit")
    assert world.core.read("writer", "notes").degraded


def test_a_snapshot_gives_the_last_values_known(world: World) -> None:
    world.core.publish("writer", {"a": 1, "b": 2})
    world.store.away = True

    found = world.core.snapshot("reader", ["a", "b"])

    assert {name: (one.value, one.degraded) for name, one in found.items()} == {
        "a": (1, True),
        "b": (2, True),
    }


@pytest.mark.parametrize("options", [{"on_error": "ignore"}, {"degraded_writes": "drop"}])
def test_what_is_to_be_done_is_checked(options: Any) -> None:
    with pytest.raises(InvalidInput):
        CoherenceCore(**options)


def test_artifacts_in_memory_are_never_degraded() -> None:
    core = CoherenceCore(on_error="degrade")

    core.write("writer", "plan", 1)

    assert not core.is_degraded
    assert not core.read("writer", "plan").degraded


def test_degraded_operations_are_in_the_metrics_and_marked_in_the_audit() -> None:
    metrics: list[Any] = []
    audit: list[Any] = []
    world = World(on_metric=metrics.append, content_audit_log=audit.append)
    world.core.write("writer", "plan", 1)
    world.store.away = True
    world.core.read("writer", "plan")
    world.core.flush()

    assert [one.operation for one in metrics] == ["put", "degraded"]
    assert [one["degraded"] for one in audit if one["source"] == "cache_hit"] == [True]


def test_a_client_that_nobody_closed_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    made = World()
    made.store.away = True
    made.core.write("writer", "plan", 1)
    started = set(threading.enumerate()) - before
    (thread,) = [one for one in started if one.name == "ropewalk-degraded"]

    del made
    for _ in range(int(PATIENCE * 20)):  # It may be in the middle of a turn.
        gc.collect()
        thread.join(0.05)
        if not thread.is_alive():
            break

    assert not thread.is_alive()
