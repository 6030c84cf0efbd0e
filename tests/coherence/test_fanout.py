"""Telling others: off the writer's path, coalesced, bounded, and never the writer's problem."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from ropewalk.coherence import (
    CoherenceCore,
    InProcessBus,
    Invalidation,
    Subscription,
    space_topic,
    topic_of,
)
from ropewalk.coherence.invalidation import Publisher
from ropewalk.store import MemoryStore, space_name

SPACE = space_name("coherence", "fanout")
PATIENCE = 30.0


class RecordingBus:
    """Keeps what is published, and may be held up or refuse."""

    def __init__(self) -> None:
        self.published: list[tuple[str, Invalidation]] = []
        self.entered = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.error: Exception | None = None

    def publish(self, topic: str, message: bytes) -> None:
        self.entered.set()
        assert self.goes_on.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.published.append((topic, Invalidation.decode(message)))

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        raise NotImplementedError

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        raise NotImplementedError

    def close(self) -> None:
        pass


class SmallBus(RecordingBus):
    message_limit = 100


@pytest.fixture
def bus() -> RecordingBus:
    return RecordingBus()


@pytest.fixture
def fanout(bus: RecordingBus) -> Iterator[Publisher]:
    fanout = Publisher(bus, SPACE)
    yield fanout
    bus.goes_on.set()
    fanout.close()


def version(number: int, artifact: str = "plan", content: bytes | None = None) -> Invalidation:
    return Invalidation(artifact, number, number - 1, number, "alice", "instance", content)


def hold_up(bus: RecordingBus, fanout: Publisher) -> None:
    """Have the fan-out in the middle of publishing something."""
    bus.goes_on.clear()
    fanout.publish(version(1, "held up"))
    assert bus.entered.wait(PATIENCE)


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "ropewalk-fanout"}


def test_what_is_told_is_published_on_the_artifacts_topic(
    bus: RecordingBus, fanout: Publisher
) -> None:
    fanout.publish(version(1))

    assert fanout.flush(PATIENCE)
    assert bus.published == [(topic_of(SPACE, "plan"), version(1))]


def test_everybody_is_told_on_the_topic_of_the_space_too(bus: RecordingBus) -> None:
    fanout = Publisher(bus, SPACE, everybody=True)
    fanout.publish(version(1))
    fanout.close()

    assert [topic for topic, _ in bus.published] == [topic_of(SPACE, "plan"), space_topic(SPACE)]


def test_telling_does_not_wait_for_the_bus(bus: RecordingBus, fanout: Publisher) -> None:
    hold_up(bus, fanout)

    def tell() -> None:
        for number in range(1, 5000):
            fanout.publish(version(number))

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    telling.join(PATIENCE / 2)  # The bus waits for longer.

    assert not telling.is_alive()
    assert bus.published == []


def test_versions_that_wait_become_one_message(bus: RecordingBus, fanout: Publisher) -> None:
    hold_up(bus, fanout)
    for number in range(3, 9):
        fanout.publish(version(number))
        fanout.publish(version(number, "notes"))
    bus.goes_on.set()

    assert fanout.flush(PATIENCE)
    assert [message for _, message in bus.published[1:]] == [
        version(8)._replace(since=2),
        version(8, "notes")._replace(since=2),
    ]


def test_a_stuck_bus_costs_bounded_memory_and_the_newest_artifacts_are_kept(
    bus: RecordingBus,
) -> None:
    fanout = Publisher(bus, SPACE, limit=10)
    hold_up(bus, fanout)
    for number in range(1000):
        fanout.publish(version(1, f"artifact {number}"))
    bus.goes_on.set()

    assert fanout.flush(PATIENCE)
    assert 10 <= len(bus.published) <= 30
    assert bus.published[-1][1].artifact == "artifact 999"
    assert fanout.lost + len(bus.published) == 1001
    fanout.close()


def test_what_the_bus_raises_is_counted_logged_once_and_not_raised(
    bus: RecordingBus, fanout: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    bus.error = RuntimeError("on purpose")
    with caplog.at_level(logging.WARNING, "ropewalk.coherence"):
        for number in range(1, 4):
            fanout.publish(version(number))
            assert fanout.flush(PATIENCE)
    bus.error = None
    fanout.publish(version(4))

    assert fanout.flush(PATIENCE)
    assert [message.version for _, message in bus.published] == [4]
    assert fanout.failures == 3
    assert len([one for one in caplog.records if "on purpose" in one.getMessage()]) == 1


def test_content_that_the_bus_cannot_carry_is_left_out() -> None:
    bus = SmallBus()
    fanout = Publisher(bus, SPACE)
    fanout.publish(version(1, "small", b"x"))
    fanout.publish(version(1, "large", bytes(1000)))
    fanout.close()

    assert [message.content for _, message in bus.published] == [b"x", None]


def test_only_the_writer_listens_and_nothing_is_done() -> None:
    store, bus = MemoryStore(), InProcessBus()
    before = threads()
    with CoherenceCore(store, bus=bus) as writer, CoherenceCore(store.another(), bus=bus) as other:
        writer.write("a", "plan", 1)
        writer.read("a", "plan")
        writer.write("a", "plan", 2)
        assert threads() <= before

        other.read("b", "plan")
        writer.write("a", "plan", 3)
        assert threads() - before
    bus.close()


def test_the_end_publishes_what_is_left(bus: RecordingBus) -> None:
    fanout = Publisher(bus, SPACE)
    for number in range(20):
        fanout.publish(version(1, f"artifact {number}"))
    fanout.close()
    fanout.close()
    fanout.publish(version(2))

    assert len(bus.published) == 20


def test_the_end_does_not_wait_for_a_stuck_bus(bus: RecordingBus, fanout: Publisher) -> None:
    hold_up(bus, fanout)
    fanout.close(timeout=0.01)

    assert bus.published == []


def test_a_flush_of_a_stuck_bus_ends_in_time(bus: RecordingBus, fanout: Publisher) -> None:
    hold_up(bus, fanout)

    assert not fanout.flush(0.01)


def test_many_threads_tell_and_the_newest_version_is_published(
    bus: RecordingBus, fanout: Publisher
) -> None:
    def tell(first: int) -> None:
        for number in range(first, 1000, 4):
            fanout.publish(version(number))

    several = [threading.Thread(target=tell, args=(first,)) for first in range(1, 5)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()

    assert fanout.flush(PATIENCE)
    assert max(message.version for _, message in bus.published) == 999
    assert min(message.since for _, message in bus.published) == 0
