"""The contract of `--json`: which names each command gives, and how values are said."""

from __future__ import annotations

import json
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import ip_network
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import numpy
import polars
import pytest

from ropewalk import Timeline
from ropewalk.cli.output import plain, same
from ropewalk.tree import ABSENT
from tests.cli.support import Done, damage, here, process

STEP = "id hash parents agent branch description logic_step status merged error time metadata"
OPERATION = "sequence time action moves metadata write_id"
CHECKED = "ok problems spaces refs operations objects read_data"

CONTRACT: dict[str, tuple[tuple[str, ...], str]] = {
    "init": (("init",), "store engine created"),
    "agents": (("agents",), "name current_branch branches checkpoints head"),
    "log": (("log",), STEP),
    "tree": (
        ("tree",),
        "id depth hidden hidden_failures status description branches current tags merges merged "
        "error",
    ),
    "branches": (("branches",), "name current head checkpoints"),
    "show": (("show",), f"{STEP} state traceback"),
    "show path": (("show", "main", "stage"), "id path value"),
    "diff": (("diff",), "kind path old new"),
    "blame": (("blame", "stage"), f"{STEP} path"),
    "bisect": (("bisect", "stage", "reviews"), f"{STEP} path"),
    "branch": (("branch", "new"), "branch head checkpoints created"),
    "branch --delete": (("branch", "-d", "main"), "deleted head dry_run"),
    "switch": (("switch", "main"), "branch head checkpoints"),
    "rollback": (("rollback",), f"{STEP} head_of"),
    "merge": (("merge", "main"), f"{STEP} head_of"),
    "cherry-pick": (("cherry-pick", "reviews-first"), f"{STEP} head_of"),
    "revert": (("revert", "reviews-first"), f"{STEP} head_of"),
    "fork": (("fork", "second"), "agent branch head"),
    "undo": (("undo",), f"{OPERATION} of"),
    "tag": (("tag", "v1"), "tag id"),
    "ops": (("ops",), OPERATION),
    "metrics": (
        ("metrics",),
        "checkpoints branches tags failed_attempts rollbacks merges undos operations",
    ),
    "export": (("export", "run.session"), "file agent bytes"),
    "stats": (
        ("stats",),
        "objects stored payload reached shared freed freed_bytes commits operations disk spaces",
    ),
    "check": (("check",), CHECKED),
    "gc": (("gc",), "kept kept_bytes freed freed_bytes dry_run"),
    "migrate": (
        ("migrate", "copy"),
        "objects bytes present spaces operations lost left",
    ),
}


@pytest.mark.parametrize("case", CONTRACT)
def test_a_command_gives_the_names_that_are_documented(page: Path, case: str) -> None:
    arguments, names = CONTRACT[case]

    done = here(*arguments, "--json")
    assert done.code == 0, done.err
    assert done.err == ""
    assert done.records
    assert all(sorted(record) == sorted(names.split()) for record in done.records)


def test_redo_import_and_demo_give_theirs(page: Path) -> None:
    here("rollback")
    here("undo")
    here("export", "run.session")

    redone = here("redo", "--json").record
    assert sorted(redone) == sorted(f"{OPERATION} of".split())
    assert redone["of"] == {"sequence": 6, "action": "rollback"}
    told = here("import", "run.session", "--name", "copy", "--json").record
    assert told == {"agent": "copy", "checkpoints": 3}
    assert here("demo", "--json").record == {"store": ".ropewalk", "agent": "demo"}


def test_each_name_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
    _, _, contract = page.partition("\n## JSON\n")
    words = set(re.findall(r"`(\w+)`", contract))

    assert {name for _, names in CONTRACT.values() for name in names.split()} <= words


def test_lines_are_whole_and_plain_in_a_pipe(page: Path) -> None:
    done = process("log", "--json", cwd=page)

    assert len(done.records) == 2
    assert done.out.isascii()
    assert "\x1b" not in done.out


def test_a_problem_comes_before_the_verdict(page: Path) -> None:
    damage(page)

    done = here("check", "--read-data", "--json")
    *problems, verdict = done.records
    assert done.code == 1
    assert [sorted(one["problem"]) for one in problems] == [["code", "message", "subject"]] * len(
        problems
    )
    assert (verdict["ok"], verdict["problems"]) == (False, len(problems))


ERRORS: list[tuple[Callable[[], Done], str, int]] = [
    (lambda: here("show", "nothing", "--json"), "not-found", 4),
    (lambda: here("rollback", "0", "--json"), "invalid-input", 3),
    (lambda: here("log", "--agent", "../x\0", "--json"), "invalid-name", 3),
    (lambda: here("branch", "main", "--at", "main", "--json"), "conflict", 5),
    (lambda: here("bisect", "stage", "--json"), "usage", 2),
]


@pytest.mark.parametrize(("call", "error", "code"), ERRORS, ids=[one[1] for one in ERRORS])
def test_an_error_is_one_object_on_the_other_stream(
    page: Path, call: Callable[[], Done], error: str, code: int
) -> None:
    done = call()
    told = json.loads(done.err)

    assert done.out == ""
    assert sorted(told) == ["error", "exit_code", "hint", "message"]
    assert (told["error"], told["exit_code"], done.code) == (error, code, code)


