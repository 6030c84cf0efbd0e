"""What the logs promise: every record once, in order, numbered; nobody who looks on breaks them."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from ropewalk.coherence.logs import Logs, record_to
from ropewalk.coherence.records import (
    CONTENT_AUDIT_FIELDS,
    METRIC_FIELDS,
    STATE_LOG_FIELDS,
    StoreMetricEvent,
)
from ropewalk.errors import InvalidInput, NotAllowed
from tests.coherence.log_records import WAIT, fetched, happened, read, records_in


def test_a_transition_has_the_twelve_fields_first_and_more_behind_them() -> None:
    seen: list[dict[str, Any]] = []
    with Logs(state_log=seen.append, instance_id="one") as logs:
        logs.transition("plan", "planner", "SHARED", "MODIFIED", "commit", 4, "ab12", token=7)

    assert list(seen[0])[:12] == STATE_LOG_FIELDS
    assert seen[0] | {"time": 0} == {
        "tick": 0,
        "artifact_id": "plan",
        "agent_id": "planner@one",
        "agent_name": "planner",
        "from_state": "SHARED",
        "to_state": "MODIFIED",
        "trigger": "commit",
        "version": 4,
        "content_hash": "ab12",
        "sequence_number": 1,
        "instance_id": "one",
        "schema_version": "ropewalk.state_log.v1",
        "order": 1,
        "time": 0,
        "read_version": None,
        "token": 7,
    }


def test_a_delivery_has_the_eleven_fields_first_and_more_behind_them() -> None:
    seen: list[dict[str, Any]] = []
    with Logs(content_audit_log=seen.append) as logs:
        logs.delivered("planner", "plan", 3, "ab12", "write", "content", 2, began=5, merged=True)

    assert list(seen[0])[:11] == CONTENT_AUDIT_FIELDS
    assert (seen[0]["read_version"], seen[0]["began"], seen[0]["merged"]) == (2, 5, True)


def test_a_metric_comes_as_an_event_with_the_eleven_fields() -> None:
    seen: list[StoreMetricEvent] = []
    with Logs(on_metric=seen.append) as logs:
        logs.metric("get", ["planner", "shared"], "plan", "planner", True, tokens_consumed=1)

    assert list(StoreMetricEvent._fields)[:11] == METRIC_FIELDS
    assert (seen[0].operation, seen[0].namespace) == ("get", ("planner", "shared"))
    assert (seen[0].cache_hit, seen[0].tokens_consumed) == (True, 1)


def test_a_hash_is_computed_by_the_worker_and_not_by_the_caller() -> None:
    seen: list[dict[str, Any]] = []
    threads: list[int] = []

    def compute() -> str:
        threads.append(threading.get_ident())
        return "ab12"

    with Logs(content_audit_log=seen.append) as logs:
        logs.delivered("planner", "plan", 1, compute, "fetch", "content")

    assert seen[0]["content_hash"] == "ab12"
    assert threads != [threading.get_ident()]


def test_nobody_who_looks_on_means_that_nothing_is_wanted() -> None:
    logs = Logs()

    assert not logs.enabled
    assert not (logs.wants_transitions or logs.wants_deliveries or logs.wants_metrics)


def test_a_log_wants_what_it_has_a_sink_for_until_it_is_closed(tmp_path: Path) -> None:
    logs = Logs(content_audit_log=tmp_path / "audit.jsonl")
    wanted = (logs.wants_transitions, logs.wants_deliveries, logs.wants_metrics)
    logs.close()

    assert wanted == (False, True, False)
    assert not logs.enabled


def test_a_file_begins_with_what_was_promised_and_ends_with_the_count(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    with Logs(path, instance_id="one", space="team", strategy="lease", bound_seconds=2.5) as logs:
        fetched(logs, 1)
        fetched(logs, 2)

    begin, *between, end = records_in(path)
    assert (begin["record"], begin["space"], begin["strategy"]) == ("begin", "team", "lease")
    assert (begin["bound_seconds"], begin["bound_reads"]) == (2.5, None)
    assert [one["sequence_number"] for one in between] == [1, 2]
    assert (end["record"], end["records"], end["sequence_number"]) == ("end", 2, 3)


def test_a_second_run_is_appended_to_the_first(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    for version in (1, 2):
        with Logs(path) as logs:
            fetched(logs, version)

    assert [one["version"] for one in happened(path)] == [1, 2]


def test_a_line_that_was_torn_stays_alone_when_the_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    path.write_text('{"tick":0,"artif')
    with Logs(path) as logs:
        fetched(logs, 1)

    torn, begin, *_ = path.read_text().splitlines()
    assert torn == '{"tick":0,"artif'
    assert json.loads(begin)["record"] == "begin"


def test_an_open_file_is_written_to_and_left_open() -> None:
    file = io.StringIO()
    with Logs(file) as logs:
        fetched(logs, 1)

    assert not file.closed
    assert len(file.getvalue().splitlines()) == 3


def test_what_is_no_sink_is_refused() -> None:
    with pytest.raises(InvalidInput, match="state_log is of int"):
        Logs(state_log=3)  # type: ignore[arg-type]


def test_a_log_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match=r"missing/log.jsonl' cannot be written: No such file"):
        Logs(state_log=tmp_path / "log.jsonl", content_audit_log=tmp_path / "missing/log.jsonl")


def test_a_pipe_can_be_a_log(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    logs = Logs(path)
    reader = os.open(path, os.O_RDONLY)
    fetched(logs, 1)
    logs.close()
    with os.fdopen(reader) as file:
        lines = file.read().splitlines()

    assert len(lines) == 3


def test_flush_waits_until_everything_was_written(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    logs = Logs(path)
    for version in range(100):
        fetched(logs, version)
        assert logs.flush(WAIT)

        assert happened(path)[-1]["version"] == version
    logs.close()


def test_flush_says_so_if_a_callback_does_not_end_in_time() -> None:
    go_on = threading.Event()
    logs = Logs(state_log=lambda _: go_on.wait(WAIT))
    fetched(logs, 1)
    in_time = logs.flush(0.01)
    go_on.set()

    assert not in_time
    assert logs.flush(WAIT)
    logs.close()


def test_records_of_many_threads_are_numbered_without_gaps_in_the_order_of_their_times() -> None:
    seen: list[dict[str, Any]] = []
    logs = Logs(state_log=seen.append)

    def fetch_all() -> None:
        for version in range(500):
            fetched(logs, version)

    threads = [threading.Thread(target=fetch_all) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    logs.close()

    assert [one["sequence_number"] for one in seen] == list(range(1, 4001))
    times = [one["time"] for one in seen]
    assert times == sorted(times)


def test_the_order_goes_through_all_streams() -> None:
    seen: list[dict[str, Any]] = []
    logs = Logs(state_log=seen.append, content_audit_log=seen.append)
    for version in range(5):
        fetched(logs, version)
        read(logs, version)
    logs.close()

    told = sorted((one["order"], "trigger" in one) for one in seen)
    assert told == [(number, number % 2 == 1) for number in range(1, 11)]


def test_a_closed_log_takes_no_more_and_may_be_closed_again(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    logs = Logs(path)
    fetched(logs, 1)
    logs.close()
    fetched(logs, 2)
    logs.close()

    assert [one["version"] for one in happened(path)] == [1]


def test_a_log_that_nobody_holds_any_more_ends_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    logs = Logs(path)
    fetched(logs, 1)
    stream = logs._streams[0]
    del logs

    assert stream.join(WAIT)
    assert records_in(path)[-1]["record"] == "end"


def test_record_to_names_new_files_in_a_folder_each_time(tmp_path: Path) -> None:
    first, second = (record_to(tmp_path / "runs") for _ in range(2))

    assert set(first) == {"state_log", "content_audit_log"}
    assert not set(first.values()) & set(second.values())
