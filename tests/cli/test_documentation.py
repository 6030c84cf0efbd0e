"""Commands, methods and the page that maps one to the other."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from ropewalk import Store, ThreadCheckpointer, Timeline, errors
from ropewalk.cli.app import app
from ropewalk.cli.errors import EXIT_CODES
from ropewalk.coherence import CoherenceCore
from tests.cli.support import here

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
COMMANDS = [one.name for one in app.registered_commands]
ASKED_FOR = (
    "init demo log tree branches show diff blame bisect branch switch rollback merge fork undo "
    "redo tag ops metrics export import stats check gc migrate agents threads messages "
    "artifacts"
).split()


def public_verbs(cls: type) -> set[str]:
    """The public methods of a class, without asynchronous twins."""
    names = {name for name in vars(cls) if not name.startswith("_")}
    return {name for name in names if not (name[0] == "a" and name[1:] in names)}


def test_every_command_that_was_asked_for_is_there() -> None:
    assert set(ASKED_FOR) <= set(COMMANDS)


def test_the_page_has_a_row_for_every_command_and_no_other() -> None:
    rows = re.findall(r"^\| `([a-z-]+)[^|]*` \| `([\w.]+)`", PAGE, re.MULTILINE)

    assert sorted(name for name, _ in rows) == sorted(map(str, COMMANDS))


def test_every_method_that_the_page_names_exists() -> None:
    owners = {
        "Timeline": Timeline,
        "Store": Store,
        "ThreadCheckpointer": ThreadCheckpointer,
        "CoherenceCore": CoherenceCore,
    }
    for owner, name in re.findall(rf"`({'|'.join(owners)})\.(\w+)`", PAGE):
        assert hasattr(owners[owner], name), name


def test_every_verb_of_a_timeline_is_on_the_page() -> None:
    missing = [name for name in public_verbs(Timeline) if f"`Timeline.{name}`" not in PAGE]

    assert sorted(missing) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_is_short_and_has_an_example(command: str) -> None:
    text = here(command, "--help").out

    assert f"Example: ropewalk {command}" in " ".join(text.split())
    assert len(text.splitlines()) < 45


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_options_that_all_share(command: str) -> None:
    text = here(command, "--help").out

    assert all(option in text for option in ("--store", "--json", "--quiet", "--debug"))


@pytest.mark.parametrize("command", ["gc", "branch", "tag"])
def test_what_deletes_has_a_dry_run(command: str) -> None:
    assert "--dry-run" in here(command, "--help").out


def test_every_second_level_of_errors_has_an_exit_code_of_its_own() -> None:
    second = [
        one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if errors.RopewalkError in one.__bases__
    ]

    assert sorted(one.__name__ for one in EXIT_CODES) == sorted(one.__name__ for one in second)
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)


@pytest.mark.parametrize(("kind", "code"), EXIT_CODES.items(), ids=str)
def test_the_page_says_what_an_exit_code_means(kind: type[errors.RopewalkError], code: int) -> None:
    assert f"| {code} | `{kind.__name__}`: " in PAGE
