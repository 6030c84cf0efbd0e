"""Every command, on a store that a script of the page has just written in another process."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ropewalk import Timeline
from tests.cli.support import PROGRAM, Done, environment, here, process


def test_a_tree_shows_status_forks_and_names(page: Path) -> None:
    *lines, legend = here("tree").out.splitlines()

    assert [line.split(" [")[0] for line in lines] == [
        "● Parsed request",
        "├─ ○ Collected candidates",
        "● review_aggregation",
    ]
    assert lines[0].endswith("(main)")
    assert lines[2].endswith("(reviews-first *)")
    assert legend == (
        "Signs: ● active  ○ rolled back  ↺ recovered  ✗ failed  ⋮ not shown  * current branch"
    )


def test_a_legend_has_the_signs_that_the_terminal_can_say(page: Path) -> None:
    done = process("tree", cwd=page, env={"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})

    *lines, legend = done.out.splitlines()
    assert [line.split(" [")[0] for line in lines][:2] == [
        "* Parsed request",
        "|- o Collected candidates",
    ]
    assert legend.startswith("Signs: * active  o rolled back  r recovered  ! failed  : not shown")


def test_a_tree_for_programs_has_no_legend(page: Path) -> None:
    assert "recovered" not in here("tree", "--json").out + here("tree", "-q").out


def test_a_tree_can_be_cut_and_unfolded(agent: Timeline) -> None:
    for number in range(40):
        agent.checkpoint({"n": number}, description=f"Step {number}")

    assert ": 38 more steps" in here("tree", "--fold", "4").out.replace("⋮", ":")
    assert len(here("tree", "--all").out.splitlines()) == 44
    assert here("tree", "-n", "1").out.startswith("● Step 39")


def test_a_log_goes_back_from_the_head(page: Path) -> None:
    newest, oldest = here("log").out.splitlines()

    assert newest.endswith("review_aggregation (reviews-first *)")
    assert oldest.endswith("Parsed request (main)")
    assert len(here("log", "--limit", "1").out.splitlines()) == 1
    assert len(here("log", "--branch", "main").out.splitlines()) == 1


def test_a_log_can_be_about_failed_attempts(agent: Timeline) -> None:
    def fail(state: object) -> object:
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError):
        agent.safe_execute(fail, {"stage": "call"}, "call", max_retries=1)

    (line,) = here("log", "--failed").out.splitlines()
    assert line.endswith("TimeoutError: no answer")
    failed = here("log", "--failed", "-q").out.strip()
    assert "in fail" in here("show", failed).out


def test_show_gives_a_checkpoint_or_a_place_in_it(page: Path) -> None:
    lost = here("tree", "-q").out.split()[1]

    assert '"results": [' in here("show", lost).out
    assert here("show", lost[:6], "results[1]").out == '"La Cabra"\n'
    assert '"stage": "reviews"' in here("show").out


def test_diff_without_names_is_about_the_last_step(page: Path) -> None:
    assert here("diff").out.splitlines() == [
        "- state[\"stage\"]: 'parse'",
        "+ state[\"stage\"]: 'reviews'",
    ]
    assert here("diff", "main", "main").out == "no differences\n"
    assert here("diff", "--branch", "main").code == 3


def test_diff_can_say_by_its_code_that_there_are_differences(page: Path) -> None:
    assert here("diff", "main", "--exit-code").code == 1
    assert here("diff", "main", "main", "--exit-code").code == 0


def test_large_and_odd_values_are_compared_too(agent: Timeline) -> None:
    agent.checkpoint({"page": "x" * 100_000, "number": 1, "rows": list(range(9000))})
    agent.checkpoint({"page": "y" * 100_000, "number": 10**5000, "rows": list(range(9001))})

    told = {one["path"]: one for one in here("diff", "--json").records}
    assert sorted(told) == ["number", "page", "rows[9000]"]
    assert told["page"]["new"] == "y" * 100_000
    assert "too long to show" in here("diff").out
    assert here("show").code == 0


def test_blame_and_bisect_find_steps(agent: Timeline) -> None:
    for number in range(20):
        agent.checkpoint({"n": number, "found": number > 7}, description=f"Step {number}")

    assert here("blame", "found").out.endswith("Step 8\n")
    assert here("bisect", "found", "true").out.endswith("Step 8\n")
    assert here("bisect", "n", "4", "--test", "above").out.endswith("Step 5\n")
    assert here("bisect", "n", "--exists").out.endswith("Step 0\n")
    assert here("bisect", "stage", "--test", "missing").out.endswith("Step 0\n")
    assert here("bisect", "n", "1").code == 4
    assert here("bisect", "n").code == 2
    assert here("bisect", "n", "x", "--test", "below").code == 2


def test_branches_are_made_switched_and_removed(page: Path) -> None:
    assert here("branch", "idea", "--at", "main").code == 0
    assert "* idea" in here("branches").out
    assert here("switch", "main").out.startswith("Switched to branch main")
    assert "Would remove branch idea" in here("branch", "idea", "--delete", "--dry-run").out
    assert here("branches", "-q").out.split() == ["idea", "main", "reviews-first"]
    assert here("branch", "idea", "--delete").code == 0
    assert here("branch", "-q").out.split() == ["main", "reviews-first"]


def test_rollback_undo_and_redo_move_the_head(page: Path) -> None:
    head = here("log", "-q", "-n", "1").out
    assert "reviews-first is at" in here("rollback").out
    before = here("log", "-q", "-n", "1").out

    assert before != head
    moved = f"reviews-first is at {head[:8]}"
    assert here("undo").out == f"Undid operation 6 (rollback): {moved}\n"
    assert here("log", "-q", "-n", "1").out == head
    assert (
        here("redo").out == f"Redid operation 6 (rollback): {moved.replace(head[:8], before[:8])}\n"
    )
    assert here("log", "-q", "-n", "1").out == before
    newest, older = here("ops", "-n", "2").out.splitlines()
    assert "redo of 6" in newest and "undo of 6" in older
    assert here("rollback", "--to", before.strip()).code == 0


def test_a_rollback_past_the_first_step_goes_to_the_first_and_warns(page: Path) -> None:
    first = here("log", "-q").out.split()[-1]

    done = here("rollback", "9")

    assert f"reviews-first is at * {first[:8]}" in done.out
    assert done.err.startswith("Warning: branch 'reviews-first'")
    assert (done.code, len(done.err.splitlines())) == (0, 1)


def test_a_warning_is_json_where_everything_else_is(page: Path) -> None:
    done = here("rollback", "9", "--json")

    assert json.loads(done.err)["warning"].startswith("branch 'reviews-first' can go back by 1")
    assert done.record["head_of"] == "reviews-first"


def test_a_branch_that_exists_is_switched_to(page: Path) -> None:
    assert here("branch", "idea").out.startswith("Created and switched to branch idea at ")
    assert here("branch", "main").out.startswith("Switched to existing branch main at ")
    assert not here("branch", "main", "--json").record["created"]
    assert "* main" in here("branches").out


def test_rollback_of_another_branch_leaves_the_current_one(agent: Timeline) -> None:
    agent.switch_branch("main")
    agent.checkpoint({"stage": "more"})
    agent.switch_branch("reviews-first")

    assert here("rollback", "--branch", "main").code == 0
    assert "* reviews-first" in here("branches").out
    assert len(here("log", "-q", "--branch", "main").out.split()) == 1


def test_merge_brings_a_branch_in(page: Path) -> None:
    here("switch", "main")

    done = here("merge", "reviews-first", "-m", "Took the reviews")
    assert "main is at" in done.out
    assert '"stage": "reviews"' in here("show").out


def test_a_conflict_names_both_sides_and_can_be_settled(agent: Timeline) -> None:
    agent.switch_branch("main")
    agent.checkpoint({"task": "Find best coffee shops in NYC", "stage": "ours", "notes": ["a"]})

    refused = here("merge", "reviews-first")
    assert refused.code == 5
    assert 'stage: it was "parse", ours is "ours", theirs is "reviews"' in refused.err
    assert "--strategy" in refused.err
    assert here("merge", "reviews-first", "--merger", "stage=theirs").code == 0
    assert here("show", "main", "stage").out == '"reviews"\n'
    assert here("merge", "reviews-first", "--merger", "stage").code == 2
    assert here("merge", "main", "--strategy", "guess").code == 3


def test_steps_are_picked_and_reverted(page: Path) -> None:
    lost = here("tree", "-q").out.split()[1]
    here("switch", "main")

    assert here("cherry-pick", lost).code == 0
    assert here("show", "main", "results[0]").out == '"Devocion"\n'
    head = here("log", "-q", "-n", "1").out.strip()
    assert here("revert", head).code == 0
    assert here("show", "main", "stage").out == '"parse"\n'


def test_fork_begins_another_timeline(page: Path) -> None:
    assert here("fork", "second", "--at", "main").code == 0

    assert here("agents", "-q").out.split() == ["research-agent", "second"]
    assert len(here("log", "-q", "--agent", "second").out.split()) == 1
    assert here("fork", "second", "--agent", "research-agent").code == 5


def test_tags_are_made_listed_and_removed(page: Path) -> None:
    assert here("tag", "released", "--at", "main").code == 0

    assert here("tag").out.startswith("released ")
    assert here("show", "released", "stage").out == '"parse"\n'
    assert "Would remove" in here("tag", "released", "-d", "--dry-run").out
    assert here("tag", "-q").out == "released\n"
    assert here("tag", "released", "--delete").code == 0
    assert here("tag").out == ""


def test_operations_are_listed_newest_first(page: Path) -> None:
    told = [line.split()[1] for line in here("ops").out.splitlines()]

    assert told == ["commit", "branch", "rollback", "commit", "commit"]
    assert len(here("ops", "-n", "2").out.splitlines()) == 2


def test_operations_are_shown_as_they_happen(agent: Timeline, page: Path) -> None:
    watching = subprocess.Popen(
        [*PROGRAM, "ops", "--watch", "--json"],
        cwd=page, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.2):  # Until somebody watches and has seen one.
            agent.checkpoint({"stage": "watched"})

    worker = threading.Thread(target=work)
    worker.start()
    try:
        told = json.loads(watching.stdout.readline())
    finally:
        done.set()
        worker.join()
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=60)

    assert told["action"] == "commit"
    assert (watching.returncode, "Interrupted" in said) == (130, True)


def test_a_session_goes_out_and_comes_back(page: Path) -> None:
    assert here("export", "run.session").code == 0
    assert here("import", "run.session", "--name", "copy").out == "Imported copy: 3 steps\n"

    assert here("tree", "--agent", "copy").out == here("tree", "--agent", "research-agent").out
    assert here("export", "run.session", "--agent", "copy").code == 5
    assert here("import", "run.session").code == 5
    assert here("import", "none.session").code == 4


def test_a_store_is_checked_collected_counted_and_copied(page: Path) -> None:
    here("branch", "-d", "main")

    assert here("check", "--read-data").out.startswith("sound: ")
    assert here("gc", "--recent", "1", "--dry-run").out.startswith("Would delete ")
    assert here("gc", "--recent", "1").out.startswith("Deleted ")
    assert "research-agent" in here("stats").out
    assert here("migrate", "file://copy").out.startswith("Copied ")
    assert here("log", "-q", "--store", "copy").out == here("log", "-q").out
    assert here("check", "--store", "file://copy").code == 0
    assert here("migrate", ".ropewalk").code == 5


def test_a_dry_run_deletes_nothing(page: Path) -> None:
    here("rollback")
    before = here("stats", "--json").record["objects"]

    told = here("gc", "--recent", "1", "--dry-run", "--json").record
    assert told["dry_run"] is True
    assert here("stats", "--json").record["objects"] == before


QUIET: list[Callable[[], Done]] = [
    lambda: here("rollback", "-q"),
    lambda: here("undo", "-q"),
    lambda: here("tag", "x", "-q"),
    lambda: here("check", "-q"),
    lambda: here("gc", "-q"),
    lambda: here("init", "-q"),
]


def test_quiet_commands_say_nothing_if_all_went_well(page: Path) -> None:
    assert [one() for one in QUIET] == [Done(0, "", "")] * len(QUIET)


@pytest.mark.parametrize("command", ["--help", "-h", "--version"])
def test_the_program_says_what_it_is(command: str) -> None:
    assert "ropewalk" in here(command).out
