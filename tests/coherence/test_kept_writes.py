"""Writes while the engine is away: kept until it answers, or refused."""

from __future__ import annotations

import threading
import warnings

import pytest

from ropewalk.coherence import CoherenceDegradedWarning
from ropewalk.errors import NotFound, Unavailable, VersionConflict, WritesRefused
from ropewalk.testing.helpers import PATIENCE
from ropewalk.tree import ABSENT
from tests.coherence.outages import World

pytestmark = pytest.mark.filterwarnings(
    "ignore::ropewalk.coherence.CoherenceDegradedWarning",
)


def test_a_kept_write_is_read_here_with_a_mark_and_written_later(world: World) -> None:
    world.core.write("writer", "plan", [1])
    world.store.away = True

    made = world.core.write("writer", "plan", [1, 2])
    seen = world.core.read("reader", "plan")
    (kept,) = world.core.kept()
    world.come_back()

    assert (made.value, made.version, made.degraded) == ([1, 2], 1, True)
    assert (seen.value, seen.degraded) == ([1, 2], True)
    assert (kept.agent, kept.values, kept.based_on) == ("writer", {"plan": [1, 2]}, {"plan": 1})
    assert world.core.kept() == []
    found = world.other.read("other", "plan")
    assert (found.value, found.version, found.agent) == ([1, 2], 2, "writer")
    (report,) = world.core.reconciled()
    assert (report.write, report.error) == (kept, None)
    assert report.artifacts["plan"].version == 2


def test_kept_writes_land_in_their_order(world: World) -> None:
    world.core.write("writer", "plan", 0)
    world.store.away = True
    for number in range(1, 6):
        world.core.write("writer" if number % 2 else "second", "plan", number)
        world.core.read("second" if number % 2 else "writer", "plan")

    world.come_back()

    assert [one.state for one in world.other.history("plan").history()][::-1] == [0, 1, 2, 3, 4, 5]
    assert world.core.kept() == []


@pytest.mark.parametrize("how", ["raise", "overwrite", "merge"])
def test_kept_writes_that_follow_each_other_are_no_conflict(how: str) -> None:
    world = World(on_conflict=how)
    world.core.write("writer", "plan", 0)
    world.store.away = True
    for number in range(1, 4):
        world.core.write("writer", "plan", number)
    world.core.write("writer", "plan", 4, if_version=1)

    world.come_back()

    assert world.core.kept() == []
    assert world.other.read("other", "plan").version == 5


def test_a_kept_write_that_others_overtook_is_merged() -> None:
    world = World(mergers={("n",): "add"})
    world.core.write("writer", "plan", {"n": 1})
    world.store.away = True
    world.core.write("writer", "plan", {"n": 2, "mine": 1})
    world.core.edit("writer", "plan", lambda value: {**value, "n": value["n"] + 1})
    world.other.edit("other", "plan", lambda value: {**value, "n": value["n"] + 10, "theirs": 1})

    world.come_back()

    assert world.other.read("other", "plan").value == {"n": 13, "mine": 1, "theirs": 1}
    assert world.core.kept() == []


def test_a_kept_write_that_conflicts_is_reported_and_not_thrown_away(world: World) -> None:
    world.core.write("writer", "plan", {"n": 1})
    world.store.away = True
    world.core.write("writer", "plan", {"n": 2})
    world.core.write("writer", "plan", {"n": 3})
    world.other.write("other", "plan", {"n": 9})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        world.come_back()

    assert sum("was not written" in str(one.message) for one in caught) == 2
    assert world.core.read("writer", "plan").value == {"n": 9}
    first, second = world.core.kept()
    assert isinstance(first.error, VersionConflict)
    assert (first.values, second.values) == ({"plan": {"n": 2}}, {"plan": {"n": 3}})
    assert [report.error for report in world.core.reconciled()] == [first.error, second.error]
    assert world.core.discard(first)
    assert not world.core.discard(first)
    assert world.core.kept() == [second]


