"""What `replay` finds in the logs of a run, and what it must not take for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ropewalk.coherence import CoherenceCore
from ropewalk.coherence.logs import Logs, record_to
from ropewalk.coherence.replay import replay
from ropewalk.errors import InvalidInput, NotFound
from tests.coherence.runs import Run, found_in


def test_a_run_that_kept_its_promises_has_no_findings(run: Run) -> None:
    run.write("a", 1, 1, read_version=0)
    run.read("b", 1, 2)
    run.write("b", 2, 3, read_version=1)
    run.read("a", 2, 4)
    run.state("a", "EXCLUSIVE", 5, token=1)
    run.write("a", 3, 6, read_version=2, token=1)
    run.state("a", "SHARED", 7, "release")

    done = replay(run.save())
    assert done.findings == []
    assert done.ok
    assert done.complete
    assert (done.reads, done.writes, done.agents, done.artifacts) == (2, 3, 2, 1)
    assert (done.records, done.files, done.instances) == (7, 2, 1)


# Stale reads.


def test_a_read_that_began_after_a_later_version_was_written_is_stale(run: Run) -> None:
    run.write("a", 1, 1)
    run.write("a", 2, 2)
    run.read("b", 1, 3)

    done = replay(run.save())
    assert found_in(done) == ["stale-read"]
    assert (done.findings[0].agent, done.findings[0].version) == ("b", 1)
    assert "read version 1, which was overwritten 1.000000 s before" in done.findings[0].message
    assert done.findings[0].at == "one.content_audit_log.jsonl:4"


def test_a_read_that_began_before_a_later_version_was_written_is_not(run: Run) -> None:
    run.write("a", 1, 1)
    run.write("a", 2, 3)
    run.read("b", 1, 4, began=2)

    assert run.found() == []


def test_a_read_within_the_bound_is_not_stale(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", strategy="lease", bound_seconds=5.0)
    run.write("a", 1, 1)
    run.write("a", 2, 2)
    run.read("b", 1, 7)
    run.read("c", 1, 8)

    done = replay(run.save())
    assert [(one.invariant, one.agent) for one in done.findings] == [("stale-read", "c")]


def test_a_version_that_was_only_read_is_known_as_well(run: Run) -> None:
    run.read("a", 2, 2)
    run.read("b", 1, 3)

    assert run.found() == ["stale-read"]


def test_finding_nothing_where_something_was_written_is_stale(run: Run) -> None:
    run.read("b", 0, 1, outcome="empty")
    run.write("a", 1, 2)
    run.read("b", 0, 3, outcome="empty")

    done = replay(run.save())
    assert [(one.invariant, one.at[-2:]) for one in done.findings] == [("stale-read", ":4")]


def test_as_many_late_reads_as_were_promised_are_allowed(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", strategy="access_count", bound_seconds=None, bound_reads=2)
    run.write("a", 1, 1)
    run.write("a", 2, 2)
    for at in (3, 4, 5):
        run.read("b", 1, at)

    done = replay(run.save())
    assert [one.at[-2:] for one in done.findings] == [":6"]


def test_a_degraded_read_is_no_stale_read_and_is_counted(run: Run) -> None:
    run.write("a", 1, 1)
    run.write("a", 2, 2)
    run.read("b", 1, 3, degraded=True)

    done = replay(run.save())
    assert done.findings == []
    assert done.degraded == 1


def test_reads_without_a_bound_are_counted_and_not_judged(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", bound_seconds=None)
    run.write("a", 1, 1)
    run.write("a", 2, 2)
    run.read("b", 1, 3)

    done = replay(run.save())
    assert done.findings == []
    assert done.unbounded == 1


def test_clocks_that_differ_are_allowed_for(run: Run) -> None:
    run.write("a", 1, 1)
    run.write("a", 2, 2)
    run.read("b", 1, 3)

    assert run.found(skew_seconds=2) == []


def test_a_write_of_one_process_makes_a_read_of_another_stale(tmp_path: Path) -> None:
    writer, reader = (Run(tmp_path / "run", instance=one) for one in ("writer", "reader"))
    writer.write("a", 1, 1)
    writer.write("a", 2, 2)
    writer.save()
    reader.read("b", 1, 3)

    done = replay(reader.save())
    assert [one.instance_id for one in done.findings] == ["reader"]


# Lost updates.


def test_a_write_from_an_older_version_loses_what_was_between(run: Run) -> None:
    run.write("a", 1, 1, read_version=0)
    run.write("a", 2, 2, read_version=1)
    run.write("b", 3, 3, read_version=1)

    done = replay(run.save())
    assert found_in(done) == ["lost-update"]
    assert done.findings[0].message == (
        "wrote version 3 from version 1: what version 2 changed is lost"
    )


def test_a_write_that_was_merged_loses_nothing(run: Run) -> None:
    run.write("a", 1, 1, read_version=0)
    run.write("a", 2, 2, read_version=1)
    run.write("b", 3, 3, read_version=1, merged=True)

    assert run.found() == []


def test_what_an_agent_wrote_itself_is_not_lost_to_it(run: Run) -> None:
    run.write("a", 1, 1, read_version=0)
    run.write("a", 2, 2, read_version=1)
    run.write("a", 3, 3, read_version=1)

    assert run.found() == []


def test_who_never_saw_an_artifact_loses_nothing_by_replacing_it(run: Run) -> None:
    run.write("a", 1, 1, read_version=0)
    run.write("b", 2, 2, read_version=0)
    run.write("b", 3, 3, read_version=0)

    done = replay(run.save())
    assert done.findings == []
    assert done.blind == 1


@pytest.mark.parametrize("way", ["merged", "whole", "unseen", "gone"])
def test_what_is_replaced_without_a_read_is_counted_and_no_lost_update(
    tmp_path: Path, way: str
) -> None:
    with CoherenceCore(**record_to(tmp_path)) as core:
        writer = "other" if way == "unseen" else "planner"
        core.write("planner", "plan", {"a": 1, "b": 1})
        core.edit("reviewer", "plan", lambda _: {"a": 2, "b": 2})
        if way == "gone":
            core.delete("reviewer", "plan")
        core.write(writer, "plan", {"a": 3, "b": 1 if way == "merged" else 3})

    found = replay(tmp_path)
    assert found.findings == [] and found.complete
    assert found.blind == (way != "gone")


def test_a_write_that_does_not_say_so_was_made_from_what_its_agent_saw_last(run: Run) -> None:
    run.write("a", 1, 1)
    run.read("b", 1, 2)
    run.read("a", 1, 2)
    run.write("a", 2, 3)
    run.write("b", 3, 4)

    done = replay(run.save())
    assert [(one.invariant, one.agent) for one in done.findings] == [("lost-update", "b")]


def test_a_delete_is_made_from_nothing_unless_it_says_so(run: Run) -> None:
    run.write("a", 1, 1)
    run.read("b", 1, 2)
    run.write("a", 2, 3)
    run.write("b", 3, 4, outcome="empty")

    assert run.found() == []


def test_the_increments_that_get_and_put_lose_are_found_in_logs_of_another_kind(
    tmp_path: Path,
) -> None:
    # Four agents read, add one and put, without versions: as logs that have neither time,
    # order nor read_version tell it.
    records = []
    for at, (agent, source, version) in enumerate(
        [
            ("a", "write", 2),
            ("a", "cache_hit", 2),
            ("b", "fetch", 2),
            ("a", "write", 3),
            ("b", "write", 4),
        ],
        1,
    ):
        records.append({
            "tick": at, "agent_id": agent, "agent_name": agent, "artifact_id": "counter",
            "version": version, "content_hash": str(version), "source": source,
            "outcome": "content", "sequence_number": at, "instance_id": "one",
            "schema_version": "other.content_audit.v1",
        })  # fmt: skip
    path = tmp_path / "audit.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records))

    done = replay(path)
    assert [(one.invariant, one.agent, one.version) for one in done.findings] == [
        ("lost-update", "b", 4)
    ]


def test_a_state_log_alone_shows_a_lost_update(run: Run) -> None:
    run.state("a", "SHARED", 1, "commit_cas", version=1, read_version=0)
    run.state("a", "SHARED", 2, "commit_cas", version=2, read_version=1)
    run.state("b", "INVALID", 2, "invalidate", version=2)
    run.state("b", "SHARED", 3, "commit_cas", version=3, read_version=1)

    assert run.found() == ["lost-update"]


def test_a_state_log_alone_proves_nothing_about_reads(run: Run) -> None:
    run.state("a", "SHARED", 1, "commit_cas", version=1, read_version=0)
    run.read("b", 1, 2)
    folder = run.save()
    (states,) = folder.glob("*state_log*")

    assert replay(folder).unaudited == 0
    alone = replay(states)
    assert (alone.ok, alone.complete, alone.unaudited) == (True, False, 1)
    assert replay(states, invariants=["single-writer"]).complete


def test_threads_may_write_their_states_down_in_another_order(run: Run) -> None:
    run.state("a", "SHARED", 2, "commit_cas", version=2, read_version=1)
    run.state("b", "SHARED", 3, "commit_cas", version=1, read_version=0)

    assert run.found() == []


# What is read.


def test_artifacts_of_different_spaces_are_different(tmp_path: Path) -> None:
    for space in ("first", "second"):
        with Logs(**record_to(tmp_path), space=space, bound_seconds=0.0) as logs:
            logs.delivered("a", "plan", 1, None, "write", "content", 0)

    done = replay(tmp_path)
    assert done.findings == []
    assert done.artifacts == 2


def test_only_the_invariants_that_are_named_are_looked_at(run: Run) -> None:
    run.write("a", 1, 1)
    run.write("a", 2, 2, read_version=1)
    run.read("b", 1, 3)
    run.write("b", 3, 4, read_version=1)

    assert run.found() == ["stale-read", "lost-update"]
    assert run.found(invariants=["lost-update"]) == ["lost-update"]


def test_an_invariant_that_does_not_exist_is_refused(run: Run) -> None:
    with pytest.raises(InvalidInput, match="there are stale-read, lost-update"):
        run.found(invariants=["fresh"])


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no file \*.jsonl"):
        replay(tmp_path)


def test_what_is_no_log_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"name": "x"}\n')

    with pytest.raises(InvalidInput, match=r"line 1 of .*other.jsonl is no record"):
        replay(path)


def test_metrics_in_the_folder_are_passed_over(tmp_path: Path) -> None:
    logs = Logs(**record_to(tmp_path), on_metric=tmp_path / "metrics.jsonl", bound_seconds=0.0)
    with logs:
        logs.metric("get", ("a", "shared"), "plan", "a", True)
        logs.delivered("a", "plan", 1, None, "write", "content", 0)

    done = replay(tmp_path)
    assert (done.records, done.complete) == (1, True)


def test_a_torn_line_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with Logs(content_audit_log=path, bound_seconds=0.0) as logs:
        logs.delivered("a", "plan", 1, None, "write", "content", 0)
        logs.delivered("a", "plan", 2, None, "write", "content", 1)
    path.write_bytes(path.read_bytes()[:-250])

    done = replay(path)
    assert len(done.gaps) == 1
    assert done.records == 1
