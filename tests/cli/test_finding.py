"""Which store and timeline a command is about, and that looking makes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ropewalk
from ropewalk import Timeline, Versioned
from tests.cli.support import here, script


def test_the_nearest_folder_upwards_is_used(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = page / "src" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)

    assert "Parsed request" in here("log").out


def test_the_environment_names_a_store_and_an_option_goes_before_it(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = str(tmp_path / "other")
    with Timeline("else", other) as timeline:
        timeline.checkpoint({}, description="Elsewhere")

    assert "Elsewhere" in here("log", env={"ROPEWALK_STORE": other}).out
    told = here("log", "--store", str(page / ".ropewalk"), env={"ROPEWALK_STORE": other})
    assert "Parsed request" in told.out


LOOKING = [
    ("log",), ("tree",), ("branches",), ("show",), ("diff",), ("blame", "x"), ("ops",),
    ("metrics",), ("agents",), ("stats",), ("check",), ("gc",), ("undo",), ("tag", "x"),
    ("export", "f"), ("migrate", "target"), ("switch", "x"), ("fork", "x"), ("artifacts",),
]  # fmt: skip


@pytest.mark.parametrize("arguments", LOOKING, ids=lambda given: given[0])
def test_without_a_store_a_command_says_how_to_get_one(
    empty: Path, arguments: tuple[str, ...]
) -> None:
    done = here(*arguments)

    assert done.code == 4
    assert "ropewalk init" in done.err
    assert "--store" in done.err
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("arguments", LOOKING, ids=lambda given: given[0])
def test_a_store_that_is_not_there_is_not_made(empty: Path, arguments: tuple[str, ...]) -> None:
    assert here(*arguments, "--store", "none").code == 4
    assert here(*arguments, "--store", "file://none").code == 4

    assert list(empty.iterdir()) == []


@pytest.fixture
def several(agent: Timeline) -> Timeline:
    """A store with two timelines, of which the second changed last."""
    second = Timeline("second", agent.store)
    second.checkpoint({"stage": "begun"}, description="Of the second")
    second.branch("other")
    second.tag("v1")
    return second


READING = [
    ("log",), ("tree",), ("branches",), ("branch",), ("show",), ("show", "other"), ("tag",),
    ("blame", "stage"), ("bisect", "stage", "begun"), ("ops",), ("metrics",),
]  # fmt: skip
CHANGING = [
    ("branch", "new"), ("branch", "--delete", "other"), ("switch", "main"), ("rollback",),
    ("branch", "--delete", "--dry-run", "other"), ("merge", "other"), ("cherry-pick", "other"),
    ("revert", "other"), ("fork", "third"), ("undo",), ("redo",), ("tag", "v2"),
    ("tag", "--delete", "v1"),
]  # fmt: skip


def test_of_several_timelines_looking_takes_the_one_that_changed_last(several: Timeline) -> None:
    for arguments in READING:
        found, named = here(*arguments), here(*arguments, "--timeline", "second")

        assert (found.code, found.out) == (0, named.out), arguments
        assert (found.err.count("\n"), named.err) == (1, "")
        assert "'second'" in found.err and "--timeline" in found.err
    assert here("export", "run.session", "--json").record["agent"] == "second"


def test_of_several_timelines_none_is_changed_that_was_not_named(several: Timeline) -> None:
    before = several.last_operations(limit=1)
    for arguments in CHANGING:
        done = here(*arguments)

        assert (done.code, done.out) == (2, ""), arguments
        assert "'research-agent', 'second'" in done.err and "--timeline" in done.err
    assert several.last_operations(limit=1) == before
    assert here("agents", "-q").out.split() == ["research-agent", "second"]


def test_the_timeline_that_changed_last_is_told_beside_the_output(several: Timeline) -> None:
    assert "Of the second" in here("log").out
    Timeline("research-agent", several.store).rollback(1)

    done = here("log", "--json")
    assert "research-agent" in json.loads(done.err)["note"]
    assert {one["agent"] for one in done.records} == {"research-agent"}
    assert here("log", "-q").out == here("log", "-q", "--timeline", "research-agent").out


@pytest.mark.parametrize("option", ["--timeline", "--agent"])
def test_a_timeline_is_named_by_either_option(several: Timeline, option: str) -> None:
    done = here("rollback", "--quiet", option, "research-agent")

    assert (done.code, done.out, done.err) == (0, "", "")
    assert here("switch", "other", option, "second").code == 0
    assert here("log", option, "nobody").code == 4


def test_an_unknown_timeline_or_branch_is_not_made(page: Path) -> None:
    assert here("log", "--agent", "nobody").code == 4
    assert here("log", "--branch", "nowhere").code == 4
    assert here("tag", "x", "--agent", "nobody").code == 4

    assert here("agents", "-q").out == "research-agent\n"


def test_a_store_without_timelines_says_so(empty: Path) -> None:
    here("init")

    done = here("log")
    assert done.code == 4
    assert "no timeline yet" in done.err
    assert here("agents").out == ""
    assert here("check").code == 0


def test_a_store_with_states_only_says_which(empty: Path) -> None:
    with ropewalk.open(empty / ".ropewalk") as store:
        memory = Versioned(store, name="memory")
        memory["docs"] = []
        memory.commit()

    done = here("log")
    assert done.code == 4
    assert "but states: 'memory'" in done.err and "history()" in done.err


def test_init_makes_a_store_once(empty: Path) -> None:
    assert here("init").out == "Made a store in .ropewalk\n"
    assert here("init").out == "There is a store already in .ropewalk\n"
    assert here("init", "--store", "file://plain", "--json").record == {
        "store": "file://plain",
        "engine": "FileStore",
        "created": True,
    }


def test_a_store_in_memory_is_refused(empty: Path) -> None:
    for arguments in (("init",), ("log",), ("demo",)):
        assert here(*arguments, "--store", "memory://").code == 3


def test_the_classes_of_other_programs_are_shown(page: Path) -> None:
    script(
        "import ropewalk, dataclasses\n"
        "@ropewalk.register(name='notes.Note')\n"
        "@dataclasses.dataclass\n"
        "class Note:\n"
        "    text: str\n"
        "agent = ropewalk.Timeline('research-agent')\n"
        "agent.checkpoint({'note': Note('hello')})\n",
        page,
    )

    assert here("show", "--json").record["state"] == {
        "note": {"$class": {"name": "notes.Note", "version": 1, "content": {"text": "hello"}}}
    }
    assert here("show", "reviews-first", "note.text").out == '"hello"\n'
    assert "notes.Note(text='hello')" in here("diff").out


def test_a_store_of_plain_files_is_found_upwards_too(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here("init", "--store", "file://.ropewalk")
    with Timeline("plain", empty / ".ropewalk") as timeline:
        timeline.checkpoint({"n": 1}, description="In plain files")
    (empty / "below").mkdir()
    monkeypatch.chdir(empty / "below")

    assert "In plain files" in here("log").out
    assert not (empty / ".ropewalk/store.db").exists()


def test_looking_changes_no_byte(page: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in page.rglob("*") if file.is_file()}

    before = content()
    for arguments in (("log",), ("tree",), ("show",), ("diff",), ("ops",), ("stats",), ("check",)):
        assert here(*arguments).code == 0

    assert here("gc", "--dry-run").code == 0
    assert content() == before
