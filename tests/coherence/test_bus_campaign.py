"""Connections that break at random: whatever is not heard, doubt is told of it."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable

import pytest

from ropewalk.coherence import topic_of
from ropewalk.store import space_name
from ropewalk.testing.buses import ready
from tests.coherence.buses import open_bus, proxied
from tests.conftest import SOAK

SPACE = space_name("coherence", "campaign")
TOPICS = [topic_of(SPACE, name) for name in "abcdef"]
ROUNDS = 200 if SOAK else 8
PATIENCE = 60.0


class Listener:
    """What one client heard, in order: a topic and a number, or that it is in doubt."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.news = threading.Condition()

    def note(self, topic: str, number: int) -> None:
        with self.news:
            self.events.append((topic, number))
            self.news.notify_all()

    def hearing(self, topic: str) -> Callable[[bytes], None]:
        return lambda message: self.note(topic, int(message))

    def holds(self, topic: str, number: int, seconds: float) -> bool:
        with self.news:
            return self.news.wait_for(lambda: (topic, number) in self.events, seconds)

    def silent_gaps(self) -> list[tuple[str, int, int]]:
        """Numbers that were passed over although nobody told of doubt."""
        found = []
        for topic in TOPICS:
            last, doubted = 0, False
            for where, number in self.events:
                if where == "doubt":
                    doubted = True
                elif where == topic and number > last:
                    if number > last + 1 and not doubted:
                        found.append((topic, last, number))
                    last, doubted = number, False
        return found


@pytest.mark.parametrize("kind", ["redis", "postgres", "nats"])
def test_nothing_is_missed_without_doubt(kind: str, request: pytest.FixtureRequest) -> None:
    chance, prefix = random.Random(f"{kind} 9"), uuid.uuid4().hex
    url, listener = str(request.getfixturevalue(f"{kind}_url")), Listener()
    with proxied(url) as (proxy, way):
        # Only who listens is cut off; who sends is not.
        bus, sender = (ready(open_bus(kind, one, prefix)) for one in (way, url))
        bus.on_gap(lambda: listener.note("doubt", 0))
        for topic in TOPICS:
            bus.subscribe(topic, listener.hearing(topic))
        numbers = dict.fromkeys(TOPICS, 0)
        for _ in range(ROUNDS):
            for _ in range(chance.randrange(1, 40)):
                topic = chance.choice(TOPICS)
                numbers[topic] += 1
                sender.publish(topic, str(numbers[topic]).encode())
            breaks, mends = chance.choice(
                [(proxy.cut, None), (proxy.refuse, proxy.accept), (proxy.stall, proxy.resume)]
            )
            breaks()
            time.sleep(chance.uniform(0, 0.1))  # For what happens meanwhile, whatever that is.
            if mends is not None:
                mends()
        proxy.cut()
        for topic in TOPICS:
            until, heard = time.monotonic() + PATIENCE, False
            while not heard and time.monotonic() < until:
                numbers[topic] += 1
                sender.publish(topic, str(numbers[topic]).encode())
                heard = listener.holds(topic, numbers[topic], 0.2)
            assert heard
        bus.close()
        sender.close()

    assert ("doubt", 0) in listener.events
    assert listener.silent_gaps() == []
