"""The bus that loses, delays, repeats and reorders, as its seed says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import pytest

from ropewalk.coherence import Bus, CoherenceCore, InProcessBus, Subscription
from ropewalk.coherence.bus import place_of, topic_of
from ropewalk.errors import InvalidInput
from ropewalk.store import MemoryStore, space_name
from ropewalk.testing import FaultyBus
from ropewalk.testing.buses import PATIENCE, Inbox

SENT = [str(number).encode() for number in range(1000)]


class Noting(InProcessBus):
    """A bus that says which messages a subscriber is done with."""

    def __init__(self) -> None:
        super().__init__(queue=2000)
        self.done = Inbox()

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        def noted(message: bytes) -> None:
            receive(message)
            self.done(message)

        return super().subscribe(topic, noted, gap)


def received(seed: int, **rates: float) -> tuple[list[bytes], dict[str, int]]:
    """What a subscriber gets of a thousand messages, and what was done to them."""
    inner, inbox = Noting(), Inbox()
    bus = FaultyBus(inner, seed, seconds=0.01, **rates)
    bus.subscribe("a/b/c", inbox)
    for message in SENT:
        bus.publish("a/b/c", message)
    assert inner.done.counts(1000)
    last = threading.Event()
    bus.later(0.1, lambda _: last.set(), b"")  # All that is delayed is due before this.
    assert last.wait(PATIENCE)
    bus.close()
    return inbox.received, dict(bus.counts)


def test_without_rates_all_is_as_it_was_sent() -> None:
    assert received(1) == (SENT, {"lose": 0, "delay": 0, "duplicate": 0, "reorder": 0})


def test_a_part_is_lost_and_no_more() -> None:
    got, counts = received(1, lose=0.1)

    assert 50 < counts["lose"] < 150
    assert len(got) == 1000 - counts["lose"]
    assert got == [message for message in SENT if message in set(got)]


def test_a_part_comes_twice() -> None:
    got, counts = received(1, duplicate=0.1)

    assert 50 < counts["duplicate"] < 150
    assert len(got) == 1000 + counts["duplicate"]
    assert set(got) == set(SENT)


@pytest.mark.parametrize("fault", ["delay", "reorder"])
def test_a_part_is_overtaken_and_none_is_lost(fault: str) -> None:
    got, counts = received(1, **{fault: 0.1})

    assert 50 < counts[fault] < 150
    assert sorted(got) == sorted(SENT)
    assert got != SENT


def test_the_seed_says_what_is_lost() -> None:
    (first, _), (again, _), (other, _) = (received(seed, lose=0.1) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput):
        FaultyBus(InProcessBus(), lose=10)


def test_what_is_lost_is_not_counted_as_delayed_as_well() -> None:
    got, counts = received(1, lose=1.0, delay=1.0, duplicate=1.0, reorder=1.0)

    assert got == []
    assert counts == {"lose": 1000, "delay": 0, "duplicate": 0, "reorder": 0}


def test_a_message_that_nothing_overtook_is_not_counted_as_reordered() -> None:
    bus, inbox = FaultyBus(InProcessBus(), reorder=1.0), Inbox()
    bus.subscribe("a/b/c", inbox)
    bus.publish("a/b/c", b"alone")
    arrived = inbox.holds(b"alone")
    bus.close()

    assert arrived
    assert (bus.messages, bus.counts["reorder"]) == (1, 0)


class Uncounted:
    """A bus that does not know who listens, as one over a server."""

    def __init__(self, bus: Bus) -> None:
        self.publish, self.subscribe = bus.publish, bus.subscribe
        self.on_gap, self.close = bus.on_gap, bus.close


def test_who_listens_itself_tells_others_on_a_bus_that_cannot_count() -> None:
    store, bus, inbox = MemoryStore(), FaultyBus(Uncounted(InProcessBus())), Inbox()
    place = place_of(store, space_name("coherence", "set"))
    with closing(bus), CoherenceCore(store, name="set", bus=bus) as writer:
        writer.write("W", "plan", 1)
        writer.read("W", "plan")
        bus.subscribe(topic_of(place, "plan"), inbox)
        writer.write("W", "plan", 2)

        assert inbox.counts(1)
