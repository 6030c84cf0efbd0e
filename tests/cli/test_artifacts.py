"""Artifacts that agents share, at the command line: which there are, and their history."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ropewalk
from ropewalk import Store, Timeline
from ropewalk.coherence import CoherenceCore
from tests.cli.support import Done, environment, here, process

LONG = "notes/" + "n" * 400
PLAN = ("--artifact", "plan")


@pytest.fixture
def store(empty: Path) -> Iterator[Store]:
    """The store of the current folder."""
    with ropewalk.open(empty / ".ropewalk") as opened:
        yield opened


@pytest.fixture
def trip(store: Store) -> CoherenceCore:
    """The only set in the store."""
    core = CoherenceCore(store, name="trip")
    core.write("planner", "plan", {"hotel": "Central"})
    core.write("reviewer", "plan", {"hotel": "Central", "train": "TGV"})
    core.read("planner", "plan")
    core.publish("planner", {"plan": {"hotel": "Royal", "train": "TGV"}, LONG: ["first"]})
    return core


def on(*arguments: str) -> Done:
    """A command that must go well."""
    done = here(*arguments)
    assert done.code == 0, done.err
    return done


def told(done: Done) -> list[str]:
    """What lines say after the time."""
    return [line.split("Z ", 1)[-1] for line in done.out.splitlines()]


# Which artifacts there are.


def test_artifacts_are_listed_with_their_versions_and_writers(trip: CoherenceCore) -> None:
    trip.write("planner", "budget", 1)
    trip.delete("planner", "budget")
    trip.write("reviewer", LONG, ["second"])

    assert told(on("artifacts")) == [
        f"{LONG} of set trip version 2 by reviewer",
        "plan of set trip version 3 by planner",
    ]
    assert on("artifacts", "-q", "--limit", "1").out == f"{LONG}\n"


def test_artifacts_are_objects_of_json(trip: CoherenceCore) -> None:
    (record,) = [one for one in on("artifacts", "--json").records if one["name"] == "plan"]

    assert sorted(record) == ["agent", "name", "set", "time", "version"]
    assert (record["set"], record["version"], record["agent"]) == ("trip", 3, "planner")


def test_artifacts_of_one_set_can_be_listed(trip: CoherenceCore, store: Store) -> None:
    CoherenceCore(store).write("planner", "other", 1)

    assert on("artifacts", "-q", "--set", "shared").out == "other\n"
    assert len(on("artifacts", "-q").out.splitlines()) == 3
    unknown = here("artifacts", "--set", "nope")
    assert unknown.code == 4
    assert "it has 'shared', 'trip'" in unknown.err


def test_a_store_without_artifacts_lists_none(page: Path) -> None:
    assert here("artifacts") == Done(0, "", "")
    assert here("log", *PLAN).code == 4


def test_agents_says_that_there_are_artifacts(trip: CoherenceCore, store: Store) -> None:
    hint = "and artifacts of set 'trip': `ropewalk artifacts` lists them\n"
    assert on("agents").out == hint
    assert on("agents", "-q").out == on("agents", "--json").out == ""

    Timeline("worker", store).checkpoint({})
    assert on("agents").out == "worker 1 steps on main, 1 branch(es)\n" + hint


def test_stats_names_sets_and_artifacts(trip: CoherenceCore) -> None:
    lines = on("stats").out.splitlines()

    assert any(line.startswith("artifacts of set trip ") for line in lines)
    assert any(line.endswith(f" alone  {LONG}") for line in lines)
    assert "~" not in on("stats").out


# Choosing one.


def test_without_a_name_the_only_set_is_meant_or_the_usual_one(
    trip: CoherenceCore, store: Store
) -> None:
    assert len(on("log", *PLAN).out.splitlines()) == 3

    other = CoherenceCore(store, name="other")
    other.write("planner", "plan", 1)
    several = here("log", *PLAN)
    assert several.code == 2
    assert "2 sets of artifacts: 'other', 'trip'" in several.err
    assert "--set" in several.err

    CoherenceCore(store).write("planner", "plan", 1)
    assert len(on("log", *PLAN).out.splitlines()) == 1
    assert len(on("log", *PLAN, "--set", "trip").out.splitlines()) == 3


def test_an_unknown_artifact_or_set_is_not_made(trip: CoherenceCore, store: Store) -> None:
    CoherenceCore(store).write("planner", "other", 1)
    nowhere, elsewhere = here("log", "--artifact", "nope"), here("log", *PLAN)
    unknown = here("log", *PLAN, "--set", "nope")

    assert (nowhere.code, elsewhere.code, unknown.code) == (4, 4, 4)
    assert "set 'shared' has no artifact 'nope'; it has 'other'" in nowhere.err
    assert "there is one in 'trip': add --set" in elsewhere.err
    assert "no set of artifacts 'nope'; it has 'shared', 'trip'" in unknown.err
    assert store.spaces() == ["coherence/shared", "coherence/trip"]


def test_a_set_is_not_an_agent(trip: CoherenceCore) -> None:
    nothing, taken = here("log"), here("log", "--agent", "trip")
    alone = here("log", "--set", "trip")

    assert (nothing.code, taken.code, alone.code) == (2, 4, 2)
    assert "but artifacts, in set 'trip'" in nothing.err
    assert "a set of artifacts of that name" in taken.err
    assert f"{LONG!r}, 'plan'" in alone.err
    for done in (nothing, taken, alone):
        assert "--artifact" in done.err


def test_an_empty_name_is_called_so(trip: CoherenceCore) -> None:
    wrong = here("log", "--artifact", "")

    assert wrong.code == 2
    assert "--artifact is empty" in wrong.err


@pytest.mark.parametrize(
    "more", [("--agent", "x"), ("--thread", "x"), ("--user", "x"), ("--branch", "main")]
)
def test_an_artifact_is_one_timeline(trip: CoherenceCore, more: tuple[str, str]) -> None:
    assert here("log", *PLAN, *more).code == 2
    assert on("log", *PLAN, "--branch", "plan").out == on("log", *PLAN).out


def test_the_shell_completes_artifacts_and_sets(trip: CoherenceCore, empty: Path) -> None:
    def completed(line: str) -> list[str]:
        env = {
            "_ROPEWALK_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        return process(cwd=empty, env=env).out.split()

    assert completed("ropewalk log --artifact pl") == ["plan"]
    assert completed("ropewalk artifacts --set t") == ["trip"]
    assert completed("ropewalk log --set none --artifact pl") == []


# Its history.


def test_an_artifact_has_a_log_and_a_tree(trip: CoherenceCore) -> None:
    trip.delete("reviewer", "plan")

    assert told(on("log", *PLAN)) == [
        "deleted, version 4 by reviewer (plan *)",
        "version 3 by planner",
        "version 2 by reviewer, replaced version 1 unread",
        "version 1 by planner",
    ]
    assert [line.split(" [")[0] for line in on("tree", *PLAN).out.splitlines()[:-1]] == [
        "● version 1 by planner",
        "● version 2 by reviewer, replaced version 1 unread",
        "● version 3 by planner",
        "● deleted, version 4 by reviewer",
    ]
    marks = "version", "deleted", "replaced"
    assert [tuple(map(one.get, marks)) for one in on("log", *PLAN, "--json").records] == [
        (4, True, False), (3, False, False), (2, False, True), (1, False, False),
    ]  # fmt: skip


def test_versions_are_shown_and_compared_by_their_numbers(trip: CoherenceCore) -> None:
    assert on("show", "2", "train", *PLAN).out == '"TGV"\n'
    assert on("show", *PLAN, "--json").record["state"] == {"hotel": "Royal", "train": "TGV"}
    assert "agent       reviewer" in on("show", "2", *PLAN).out
    assert on("diff", *PLAN, "-q").out == "hotel\n"
    assert on("diff", "1", "2", *PLAN).out == "+ state[\"train\"]: 'TGV'\n"


def test_blame_and_bisect_find_the_version(trip: CoherenceCore) -> None:
    assert on("blame", "train", *PLAN, "--json").record["version"] == 2
    assert on("bisect", "hotel", "Royal", *PLAN, "--json").record["version"] == 3


def test_what_was_done_is_told_by_the_names_of_artifacts(trip: CoherenceCore) -> None:
    trip.write("planner", "budget", 1)
    lines = on("ops", *PLAN).out.splitlines()

    assert len(lines) == 3
    assert f"artifact {LONG} new -> " in lines[0]
    assert "artifact plan " in lines[0]
    assert on("metrics", *PLAN, "--json").record["checkpoints"] == 3


def test_a_name_that_is_no_name_of_a_branch_is_shown_as_it_is(trip: CoherenceCore) -> None:
    for arguments in (("log",), ("tree",), ("branches",), ("show",), ("ops",)):
        shown = on(*arguments, "--artifact", LONG).out

        assert LONG[:50] in shown
        assert "~" not in shown


def test_a_name_of_two_lines_is_shown_on_one(trip: CoherenceCore) -> None:
    odd = "two\nlines\x1b"
    trip.write("planner", odd, 1)

    assert told(on("artifacts", "--limit", "1")) == [
        "two\\nlines\\x1b of set trip version 1 by planner"
    ]
    for arguments in (("log",), ("tree", "-q"), ("branches",), ("ops",)):
        assert len(on(*arguments, "--artifact", odd).out.splitlines()) == 1
    assert "(two lines *)" in on("tree", "--artifact", odd).out.splitlines()[0]


@pytest.mark.parametrize(
    "command",
    [
        ("rollback",), ("undo",), ("redo",), ("branch", "b"), ("switch", "b"), ("merge", "b"),
        ("cherry-pick", "2"), ("revert", "2"), ("fork", "f"), ("tag", "t"), ("export", "f.session"),
    ],
    ids=lambda given: given[0],
)  # fmt: skip
def test_only_agents_change_an_artifact(trip: CoherenceCore, command: tuple[str, ...]) -> None:
    refused = here(*command, *PLAN)

    assert refused.code == 3
    assert "only their writes add to it" in refused.err
    assert trip.read("planner", "plan").version == 3


def test_looking_at_artifacts_changes_no_byte(
    trip: CoherenceCore, store: Store, empty: Path
) -> None:
    trip.close()
    store.close()

    def content() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in empty.rglob("*") if file.is_file()}

    before = content()
    for arguments in (("log",), ("tree",), ("show",), ("diff",), ("ops",)):
        on(*arguments, *PLAN)
    on("artifacts")

    assert content() == before


def test_other_commands_do_not_load_the_layer_of_artifacts(page: Path) -> None:
    program = (
        "import sys\n"
        "from ropewalk.cli.app import app\n"
        "for line in ('log', 'tree', 'agents', 'stats', 'threads', 'artifacts'):\n"
        "    app([line], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.startswith('ropewalk.coherence')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=page, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.splitlines()[-1] == "[]"
