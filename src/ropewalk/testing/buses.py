"""The contract suite for buses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import ClassVar, TypeAlias

import pytest

from ropewalk.coherence.bus import Bus, topic_of
from ropewalk.store import space_name

BusOpener: TypeAlias = Callable[[], Bus]
"""Opens one more bus object, connected with the others of the running test."""

SPACE = space_name("coherence", "contract of buses")
TOPIC = topic_of(SPACE, "plan")
PATIENCE = 30.0
"""The timeout in seconds of a test that waits for a message."""
AHEAD = 100
"""The most messages that a test sends before they are received: a flood may be lost."""


class Inbox:
    """Collects the messages of a subscriber."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._news = threading.Condition()

    def __call__(self, message: bytes) -> None:
        """Receive a message."""
        with self._news:
            self.received.append(message)
            self._news.notify_all()

    def holds(self, message: bytes) -> bool:
        """Wait for a message; False if it does not come."""
        with self._news:
            return self._news.wait_for(lambda: message in self.received, PATIENCE)

    def counts(self, number: int) -> bool:
        """Wait for so many messages; False if they do not come."""
        with self._news:
            return self._news.wait_for(lambda: len(self.received) >= number, PATIENCE)


def reaches(bus: Bus, topic: str, inbox: Inbox, message: bytes) -> bool:
    """Publish until a message arrives: for buses that may lose it."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        bus.publish(topic, message)
        with inbox._news:
            if inbox._news.wait_for(lambda: message in inbox.received, 0.2):
                return True
    return False


def ready(bus: Bus) -> Bus:
    """Return the bus once a message has passed over it: connecting may be slow."""
    inbox = Inbox()
    subscription = bus.subscribe(topic_of(SPACE, "ready"), inbox)
    assert reaches(bus, topic_of(SPACE, "ready"), inbox, b"ready")
    subscription.close()
    return bus


def settle(*buses: Bus) -> None:
    """Wait until subscriptions are in force, even on a slow server."""
    for bus in buses:
        ready(bus)


class BusContract:
    """What every bus promises, as tests.

    Subclass it in a test file and implement the fixture `open_bus`. For a bus over a network there
    is `RemoteBusContract`.
    """

    keeps_order: ClassVar[bool] = True
    """Whether messages of one sender on one topic arrive in order."""

    @pytest.fixture
    def open_bus(self) -> BusOpener:
        """Implement this: a function that opens one more bus object, connected with the others.

        A bus within one process may return the same object each time.
        """
        raise NotImplementedError("a subclass of BusContract gives the fixture open_bus")

    @pytest.fixture
    def opened(self) -> Iterator[list[Bus]]:
        """The bus objects of the running test, closed at its end."""
        buses: list[Bus] = []
        yield buses
        for bus in buses:
            bus.close()

    @pytest.fixture
    def opener(self, open_bus: BusOpener, opened: list[Bus]) -> BusOpener:
        """Opens a bus object that is closed at the end."""

        def open_one() -> Bus:
            opened.append(open_bus())
            return ready(opened[-1])

        return open_one

    @pytest.fixture
    def bus(self, opener: BusOpener) -> Bus:
        """A bus object."""
        return opener()

    @pytest.fixture
    def other(self, bus: Bus, opener: BusOpener) -> Bus:
        """Another one, or the same if all share one."""
        return opener()

    # Delivery.

    def test_it_is_a_bus(self, bus: Bus) -> None:
        assert isinstance(bus, Bus)

    def test_a_message_reaches_who_subscribed_to_its_topic(self, bus: Bus, other: Bus) -> None:
        inbox = Inbox()
        bus.subscribe(TOPIC, inbox)
        settle(bus)
        other.publish(TOPIC, b"news")

        assert inbox.holds(b"news")

    def test_a_message_reaches_subscribers_of_the_same_object(self, bus: Bus) -> None:
        inbox = Inbox()
        bus.subscribe(TOPIC, inbox)
        settle(bus)
        bus.publish(TOPIC, b"news")

        assert inbox.holds(b"news")

    def test_a_message_reaches_all_subscribers_of_a_topic(self, bus: Bus, other: Bus) -> None:
        inboxes = [Inbox() for _ in range(5)]
        for number, inbox in enumerate(inboxes):
            (bus if number % 2 else other).subscribe(TOPIC, inbox)
        settle(bus, other)
        bus.publish(TOPIC, b"news")

        assert all(inbox.holds(b"news") for inbox in inboxes)

    def test_a_message_reaches_nobody_else(self, bus: Bus, other: Bus) -> None:
        mine, others = Inbox(), Inbox()
        bus.subscribe(TOPIC, mine)
        bus.subscribe(topic_of(SPACE, "plan2"), others)
        bus.subscribe(SPACE, others)
        settle(bus)
        other.publish(TOPIC, b"news")
        other.publish(topic_of(SPACE, "plan2"), b"end")
        other.publish(SPACE, b"end")

        assert mine.holds(b"news") and others.counts(2)
        assert mine.received == [b"news"]
        assert others.received == [b"end", b"end"]

    def test_bytes_arrive_as_they_were_sent(self, bus: Bus, other: Bus) -> None:
        messages = [bytes(range(256)), b"\0", b"\r\n", "grüße".encode(), bytes(4000)]
        inbox = Inbox()
        bus.subscribe(TOPIC, inbox)
        settle(bus)
        for message in messages:
            other.publish(TOPIC, message)

        assert inbox.counts(len(messages))
        assert sorted(inbox.received) == sorted(messages)

    @pytest.mark.parametrize(
        "artifact", ["a.b", "a/b", "a b", "*", ">", "ü", "%2F", "a" * 200, "A", "-", "~"]
    )
    def test_an_artifact_may_have_any_name(self, bus: Bus, other: Bus, artifact: str) -> None:
        inbox, wrong = Inbox(), Inbox()
        bus.subscribe(topic_of(SPACE, artifact), inbox)
        bus.subscribe(topic_of(SPACE, "end"), inbox)
        for similar in ("a%2Eb", "a%2Fb", "a-b", "a"):
            bus.subscribe(topic_of(SPACE, similar), wrong)
        settle(bus)
        other.publish(topic_of(SPACE, artifact), b"news")
        other.publish(topic_of(SPACE, "end"), b"end")

        assert inbox.holds(b"news") and inbox.holds(b"end")
        assert wrong.received == []

    def test_nobody_has_to_listen(self, bus: Bus, other: Bus) -> None:
        bus.publish(TOPIC, b"unheard")
        inbox = Inbox()
        other.subscribe(TOPIC, inbox)
        settle(other)
        bus.publish(TOPIC, b"heard")

        assert inbox.holds(b"heard")

    def test_a_sender_is_heard_in_order(self, bus: Bus, other: Bus) -> None:
        if not self.keeps_order:
            pytest.skip("this bus does not keep the order")
        inbox = Inbox()
        bus.subscribe(TOPIC, inbox)
        settle(bus)
        sent = [str(number).encode() for number in range(300)]
        for number, message in enumerate(sent):
            other.publish(TOPIC, message)
            assert inbox.counts(number - AHEAD)

        assert inbox.counts(300)
        assert inbox.received == sent

    def test_messages_of_many_threads_arrive(self, bus: Bus, other: Bus) -> None:
        inbox = Inbox()
        bus.subscribe(TOPIC, inbox)
        settle(bus)
        sent = [[f"{thread} {number}".encode() for number in range(12)] for thread in range(8)]

        def publish(some: list[bytes]) -> None:
            for one in some:
                other.publish(TOPIC, one)

        threads = [threading.Thread(target=publish, args=(some,)) for some in sent]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert inbox.counts(96)
        assert sorted(inbox.received) == sorted(one for some in sent for one in some)

    def test_a_thousand_subscribers_of_a_topic_are_called(self, bus: Bus, other: Bus) -> None:
        inboxes = [Inbox() for _ in range(1000)]
        for inbox in inboxes:
            bus.subscribe(TOPIC, inbox)
        settle(bus)
        other.publish(TOPIC, b"news")

        assert all(inbox.holds(b"news") for inbox in inboxes)

    def test_a_thousand_topics_can_be_subscribed_to(self, bus: Bus, other: Bus) -> None:
        inbox = Inbox()
        topics = [topic_of(SPACE, f"artifact {number}") for number in range(1000)]
        for topic in topics:
            bus.subscribe(topic, inbox)
        settle(bus)
        for number, topic in enumerate(topics):
            other.publish(topic, str(number).encode())
            assert inbox.counts(number - AHEAD)

        assert inbox.counts(1000)
        assert sorted(map(int, inbox.received)) == list(range(1000))

    # Subscribers.

    def test_a_subscriber_is_not_called_on_the_senders_thread(self, bus: Bus) -> None:
        threads: list[threading.Thread] = []
        inbox = Inbox()

        def receive(message: bytes) -> None:
            threads.append(threading.current_thread())
            inbox(message)

        bus.subscribe(TOPIC, receive)
        settle(bus)
        bus.publish(TOPIC, b"news")

        assert inbox.holds(b"news")
        assert threading.current_thread() not in threads

    def test_a_subscriber_is_called_once_at_a_time(self, bus: Bus, other: Bus) -> None:
        busy, overlaps, inbox = threading.Lock(), [], Inbox()

        def receive(message: bytes) -> None:
            if not busy.acquire(blocking=False):
                overlaps.append(message)
                return
            time.sleep(0.001)
            busy.release()
            inbox(message)

        bus.subscribe(TOPIC, receive)
        settle(bus)
        for number in range(100):
            (bus if number % 2 else other).publish(TOPIC, str(number).encode())

        assert inbox.counts(100)
        assert overlaps == []

    def test_a_slow_subscriber_delays_nobody(self, bus: Bus, other: Bus) -> None:
        goes_on, inbox, elsewhere = threading.Event(), Inbox(), Inbox()

        def stall(_: bytes) -> None:
            goes_on.wait(2 * PATIENCE)

        bus.subscribe(TOPIC, stall)
        bus.subscribe(TOPIC, inbox)
        bus.subscribe(topic_of(SPACE, "else"), elsewhere)
        settle(bus)
        try:
            for number in range(10):
                other.publish(TOPIC, str(number).encode())
                other.publish(topic_of(SPACE, "else"), str(number).encode())

            assert inbox.counts(10) and elsewhere.counts(10)
            assert not goes_on.is_set()
        finally:
            goes_on.set()

    def test_many_slow_subscribers_delay_nobody(self, bus: Bus, other: Bus) -> None:
        goes_on, inbox = threading.Event(), Inbox()

        def stall(_: bytes) -> None:
            goes_on.wait(2 * PATIENCE)

        for _ in range(8):
            bus.subscribe(TOPIC, stall)
        bus.subscribe(TOPIC, inbox)
        settle(bus)
        try:
            other.publish(TOPIC, b"news")

            assert inbox.holds(b"news")
            assert not goes_on.is_set()
        finally:
            goes_on.set()

    def test_who_is_too_slow_is_told_what_it_missed(self, bus: Bus, other: Bus) -> None:
        goes_on, inbox, missed = threading.Event(), Inbox(), threading.Event()

        def receive(message: bytes) -> None:
            goes_on.wait(2 * PATIENCE)
            inbox(message)

        bus.subscribe(TOPIC, receive, missed.set)
        bus.on_gap(missed.set)
        quick = Inbox()
        bus.subscribe(TOPIC, quick)
        settle(bus)
        for number in range(3000):
            other.publish(TOPIC, str(number).encode())
            quick.counts(number - AHEAD)
        goes_on.set()

        assert reaches(other, TOPIC, inbox, b"end")
        assert missed.wait(PATIENCE) or len(set(inbox.received)) == 3001

    def test_a_subscriber_that_raises_breaks_nothing(self, bus: Bus, other: Bus) -> None:
        inbox, calls = Inbox(), Inbox()

        def fail(message: bytes) -> None:
            calls(message)
            raise RuntimeError("on purpose")

        bus.subscribe(TOPIC, fail)
        bus.subscribe(TOPIC, inbox)
        settle(bus)
        for number in range(5):
            other.publish(TOPIC, str(number).encode())

        assert inbox.counts(5) and calls.counts(5)

    def test_a_subscriber_may_use_the_bus(self, bus: Bus, other: Bus) -> None:
        inbox, answers = Inbox(), Inbox()

        def answer(message: bytes) -> None:
            bus.publish(topic_of(SPACE, "answers"), b"re: " + message)
            subscription.close()
            inbox(message)

        bus.subscribe(topic_of(SPACE, "answers"), answers)
        subscription = bus.subscribe(TOPIC, answer)
        settle(bus)
        other.publish(TOPIC, b"question")

        assert inbox.holds(b"question") and answers.holds(b"re: question")

    def test_who_unsubscribed_is_not_called(self, bus: Bus, other: Bus) -> None:
        stays, goes = Inbox(), Inbox()
        subscription = bus.subscribe(TOPIC, goes)
        bus.subscribe(TOPIC, stays)
        subscription.close()
        subscription.close()
        settle(bus)
        other.publish(TOPIC, b"news")

        assert stays.holds(b"news")
        assert goes.received == []

    def test_one_can_subscribe_again(self, bus: Bus, other: Bus) -> None:
        for _ in range(20):
            bus.subscribe(TOPIC, Inbox()).close()
        inbox = Inbox()
        bus.subscribe(TOPIC, inbox)
        settle(bus)
        other.publish(TOPIC, b"news")

        assert inbox.holds(b"news")

    # Lifecycle.

    def test_nothing_is_said_after_the_end(self, open_bus: BusOpener) -> None:
        bus, inbox = open_bus(), Inbox()
        bus.subscribe(TOPIC, inbox)
        bus.close()
        bus.close()
        bus.publish(TOPIC, b"late")
        bus.subscribe(TOPIC, inbox).close()

        assert inbox.received == []

    def test_the_end_does_not_wait_for_a_subscriber(self, open_bus: BusOpener) -> None:
        bus, inbox, goes_on = ready(open_bus()), Inbox(), threading.Event()

        def stall(message: bytes) -> None:
            inbox(message)
            goes_on.wait(2 * PATIENCE)

        bus.subscribe(TOPIC, stall)
        settle(bus)
        bus.publish(TOPIC, b"news")
        assert inbox.holds(b"news")
        bus.close()

        assert not goes_on.is_set()
        goes_on.set()


class RemoteBusContract(BusContract):
    """What every bus over a network promises, as tests.

    Subclass it in a test file, and implement the fixtures `open_bus` and `interrupted`.
    """

    @pytest.fixture
    def interrupted(self) -> AbstractContextManager[None]:
        """Implement this: a context in which no bus object reaches the others."""
        raise NotImplementedError("a subclass of RemoteBusContract gives the fixture interrupted")

    def test_others_go_on_when_one_ends(self, opener: BusOpener, open_bus: BusOpener) -> None:
        stays, sender, goes = opener(), opener(), ready(open_bus())
        inbox = Inbox()
        stays.subscribe(TOPIC, inbox)
        goes.subscribe(TOPIC, Inbox())
        goes.close()
        settle(stays)
        sender.publish(TOPIC, b"news")

        assert inbox.holds(b"news")

    def test_a_sender_is_not_stopped_by_an_interruption(
        self, bus: Bus, interrupted: AbstractContextManager[None]
    ) -> None:
        bus.publish(TOPIC, b"before")
        with interrupted:
            for _ in range(100):
                bus.publish(TOPIC, b"meanwhile")

    def test_a_new_subscriber_is_not_stopped_by_an_interruption(
        self, bus: Bus, other: Bus, interrupted: AbstractContextManager[None]
    ) -> None:
        inbox = Inbox()
        bus.subscribe(topic_of(SPACE, "else"), Inbox())
        with interrupted:
            bus.subscribe(TOPIC, inbox)

        assert reaches(other, TOPIC, inbox, b"after")

    def test_after_an_interruption_doubt_is_told_and_messages_come(
        self, bus: Bus, other: Bus, interrupted: AbstractContextManager[None]
    ) -> None:
        inbox, doubt = Inbox(), threading.Event()
        bus.on_gap(doubt.set)
        bus.subscribe(TOPIC, inbox)
        settle(bus)
        other.publish(TOPIC, b"before")
        assert inbox.holds(b"before")
        with interrupted:
            other.publish(TOPIC, b"meanwhile")

        assert doubt.wait(PATIENCE)
        assert reaches(other, TOPIC, inbox, b"after")

    def test_who_does_not_want_to_know_of_gaps_is_not_told(
        self, bus: Bus, other: Bus, interrupted: AbstractContextManager[None]
    ) -> None:
        doubt, unwanted, inbox = threading.Event(), threading.Event(), Inbox()
        stop = bus.on_gap(unwanted.set)
        bus.on_gap(doubt.set)
        stop()  # Before anything slow could hide a failure.
        stop()
        bus.subscribe(TOPIC, inbox)
        with interrupted:
            pass

        assert doubt.wait(PATIENCE)
        assert not unwanted.is_set()
