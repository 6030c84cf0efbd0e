"""A reader that may have missed something asks; what it may serve is counted from before it asked.

Buses, clocks and engines that do something at exactly the moment where it matters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
import redis

import ropewalk
from ropewalk.codec import Codec
from ropewalk.coherence import CoherenceCore, CrashRecoveryConfig
from ropewalk.coherence.bus import Invalidation
from ropewalk.coherence.directory import Directory
from ropewalk.coherence.invalidation import LogFollower
from ropewalk.coherence.protocol import Entry, Version
from ropewalk.coherence.store_authority import StoreAuthority
from ropewalk.coherence.timers import steady_clock
from ropewalk.errors import ArtifactHeld, Rewound
from ropewalk.store import MemoryStore
from ropewalk.testing.helpers import PATIENCE, Clock
from tests.coherence.grant_clients import TIMEOUT, Client
from tests.coherence.test_model import HandBus, HandSubscription
from tests.store.redis.servers import configured

OpenClient: TypeAlias = Callable[..., CoherenceCore]


@pytest.fixture
def open_client() -> Iterator[OpenClient]:
    """Makes clients that are closed at the end."""
    with ExitStack() as opened:
        yield lambda *given, **options: opened.enter_context(CoherenceCore(*given, **options))


def version(number: int) -> Version:
    return Version(number, bytes([number]), "writer", 0)


# Messages that are missing.


def test_a_gap_in_the_numbers_of_one_artifact_makes_all_copies_doubtful() -> None:
    directory = Directory()
    for artifact in ("plan", "notes"):
        directory.fetched("ann", artifact, version(1), 0.0, directory.gaps)
    in_turn = directory.invalidated("plan", 2, 1).gap
    after_a_lost_one = directory.invalidated("plan", 5, 4).gap
    notes = directory.entry("ann", "notes")

    assert (in_turn, after_a_lost_one) == (False, True)
    assert notes is not None and not directory.is_current("notes", notes)


class TellingBus(HandBus):
    """Can tell single subscribers that they missed something."""

    def __init__(self) -> None:
        super().__init__()
        self.gaps: list[Callable[[], None]] = []

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> HandSubscription:
        self.gaps += [] if gap is None else [gap]
        return super().subscribe(topic, receive, gap)


@pytest.mark.parametrize("told", ["gaps", "doubts"])
def test_a_reader_that_may_have_missed_a_message_asks(open_client: OpenClient, told: str) -> None:
    store, bus = MemoryStore(), TellingBus()
    reader = open_client(store.another(), strategy="lease", ttl_seconds=300, bus=bus)
    writer = open_client(store.another(), bus=False)
    writer.write("writer", "plan", 1)
    reader.read("reader", "plan")
    writer.write("writer", "plan", 2)
    before = reader.read("reader", "plan").value
    for tell in getattr(bus, told):
        tell()

    assert (before, reader.read("reader", "plan").value) == (1, 2)


# Messages that are false.


def forged(bus: HandBus, encoded: bytes) -> None:
    """Deliver the last message with other content, and nothing else."""
    topic, message = bus.waiting[-1]
    told = Invalidation.decode(message)
    assert told.content is not None
    other = told._replace(content=told.content[:32] + encoded).encode()
    for one in [one for one in bus.subscriptions if one.topic == topic]:
        one.receive(other)


@dataclass
class Unknown:
    """A class that readers have not declared."""


@pytest.mark.parametrize(
    "encoded",
    [Codec().encode("forged"), Codec(types=[Unknown]).encode(Unknown())],
    ids=["another", "unreadable"],
)
def test_content_that_is_not_the_versions_is_not_believed(
    open_client: OpenClient, encoded: bytes
) -> None:
    store, bus = MemoryStore(), HandBus()
    reader = open_client(store.another(), strategy="eager", bus=bus)
    writer = open_client(store.another(), strategy="eager", bus=bus)
    writer.write("writer", "plan", "one")
    reader.read("reader", "plan")
    writer.write("writer", "plan", "two")
    writer.flush()
    forged(bus, encoded)

    assert [reader.read("reader", "plan").value for _ in range(2)] == ["two", "two"]


def test_a_message_about_another_artifact_than_its_topics_is_dropped(
    open_client: OpenClient,
) -> None:
    store, bus = MemoryStore(), HandBus()
    reader = open_client(store.another(), strategy="lease", bus=bus)
    reader.write("writer", "plan", 1)
    reader.flush()
    _, message = bus.waiting[-1]
    for number in range(100):
        bus.subscriptions[0].receive(
            Invalidation.decode(message)._replace(artifact=f"a{number}", instance="x").encode()
        )

    assert [reader._directory.newest(f"a{number}") for number in range(100)] == [0] * 100


# Time.


class LateStore(MemoryStore):
    """Answers late: something happens between its look and its reply."""

    happens: Callable[[], None] | None = None

    def _ref(self, space: str, name: str) -> Any:
        found = super()._ref(space, name)
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return found


def test_a_read_lease_counts_from_before_the_request(open_client: OpenClient) -> None:
    clock, store = Clock(), LateStore()
    writer = open_client(store.another(), bus=False)
    writer.write("writer", "plan", 1)
    reader = open_client(store, strategy="lease", ttl_seconds=10, bus=False, clock=clock)

    def late() -> None:
        writer.write("writer", "plan", 2)
        clock.advance(6)

    store.happens = late
    first = reader.read("reader", "plan").value
    clock.advance(5)

    assert (first, reader.read("reader", "plan").value) == (1, 2)


@pytest.mark.parametrize("what", ["acquire", "renew"])
def test_a_holder_counts_from_before_its_request(what: str) -> None:
    clock = Clock()
    here = Client(MemoryStore(clock=clock), clock)
    leases = here.grants._authority
    real = getattr(leases, what)

    def slow(*given: Any) -> Any:
        found = real(*given)
        clock.advance(4.0)
        return found

    setattr(leases, what, slow)
    before = clock.now
    grant = here.grants.acquire("a", "plan")
    if what == "renew":
        clock.advance(1.0)
        before = clock.now
        here.grants.heartbeat("a")

    assert grant.deadline == before + TIMEOUT


def test_an_older_answer_renews_nothing() -> None:
    entry = Entry(version(1))
    entry.confirm(version(1), 10.0, 0)
    for _ in range(3):
        next(entry.reads)
    entry.confirm(version(1), 5.0, 0)

    assert (entry.confirmed, next(entry.reads)) == (10.0, 3)


def test_time_goes_on_while_the_machine_sleeps(open_client: OpenClient) -> None:
    core = open_client()

    assert core._client.clock is core._grants.clock is steady_clock
    assert 0 < steady_clock() <= steady_clock()


# The log that `broadcast` follows.


def by_hand(core: CoherenceCore) -> LogFollower:
    """The follower of a core, which looks only when it is told to."""
    follower = core._client.follower
    assert follower is not None
    follower.close()
    follower.timer.closed = False
    follower.start = lambda: None  # type: ignore[method-assign]
    return follower


def test_what_is_followed_counts_from_before_the_look(open_client: OpenClient) -> None:
    clock = Clock()
    core = open_client(
        MemoryStore(), strategy="broadcast", tick_seconds=1000.0, bus=False, clock=clock
    )
    follower, authority = by_hand(core), core._authority
    assert isinstance(authority, StoreAuthority)
    real = authority.changes

    def slow(*given: Any) -> Any:
        found = real(*given)
        clock.advance(7.0)
        return found

    authority.changes = slow  # type: ignore[assignment]
    before = clock.now
    follower.read_on()

    assert follower.followed == before


def test_broadcast_serves_for_a_tick_after_its_look_and_then_asks(open_client: OpenClient) -> None:
    clock, store = Clock(), MemoryStore()
    writer = open_client(store.another(), bus=False)
    writer.write("writer", "plan", 1)
    reader = open_client(
        store.another(), strategy="broadcast", tick_seconds=10.0, bus=False, clock=clock
    )
    follower = by_hand(reader)
    follower.read_on()
    seen = [reader.read("reader", "plan").value]
    writer.write("writer", "plan", 2)
    clock.advance(9.0)
    seen.append(reader.read("reader", "plan").value)
    clock.advance(1.0)
    seen.append(reader.read("reader", "plan").value)
    writer.write("writer", "plan", 3)
    follower.read_on()
    seen.append(reader.read("reader", "plan").value)

    assert seen == [1, 1, 2, 3]


@pytest.mark.parametrize("knows", [False, True])
def test_a_holder_that_stood_still_asks_although_the_log_was_followed_since(
    open_client: OpenClient, knows: bool
) -> None:
    clock, config = Clock(), CrashRecoveryConfig(heartbeat_timeout_ticks=1)
    store = MemoryStore(clock=clock)
    options = {"bus": False, "clock": clock, "tick_seconds": 10.0, "crash_recovery": config}
    here = open_client(store, strategy="broadcast", **options)
    there = open_client(store.another(clock=clock), **options)
    here._grants._background = there._grants._background = False
    follower = by_hand(here)
    here.write("holder", "plan", 1)
    here.hold("holder", "plan")
    with pytest.raises(ArtifactHeld) as caught:
        there.write("other", "plan", 2)
    assert caught.value.retry_after is not None
    clock.advance(caught.value.retry_after + 0.01)
    follower.read_on()  # Nobody has taken over yet.
    there.write("other", "plan", 2)
    if knows:
        here.heartbeat("holder")

    assert here.read("holder", "plan").value == 2


def test_a_log_that_went_back_in_time_is_followed_anew(open_client: OpenClient) -> None:
    # As of a server that may lose its last moments, and did: numbers come a second time.
    old, new = MemoryStore(), MemoryStore()
    for store, values in ((old, [1, 2, 3]), (new, [1, 7, 8, 9])):
        with open_client(store.another(), bus=False) as core:
            for value in values:
                core.write("writer", "plan", value)
    clock = Clock()
    reader = open_client(
        old.another(), strategy="broadcast", tick_seconds=10.0, bus=False, clock=clock
    )
    follower, authority = by_hand(reader), reader._authority
    assert isinstance(authority, StoreAuthority)
    follower.read_on()
    before = reader.read("reader", "plan").value
    authority.__init__(new.another(), reader.name, Codec())  # type: ignore[misc]
    with pytest.raises(Rewound):
        follower.read_on()
    meanwhile = reader.read("reader", "plan").value
    follower.read_on()

    assert (before, meanwhile, reader.read("reader", "plan").value) == (3, 9, 9)
    assert follower.known["plan"].number == 4


def test_readers_of_a_server_that_lost_its_last_moments_read_what_it_has() -> None:
    with configured({"appendonly": "no"}) as server:
        place = f"{server.url}?durability=relaxed"
        with (
            ropewalk.open(place) as one,
            ropewalk.open(place) as two,
            CoherenceCore(one) as writer,
            CoherenceCore(two, strategy="broadcast", tick_seconds=0.2) as reader,
        ):
            for number in range(5):
                writer.write("writer", "plan", number)
            with redis.Redis(port=server.port) as client:
                client.save()
            for number in range(5, 15):
                writer.write("writer", "plan", number)
            follow_on(reader)
            before = reader.read("reader", "plan").value
            server.kill()
            server.start()
            with CoherenceCore(place) as fresh:
                left = fresh.read("fresh", "plan").value
                fresh.write("fresh", "plan", "anew")
            follow_on(reader)

            assert (before, left, reader.read("reader", "plan").value) == (14, 4, "anew")


def follow_on(core: CoherenceCore) -> None:
    """Wait until the log was followed up to a moment that is now."""
    follower, now = core._client.follower, steady_clock()
    assert follower is not None
    until = time.monotonic() + PATIENCE
    while follower.followed < now:
        assert time.monotonic() < until, "the log is not followed"
        time.sleep(0.01)
