"""Nine failures of a library with the same aim, each as a test that it fails and we pass.

They were found by experiment in agent-coherence 0.15; the comments say what it did. The two
that need LangGraph are in `tests/frameworks/langgraph/test_nine_failures.py`.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest

from ropewalk.coherence import (
    CoherenceCore,
    CoherenceDegradedWarning,
    CrashRecoveryConfig,
    InProcessBus,
    Subscription,
)
from ropewalk.errors import Conflict, NotFound, Unavailable, VersionConflict
from ropewalk.store import MemoryStore, SqliteStore
from ropewalk.store.wrappers import WrapperStore
from ropewalk.testing import Clock, FaultyBus
from ropewalk.testing.helpers import lines_until_killed

ROOT = Path(__file__).parent.parent.parent
STRATEGIES = ("lazy", "eager", "lease", "access_count", "broadcast")
PATIENCE = 60.0
R = TypeVar("R")


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> str:
    """Each of the strategies in turn."""
    chosen: str = request.param
    return chosen


OpenTwo: TypeAlias = Callable[..., tuple[CoherenceCore, CoherenceCore]]


@pytest.fixture(params=["local", "stored"])
def open_two(request: pytest.FixtureRequest, strategy: str) -> Iterator[OpenTwo]:
    """Opens two clients of one store; or one of memory alone, which is both."""
    opened: list[CoherenceCore] = []

    def open_two(**options: Any) -> tuple[CoherenceCore, CoherenceCore]:
        memory = MemoryStore() if request.param == "stored" else None
        stores = [None] if memory is None else [memory, memory.another()]
        opened.extend(CoherenceCore(store, strategy=strategy, **options) for store in stores)
        return opened[0], opened[-1]

    yield open_two
    for core in opened:
        core.close()


def wait_for(reached: Callable[[], bool]) -> bool:
    """Whether something comes to be; what never does, fails."""
    until = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def reads(core: CoherenceCore, agent: str, number: int) -> bool:
    """Whether an agent reads a plan."""
    return bool(core.read(agent, "plan").value == {"v": number})


class Breakable(WrapperStore):
    """A store in front of another whose server can be away."""

    broken = False

    def _call(self, method: str, call: Callable[[], R]) -> R:
        if self.broken:
            raise Unavailable("a test took the server away. Try again.")
        return call()


class Counting(InProcessBus):
    """A bus that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.published: list[bytes] = []
        self.delivered: list[bytes] = []

    def publish(self, topic: str, message: bytes) -> None:
        self.published.append(message)
        super().publish(topic, message)

    def subscribe(
        self, topic: str, receive: Callable[[bytes], None], gap: Callable[[], None] | None = None
    ) -> Subscription:
        def counted(message: bytes) -> None:
            self.delivered.append(message)
            receive(message)

        return super().subscribe(topic, counted, gap)


# 1. An agent that waits for its model, while others work, reads an old plan for ever.


def test_an_agent_that_was_silent_reads_what_others_wrote_meanwhile(open_two: OpenTwo) -> None:
    # There, 119 calls of others "reclaimed" the silent agent's copy without recorder it, and no
    # later write reached it: lazy was stale for ever.
    here, there = open_two(crash_recovery=CrashRecoveryConfig(enabled=True))
    here.write("A", "plan", {"v": 1})
    there.read("B", "plan")
    for number in range(120):
        there.write("B", "other", {"i": number})
    there.write("B", "plan", {"v": 2})

    assert wait_for(partial(reads, here, "A", 2))
    assert wait_for(partial(reads, there, "C", 2))


