"""The protocol takes time, timers and transport from outside, so all of it runs in one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore, CrashRecoveryConfig
from ropewalk.coherence.timers import Time
from ropewalk.errors import ArtifactHeld, GrantLost
from ropewalk.store import MemoryStore


class SimulatedTimer:
    """A timer that is no thread: the simulation does its steps when they are due."""

    def __init__(self, simulation: Simulation, owner: Any) -> None:
        self._simulation, self._owner = simulation, owner
        self.closed, self.due = False, float("inf")

    def start(self) -> None:
        self.due = min(self.due, self._simulation.now)

    wake = start

    def close(self, timeout: float | None = None) -> None:
        self.closed = True

    def step(self) -> None:
        pause = self._owner.step()
        self.due = float("inf") if pause is None else self._simulation.now + pause


class Subscribed:
    """One subscription of a simulated bus."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self.receive = receive

    def close(self) -> None:
        self.receive = lambda _: None


class Simulation:
    """Virtual time, and a bus that delivers when the simulation says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[SimulatedTimer] = []
        self.time = Time(
            clock=lambda: self.now,
            monotonic=lambda: self.now,
            nanoseconds=lambda: int(self.now * 1e9),
            sleep=self.advance,
            wait=lambda _, seconds: self.advance(seconds),
            timer=self.make_timer,
        )
        self.topics: dict[str, list[Subscribed]] = {}
        self.sent: list[tuple[str, bytes]] = []

    def make_timer(self, owner: Any, name: str) -> Any:
        self.timers.append(SimulatedTimer(self, owner))
        return self.timers[-1]

    def advance(self, seconds: float) -> None:
        """Let time pass, and all timers do what is due in it, in order."""
        until = self.now + seconds
        while due := [one for one in self.timers if not one.closed and one.due <= until]:
            first = min(due, key=lambda one: one.due)
            self.now = max(self.now, first.due)
            first.step()
        self.now = max(self.now, until)

    # The bus.

    def publish(self, topic: str, message: bytes) -> None:
        self.sent.append((topic, message))

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscribed:
        self.topics.setdefault(topic, []).append(Subscribed(receive))
        return self.topics[topic][-1]

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def close(self) -> None:
        pass

    def deliver(self) -> None:
        """Hand over what was published."""
        sent, self.sent = self.sent, []
        for topic, message in sent:
            for one in self.topics.get(topic, ()):
                one.receive(message)

    def core(self, store: MemoryStore, **options: Any) -> CoherenceCore:
        other = store.another(clock=self.time.clock)
        return CoherenceCore(other, clock=self.time, bus=self, **options)


@pytest.fixture
def simulation() -> Simulation:
    return Simulation()


@pytest.fixture
def store(simulation: Simulation) -> MemoryStore:
    return MemoryStore(clock=simulation.time.clock)


def test_a_lease_ends_and_an_invalidation_ends_it_sooner(
    simulation: Simulation, store: MemoryStore
) -> None:
    threads = set(threading.enumerate())
    writer = simulation.core(store, strategy="lease", ttl_seconds=3600)
    reader = simulation.core(store, strategy="lease", ttl_seconds=3600)
    writer.write("ann", "plan", 1)
    seen = [reader.read("bob", "plan").value]
    writer.write("ann", "plan", 2)
    seen.append(reader.read("bob", "plan").value)
    simulation.advance(3599)
    seen.append(reader.read("bob", "plan").value)
    simulation.deliver()
    seen.append(reader.read("bob", "plan").value)
    writer.write("ann", "plan", 3)
    simulation.advance(3600)  # Nothing is delivered: the message is lost.
    seen.append(reader.read("bob", "plan").value)

    assert seen == [1, 1, 1, 2, 3]
    assert set(threading.enumerate()) == threads


def test_a_silent_holder_is_reclaimed_after_hours_that_nobody_waits_for(
    simulation: Simulation, store: MemoryStore
) -> None:
    threads = set(threading.enumerate())
    recovery = CrashRecoveryConfig(
        enabled=True, heartbeat_timeout_ticks=3600, max_hold_ticks=1_000_000
    )
    holder = simulation.core(store, crash_recovery=recovery)
    own = list(simulation.timers)
    other = simulation.core(store, crash_recovery=recovery)
    grant = holder.hold("ann", "plan")
    simulation.advance(36_000)
    with pytest.raises(ArtifactHeld):  # It is renewed, however long that takes.
        other.write("bob", "plan", 1)
    for timer in own:
        timer.closed = True  # As if its process had been stopped.
    simulation.advance(36_000)
    other.edit("bob", "plan", lambda _: 2, default=0, timeout=1.0)

    with pytest.raises(GrantLost):
        grant.write(3)
    assert other.read("bob", "plan").value == 2
    assert set(threading.enumerate()) == threads


def test_a_follower_reads_the_log_at_each_tick(simulation: Simulation, store: MemoryStore) -> None:
    threads = set(threading.enumerate())
    writer = simulation.core(store)
    reader = simulation.core(store, strategy="broadcast", tick_seconds=60.0)
    writer.write("ann", "plan", 1)
    seen = []
    for number in range(2, 5):
        simulation.advance(60)
        writer.write("ann", "plan", number)
        seen.append(reader.read("bob", "plan").value)

    assert seen == [1, 2, 3]
    assert set(threading.enumerate()) == threads