def test_a_write_whose_reply_was_lost_is_made_once() -> None:
    world = World(mergers={("n",): "add"})
    world.core.write("writer", "plan", {"n": 1})
    world.store.silent = True

    made = world.core.write("writer", "plan", {"n": 2})
    world.come_back()

    assert made.degraded
    found = world.other.read("other", "plan")
    assert (found.value, found.version) == ({"n": 2}, 2)
    assert world.core.kept() == []


def test_a_large_write_whose_reply_was_lost_is_made_once() -> None:
    world = World(mergers={("n",): "add"})
    value = {"n": 1, "text": [f"{number} " * 50 for number in range(300)]}
    world.core.write("writer", "plan", value)
    world.store.silent = True
    world.core.write("writer", "plan", {**value, "n": 2})

    world.come_back()

    found = world.other.read("other", "plan")
    assert (found.value["n"], found.version) == (2, 2)


def test_an_agent_that_saw_a_kept_value_goes_on_from_it() -> None:
    world = World(mergers={("n",): "add"})
    world.core.write("writer", "plan", {"n": 4})
    world.core.read("reader", "plan")
    world.store.away = True
    world.core.write("writer", "plan", {"n": 5})
    assert world.core.read("reader", "plan").value == {"n": 5}
    world.come_back()

    world.core.write("reader", "plan", {"n": 6})

    assert world.other.read("other", "plan").value == {"n": 6}


def test_an_agent_that_did_not_see_a_kept_value_loses_nothing() -> None:
    world = World(mergers={("n",): "add"})
    world.core.write("writer", "plan", {"n": 4})
    world.core.read("reader", "plan")
    world.store.away = True
    world.core.write("writer", "plan", {"n": 5})
    world.core.write("reader", "plan", {"n": 14})

    world.come_back()

    assert world.other.read("other", "plan").value == {"n": 15}


def test_a_kept_first_version_takes_the_place_of_nothing(world: World) -> None:
    world.store.away = True
    world.core.write("writer", "mine", 1)
    world.core.write("writer", "theirs", 1)
    world.other.write("other", "theirs", 2)

    world.come_back()

    assert world.other.read("other", "mine").value == 1
    assert world.other.read("other", "theirs").value == 2
    (kept,) = world.core.kept()
    assert kept.artifacts == ("theirs",)


def test_a_kept_publish_lands_whole_or_not_at_all(world: World) -> None:
    world.core.publish("writer", {"a": 1, "b": 1, "c": 1})
    world.store.away = True
    world.core.publish("writer", {"a": 2, "b": 2})
    world.core.publish("writer", {"c": 2, "b": 3, "d": 4})
    world.other.write("other", "c", 9)

    world.come_back()

    found = world.other.snapshot("other", ["a", "b", "c"])
    assert {name: one.value for name, one in found.items()} == {"a": 2, "b": 2, "c": 9}
    assert world.other.artifacts() == ["a", "b", "c"]
    assert [one.artifacts for one in world.core.kept()] == [("c", "b", "d")]


def test_a_kept_deletion_is_seen_here_and_made_later(world: World) -> None:
    world.core.write("writer", "plan", 1)
    world.store.away = True

    assert world.core.delete("writer", "plan") is True
    assert world.core.delete("writer", "plan") is False
    with pytest.raises(NotFound):
        world.core.read("writer", "plan")
    assert world.core.publish("writer", {"notes": 1, "plan": ABSENT}).keys() == {"notes"}
    world.come_back()

    assert world.other.artifacts() == ["notes"]


def test_a_kept_deletion_does_not_delete_what_it_did_not_know(world: World) -> None:
    world.core.write("writer", "plan", 1)
    world.store.away = True
    world.core.delete("writer", "plan")
    world.other.write("other", "plan", 2)

    world.come_back()

    assert world.other.read("other", "plan").value == 2
    assert len(world.core.kept()) == 1


def test_an_expected_version_is_held_to_what_is_known(world: World) -> None:
    world.core.write("writer", "plan", 1)
    world.store.away = True

    world.core.write("writer", "plan", 2, if_version=1)
    world.core.write("writer", "new", 2, if_version=0)
    with pytest.raises(Unavailable):
        world.core.write("writer", "plan", 2, if_version=7)
    world.come_back()

    assert world.other.read("other", "plan").version == 2
    assert world.other.read("other", "new").version == 1
    assert world.core.kept() == []


