"""How subscribers are called: each message once, in order, whoever else is slow."""

from __future__ import annotations

import random
import threading
import time

from ropewalk.coherence import InProcessBus, topic_of
from ropewalk.store import space_name
from tests.conftest import SOAK

SPACE = space_name("coherence", "delivery")
TOPICS = [topic_of(SPACE, name) for name in "abc"]
PATIENCE = 60.0
SENDERS, MESSAGES = 4, 2000 if SOAK else 150


class Slow:
    """A subscriber that takes its time now and then, and may raise."""

    def __init__(self, seed: int, expected: int) -> None:
        self._chance = random.Random(seed)
        self._slow = seed % 5 == 0
        self._expected = expected
        self.received: list[tuple[int, int]] = []
        self.done = threading.Event()

    def __call__(self, message: bytes) -> None:
        sender, number = message.split()
        self.received.append((int(sender), int(number)))
        if len(self.received) == self._expected:
            self.done.set()
        if self._slow and self._chance.random() < 0.02:
            time.sleep(self._chance.uniform(0, 0.15))  # It is slow: that is what it is for.
        if self._chance.random() < 0.02:
            raise RuntimeError("on purpose")


def test_everybody_gets_each_message_once_and_in_order() -> None:
    bus = InProcessBus(queue=SENDERS * MESSAGES)
    everybody = [Slow(seed, SENDERS * MESSAGES) for seed in range(40)]
    for number, one in enumerate(everybody):
        bus.subscribe(TOPICS[number % 3], one)

    def send(sender: int) -> None:
        for number in range(MESSAGES):
            for topic in TOPICS:
                bus.publish(topic, f"{sender} {number}".encode())

    senders = [threading.Thread(target=send, args=(sender,)) for sender in range(SENDERS)]
    for thread in senders:
        thread.start()
    for thread in senders:
        thread.join()

    assert all(one.done.wait(PATIENCE) for one in everybody)
    for one in everybody:
        for sender in range(SENDERS):
            assert [n for s, n in one.received if s == sender] == list(range(MESSAGES))
    bus.close()


def test_subscribers_come_and_go_while_messages_are_sent() -> None:
    bus, stop, stays = InProcessBus(queue=100_000), threading.Event(), Slow(1, 1000)
    bus.subscribe(TOPICS[0], stays)

    def churn() -> None:
        while not stop.is_set():
            bus.subscribe(TOPICS[0], lambda _: None).close()

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1000):
        bus.publish(TOPICS[0], f"0 {number}".encode())
    heard = stays.done.wait(PATIENCE)
    stop.set()
    for thread in threads:
        thread.join()

    assert heard
    assert [number for _, number in stays.received] == list(range(1000))
    assert bus.listeners(TOPICS[0]) == 1
    bus.close()