MISUSED = [
    ("log", "--bogus"), ("log", "--limit", "many"), ("blame",), ("show", "a", "b", "c"),
    ("nothing",), (),
]  # fmt: skip


@pytest.mark.parametrize("arguments", MISUSED, ids=" ".join)
def test_a_wrong_call_is_one_object_too(empty: Path, arguments: tuple[str, ...]) -> None:
    done = here("--json", *arguments) if not arguments else here(*arguments, "--json")
    told = json.loads(done.err)

    assert (done.code, done.out) == (2, "")
    assert sorted(told) == ["error", "exit_code", "hint", "message"]
    assert (told["error"], told["exit_code"]) == ("usage", 2)
    assert "--help" in told["hint"]
    assert "Usage:" in here(*arguments, "--bogus").err


def test_a_wrong_call_of_the_program_itself_is_one_object(empty: Path) -> None:
    done = process("log", "--bogus", "--json", cwd=empty)

    assert (done.code, done.out) == (2, "")
    assert "--bogus" in json.loads(done.err)["message"]
    assert process("log", "--json", "--help", cwd=empty).code == 0


def test_a_conflict_lists_its_paths(agent: Timeline) -> None:
    agent.switch_branch("main")
    agent.checkpoint({"task": "x", "stage": "ours"})

    told = json.loads(here("merge", "reviews-first", "--json").err)
    assert told["conflicts"] == [
        {"path": "stage", "base": "parse", "ours": "ours", "theirs": "reviews"}
    ]


VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (2**70, 2**70),
    (16**5000, {"$int": "0x1" + "0" * 5000}),
    (float("nan"), {"$float": "nan"}),
    (float("-inf"), {"$float": "-inf"}),
    ((1, [2]), {"$tuple": [1, [2]]}),
    ({3, 1}, {"$set": [1, 3]}),
    (frozenset("a"), {"$frozenset": ["a"]}),
    (b"\xff", {"$bytes": "/w=="}),
    (bytearray(b"\xff"), {"$bytearray": "/w=="}),
    ({1: "x", "y": 2}, {"$dict": [[1, "x"], ["y", 2]]}),
    ({"$x": 1}, {"$dict": [["$x", 1]]}),
    (1 + 2j, {"$complex": [1.0, 2.0]}),
    (datetime(2026, 1, 2, tzinfo=UTC), {"$datetime": "2026-01-02T00:00:00+00:00"}),
    (date(2026, 1, 2), {"$date": "2026-01-02"}),
    (time(1, 2), {"$time": "01:02:00"}),
    (timedelta(days=-1, seconds=5), {"$timedelta": [-1, 5, 0]}),
    (UUID(int=1), {"$uuid": "00000000-0000-0000-0000-000000000001"}),
    (Decimal("1.10"), {"$decimal": "1.10"}),
    (PurePosixPath("a/b"), {"$path": "a/b"}),
    (deque([1, (2,)], 3), {"$deque": {"items": [1, {"$tuple": [2]}], "maxlen": 3}}),
    (OrderedDict(b=1, a=2), {"$ordered_dict": [["b", 1], ["a", 2]]}),
    (Counter("aa"), {"$counter": [["a", 2]]}),
    (defaultdict(list, x=[1]), {"$default_dict": {"factory": "list", "items": [["x", [1]]]}}),
    (range(1, 9, 2), {"$range": [1, 9, 2]}),
    (Fraction(3, 4), {"$fraction": "3/4"}),
    (re.compile("a|b", re.I), {"$pattern": {"pattern": "a|b", "flags": 34}}),
    (ip_network("10.0.0.0/8"), {"$ip": "10.0.0.0/8"}),
    (numpy.array([1, 2], "int8"), {"$array": {"dtype": "int8", "items": [1, 2]}}),
    (
        polars.Series("n", ["a", None]),
        {"$frame": {"kind": "polars.Series", "parts": ["n", "String", ["a", None], None]}},
    ),
    (ABSENT, {"$absent": True}),
]


@pytest.mark.parametrize(("value", "said"), VALUES, ids=[repr(one[1])[:30] for one in VALUES])
def test_a_value_that_json_cannot_say_is_said_by_the_rule(value: Any, said: Any) -> None:
    assert plain(value) == said
    assert plain([{"deep": value}]) == [{"deep": said}]


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0, False), ("1", 1)])
def test_equal_means_equal_as_json(one: Any, other: Any) -> None:
    assert not same(one, other)
    assert same(one, one)


def test_state_of_many_types_is_shown(agent: Timeline) -> None:
    state = {str(number): value for number, (value, _) in enumerate(VALUES[:-1])}
    agent.checkpoint(state)

    told = here("show", "--json").record["state"]
    assert told == {str(number): said for number, (_, said) in enumerate(VALUES[:-1])}
