"""What writes of an outage are made from: found again however long it lasted, and never lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ropewalk.coherence import CoherenceCore
from ropewalk.errors import NotFound, Unavailable
from tests.coherence.conftest import OpenWorld
from tests.coherence.outages import World

pytestmark = pytest.mark.filterwarnings(
    "ignore::ropewalk.coherence.CoherenceDegradedWarning",
)


@pytest.mark.parametrize("size", [0, 400])
def test_a_write_whose_reply_was_lost_is_made_once_however_much_others_do(
    open_world: OpenWorld, size: int
) -> None:
    world = open_world(mergers={("n",): "add"})
    world.core.write("writer", "plan", {"n": 0, "text": "x" * 20 * size})
    world.store.silent = True
    made = world.core.edit("writer", "plan", lambda value: {**value, "n": value["n"] + 1})
    for number in range(300):  # More than any store remembers.
        world.other.write("other", f"note {number % 5}", number)
    world.come_back()

    assert made.degraded
    assert world.other.read("other", "plan").value["n"] == 1
    assert (world.core.kept(), [one.error for one in world.core.reconciled()]) == ([], [None])


def test_an_edit_is_made_from_what_it_was_handed_also_if_a_thread_of_its_agent_writes(
    open_world: OpenWorld,
) -> None:
    world = open_world(mergers={("n",): "add"})
    world.core.write("writer", "plan", {"n": 0})
    world.store.away = True
    world.core.read("writer", "plan")
    handed, goes_on = threading.Event(), threading.Event()

    def slowly(value: dict[str, int]) -> dict[str, int]:
        handed.set()
        goes_on.wait(30)
        return {"n": value["n"] + 1}

    slow = threading.Thread(target=world.core.edit, args=("writer", "plan", slowly))
    slow.start()
    handed.wait(30)
    world.core.edit("writer", "plan", lambda value: {"n": value["n"] + 1})
    goes_on.set()
    slow.join()
    world.come_back()

    assert world.other.read("other", "plan").value == {"n": 2}


@pytest.mark.parametrize("agent", ["writer", "reader"])
def test_what_was_first_written_in_an_outage_is_the_base_of_the_next_write(
    open_world: OpenWorld, agent: str
) -> None:
    world = open_world()
    world.core.write("writer", "other", 1)
    world.store.away = True
    world.core.write("writer", "plan", {"mine": 1})
    seen = world.core.read("reader", "plan").value
    world.come_back()
    world.other.edit("other", "plan", lambda value: {**value, "theirs": 1})
    made = world.core.write(agent, "plan", {**seen, "more": 1})

    assert made.merged
    assert made.value == {"mine": 1, "theirs": 1, "more": 1}


def test_what_was_written_after_a_write_that_waits_waits_too(open_world: OpenWorld) -> None:
    world = open_world()
    world.core.publish("writer", {"a": {"n": 0}, "b": {"n": 0}})
    world.store.away = True
    world.core.write("writer", "a", {"n": 1})
    world.core.publish("writer", {"a": {"n": 2}, "b": {"n": 2}})
    world.core.write("writer", "b", {"n": 3})
    with world.other.hold("other", "a"):
        world.come_back()
        waiting = len(world.core.kept())
    world.until(lambda: not world.core.kept())

    assert waiting == 3
    assert [one.error for one in world.core.reconciled()] == [None] * 3
    found = world.other.snapshot("other", ["a", "b"])
    assert [one.value for one in found.values()] == [{"n": 2}, {"n": 3}]


@pytest.mark.parametrize(
    "ask",
    [
        lambda core: core.read("reader", "plan"),
        lambda core: core.snapshot("reader", ["plan"]),
        lambda core: core.edit("reader", "plan", lambda value: value),
    ],
    ids=["read", "snapshot", "edit"],
)
def test_what_was_found_deleted_is_not_given_in_an_outage(
    world: World, ask: Callable[[CoherenceCore], object]
) -> None:
    world.core.write("writer", "plan", "secret")
    world.other.delete("other", "plan")
    with pytest.raises(NotFound):
        ask(world.core)
    world.store.away = True

    with pytest.raises(Unavailable):
        world.core.read("reader", "plan")
