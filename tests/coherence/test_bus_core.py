"""Clients in several processes hear of each other's writes, over every bus."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import ropewalk
from ropewalk.coherence import (
    STRATEGIES,
    Bus,
    CoherenceCore,
    InProcessBus,
    NatsBus,
    State,
    Subscription,
    place_of,
    topic_of,
)
from ropewalk.store import MemoryStore, SqliteStore, space_name

PATIENCE = 60.0
WRITER = """
import sys
import ropewalk
from ropewalk.coherence import CoherenceCore, NatsBus

url, nats, strategy = sys.argv[1:]
bus = NatsBus(nats) if nats else None
core = CoherenceCore(ropewalk.open(url), name="told", strategy=strategy, bus=bus)
print("ready", flush=True)
for line in sys.stdin:
    print(core.write("writer", "plan", line.strip()).version, flush=True)
core.close()
if bus is not None:
    bus.close()
"""

Write = Callable[[str], int]


@contextmanager
def writer(url: str, nats: str, strategy: str) -> Iterator[Write]:
    """Another process, which writes when it is told to; what it gives is the version."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, url, nats, strategy],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    to, answers = process.stdin, process.stdout

    def write(value: str) -> int:
        to.write(f"{value}\n")
        to.flush()
        return int(answers.readline())

    try:
        assert answers.readline() == "ready\n"
        yield write
    finally:
        to.close()
        process.wait(PATIENCE)
        answers.close()


PLACES = ["sqlite", "files", "redis", "postgres", "s3", "sqlite and nats"]
CASES = [
    *((kind, "lease") for kind in PLACES),
    *(("redis", one) for one in STRATEGIES if one != "lease"),
]


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The address of a store, and that of NATS where it is the bus."""
    if kind in ("postgres", "s3"):
        return str(request.getfixturevalue(f"{kind}_url")), ""
    if kind == "redis":
        return f"{request.getfixturevalue('redis_url')}?durability=relaxed", ""
    nats = str(request.getfixturevalue("nats_url")) if "nats" in kind else ""
    folder = tmp_path / "store"
    return (f"file://{folder}" if kind == "files" else f"{folder}"), nats


class Ends:
    """Notes when copies of an agent end."""

    def __init__(self) -> None:
        self._ended: set[object] = set()
        self._news = threading.Condition()

    def __call__(self, record: Mapping[str, object]) -> None:
        if record["trigger"] == "invalidate":
            with self._news:
                self._ended.add(record["version"])
                self._news.notify_all()

    def wait(self, version: int, seconds: float = PATIENCE) -> bool:
        """Wait for the end of a copy of a version."""
        with self._news:
            return self._news.wait_for(lambda: version in self._ended, seconds)


@pytest.mark.parametrize(("kind", "strategy"), CASES)
def test_a_copy_ends_when_another_process_writes(strategy: str, place: tuple[str, str]) -> None:
    url, nats = place
    bus: Bus | None = NatsBus(nats) if nats else None
    ends = Ends()
    with (
        ropewalk.open(url) as store,
        CoherenceCore(store, name="told", strategy=strategy, bus=bus, state_log=ends) as core,
        writer(url, nats, strategy) as write,
    ):
        core.write("holder", "plan", "first")
        heard = False
        for number in range(20):  # The first may be written before the bus is connected.
            copy = core.read("holder", "plan").version
            version = write(f"value {number}")
            heard = ends.wait(copy, PATIENCE / 20)
            if heard:
                break

        assert heard
        found = core.read("holder", "plan")
        assert (found.value, found.version) == (f"value {number}", version)
    if bus is not None:
        bus.close()


def test_a_thousand_clients_of_one_store_hear_of_a_write() -> None:
    memory, ends = MemoryStore(), [Ends() for _ in range(1000)]
    cores = [CoherenceCore(memory.another(), strategy="lease", state_log=one) for one in ends]
    with CoherenceCore(memory) as first:
        first.write("writer", "plan", 1)
        for core in cores:
            core.read("reader", "plan")
        first.write("writer", "plan", 2)

        assert all(one.wait(1) for one in ends)
    for core in cores:
        core.close()


def test_a_client_that_reads_ever_more_artifacts_is_told_of_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ropewalk.coherence.invalidation.MOST_TOPICS", 10)
    memory, bus, ends = MemoryStore(), InProcessBus(), Ends()
    core = CoherenceCore(memory, strategy="lease", bus=bus, state_log=ends)
    other = CoherenceCore(memory.another(), strategy="lease", bus=bus)
    names = [f"artifact {number}" for number in range(100)]
    for name in names:
        other.write("writer", name, 1)
        core.read("reader", name)
    other.close()
    place = place_of(memory, space_name("coherence", "shared"))
    heard = [name for name in names if bus.listeners(topic_of(place, name))]

    assert heard == names[-10:]
    with CoherenceCore(memory.another(), bus=bus) as late:
        late.write("writer", names[-1], 2)
        assert ends.wait(1)
        assert core.read("reader", names[-1]).value == 2
    core.close()
    bus.close()


def test_stores_that_share_a_bus_and_a_name_do_not_mix() -> None:
    bus, ends = InProcessBus(), Ends()
    mine = CoherenceCore(MemoryStore(), strategy="lease", bus=bus, state_log=ends)
    others = CoherenceCore(MemoryStore(), strategy="lease", bus=bus)
    mine.write("alice", "plan", "mine")
    mine.read("bob", "plan")
    for number in range(5):
        others.write("alice", "plan", number)
    others.flush(PATIENCE)

    assert mine.state("bob", "plan") is State.SHARED
    for one in (mine, others, bus):
        one.close()


class RefusingBus(InProcessBus):
    """A bus that refuses everything, as one whose server is gone for good may."""

    def publish(self, topic: str, message: bytes) -> None:
        raise ConnectionError("no server")

    def subscribe(
        self,
        topic: str,
        receive: Callable[[bytes], None],
        gap: Callable[[], None] | None = None,
    ) -> Subscription:
        raise ConnectionError("no server")


def test_agents_need_no_bus_that_works() -> None:
    with CoherenceCore(MemoryStore(), bus=RefusingBus()) as core:
        core.write("planner", "plan", 1)
        core.edit("reviewer", "plan", lambda value: value + 1)

        assert core.read("planner", "plan").value == 2


@pytest.mark.parametrize("strategy", ["eager", "broadcast"])
def test_what_a_bus_does_not_carry_is_fetched_before_it_is_asked_for(
    strategy: str, tmp_path: Path
) -> None:
    with (
        SqliteStore(tmp_path) as store,
        CoherenceCore(store) as writer,
        SqliteStore(tmp_path) as second,
        CoherenceCore(second, strategy=strategy, tick_seconds=0.1) as reader,
    ):
        writer.write("writer", "plan", "first")
        reader.read("reader", "plan")
        made = writer.write("writer", "plan", "second")
        held, until = reader._client.contents, time.monotonic() + PATIENCE
        while held.get(made.origin.id) is None and time.monotonic() < until:
            time.sleep(0.005)
        found = reader.read("reader", "plan")

    assert (found.value, found.source) == ("second", "broadcast")
