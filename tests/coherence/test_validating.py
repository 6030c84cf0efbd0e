"""What `validate_log` finds, and what it must not take for a mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.coherence import CoherenceCore
from ropewalk.coherence.logs import Logs
from ropewalk.coherence.records import Gap, SchemaMismatch, validate_log
from ropewalk.errors import InvalidInput


def recorded(path: Path, count: int = 5, instance: str = "one") -> list[dict[str, Any]]:
    with Logs(path, instance_id=instance) as logs:
        for version in range(1, count + 1):
            logs.transition("plan", "planner", "INVALID", "SHARED", "fetch", version)
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


def test_a_whole_log_has_neither_gaps_nor_mismatches(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    recorded(path)

    assert validate_log(path) == ([], [])


def test_an_empty_log_is_whole(tmp_path: Path) -> None:
    assert validate_log(written(tmp_path / "log.jsonl", [])) == ([], [])


@pytest.mark.parametrize("stream", ["content_audit_log", "content_audit", "metric"])
def test_the_other_streams_are_checked_in_the_same_way(tmp_path: Path, stream: str) -> None:
    path = tmp_path / "log.jsonl"
    with Logs(content_audit_log=path) if "audit" in stream else Logs(on_metric=path) as logs:
        logs.delivered("planner", "plan", 1, None, "fetch", "content")
        logs.metric("get", ("planner", "shared"), "plan", "planner", False)

    assert len(path.read_text().splitlines()) == 3
    assert validate_log(path, stream) == ([], [])


def test_a_record_that_was_taken_out_is_a_gap(tmp_path: Path) -> None:
    records = recorded(tmp_path / "log.jsonl")
    del records[3]

    gaps, _ = validate_log(written(tmp_path / "cut.jsonl", records))
    assert gaps == [Gap("state_log", expected=3, found=4, at_index=3, instance_id="one")]


def test_records_that_changed_places_are_gaps(tmp_path: Path) -> None:
    records = recorded(tmp_path / "log.jsonl")
    records[2], records[3] = records[3], records[2]

    gaps, _ = validate_log(written(tmp_path / "swapped.jsonl", records))
    assert [(one.expected, one.found) for one in gaps] == [(2, 3), (4, 2), (3, 4)]


def test_what_was_dropped_is_a_gap_although_it_was_told(tmp_path: Path) -> None:
    records = recorded(tmp_path / "log.jsonl")
    lost = {"record": "dropped", "last_sequence_number": 4, "count": 2}
    records[3:5] = [{**records[3], **lost}]

    gaps, _ = validate_log(written(tmp_path / "dropped.jsonl", records))
    assert gaps == [Gap("state_log", expected=3, found=5, at_index=3, instance_id="one")]


def test_an_end_that_was_cut_off_is_a_gap(tmp_path: Path) -> None:
    records = recorded(tmp_path / "log.jsonl")

    gaps, _ = validate_log(written(tmp_path / "cut.jsonl", records[:-2]))
    assert gaps == [Gap("state_log", expected=5, found=None, at_index=5, instance_id="one")]


def test_a_log_that_is_still_written_to_may_have_no_end(tmp_path: Path) -> None:
    records = recorded(tmp_path / "log.jsonl")
    path = written(tmp_path / "open.jsonl", records[:-1])

    assert validate_log(path, complete=False) == ([], [])


def test_a_line_that_was_torn_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    recorded(path)
    path.write_bytes(path.read_bytes()[:-250])

    gaps, _ = validate_log(path, complete=False)
    assert [(one.expected, one.found) for one in gaps] == [(5, None)]


def test_a_run_after_a_killed_one_does_not_hide_that_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    recorded(path, instance="killed")
    path.write_bytes(path.read_bytes()[:-250])
    with Logs(path) as logs:
        logs.transition("plan", "planner", "INVALID", "SHARED", "fetch", 1)

    gaps, mismatches = validate_log(path)
    assert [(one.instance_id, one.expected, one.found) for one in gaps] == [("killed", 5, None)]
    assert mismatches == []


def test_the_same_instance_may_begin_again(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    recorded(path)
    recorded(path)

    assert validate_log(path) == ([], [])


def test_instances_that_wrote_by_turns_are_told_apart(tmp_path: Path) -> None:
    one = recorded(tmp_path / "one.jsonl", instance="one")
    two = recorded(tmp_path / "two.jsonl", instance="two")
    mixed = [record for pair in zip(one, two, strict=True) for record in pair]

    assert validate_log(written(tmp_path / "mixed.jsonl", mixed)) == ([], [])


@pytest.mark.parametrize("first", [0, 1])
def test_a_log_of_a_callback_counts_from_its_first_record(tmp_path: Path, first: int) -> None:
    records = recorded(tmp_path / "log.jsonl")[1:-1]
    for number, one in enumerate(records, first):
        one["sequence_number"] = number

    assert validate_log(written(tmp_path / "called.jsonl", records)) == ([], [])


def test_a_log_of_a_callback_that_lacks_its_beginning_is_a_gap(tmp_path: Path) -> None:
    records = recorded(tmp_path / "log.jsonl")[3:-1]

    gaps, _ = validate_log(written(tmp_path / "called.jsonl", records))
    assert [(one.expected, one.found) for one in gaps] == [(1, 3)]


def test_another_version_of_the_fields_is_a_mismatch(tmp_path: Path) -> None:
    records = recorded(tmp_path / "log.jsonl")
    records[2]["schema_version"] = "ropewalk.state_log.v9"

    _, mismatches = validate_log(written(tmp_path / "other.jsonl", records))
    assert mismatches == [
        SchemaMismatch("state_log", "ropewalk.state_log.v9", "ropewalk.state_log.v1", 2)
    ]


def test_the_version_that_is_expected_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    recorded(path, count=1)

    _, mismatches = validate_log(path, schema_version="ropewalk.state_log.v9")
    assert [one.at_index for one in mismatches] == [0, 1, 2]


@pytest.mark.parametrize("field", ["sequence_number", "instance_id", "schema_version", "trigger"])
def test_a_record_without_a_field_is_refused_with_its_line(tmp_path: Path, field: str) -> None:
    records = recorded(tmp_path / "log.jsonl")
    del records[2][field]
    path = written(tmp_path / "less.jsonl", records)

    with pytest.raises(InvalidInput, match=f"line 3 of .* has no field '{field}'"):
        validate_log(path)


def test_a_stream_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are state_log, content_audit_log, metric"):
        validate_log(tmp_path / "log.jsonl", stream="states")


def test_a_log_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        validate_log(tmp_path / "log.jsonl")


@given(data=st.data(), count=st.integers(1, 12))
def test_whatever_is_taken_out_is_noticed_with_the_numbers_that_are_missing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, count: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    records = recorded(folder / "log.jsonl", count)
    taken = data.draw(st.sets(st.integers(1, count), min_size=1))
    left = [one for one in records if one["sequence_number"] not in taken]

    gaps, _ = validate_log(written(folder / "cut.jsonl", left))
    missing = {
        number for one in gaps if one.found is not None for number in range(one.expected, one.found)
    }
    assert missing == taken


def test_which_log_it_is_its_first_record_says(tmp_path: Path) -> None:
    audit, metrics = tmp_path / "audit.jsonl", tmp_path / "metrics.jsonl"
    with CoherenceCore(content_audit_log=audit, on_metric=metrics) as core:
        core.write("planner", "plan", 1)

    assert validate_log(audit) == ([], [])
    assert validate_log(metrics) == ([], [])
    assert validate_log(audit, "state_log")[1] != []
