"""Those who look on: callbacks that raise or are slow, full queues, full disks."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from ropewalk.coherence.logs import Logs
from tests.coherence.log_records import WAIT, fetched, read, records_in


def test_a_raising_callback_breaks_nothing_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[dict[str, Any]] = []

    def refuse(record: dict[str, Any]) -> None:
        raise RuntimeError("no")

    caplog.set_level(logging.WARNING, "ropewalk.coherence")
    with Logs(state_log=refuse, content_audit_log=seen.append) as logs:
        for version in range(10):
            fetched(logs, version)
            read(logs, version)

    assert len(seen) == 10
    assert logs.failures == 10
    assert len([one for one in caplog.records if "breaks nothing else" in one.message]) == 1


def test_a_callback_that_raises_once_gets_the_records_after_it() -> None:
    seen: list[int] = []

    def refuse_the_second(record: dict[str, Any]) -> None:
        if record["version"] == 2:
            raise RuntimeError("no")
        seen.append(record["version"])

    with Logs(state_log=refuse_the_second) as logs:
        for version in (1, 2, 3):
            fetched(logs, version)

    assert seen == [1, 3]


def test_a_hash_that_cannot_be_computed_loses_that_record_visibly(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def fail() -> str:
        raise RuntimeError("no")

    with Logs(content_audit_log=path) as logs:
        read(logs, 1)
        logs.delivered("planner", "plan", 2, fail, "fetch", "content")
        read(logs, 3)

    kinds = [one.get("record", one.get("version")) for one in records_in(path)]
    assert kinds == ["begin", 1, "dropped", 3, "end"]
    assert (logs.dropped, logs.failures) == (1, 1)


class _Stuck:
    """A callback that waits in its first call until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.seen: list[dict[str, Any]] = []

    def __call__(self, record: dict[str, Any]) -> None:
        self.begun.set()
        assert self.go_on.wait(WAIT)
        self.seen.append(record)


def test_a_slow_callback_delays_neither_the_caller_nor_another_log() -> None:
    stuck = _Stuck()
    seen: list[dict[str, Any]] = []
    logs = Logs(state_log=stuck, content_audit_log=seen.append)
    fetched(logs, 1)
    assert stuck.begun.wait(WAIT)
    read(logs, 1)
    logs._streams[1].flush(WAIT)
    seen_meanwhile = len(seen)
    stuck.go_on.set()
    logs.close()

    assert seen_meanwhile == 1


def test_closing_says_how_much_a_slow_callback_has_not_got(
    caplog: pytest.LogCaptureFixture,
) -> None:
    go_on, seen = threading.Event(), []

    def wait(record: dict[str, Any]) -> None:
        go_on.wait(WAIT)
        seen.append(record)

    caplog.set_level(logging.WARNING, "ropewalk.coherence")
    logs = Logs(state_log=wait)
    for version in range(1, 8):
        fetched(logs, version)
    logs.close(timeout=0.01)
    told = [one.message for one in caplog.records]
    go_on.set()
    logs.close(timeout=WAIT)

    assert told == [
        "state_log: its sink is slow, and up to 7 records are not handed over yet. They are as "
        "long as the program runs."
    ]
    assert len(seen) == 7


def test_a_full_queue_drops_records_and_their_numbers_show_it() -> None:
    stuck = _Stuck()
    logs = Logs(state_log=stuck, capacity=3)
    fetched(logs, 1)
    assert stuck.begun.wait(WAIT)
    for version in range(2, 11):
        fetched(logs, version)
    dropped = logs.dropped
    stuck.go_on.set()
    assert logs.flush(WAIT)
    fetched(logs, 11)
    logs.close()

    assert dropped == 6
    assert [one["sequence_number"] for one in stuck.seen] == [1, 2, 3, 4, 11]


def test_a_file_has_a_record_where_others_were_dropped() -> None:
    written: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            begun.set()
            assert go_on.wait(WAIT)
            written.extend(text.splitlines())
            return len(text)

    logs = Logs(state_log=Slow(), capacity=2)
    fetched(logs, 1)
    assert begun.wait(WAIT)
    for version in range(2, 8):
        fetched(logs, version)
    go_on.set()
    logs.close()

    told = [json.loads(one) for one in written]
    [lost] = [one for one in told if one.get("record") == "dropped"]
    assert lost["sequence_number"] + lost["count"] - 1 == lost["last_sequence_number"] == 7
    assert told[-1]["dropped"] == lost["count"] == logs.dropped


def test_what_a_full_disk_refuses_is_told_as_soon_as_there_is_room() -> None:
    written: list[dict[str, Any]] = []
    full = [True]

    class Disk(io.StringIO):
        def write(self, text: str) -> int:
            if full[0]:
                raise OSError(28, "no room")
            written.extend(json.loads(one) for one in text.splitlines())
            return len(text)

    logs = Logs(state_log=Disk())
    fetched(logs, 1)
    fetched(logs, 2)
    assert logs.flush(WAIT)
    full[0] = False
    fetched(logs, 3)
    logs.close()

    kinds = [one.get("record", one["sequence_number"]) for one in written]
    assert kinds == ["dropped", 3, "end"]
    assert (written[0]["sequence_number"], written[0]["last_sequence_number"]) == (1, 2)


def test_a_callback_may_close_its_own_log() -> None:
    seen: list[int] = []
    holder: list[Logs] = []

    def close(record: dict[str, Any]) -> None:
        seen.append(record["version"])
        holder[0].close()

    holder.append(Logs(state_log=close))
    fetched(holder[0], 1)
    holder[0]._streams[0].join(WAIT)

    assert seen == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_callback_that_wants_to_end_the_program_ends_not_even_its_log(
    error: type[BaseException],
) -> None:
    seen: list[int] = []

    def callback(record: dict[str, Any]) -> None:
        seen.append(record["version"])
        if record["version"] == 1:
            raise error

    with Logs(state_log=callback) as logs:
        for version in (1, 2, 3):
            fetched(logs, version)

    assert seen == [1, 2, 3]
    assert logs.failures == 1
