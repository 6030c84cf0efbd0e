"""A bus that loses, delays and repeats messages on demand."""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from ropewalk.coherence.bus import Bus, Subscription
from ropewalk.store.validation import expect

Receive = Callable[[bytes], None]

_HELD = 0.02  # Seconds after which a message held back for reordering is delivered anyway.


class FaultyBus:
    """Wraps a bus, and disturbs the messages to each subscriber.

    `lose`, `delay`, `duplicate` and `reorder` are the fractions of messages, from 0 to 1, affected
    by each. A delay is up to `seconds`. Losses are silent: no gap is reported. What happens to the
    n-th message of a subscription follows from the seed, the topic and the number of the
    subscription. `messages` counts the messages received, `counts` the faults that took effect: a
    lost message is not delayed as well, and a message counts as reordered only if another overtook
    it. Closing it closes the wrapped bus.
    """

    def __init__(
        self,
        bus: Bus,
        seed: int = 0,
        *,
        lose: float = 0.0,
        delay: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        seconds: float = 0.1,
    ) -> None:
        rates = {"lose": lose, "delay": delay, "duplicate": duplicate, "reorder": reorder}
        for name, rate in rates.items():
            expect(0 <= rate <= 1, f"{name} is a part of all messages, from 0 to 1", rate)
        self.bus = bus
        self.counts: Counter[str] = Counter(dict.fromkeys(rates, 0))
        self.messages = 0
        self.rates = rates
        self._seed, self._seconds = seed, seconds
        self._lock = threading.Condition()
        self._later: list[tuple[float, int, Receive, bytes]] = []
        self._numbers = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        # Optional parts of a bus. A publisher that counts listeners and finds only itself sends
        # nothing, so a bus that cannot count must not seem to.
        for name in ("message_limit", "listeners"):
            if (found := getattr(bus, name, None)) is not None:
                setattr(self, name, found)

    def publish(self, topic: str, message: bytes) -> None:
        """Publish on the wrapped bus."""
        self.bus.publish(topic, message)

    def subscribe(
        self, topic: str, receive: Receive, gap: Callable[[], None] | None = None
    ) -> Subscription:
        """Subscribe on the wrapped bus, behind the faults."""
        with self._lock:
            self._numbers += 1
            chance = random.Random(f"{self._seed} {topic} {self._numbers}")
        return self.bus.subscribe(topic, _Treatment(self, chance, receive).receive, gap)

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        """Call back on gaps of the wrapped bus. Faults of this one are not reported."""
        return self.bus.on_gap(doubt)

    def close(self) -> None:
        """Close the wrapped bus, and drop delayed messages."""
        with self._lock:
            self._closed = True
            self._later.clear()
            self._lock.notify_all()
        self.bus.close()

    def later(self, seconds: float, receive: Receive, message: bytes) -> None:
        """Deliver a message after a time."""
        with self._lock:
            if self._closed:
                return
            self._numbers += 1
            due = time.monotonic() + seconds
            heapq.heappush(self._later, (due, self._numbers, receive, message))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ropewalk-faulty-bus", daemon=True
                )
                self._thread.start()
            self._lock.notify()

    def delay(self, chance: random.Random) -> float:
        """A random delay."""
        return chance.uniform(0, self._seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._later or self._later[0][0] > time.monotonic():
                    if self._closed:
                        return
                    wait = self._later[0][0] - time.monotonic() if self._later else None
                    self._lock.wait(wait)
                _, _, receive, message = heapq.heappop(self._later)
            receive(message)


class _Treatment:
    """The faults of one subscription."""

    def __init__(self, bus: FaultyBus, chance: random.Random, receive: Receive) -> None:
        self._bus, self._chance, self._receive = bus, chance, receive
        self._held: list[bytes] = []

    def receive(self, message: bytes) -> None:
        """Receive a message, and pass it on or not."""
        held, self._held = self._held, []
        # Four random numbers per message, so that one rate does not affect another.
        happens = {name: self._chance.random() < rate for name, rate in self._bus.rates.items()}
        self._bus.messages += 1
        if happens["lose"]:
            self._bus.counts["lose"] += 1
        elif self._pass(message, happens):
            self._bus.counts["reorder"] += len(held)
        for one in held:
            self._receive(one)

    def _pass(self, message: bytes, happens: dict[str, bool]) -> bool:
        """Pass a message on; returns whether that was done at once."""
        at_once = not (happens["delay"] or happens["reorder"])
        if at_once:
            self._receive(message)
        elif happens["delay"]:
            self._later(message, "delay")
        else:
            self._held.append(message)
            self._bus.later(_HELD, self._release, message)
        if happens["duplicate"]:
            self._later(message, "duplicate")
        return at_once

    def _later(self, message: bytes, fault: str) -> None:
        self._bus.counts[fault] += 1
        self._bus.later(self._bus.delay(self._chance), self._receive, message)

    def _release(self, message: bytes) -> None:
        """Pass on messages that nothing has overtaken."""
        held, self._held = self._held, []
        for one in held:
            self._receive(one)