def test_a_reclaimed_holder_loses_its_right_to_read_and_to_write() -> None:
    clock = Clock()
    memory = MemoryStore(clock=clock)
    recovery = CrashRecoveryConfig(enabled=True, heartbeat_timeout_ticks=10, max_hold_ticks=1000)
    with (
        CoherenceCore(memory, clock=clock, crash_recovery=recovery, bus=False) as silent,
        CoherenceCore(
            memory.another(clock=clock), clock=clock, crash_recovery=recovery, bus=False
        ) as core,
    ):
        silent.write("A", "plan", {"v": 1})
        grant = silent.hold("A", "plan")
        core.read("B", "plan")
        core.enforce_stable_grant_timeouts()  # It sees the grant for the first time.
        clock.advance(100)
        reclaimed = core.enforce_stable_grant_timeouts()
        core.write("B", "plan", {"v": 2})

        assert [(one.agent, one.artifact) for one in reclaimed] == [("A", "plan")]
        assert silent.read("A", "plan").value == {"v": 2}
        with grant, pytest.raises(Conflict):
            silent.write("A", "plan", {"v": 3})


# 2. A commit between the answer to a fetch and its entry in the cache is never heard of.


class Interrupted(MemoryStore):
    """Lets something happen just after the engine has said where a ref is."""

    happens: Callable[[], object] | None = None

    def _ref(self, space: str, name: str) -> Any:
        found = super()._ref(space, name)
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return found


def test_a_write_in_the_middle_of_a_fetch_is_seen(strategy: str) -> None:
    # There, directory and cache disagreed from then on, and all of 4 readers ended stuck.
    store = Interrupted()
    with (
        CoherenceCore(store, strategy=strategy, tick_seconds=0.05, **_short(strategy)) as reader,
        CoherenceCore(store.another()) as writer,
    ):
        writer.write("W", "plan", {"v": 1})
        store.happens = lambda: writer.write("W", "plan", {"v": 2})
        reader.read("R", "plan")

        assert wait_for(lambda: reader.read("R", "plan").value == {"v": 2})


def test_readers_and_a_writer_on_threads_end_with_the_same_version(
    open_two: OpenTwo, strategy: str
) -> None:
    here, there = open_two(tick_seconds=0.05, **_short(strategy))
    here.write("W", "plan", {"v": 0})
    done = threading.Event()

    def read(agent: str) -> None:
        while not done.is_set():
            there.read(agent, "plan")

    readers = [threading.Thread(target=read, args=(f"R{n}",)) for n in range(4)]
    for reader in readers:
        reader.start()
    for number in range(1, 300):
        here.write("W", "plan", {"v": number})
    done.set()
    for reader in readers:
        reader.join()

    for n in range(4):
        assert wait_for(partial(reads, there, f"R{n}", 299))


def _short(strategy: str) -> dict[str, Any]:
    parameters: dict[str, dict[str, Any]] = {
        "lease": {"ttl_seconds": 0.05},
        "access_count": {"max_accesses": 3},
    }
    return parameters.get(strategy, {})


# 3. An observer that fails tears a write in two.


def test_a_callback_that_raises_breaks_no_write() -> None:
    # There, the caller saw the callback's exception, the value was committed, and peers stayed
    # at the old one for ever.
    def fails(*_: object) -> None:
        raise RuntimeError("the observer is broken")

    with CoherenceCore(state_log=fails, content_audit_log=fails, on_metric=fails) as core:
        core.write("A", "plan", {"v": 1})
        core.read("B", "plan")
        core.write("A", "plan", {"v": 2})

        assert core.read("B", "plan").value == {"v": 2}
        assert core.read("A", "plan").value == {"v": 2}


# 4. A compare-and-swap without a rival is refused.


def test_a_swap_that_nobody_contends_succeeds(open_two: OpenTwo) -> None:
    # There, the sole reader held E and the last writer M, and both were refused for that.
    here, there = open_two()
    here.register_artifact("plan", {"v": 1})
    alone = there.read("A", "plan")
    first = there.write("A", "plan", {"v": 2}, if_version=alone.version)
    second = there.write("A", "plan", {"v": 3}, if_version=first.version)

    assert (first.version, second.version) == (2, 3)


