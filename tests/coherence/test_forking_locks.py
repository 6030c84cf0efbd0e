"""A client in a process that was forked while other threads were busy with it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ropewalk.coherence import CoherenceCore, CrashRecoveryConfig, State
from ropewalk.coherence.logs import _end_all
from tests.coherence.conftest import OpenCore
from tests.forks import PATIENCE, code_of_child, held, locks_of

FORKING = ("local", "memory", "sqlite", "files", "postgres", "redis")
"""The driver of S3 says that it does not work in a forked process."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def brief_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a fork wait only for a moment for what is never free here."""
    monkeypatch.setattr("ropewalk.store.forking._FORK_SECONDS", 0.02)


def work_with(core: CoherenceCore) -> bool:
    """Do everything that a client can do."""
    core.write("child", "plan", {"n": 2})
    core.edit("child", "plan", lambda value: {"n": value["n"] + 1})
    core.publish("child", {"one": 1, "large": [1] * 2000})
    found = core.snapshot("reader", ["plan", "large"])["plan"].value
    core.search("child", "")
    with core.hold("child", "other") as grant:
        grant.write(5)
    core.delete("child", "one")
    list(core.history("plan").history(limit=2))
    list(core.watch(after=core.read("reader", "plan").version, timeout=0.01))
    asyncio.run(core.aread("reader", "plan"))
    asyncio.run(watch_a_little(core))
    core.heartbeat("child")
    core.recover("child")
    core.enforce_stable_grant_timeouts()
    return core.flush(20) and found == {"n": 3}


async def watch_a_little(core: CoherenceCore) -> None:
    async for _ in core.awatch(timeout=0.01):
        pass


@pytest.mark.parametrize("engine", FORKING)
@pytest.mark.parametrize("strategy", ["lazy", "broadcast"])
@pytest.mark.usefixtures("brief_waits")
def test_a_child_waits_for_no_lock_that_a_thread_of_its_parent_held(
    open_core: OpenCore, strategy: str, tmp_path: Path
) -> None:
    core = open_core(
        strategy=strategy,
        tick_seconds=0.5,
        on_error="degrade",
        # Nobody here can renew a grant while every lock is held: longer than a child may take.
        crash_recovery=CrashRecoveryConfig(True, heartbeat_timeout_ticks=4 * PATIENCE),
        state_log=tmp_path / "states.jsonl",
        content_audit_log=tmp_path / "contents.jsonl",
        on_metric=lambda _: None,
    )
    core.write("planner", "plan", {"n": 1})
    core.read("reader", "plan")
    asyncio.run(core.aread("reader", "plan"))
    grant = core.hold("planner", "held")
    assert core.flush(20)

    def work() -> bool:
        done = work_with(core)
        core.close()
        return done and not grant.release()

    with held(locks_of(core, core.store)):
        code = code_of_child(work)
    grant.write("still mine")
    grant.release()

    assert code == 0
    assert core.read("reader", "held").value == "still mine"


@pytest.mark.parametrize("engine", FORKING)
def test_a_child_of_a_busy_process_goes_on_and_so_does_its_parent(open_core: OpenCore) -> None:
    core, over = open_core(), threading.Event()
    core.write("planner", "plan", {"n": 1})

    def keep_busy(number: int) -> None:
        while not over.is_set():
            core.edit(f"busy-{number}", "plan", lambda value: {"n": value["n"] + 1})
            core.read(f"busy-{number}", "plan")

    threads = [threading.Thread(target=keep_busy, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        codes = [code_of_child(lambda: core.write("child", "mine", 1).version) for _ in range(5)]
    finally:
        over.set()
        for thread in threads:
            thread.join()

    assert codes == [0] * 5


@pytest.mark.parametrize("engine", ["sqlite", "files", "postgres", "redis"])
def test_a_child_hears_of_what_its_parent_had_subscribed_to(open_core: OpenCore) -> None:
    core = open_core(strategy="lease", ttl_seconds=3600)
    core.write("planner", "plan", 1)
    core.read("reader", "plan")
    has_read, may_go_on = Signal(), Signal()

    def work() -> bool:
        core.read("reader", "plan")
        has_read.give()
        may_go_on.wait()
        while core.read("reader", "plan").value != 2:
            time.sleep(0.001)
        return True

    with ThreadPoolExecutor(1) as threads:
        child = threads.submit(code_of_child, work)
        has_read.wait()
        core.write("planner", "plan", 2)
        may_go_on.give()

        assert child.result() == 0


@pytest.mark.parametrize("engine", ["local", "sqlite"])
def test_a_child_counts_on_no_grant_of_its_parent(open_core: OpenCore) -> None:
    core = open_core(bus=False)
    core.write("editor", "plan", 1)
    has_read, may_go_on = Signal(), Signal()

    def work() -> bool:
        core.read("editor", "plan")
        has_read.give()
        may_go_on.wait()
        newest = 1 if core.store is None else 2
        is_newest = core.read("editor", "plan").value == newest
        return is_newest and core.state("editor", "plan") is State.SHARED

    with core.hold("editor", "plan") as grant, ThreadPoolExecutor(1) as threads:
        child = threads.submit(code_of_child, work)
        has_read.wait()
        grant.write(2)
        may_go_on.give()

        assert child.result() == 0


def test_a_child_with_artifacts_of_its_own_need_not_wait_for_holders_in_its_parent() -> None:
    with CoherenceCore() as core, core.hold("editor", "plan"):
        code = code_of_child(lambda: core.write("writer", "plan", 1).version)

    assert code == 0


def test_a_child_closes_no_file_that_took_the_place_of_a_closed_log(tmp_path: Path) -> None:
    core = CoherenceCore(state_log=tmp_path / "states.jsonl")
    core.write("planner", "plan", 1)
    core.close()
    with open(tmp_path / "another", "wb", buffering=0) as another:  # The number is free again.

        def work() -> bool:
            _end_all()  # As at the end of the program.
            return another.write(b"mine") == 4

        code = code_of_child(work)

    assert code == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_child_that_does_nothing_with_a_client_starts_no_thread(open_core: OpenCore) -> None:
    core = open_core(strategy="broadcast", crash_recovery=CrashRecoveryConfig(True))
    core.write("planner", "plan", 1)
    core.read("reader", "plan")

    assert code_of_child(lambda: threading.active_count() == 1) == 0


class Signal:
    """What one process says to another."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def give(self) -> None:
        """Let the other go on."""
        os.write(self._write, b".")

    def wait(self) -> None:
        """Wait for the other."""
        os.read(self._read, 1)
        os.close(self._read)
        os.close(self._write)
