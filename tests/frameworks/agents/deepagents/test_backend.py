"""Files of Deep Agents, kept by Ropewalk: what each operation does, and what it costs."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from deepagents.backends import CompositeBackend, StateBackend
from deepagents.backends.protocol import _supports_delete
from typer.testing import CliRunner

import ropewalk
from ropewalk.adapters.deepagents import RopewalkBackend
from ropewalk.cli.app import app
from ropewalk.errors import Conflict, InvalidInput, MergeConflict, NotFound, StoreClosed
from ropewalk.store import Store
from tests.frameworks.agents.deepagents.agents import ropewalk_says

TEXT = "first\nsecond\nthird\n"


def text_of(backend: RopewalkBackend, path: str) -> str:
    (found,) = backend.download_files([path])
    assert found.content is not None, found
    return str(found.content, "utf-8")


def lines_of(count: int) -> str:
    return "\n".join(f"line {number} of the file, with words in it" for number in range(count))


def test_each_change_is_a_step_of_a_timeline(any_store: Store) -> None:
    backend = RopewalkBackend(any_store)
    backend.write("/notes.md", TEXT)
    backend.edit("/notes.md", "second", "2nd")
    backend.upload_files([("/a.txt", b"a"), ("/b.bin", b"\xff\x00")])
    backend.delete("/a.txt")

    steps = [step.description for step in reversed(backend.timeline.history())]
    assert steps == ["write /notes.md", "edit /notes.md", "upload 2 files", "delete /a.txt"]
    assert text_of(RopewalkBackend(any_store), "/notes.md") == "first\n2nd\nthird\n"
    assert backend.download_files(["/b.bin"])[0].content == b"\xff\x00"
    assert backend.store.check().ok


def test_an_edit_stores_the_lines_that_it_changed() -> None:
    with ropewalk.MemoryStore() as store:
        backend = RopewalkBackend(store)
        backend.write("/large.txt", lines_of(5000))
        before = store.stats().payload
        for number in range(0, 5000, 50):
            backend.edit("/large.txt", f"line {number} of", f"row {number} of")

        # 100 edits: a node of lines each, and the way to it; the file is 200 KB.
        assert store.stats().payload - before < 100 * 16_000


def test_an_edit_of_one_long_line_stores_its_chunk() -> None:
    with ropewalk.MemoryStore() as store:
        backend = RopewalkBackend(store)
        backend.write("/large.json", lines_of(5000).replace("\n", ", "))
        before = store.stats().payload
        for number in range(0, 5000, 500):
            backend.edit("/large.json", f"line {number} of", f"row {number} of")

        assert store.stats().payload - before < 10 * 40_000


def test_a_rewritten_file_shares_what_stayed() -> None:
    with ropewalk.MemoryStore() as store:
        backend = RopewalkBackend(store)
        backend.write("/large.txt", lines_of(5000))
        before = store.stats().payload
        # Many lines less, at several places.
        backend.write("/large.txt", "\n".join(lines_of(5000).split("\n")[100:4900]))

        assert store.stats().payload - before < 40_000


class Reading:
    """Counts the nodes that are read from a store."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes = 0
        reader_of = store.reader

        def reader(space: str) -> Any:
            read = reader_of(space)

            def counting(ids: Any) -> Any:
                self.nodes += len(ids)
                return read(ids)

            return counting

        monkeypatch.setattr(store, "reader", reader)


def test_a_search_reads_only_what_changed_since_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    with ropewalk.MemoryStore() as store:
        writer = RopewalkBackend(store)
        writer.upload_files(
            [(f"/src/m{at}.txt", (lines_of(200) + f" needle{at}").encode()) for at in range(100)]
        )
        reading = Reading(store, monkeypatch)
        backend = RopewalkBackend(store)

        assert len(backend.glob("*.txt").matches or ()) == 100
        listed, reading.nodes = reading.nodes, 0
        assert backend.grep("needle7").matches
        first, reading.nodes = reading.nodes, 0
        backend.grep("needle8")
        again, reading.nodes = reading.nodes, 0
        writer.edit("/src/m3.txt", "needle3", "needle1000")
        reading.nodes = 0
        found = backend.grep("needle1000").matches or ()
        changed = reading.nodes

        assert [one["path"] for one in found] == ["/src/m3.txt"]
        assert listed < 20 and first > 100 and again == 0 and changed < 30


def test_who_asks_for_what_is_not_there_gets_an_error_in_the_result(
    backend: RopewalkBackend,
) -> None:
    backend.write("/a.txt", "one one")
    backend.upload_files([("/b.bin", b"\xff")])

    assert backend.read("/no.txt").error == "File '/no.txt' not found"
    assert backend.edit("/no.txt", "a", "b").error == "Error: File '/no.txt' not found"
    assert "appears 2 times" in (backend.edit("/a.txt", "one", "two").error or "")
    assert "not found in file" in (backend.edit("/a.txt", "three", "two").error or "")
    assert "binary" in (backend.edit("/b.bin", "a", "b").error or "")
    assert backend.delete("/no").error == "Error: File '/no' not found"
    assert backend.download_files(["/no"])[0].error == "file_not_found"
    assert "traversal" in (backend.glob("../*.py").error or "")
    assert "traversal" in (backend.grep("a", glob="../*.py").error or "")
    assert len(backend.timeline.history()) == 2