def test_what_is_kept_waits_for_a_holder(world: World) -> None:
    world.core.write("writer", "plan", 1)
    world.core.write("writer", "notes", 1)
    world.store.away = True
    world.core.write("writer", "plan", 2)
    world.core.write("writer", "notes", 2)

    with world.other.hold("holder", "plan"):
        world.come_back()
        assert [one.artifacts for one in world.core.kept()] == [("plan",)]
        assert world.core.read("writer", "notes").value == 2
        assert world.core.read("reader", "plan").value == 1
    world.until(lambda: not world.core.kept())

    assert world.other.read("other", "plan").value == 2


def test_an_artifact_cannot_be_registered_while_the_engine_is_away(world: World) -> None:
    world.store.away = True
    for _ in range(2):
        with pytest.raises(Unavailable):
            world.core.register_artifact("plan", 1)
    world.come_back()

    assert world.core.artifacts() == []


def test_what_is_still_kept_at_the_end_is_told(world: World) -> None:
    world.store.away = True
    world.core.write("writer", "plan", 1)

    with pytest.warns(CoherenceDegradedWarning, match="1 kept write"):
        world.core.close()


def test_what_is_kept_is_written_at_the_end_if_that_can_be(world: World) -> None:
    world.store.away = True
    world.core.write("writer", "plan", 1)
    world.core._degrading._timer.close()  # type: ignore[union-attr]
    world.store.away = False

    world.core.close()

    assert world.other.read("other", "plan").value == 1


def test_threads_that_write_while_the_engine_comes_and_goes_lose_nothing() -> None:
    world = World(mergers={("n",): "add"})
    world.core.write("writer", "plan", {"n": 0})
    stop = threading.Event()

    def count(number: int) -> None:
        for _ in range(25):
            world.core.edit(f"agent {number}", "plan", lambda value: {"n": value["n"] + 1})

    def flap() -> None:
        while not stop.wait(0.003):
            world.store.away = not world.store.away

    flapping = threading.Thread(target=flap)
    flapping.start()
    writers = [threading.Thread(target=count, args=(number,)) for number in range(4)]
    for one in writers:
        one.start()
    for one in writers:
        one.join(PATIENCE)
    stop.set()
    flapping.join(PATIENCE)
    world.come_back()
    world.until(lambda: not any(one.error is None for one in world.core.kept()))

    assert [one.error for one in world.core.kept()] == []
    assert world.other.read("other", "plan").value == {"n": 100}


# Writes that are refused.


def test_writes_are_refused_if_that_was_asked_for() -> None:
    world = World(degraded_writes="refuse")
    world.core.write("writer", "plan", 1)
    world.store.away = True
    with pytest.raises(Unavailable):
        world.core.write("writer", "plan", 2)  # Sent: perhaps it was made.

    for refused in (
        lambda: world.core.write("writer", "plan", 3),
        lambda: world.core.publish("writer", {"plan": 3}),
        lambda: world.core.delete("writer", "plan"),
        lambda: world.core.edit("writer", "plan", lambda value: value),
    ):
        with pytest.raises(WritesRefused):
            refused()
    assert world.core.read("writer", "plan").value == 1
    world.come_back()

    assert world.core.write("writer", "plan", 3).version == 2


def test_a_kept_write_that_was_merged_counts_once_although_its_reply_was_lost() -> None:
    world = World(mergers={"n": "add"})
    world.core.write("reader", "plan", {"n": 0})
    world.store.away = True
    world.core.write("reader", "plan", {"n": 1})
    world.other.write("writer", "plan", {"n": 10})
    world.store.silent, world.store.away = True, False
    world.until(lambda: world.store.away and world.store.last != "commit")  # It gave up.
    world.come_back()
    world.until(lambda: not world.core.kept())

    assert world.other.read("writer", "plan").value == {"n": 11}
    world.core.close()
    world.other.close()
