"""What goes wrong: one sentence, a hint, the documented code, and nothing lost."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ropewalk import Timeline, errors
from ropewalk.cli import show
from ropewalk.cli.errors import EXIT_CODES, exit_code
from ropewalk.errors import RopewalkError
from tests.cli.support import PROGRAM, damage, environment, here, process
from tests.store.users import as_nobody

HOSTILE = ["", ".", "..", "../x", "a\0b", "x" * 10_000, "\x1b[2J", "a\nb"]


@pytest.mark.parametrize("name", HOSTILE, ids=[repr(name)[:12] for name in HOSTILE])
def test_a_hostile_name_does_no_harm(page: Path, name: str) -> None:
    here("export", "run.session")
    codes = {
        here(*arguments, "--agent", "research-agent").code
        for arguments in (("branch", name), ("tag", name), ("fork", name), ("switch", name))
    }
    codes |= {
        here("log", "--agent", name).code,
        here("log", "--agent", "research-agent", "--branch", name).code,
        here("show", name, "--agent", "research-agent").code,
        here("import", "run.session", "--name", name).code,
    }

    # A branch whose name could be a path is only a name, spelled otherwise where it is stored.
    assert codes <= ({0, 3, 4, 5} if name == "../x" else {3, 4})
    assert sorted(page.parent.iterdir()) == [page]
    assert sorted(one.name for one in page.iterdir()) == [".ropewalk", "run.session"]
    assert here("check").code == 0


@pytest.mark.parametrize("name", ["a\0b", "x" * 10_000], ids=["null", "long"])
def test_a_hostile_store_is_refused(empty: Path, name: str) -> None:
    for form in ("{}", "file://{}"):
        for command in ("log", "init", "demo"):
            done = here(command, "--store", form.format(name))
            assert done.code == 3
            assert len(done.err) < 600

    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("url", ["ftp://x", "mysql://x/y", ""])
def test_an_unknown_kind_of_store_is_refused(empty: Path, url: str) -> None:
    assert here("log", "--store", url).code == 3


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_ends_with_the_code_of_its_second_level(name: str) -> None:
    kind = getattr(errors, name)
    raised = kind.__new__(kind)

    second = [code for parent, code in EXIT_CODES.items() if issubclass(kind, parent)]
    assert exit_code(raised) == (second[0] if second else 70)
    assert len(second) == (0 if kind is RopewalkError else 1)


def test_an_error_is_one_sentence_and_a_hint(empty: Path) -> None:
    done = process("log", cwd=empty)

    error, hint = done.err.splitlines()
    assert error.startswith("Error: there is no store")
    assert hint.startswith("Hint: ")
    assert "Traceback" not in done.err


def test_debug_shows_where_an_error_arose(empty: Path) -> None:
    done = process("log", "--debug", cwd=empty)

    assert "Traceback" in done.err
    assert done.code == 4


@pytest.mark.parametrize(
    "arguments", [("frobnicate",), ("log", "--frob"), ("log", "-n", "x"), ("switch",)]
)
def test_wrong_usage_ends_with_two(page: Path, arguments: tuple[str, ...]) -> None:
    done = here(*arguments)

    assert done.code == 2
    assert "--help" in done.err or "-h" in done.err


def test_a_mistake_in_the_program_says_so(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(show, "step_record", break_down)

    done = here("log")
    assert done.code == 70
    assert "--debug" in done.err


def test_an_interrupt_ends_quietly(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "step_record", interrupt)

    assert here("log").code == 130


def test_a_reader_who_stops_is_no_error(agent: Timeline, page: Path) -> None:
    for number in range(300):
        agent.checkpoint({"n": number}, description="word " * 40)
    running = subprocess.Popen(
        [*PROGRAM, "log", "--limit", "0"],
        cwd=page,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stderr is not None

    running.stdout.readline()
    running.stdout.close()
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait(timeout=60) == 141


def test_output_that_finds_no_room_is_said(page: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, "log"], cwd=page, env=environment(), stdout=full,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert done.returncode == 8
    assert done.stderr.startswith("Error: No space left on device")


def test_a_full_disk_is_said_and_nothing_is_lost(agent: Timeline, page: Path) -> None:
    agent.checkpoint({"noise": random.Random(1).randbytes(2_000_000)})
    here("export", "run.session")
    before = here("log", "-q").out
    limited = f"ulimit -f 1000; exec {sys.executable} -m ropewalk import run.session --name copy"
    done = subprocess.run(
        ["/bin/sh", "-c", limited], cwd=page, env=environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 8
    assert "no room" in done.stderr
    assert here("check", "--read-data").code == 0
    assert here("log", "-q").out == before
    assert here("agents", "-q").out == "research-agent\n"


def code_for_nobody(*arguments: str) -> str:
    """How a command ends for a user who may write nowhere."""

    def call() -> None:
        code = here(*arguments).code
        raise type(f"Code{code}", (RopewalkError,), {})

    here(*arguments, "--store", "none")  # Loads what another user may not even read.
    return as_nobody(call)


def test_a_folder_that_may_not_be_written_is_said(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not in the folder of the test, which another user cannot even enter.
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(written, Path(name) / "page")
        shutil.copytree(written, Path(name) / "loaded")
        monkeypatch.chdir(Path(name) / "loaded")  # Loads what another user may not even read.
        for command in (("tag", "x"), ("init",), ("log",), ("check",)):
            here(*command)
        monkeypatch.chdir(Path(name) / "page")
        everything = [Path(name), *Path(name).rglob("*")]
        for path in everything:
            path.chmod(0o555 if path.is_dir() else 0o444)

        assert code_for_nobody("tag", "x") == "Code9"
        assert code_for_nobody("init") == "Code0"  # It is there.
        assert code_for_nobody("demo") == "Code9"
        assert code_for_nobody("log") == code_for_nobody("check") == "Code0"

        for path in everything:
            path.chmod(0o755 if path.is_dir() else 0o644)
        assert here("tag").out == ""
        assert here("check").code == 0
        monkeypatch.undo()


def test_a_damaged_object_is_said_and_found(page: Path) -> None:
    steps = here("tree", "-q").out.split()
    damage(page)

    assert here("check", "--read-data").code == 1
    assert 6 in {here("show", id).code for id in steps}


@pytest.mark.parametrize("content", [b"", b"this is no database" * 100])
def test_a_broken_database_is_said(page: Path, content: bytes) -> None:
    for file in (page / ".ropewalk").glob("store.db*"):
        file.unlink()
    (page / ".ropewalk/store.db").write_bytes(content)

    done = here("log")
    assert done.code == (6 if content else 4)
    assert (page / ".ropewalk/store.db").read_bytes() == content


def test_a_file_that_is_no_store_and_one_that_is_no_session(page: Path) -> None:
    (page / "text").write_text("hello")

    assert here("log", "--store", "text").code == 6
    assert here("import", "text").code == 6
    assert here("export", "none/session").code == 4


def test_stored_text_cannot_command_a_terminal(agent: Timeline) -> None:
    agent.checkpoint(
        {"x": "\x1b[2J\x07\n\x9b31m\u202e"}, description="\x1b[31mred\x1b[0m\n\x07\u202ebad"
    )

    for arguments in (("log",), ("tree",), ("show",), ("diff",), ("show", "reviews-first", "x")):
        shown = here(*arguments).out
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
