"""`ropewalk replay`: what it says about recorded logs, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk.cli.care import INVARIANTS
from ropewalk.coherence.logs import Logs, record_to
from ropewalk.coherence.replay import INVARIANTS as RULES
from tests.cli.support import here, process

FINDING = "invariant space artifact agent instance_id version message certain at"
VERDICT = (
    "ok complete findings gaps files records reads writes degraded unbounded unaudited blind "
    "artifacts agents instances"
)


def kept(folder: Path) -> None:
    with Logs(**record_to(folder), space="team", strategy="lazy", bound_seconds=0.0) as logs:
        logs.transition("plan", "planner", "INVALID", "SHARED", "register", 1, read_version=0)
        logs.delivered("planner", "plan", 1, "aa", "write", "content", 0)
        logs.delivered("reviewer", "plan", 1, "aa", "fetch", "content")


def broken(folder: Path, times: int = 1) -> None:
    with Logs(**record_to(folder), space="team", strategy="lazy", bound_seconds=0.0) as logs:
        logs.delivered("planner", "plan", 1, "aa", "write", "content", 0)
        logs.delivered("planner", "plan", 2, "bb", "write", "content", 1)
        for number in range(times):
            logs.delivered("reviewer", "plan", 3 + number, "cc", "write", "content", 1)


def without_end(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def test_a_run_that_kept_its_promises_ends_with_0(tmp_path: Path) -> None:
    kept(tmp_path)

    done = process("replay", str(tmp_path), cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "every promise was kept: looked at 1 read and 1 write of 1 artifact by 2 agents in "
        "1 process\n"
    )


def test_a_lost_update_is_one_line_and_ends_with_1(tmp_path: Path) -> None:
    broken(tmp_path)

    done = here("replay", str(tmp_path))
    first, verdict = done.out.splitlines()
    assert done.code == 1
    assert first.startswith(
        "lost-update team/plan: reviewer wrote version 3 from version 1: what version 2 changed is "
        "lost ["
    )
    assert verdict.startswith("broken (1 lost-update): looked at")


def test_logs_with_missing_records_end_with_11_if_nothing_is_broken(tmp_path: Path) -> None:
    kept(tmp_path)
    without_end(tmp_path)

    done = here("replay", str(tmp_path))
    assert done.code == 11
    assert "the state_log of" in done.out
    assert "stops before record 2" in done.out
    assert done.out.splitlines()[-1].startswith("nothing broken is certain, but records are miss")


@pytest.mark.parametrize("text", ["", "hello\n"])
def test_logs_that_tell_of_nothing_prove_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.jsonl").write_text(text)

    done = here("replay", str(tmp_path))
    assert done.code == 11
    assert done.out.startswith("nothing to judge in 1 file")


def test_what_is_broken_ends_with_1_also_if_records_are_missing(tmp_path: Path) -> None:
    broken(tmp_path)
    without_end(tmp_path)

    assert here("replay", str(tmp_path)).code == 1


def test_json_has_a_line_for_each_finding_and_gap_and_one_for_the_verdict(tmp_path: Path) -> None:
    broken(tmp_path)
    without_end(tmp_path)

    finding, gap, verdict = here("replay", str(tmp_path), "--json").records
    assert sorted(finding["finding"]) == sorted(FINDING.split())
    assert finding["finding"]["invariant"] == "lost-update"
    assert sorted(gap["gap"]) == sorted("stream expected found at_index instance_id".split())
    assert sorted(verdict) == sorted(VERDICT.split())
    assert (verdict["ok"], verdict["complete"], verdict["findings"]) == (False, False, 1)


def test_people_are_shown_a_few_of_many_findings(tmp_path: Path) -> None:
    broken(tmp_path, times=1)
    for _ in range(24):
        broken(tmp_path)

    text = here("replay", str(tmp_path), "--invariant", "lost-update").out
    assert text.count("is lost") == 20
    assert "lost-update: 5 more; --json shows all" in text


def test_quiet_says_only_which_promises_were_broken(tmp_path: Path) -> None:
    broken(tmp_path / "broken")
    kept(tmp_path / "kept")

    assert here("replay", str(tmp_path / "broken"), "--quiet").out == "lost-update\n"
    assert here("replay", str(tmp_path / "kept"), "--quiet").out == ""


def test_only_the_invariant_that_is_named_counts(tmp_path: Path) -> None:
    broken(tmp_path)

    done = here("replay", str(tmp_path), "--invariant", "stale-read")
    assert done.code == 0
    assert done.out.startswith("no stale-read was found: looked at")


def test_a_state_log_alone_ends_with_11(tmp_path: Path) -> None:
    kept(tmp_path)
    (states,) = tmp_path.glob("*.state.jsonl")

    done = here("replay", str(states))
    assert done.code == 11
    assert "the reads of 1 process are in no log that was named" in done.out


def test_several_files_are_one_run(tmp_path: Path) -> None:
    kept(tmp_path)
    files = sorted(str(one) for one in tmp_path.glob("*.jsonl"))

    done = here("replay", *files, "--json")
    assert len(files) == 2
    assert done.record["files"] == 2


def test_the_help_names_every_invariant_that_there_is() -> None:
    assert list(RULES) == INVARIANTS


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("missing.jsonl",), 4, "missing.jsonl"),
        (("empty",), 4, "no file *.jsonl"),
        (("other.jsonl",), 3, "line 1 of"),
        (("other.jsonl", "--invariant", "fresh"), 2, "there are stale-read"),
    ],
)
def test_what_cannot_be_read_is_an_error(
    empty: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (empty / "empty").mkdir()
    (empty / "other.jsonl").write_text('{"name": "x"}\n')

    done = here("replay", *arguments)
    assert done.code == code
    assert said in done.err
