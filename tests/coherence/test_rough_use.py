"""What users do that nobody would do on purpose."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ropewalk import SqliteStore
from ropewalk.coherence import CoherenceCore
from ropewalk.errors import InvalidInput
from ropewalk.store import MemoryStore
from tests.coherence.conftest import OpenCore


def end(_: Any) -> Any:
    """A change of a value that finds nothing to iterate over."""
    return next(iter([]))


def test_a_change_that_ends_an_iteration_is_told_to_its_task() -> None:
    async def edit(core: CoherenceCore) -> None:
        await asyncio.wait_for(core.aedit("planner", "plan", end), 30)

    with CoherenceCore() as core:
        core.write("planner", "plan", 1)

        with pytest.raises(RuntimeError, match="StopIteration"):
            asyncio.run(edit(core))


def test_a_watcher_that_leaves_while_it_is_woken_harms_no_writer() -> None:
    with CoherenceCore() as core:
        watcher = ExitStack()
        watcher.enter_context(core._authority.waking(lambda: None))
        with core._authority.waking(watcher.close):
            written = core.write("planner", "plan", 1)

    assert written.version == 1


def test_clients_that_share_an_instance_id_hear_each_other() -> None:
    store = MemoryStore()
    one = CoherenceCore(store, instance_id="same", strategy="lease", ttl_seconds=3600)
    other = CoherenceCore(store, instance_id="same", strategy="lease", ttl_seconds=3600)
    with one, other:
        one.write("planner", "plan", 1)
        other.read("reader", "plan")
        one.write("planner", "plan", 2)
        one.flush()
        values = iter(lambda: other.read("reader", "plan").value, None)

        assert next(value for value in values if value == 2) == 2


def test_what_an_instance_with_an_at_sign_left_behind_is_ended(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store:
        CoherenceCore(store, instance_id="worker@host").hold("editor", "plan")  # It crashes.
        with CoherenceCore(store, instance_id="worker@host") as again:
            again.recover("editor")

            assert again.write("another", "plan", 1).version == 1


def test_clients_that_were_dropped_leave_no_thread_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with SqliteStore(tmp_path / "store") as store:
        for number in range(3):
            core = CoherenceCore(store, name=f"artifacts-{number}")
            core.write("planner", "plan", 1)
            core.read("reader", "plan")
            del core
        gc.collect()
        left = [one for one in set(threading.enumerate()) - before if "bus-log" in one.name]
        with CoherenceCore(store):  # Who comes next sees to what others left.
            for thread in left:
                thread.join(30)

        assert [one for one in left if one.is_alive()] == []


@pytest.mark.parametrize("engine", ["local", "sqlite"])
def test_names_that_cannot_be_written_down_are_refused_everywhere(core: CoherenceCore) -> None:
    with pytest.raises(InvalidInput, match="an artifact is a name"):
        core.write("planner", "half of a \ud83d", 1)
    with pytest.raises(InvalidInput, match="an agent is a name"):
        core.write("half of a \ud83d", "plan", 1)


NAMES = [
    "a" * 10_000,
    "a/b//c",
    "../../etc/passwd",
    "nul\0inside",
    "К",  # As the Latin K looks, and is not.
    "K",
    "é",
    "e\u0301",
    "~" + "0" * 64,
    " ",
    "\n",
    "@",
    "a@b@c",
    "%40",
]


@pytest.mark.parametrize("engine", ["local", "memory", "sqlite", "files", "postgres", "redis"])
def test_names_of_any_kind_are_all_different_artifacts(open_core: OpenCore) -> None:
    writer, reader = open_core(), open_core()
    for number, name in enumerate(NAMES):
        writer.write("planner", name, number)
    if writer.store is None:
        reader = writer

    assert [reader.read("reader", name).value for name in NAMES] == list(range(len(NAMES)))
    assert reader.artifacts() == sorted(NAMES)
    for name in NAMES:
        with reader.hold("reader", name) as grant:
            grant.write("held")
    assert {one.value for one in writer.search("planner")} == {"held"}
