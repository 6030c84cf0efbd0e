"""The promise, tried in every order: whatever the bus does, reads stay within their bounds.

Real clients on one store, a clock and a bus that move only when the test says so. Messages
are delivered late, twice, in any order, or never.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ropewalk.coherence import CoherenceCore
from ropewalk.errors import NotFound, VersionConflict
from ropewalk.store import MemoryStore
from tests.conftest import SOAK

TTL, READS = 5.0, 3
STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "lazy"},
    {"strategy": "eager"},
    {"strategy": "lease", "ttl_seconds": TTL},
    {"strategy": "access_count", "max_accesses": READS},
]
ARTIFACTS = st.sampled_from(["plan", "plan", "plan", "budget"])
CLIENTS = st.integers(0, len(STRATEGIES) - 1)
AGENTS = st.sampled_from(["a", "a", "a", "b"])
RARELY = st.integers(0, 9)
PICK = st.integers(0, 1_000_000)


class HandSubscription:
    def __init__(self, bus: HandBus, topic: str, receive: Callable[[bytes], None]) -> None:
        self.bus, self.topic, self.receive = bus, topic, receive

    def close(self) -> None:
        self.bus.subscriptions.remove(self)


class HandBus:
    """Keeps every message until the test delivers or drops it."""

    def __init__(self) -> None:
        self.subscriptions: list[HandSubscription] = []
        self.doubts: list[Callable[[], None]] = []
        self.waiting: list[tuple[str, bytes]] = []

    def publish(self, topic: str, message: bytes) -> None:
        self.waiting.append((topic, message))

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> HandSubscription:
        made = HandSubscription(self, topic, receive)
        self.subscriptions.append(made)
        return made

    def on_gap(self, doubt: Callable[[], None]) -> Callable[[], None]:
        self.doubts.append(doubt)
        return lambda: self.doubts.remove(doubt)

    def close(self) -> None:
        """Nothing is open."""

    def deliver(self, pick: int, *, keep: bool) -> None:
        topic, message = self.waiting[pick % len(self.waiting)]
        if not keep:
            del self.waiting[pick % len(self.waiting)]
        for one in [one for one in self.subscriptions if one.topic == topic]:
            one.receive(message)


class Coherence(RuleBasedStateMachine):
    """Clients of every strategy, and what they may see."""

    def __init__(self) -> None:
        super().__init__()
        store, self.now = MemoryStore(), 1000.0
        self.bus = HandBus()
        self.clients = [
            CoherenceCore(store.another(), bus=self.bus, clock=lambda: self.now, **options)
            for options in STRATEGIES
        ]
        self.versions: dict[str, list[tuple[Any, float]]] = defaultdict(list)
        """Of each artifact: what each version holds, and since when."""
        self.stale: dict[tuple[int, str, str], int] = defaultdict(int)
        self.last: dict[tuple[int, str, str], int] = {}
        self.has_read: set[tuple[int, str, str]] = set()
        """Who has read an artifact since they wrote it."""
        self.counter = 0

    def teardown(self) -> None:
        for client in self.clients:
            client.close()

    def made(self, artifact: str, value: Any) -> None:
        self.versions[artifact].append((value, self.now))

    @rule(client=CLIENTS, agent=AGENTS, artifact=ARTIFACTS)
    def write(self, client: int, agent: str, artifact: str) -> None:
        """A write lands on the newest version, or is refused because the agent read less.

        One that has only written replaces what it has not read.
        """
        self.counter += 1
        name = f"{client}{agent}"
        newest = len(self.versions[artifact])
        key = client, agent, artifact
        if key in self.has_read and self.last[key] != newest:
            with pytest.raises(VersionConflict):
                self.clients[client].write(name, artifact, self.counter)
            return
        made = self.clients[client].write(name, artifact, self.counter)
        self.made(artifact, self.counter)
        self.clients[client].flush()
        assert made.version == len(self.versions[artifact])
        assert made.replaced == (self.last.get(key, 0) != newest)
        self.saw(client, agent, artifact, made.version)
        self.has_read.discard(key)

    @rule(client=CLIENTS, agent=AGENTS, artifact=ARTIFACTS)
    def edit(self, client: int, agent: str, artifact: str) -> None:
        """An edit always lands."""
        self.counter += 1
        value = self.counter
        made = self.clients[client].edit(f"{client}{agent}", artifact, lambda _: value, default=0)
        self.made(artifact, value)
        self.clients[client].flush()
        assert made.version == len(self.versions[artifact])
        self.saw(client, agent, artifact, made.version)

    @rule(client=st.sampled_from([2, 3]), artifact=ARTIFACTS)
    def overtake(self, client: int, artifact: str) -> None:
        """Somebody else writes after a read, and then time goes by."""
        self.read(client, "a", artifact)
        self.edit(0, "a", artifact)
        self.wait(TTL)

    @rule(client=CLIENTS, agent=AGENTS, artifact=ARTIFACTS)
    def read(self, client: int, agent: str, artifact: str) -> None:
        """What is read was written, is within the bound, and is no older than what was read."""
        try:
            found = self.clients[client].read(f"{client}{agent}", artifact)
        except NotFound:
            assert not self.versions[artifact]
            return
        written = self.versions[artifact]
        assert found.value == written[found.version - 1][0]
        newest = found.version == len(written)
        over = self.now if newest else written[found.version][1]
        key = client, agent, artifact
        self.stale[key] = 0 if newest else self.stale[key] + 1
        bound = self.clients[client].bound
        assert newest or over > self.now - bound.seconds or self.stale[key] <= bound.reads
        self.saw(client, agent, artifact, found.version)

    @rule(seconds=st.sampled_from([0.5, 2.0, TTL]))
    def wait(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds

    @precondition(lambda self: self.bus.waiting)
    @rule(pick=PICK)
    def deliver(self, pick: int) -> None:
        """Some message arrives."""
        self.bus.deliver(pick, keep=False)

    @precondition(lambda self: self.bus.waiting)
    @rule(pick=PICK)
    def deliver_and_keep(self, pick: int) -> None:
        """Some message arrives, and will arrive again."""
        self.bus.deliver(pick, keep=True)

    @precondition(lambda self: self.bus.waiting)
    @rule(pick=PICK)
    def lose(self, pick: int) -> None:
        """Some message never arrives."""
        del self.bus.waiting[pick % len(self.bus.waiting)]

    @rule(rarely=RARELY)
    def doubt(self, rarely: int) -> None:
        """The bus says that it may have lost something."""
        if rarely == 0:
            for doubt in self.bus.doubts:
                doubt()

    @rule(client=CLIENTS, agent=AGENTS, rarely=RARELY)
    def forget(self, client: int, agent: str, rarely: int) -> None:
        """An agent is done, and begins afresh."""
        if rarely:
            return
        self.clients[client].unregister_agent(f"{client}{agent}")
        for key in [key for key in self.last if key[:2] == (client, agent)]:
            del self.last[key]
            self.has_read.discard(key)

    @invariant()
    def versions_have_no_gaps(self) -> None:
        """The authority has what was acknowledged, and no more."""
        reader = self.clients[0]
        for artifact, written in self.versions.items():
            newest = reader._authority.newest(artifact)
            assert (newest.number if newest else 0) == len(written)

    def saw(self, client: int, agent: str, artifact: str, version: int) -> None:
        key = client, agent, artifact
        assert version >= self.last.get(key, 0)
        self.last[key] = version
        self.has_read.add(key)


TestCoherence = Coherence.TestCase
TestCoherence.settings = settings(max_examples=2000 if SOAK else 100, stateful_step_count=80)