def test_a_text_that_cannot_be_stored_is_an_error_in_the_result(backend: RopewalkBackend) -> None:
    written = backend.write("/a.txt", "half a character: \ud800")

    assert (written.error or "").startswith("Error: ") and backend.version() is None


def test_a_store_that_does_not_answer_ends_the_run(tmp_path: Path) -> None:
    backend = RopewalkBackend(tmp_path / "store")
    backend.write("/a.txt", "one")
    backend.close()

    with pytest.raises(StoreClosed):
        backend.read("/a.txt")


def test_an_earlier_version_is_looked_at_and_never_changes(backend: RopewalkBackend) -> None:
    backend.write("/a.txt", TEXT)
    version = backend.version()
    assert version is not None
    backend.edit("/a.txt", "first", "1st")
    backend.write("/b.txt", "new")
    earlier = backend.checkout(version)

    assert text_of(earlier, "/a.txt") == TEXT
    assert [one["path"] for one in earlier.glob("*").matches or ()] == ["/a.txt"]
    assert earlier.grep("1st").matches == [] and earlier.version() == version
    assert "never change" in (earlier.write("/a.txt", "x").error or "")


def test_a_rollback_of_the_timeline_brings_the_files_back(backend: RopewalkBackend) -> None:
    backend.write("/a.txt", TEXT)
    backend.write("/b.txt", "b")
    backend.delete("/")
    backend.timeline.rollback()

    assert text_of(backend, "/a.txt") == TEXT
    assert [one["path"] for one in backend.ls("/").entries or ()] == ["/a.txt", "/b.txt"]


def test_branches_that_changed_other_lines_merge(backend: RopewalkBackend) -> None:
    backend.write("/a.txt", lines_of(50))
    other = backend.fork("other")
    other.edit("/a.txt", "line 3 of the", "LINE THREE OF THE")
    other.write("/new.txt", "other")
    backend.edit("/a.txt", "line 40 of", "forty of")
    backend.merge("other")

    merged = text_of(backend, "/a.txt")
    assert "LINE THREE" in merged and "forty of" in merged
    sizes = {one["path"]: one["size"] for one in backend.ls("/").entries or ()}
    assert sizes == {"/a.txt": len(merged), "/new.txt": 5}
    assert "forty" not in text_of(other, "/a.txt")


def test_branches_that_changed_the_same_line_do_not(backend: RopewalkBackend) -> None:
    backend.write("/a.txt", lines_of(5))
    other = backend.fork("other")
    other.edit("/a.txt", "line 3 of", "third of")
    backend.edit("/a.txt", "line 3 of", "3rd of")
    before = backend.version()

    with pytest.raises(MergeConflict, match=r"/a\.txt"):
        backend.merge("other")
    assert backend.version() == before
    with pytest.raises(Conflict):
        backend.fork("other")
    with pytest.raises(NotFound):
        backend.fork("third", "no-such-version")


def test_blame_names_the_step_that_wrote_a_line(backend: RopewalkBackend) -> None:
    backend.write("/a.txt", TEXT)
    backend.edit("/a.txt", "second", "2nd")

    lines = [backend.timeline.blame(("content", "/a.txt", at)).description for at in (0, 1)]
    assert lines == ["write /a.txt", "edit /a.txt"]


def test_a_branch_for_each_run_needs_a_run(any_store: Store) -> None:
    backend = RopewalkBackend(any_store, branch=lambda config: str(config["configurable"]["who"]))

    with pytest.raises(InvalidInput, match=r"backend\.on"):
        backend.read("/a.txt")
    assert backend.on("ann").write("/a.txt", "ann").error is None


def test_a_new_branch_begins_with_the_files_of_main(backend: RopewalkBackend) -> None:
    backend.write("/shared.txt", "for all")
    ann, bob = backend.on("ann"), backend.on("bob")
    ann.write("/a.txt", "ann")
    bob.edit("/shared.txt", "all", "bob")

    assert text_of(ann, "/shared.txt") == text_of(backend, "/shared.txt") == "for all"
    assert text_of(bob, "/shared.txt") == "for bob"
    assert backend.read("/a.txt").error == bob.read("/a.txt").error == "File '/a.txt' not found"


