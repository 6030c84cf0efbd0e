"""Which store and timeline a command is about, and that looking makes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ropewalk import Timeline
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


def test_several_timelines_are_listed(agent: Timeline) -> None:
    Timeline("second", agent.store).checkpoint({})

    done = here("log")
    assert done.code == 2
    assert "'research-agent', 'second'" in done.err
    assert "--agent" in done.err
    assert here("log", "--agent", "second").code == 0


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