def test_a_swap_that_is_contended_fails_only_with_a_conflict_and_loses_nothing() -> None:
    # There, 14 to 24 % ended in an error without a type.
    done: Counter[str] = Counter()
    with CoherenceCore() as core:
        core.write("A", "count", {"n": 0})

        def count(agent: str) -> None:
            for _ in range(100):
                seen = core.read(agent, "count")
                try:
                    core.write(agent, "count", {"n": seen.value["n"] + 1}, if_version=seen.version)
                except VersionConflict:
                    continue
                else:
                    done[agent] += 1

        threads = [threading.Thread(target=count, args=(f"A{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert core.read("B", "count").value == {"n": done.total()}


# 5. Only one process, or a coordinator in the first one: when that dies, all die.

_COUNTER = """
import sys
from ropewalk.coherence import CoherenceCore
from ropewalk.store import SqliteStore

with SqliteStore(sys.argv[1], durability="relaxed") as store, CoherenceCore(store) as core:
    core.read(sys.argv[2], "count")
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[3])):
        core.edit(sys.argv[2], "count", lambda value: {"n": value["n"] + 1})
        print("done", flush=True)
"""


def test_eight_processes_lose_no_increment_and_outlive_the_first(tmp_path: Path) -> None:
    # There, a second process saw nothing; of 8 processes on files 14 % of the calls failed; and
    # when the first process was killed, every call of the others failed from then on.
    each = 20
    with SqliteStore(tmp_path, durability="relaxed") as store, CoherenceCore(store) as core:
        core.write("main", "count", {"n": 0})
        first = _counter(tmp_path, "A0", 10_000)
        others = [_counter(tmp_path, f"A{n}", each) for n in range(1, 8)]
        for process in (first, *others):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        with first:
            landed = lines_until_killed(first, 1).count("done")
        told = [process.communicate()[0] for process in others]

        assert [process.returncode for process in others] == [0] * 7
        assert [lines.count("done") for lines in told] == [each] * 7
        count = core.read("main", "count").value["n"] - 7 * each
        assert count in (landed, landed + 1)  # It may have been killed before it could tell.


def _counter(folder: Path, agent: str, times: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _COUNTER, str(folder), agent, str(times)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


# 6. One lost message, and an agent is stale for ever.


@pytest.mark.parametrize("lose", [0.1, 1.0])
def test_lost_messages_make_nobody_stale(strategy: str, lose: float) -> None:
    # There, 1 % of lost messages made 99.3 % of the reads stale.
    store, bus = MemoryStore(), FaultyBus(InProcessBus(), seed=6, lose=lose)
    more = {"strategy": strategy, "bus": bus, "tick_seconds": 0.05, **_short(strategy)}
    with CoherenceCore(store, **more) as reader, CoherenceCore(store.another(), **more) as writer:
        for number in range(60):
            writer.write("W", "plan", {"v": number})
            writer.flush()  # Else several versions become one message.
            if strategy in ("lazy", "eager"):
                assert reader.read("R", "plan").value == {"v": number}
            else:
                assert wait_for(partial(reads, reader, "R", number))
        assert wait_for(lambda: bus.counts["lose"] > 0)  # Nobody had to wait for messages.

    bus.close()


# 7. One write makes a message for each pair of agents, and nothing is ever freed.


def test_a_write_is_one_message_however_many_read() -> None:
    # There, 100 readers made 10,000 deliveries of one put, and 400 made 160,000.
    store, bus = MemoryStore(), Counting()
    with (
        CoherenceCore(store, bus=bus) as writer,
        CoherenceCore(store.another(), bus=bus) as client,
        CoherenceCore(store.another(), bus=bus) as uninterested,
    ):
        writer.write("W", "plan", {"v": 1})
        uninterested.write("other", "else", {"v": 1})
        for number in range(100):
            client.read(f"R{number}", "plan")
        assert writer.flush() and uninterested.flush()
        bus.published.clear()
        writer.write("W", "plan", {"v": 2})
        assert writer.flush()

        (message,) = bus.published  # What was sent before may still be on its way.
        assert wait_for(lambda: message in bus.delivered)
        # The client of the hundred, and perhaps the writer's own.
        assert bus.delivered.count(message) <= 2


def test_what_was_deleted_is_freed(strategy: str) -> None:
    # There, 5,000 records of 1 KB that were written, read and deleted left 8.7 MB behind.
    with CoherenceCore(strategy=strategy) as core:
        _come_and_go(core, 0, 100)
        tracemalloc.start()
        try:
            _come_and_go(core, 100, 300)
            before = _taken()
            _come_and_go(core, 300, 800)
            grown = _taken() - before
        finally:
            tracemalloc.stop()

        assert grown < 500 * _SIZE // 10  # That there was one, and at which version, is kept.
        assert core.artifacts() == []


_SIZE = 10_000


def _taken() -> int:
    """The bytes that are in use: when rubbish is collected is not up to us."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _come_and_go(core: CoherenceCore, first: int, last: int) -> None:
    for number in range(first, last):
        core.write("A", f"note {number}", {"text": f"{number} ".rjust(_SIZE, "x")})
        core.read("B", f"note {number}")
        core.delete("A", f"note {number}")
        with pytest.raises(NotFound):
            core.read("B", f"note {number}")


def test_agents_that_are_done_leave_nothing() -> None:
    # There, 5,000 names of agents that were used once left 8.6 MB behind, and nothing freed them.
    with CoherenceCore() as core:
        core.write("A", "plan", {"v": 1})
        for number in range(100):
            core.read(f"R{number}", "plan")
            core.unregister_agent(f"R{number}")

        assert core.agents() == ["A"]


# 8. Names that differ are one artifact.


def test_names_with_separators_are_names_of_their_own() -> None:
    # There, scope "x:y" with key "z" and scope "x" with key "y:z" were one, and the second wiped
    # the first. That users are kept apart is tested beside LangGraph.
    names = ["x:y:z", "x/y/z", "x%2Fy%2Fz", "x:y/z", "x/y:z", "x", "X", "x ", "~x", "x\u0301", "é"]
    for store in (None, MemoryStore()):
        with CoherenceCore(store) as core:
            for name in names:
                core.register_artifact(name, {"name": name})

            assert [core.read("A", name).value["name"] for name in names] == names
            assert sorted(core.artifacts()) == sorted(names)


# 9. While the coordinator is away, a value reads as empty, and what is written disappears.


def test_a_degraded_read_gives_the_last_value_known_and_says_so() -> None:
    # There, an existing value read back as {}.
    store = Breakable(MemoryStore())
    with CoherenceCore(store, on_error="degrade") as core:
        core.write("A", "plan", {"v": 1})
        store.broken = True
        with pytest.warns(CoherenceDegradedWarning):
            seen = core.read("A", "plan")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoherenceDegradedWarning)
            with pytest.raises(Unavailable):
                core.read("A", "never seen")

        assert seen.value == {"v": 1} and seen.degraded
        assert core.is_degraded


def test_a_degraded_write_is_kept_and_comes_back() -> None:
    # There, a put made while degraded disappeared on recovery.
    store = Breakable(MemoryStore())
    with CoherenceCore(store, on_error="degrade") as core, warnings.catch_warnings():
        warnings.simplefilter("ignore", CoherenceDegradedWarning)
        core.write("A", "plan", {"v": 1})
        store.broken = True
        core.write("A", "plan", {"v": 2})
        store.broken = False

        assert wait_for(lambda: core.read("B", "plan").value == {"v": 2})
        assert wait_for(lambda: not core.is_degraded)


def test_a_degraded_write_is_refused_where_that_is_asked_for() -> None:
    store = Breakable(MemoryStore())
    with (
        CoherenceCore(store, on_error="degrade", degraded_writes="refuse") as core,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", CoherenceDegradedWarning)
        core.write("A", "plan", {"v": 1})
        store.broken = True
        with pytest.raises(Unavailable):
            core.write("A", "plan", {"v": 2})
        store.broken = False

        assert core.read("B", "plan").value == {"v": 1}