def test_threads_that_edit_one_file_lose_nothing(any_store: Store) -> None:
    backends = [RopewalkBackend(any_store) for _ in range(2)] * 2
    backends[0].write("/a.txt", "\n".join(f"<{at}>" for at in range(40)))
    errors: list[str | None] = []

    def work(backend: RopewalkBackend, first: int) -> None:
        numbers = range(first, 40, 4)
        errors.extend(backend.edit("/a.txt", f"<{at}>", f"[{at}]").error for at in numbers)

    workers = [
        threading.Thread(target=work, args=(backend, first))
        for first, backend in enumerate(backends)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert errors == [None] * 40
    assert text_of(backends[0], "/a.txt") == "\n".join(f"[{at}]" for at in range(40))
    assert len(backends[0].timeline.history()) == 41


def test_of_two_edits_of_one_word_the_second_is_an_error(backend: RopewalkBackend) -> None:
    other = RopewalkBackend(backend.store)
    backend.write("/a.txt", "one word")
    other.read("/a.txt")

    assert backend.edit("/a.txt", "word", "thing").error is None
    assert "not found in file" in (other.edit("/a.txt", "word", "name").error or "")
    assert text_of(other, "/a.txt") == "one thing"


WORKER = """
import sys
from ropewalk.adapters.deepagents import RopewalkBackend
backend = RopewalkBackend(sys.argv[1])
for at in range(int(sys.argv[2]), 60, 2):
    error = backend.edit("/a.txt", f"<{at}>", f"[{at}]").error
    assert error is None, error
"""


def test_processes_that_edit_one_file_lose_nothing(tmp_path: Path) -> None:
    place = tmp_path / "store"
    with ropewalk.open(place) as store:
        backend = RopewalkBackend(store)
        backend.write("/a.txt", "\n".join(f"<{at}>" for at in range(60)))

        async def both() -> list[int]:
            started = [
                await asyncio.create_subprocess_exec(
                    sys.executable, "-c", WORKER, str(place), str(first)
                )
                for first in (0, 1)
            ]
            return [await one.wait() for one in started]

        assert asyncio.run(both()) == [0, 0]
        assert text_of(backend, "/a.txt") == "\n".join(f"[{at}]" for at in range(60))
        assert len(backend.timeline.history(limit=None)) == 61


def test_every_operation_has_an_asynchronous_twin(backend: RopewalkBackend) -> None:
    async def use() -> None:
        assert (await backend.awrite("/a.txt", "one")).error is None
        assert (await backend.aedit("/a.txt", "one", "two")).occurrences == 1
        assert (await backend.aread("/a.txt")).total_lines == 1
        assert (await backend.als("/")).entries == backend.ls("/").entries
        assert (await backend.agrep("two", max_count=1)).matches == backend.grep("two").matches
        assert (await backend.aglob("*.txt")).matches == backend.glob("*.txt").matches
        assert (await backend.aupload_files([("/b", b"b")]))[0].error is None
        assert (await backend.adownload_files(["/b"]))[0].content == b"b"
        assert (await backend.adelete("/b")).path == "/b"
        assert await backend.aversion() == backend.version()

    asyncio.run(use())


def test_a_route_of_a_composite_backend_is_kept(backend: RopewalkBackend) -> None:
    both = CompositeBackend(default=StateBackend(), routes={"/memories/": backend})
    both.write("/memories/me.md", "remember")

    assert text_of(backend, "/me.md") == "remember"
    assert _supports_delete(backend)
    assert both.grep("remember", "/memories/").matches == [
        {"path": "/memories/me.md", "line": 1, "text": "remember"}
    ]


def test_the_command_line_shows_and_moves_the_files(tmp_path: Path) -> None:
    with ropewalk.open(tmp_path / "store") as store:
        backend = RopewalkBackend(store)
        backend.write("/a.txt", TEXT)
        first = backend.version()
        backend.edit("/a.txt", "second", "2nd")
        at = ["--timeline", "files", "--store", str(tmp_path / "store")]
        assert first is not None

        log = ropewalk_says("log", *at)
        assert "edit /a.txt" in log and "write /a.txt" in log
        assert "2nd" in ropewalk_says("diff", first, *at)
        assert "write /a.txt" in ropewalk_says("tree", *at)
        assert "edit /a.txt" in ropewalk_says("blame", 'content["/a.txt"][1]', *at)
        ropewalk_says("fork", "mine", "--at", first, *at)
        assert text_of(RopewalkBackend(store, name="mine"), "/a.txt") == TEXT
        ropewalk_says("rollback", *at)
        assert text_of(backend, "/a.txt") == TEXT


def test_an_older_release_is_refused_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.metadata.version
    monkeypatch.setattr(
        "ropewalk.adapters.installed.version",
        lambda name: "0.6.3" if name == "deepagents" else found(name),
    )

    with pytest.raises(ImportError, match=r"0\.7\.32 or newer.*ropewalk\[deepagents\]"):
        importlib.import_module("ropewalk.adapters.deepagents").FileVersions  # noqa: B018


def test_a_log_of_a_branch_without_steps_names_those_that_have_some(tmp_path: Path) -> None:
    where = ["log", "--store", str(tmp_path / "s")]
    with ropewalk.open(tmp_path / "s") as store:
        RopewalkBackend(store, branch="thread/trip").write("/a", "1")

    done = CliRunner().invoke(app, where)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "branch 'main' has no steps" in done.stderr and "thread/trip" in done.stderr
    assert "write /a" in CliRunner().invoke(app, [*where, "--branch", "thread/trip"]).stdout
