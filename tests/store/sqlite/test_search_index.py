"""Whatever becomes of the file beside an embedded store, history is as it was."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ropewalk.errors import StoreClosed
from ropewalk.store import Move, SqliteStore
from ropewalk.store.engine import Within
from ropewalk.store.sqlite import search_index
from ropewalk.store.sqlite.search_index import FILE
from ropewalk.tree import Map
from tests.store.users import as_nobody

ALL = Within(1000)
SPACE = "demo/one"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def opened(folder: Path) -> SqliteStore:
    return SqliteStore(folder, durability="relaxed")


def fill(store: SqliteStore, count: int = 500) -> None:
    said = [(at, {"word", f"own{at}"}) for at in range(count)]
    assert store.text_index().apply("scope", None, b"1", said)
    store.scratch().put("key", b"value")


def works(store: SqliteStore) -> bool:
    """Whether history, an index that begins anew and a scratch can be used."""
    root = Map.empty()
    held = store.ref(SPACE, "branch/main")
    store.commit(SPACE, root.objects, moves=[Move("branch/main", held and held.target, root.root)])
    index, scratch = store.text_index(), store.scratch()
    # What is found to be damaged is thrown away by the one who finds it.
    for _ in range(3):
        if index.apply("new", None, b"2", [(7, {"word"})]):
            break
    for _ in range(3):
        scratch.put("new", b"value")
    found = index.find("new", b"2", ["wor"], ALL)
    return found == [7] and scratch.get("new") == b"value" and store.check(read_data=True).ok


def test_words_and_values_are_in_a_file_beside_the_store(folder: Path) -> None:
    with opened(folder) as store:
        fill(store)
    with opened(folder) as again:
        assert (folder / FILE).exists()
        assert again.text_index().state("scope") == b"1"
        assert again.text_index().find("scope", b"1", ["own77"], ALL) == [77]
        assert again.scratch().get("key") == b"value"


def test_a_store_that_nobody_searches_has_no_such_file(folder: Path) -> None:
    with opened(folder) as store:
        store.text_index()
        store.scratch()

    assert not (folder / FILE).exists()


def test_a_copy_of_the_store_needs_no_such_file(folder: Path, tmp_path: Path) -> None:
    with opened(folder) as store:
        assert works(store)
    shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("aside*"))

    with opened(tmp_path / "copy") as copy:
        assert copy.ref(SPACE, "branch/main") is not None
        assert copy.text_index().state("new") is None
        assert works(copy)


def _garbage(file: Path) -> None:
    file.write_bytes(random.Random(1).randbytes(50_000))


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _torn(file: Path) -> None:
    content = bytearray(file.read_bytes())
    roll = random.Random(2)
    for at in range(4096, len(content), 512):
        content[at : at + 256] = roll.randbytes(256)
    file.write_bytes(content)


def _gone(file: Path) -> None:
    file.unlink()


def _other(file: Path) -> None:
    file.unlink()
    db = sqlite3.connect(file)
    db.execute("CREATE TABLE other (x)")
    db.close()


def _without_tables(file: Path) -> None:
    db = sqlite3.connect(file)
    db.execute("DROP TABLE scopes")
    db.execute("DROP TABLE scratch")
    db.close()


DAMAGES = [_garbage, _empty, _truncated, _torn, _gone, _other, _without_tables]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_thrown_away(
    folder: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    with opened(folder) as store:
        fill(store)
    damage(folder / FILE)

    with opened(folder) as again:
        assert works(again)
        assert again.text_index().find("scope", b"1", ["own77"], ALL) in (None, [77])
    if damage not in (_empty, _gone):
        assert any(record.levelno == logging.WARNING for record in caplog.records)


@pytest.mark.parametrize("damage", [_garbage, _empty, _truncated, _torn, _gone])
def test_a_file_that_is_damaged_while_it_is_open_breaks_nothing(
    folder: Path, damage: Callable[[Path], None]
) -> None:
    with opened(folder) as store:
        fill(store)
        damage(folder / FILE)

        assert works(store)


def test_a_file_that_is_replaced_while_it_is_open_breaks_nothing(folder: Path) -> None:
    with opened(folder) as one, opened(folder) as other:
        fill(one)
        assert other.text_index().state("scope") == b"1"
        for end in ("", "-wal", "-shm"):
            (folder / (FILE + end)).unlink()

        assert works(one)
        assert works(other)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_file_that_may_not_be_written_is_gone_without() -> None:
    # Not in the folder of the test, which another user cannot even enter.
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "store"
        with opened(folder) as store:
            fill(store)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o777)
        (folder / FILE).chmod(0o444)

        def use() -> None:
            with opened(folder) as again:
                assert works(again)
                assert again.text_index().state("scope") is None

        assert as_nobody(use) == ""


def test_a_folder_in_the_place_of_the_file_is_gone_without(folder: Path) -> None:
    with opened(folder) as store:
        (folder / FILE).mkdir()

        assert not store.text_index().apply("scope", None, b"1", [(0, {"word"})])
        assert store.text_index().state("scope") is None
        assert store.scratch().get("key") is None
        assert store.check(read_data=True).ok


def test_a_file_of_a_newer_version_is_left_alone(folder: Path) -> None:
    with opened(folder) as store:
        fill(store)
    db = sqlite3.connect(folder / FILE)
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = (folder / FILE).read_bytes()

    with opened(folder) as again:
        assert works(again)
    assert (folder / FILE).read_bytes() == before


def test_without_full_text_search_words_are_in_the_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "has_full_text", lambda: False)
    with opened(folder) as store:
        fill(store)

        assert store.text_index().find("scope", b"1", ["own77"], ALL) == [77]
        assert works(store)
    with opened(folder) as again:
        assert again.text_index().state("scope") is None
        assert again.scratch().get("key") == b"value"


def test_a_file_that_somebody_locks_is_gone_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "_BUSY_SECONDS", 0.05)
    with opened(folder) as store:
        fill(store)
        db = sqlite3.connect(folder / FILE, isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        index = store.text_index()

        assert not index.apply("scope", b"1", b"2", [(1000, {"word"})])
        assert index.find("scope", b"1", ["own7"], Within(1)) == [7]
        store.scratch().put("key", b"newer")
        db.rollback()
        db.close()
        assert index.apply("scope", b"1", b"2", [(1000, {"word"})])


def test_a_closed_store_lets_go_of_the_file(folder: Path) -> None:
    store = opened(folder)
    fill(store)
    index, scratch = store.text_index(), store.scratch()
    store.close()

    with pytest.raises(StoreClosed):
        index.state("scope")
    with pytest.raises(StoreClosed):
        scratch.get("key")
    assert not (folder / f"{FILE}-wal").exists()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "_GARBAGE", 100)
    monkeypatch.setattr(search_index, "_MOST_EDITED", 50)


@pytest.mark.usefixtures("small")
def test_dropped_scopes_are_tidied_up(folder: Path) -> None:
    with opened(folder) as store:
        for _ in range(20):
            fill(store)
            store.text_index().drop("scope")
        fill(store)
    with opened(folder) as again:
        assert again.text_index().find("scope", b"1", ["own77"], ALL) == [77]
    assert (folder / FILE).stat().st_size < 600_000


@pytest.mark.usefixtures("small")
def test_a_scope_of_which_much_changed_begins_anew(folder: Path) -> None:
    with opened(folder) as store:
        fill(store)
        index = store.text_index()

        assert index.apply("scope", b"1", b"2", [(at, {"new"}) for at in range(40)])
        assert not index.apply("scope", b"2", b"3", [(at, {"newer"}) for at in range(20, 80)])
        assert index.state("scope") is None


def test_positions_may_be_large_but_not_too_large(folder: Path) -> None:
    with opened(folder) as store:
        index = store.text_index()
        index.apply("scope", None, b"1", [(2**35, {"word"})])

        assert index.find("scope", b"1", ["w"], ALL) == [2**35]
        assert not index.apply("scope", b"1", b"2", [(2**40, {"word"})])
        assert index.state("scope") == b"1"


def test_values_do_not_fill_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(search_index, "_MOST_BYTES", 10_000)
    monkeypatch.setattr(search_index, "_TIDIED_EVERY", 1)
    with opened(folder) as store:
        scratch = store.scratch()
        for number in range(30):
            scratch.put(f"{number:02}", bytes(1000))
        scratch.put("over", b"", 0)

        assert scratch.keys() == [f"{number:02}" for number in range(20, 30)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_goes_on_with_the_same_file(folder: Path) -> None:
    with opened(folder) as store:
        fill(store)
        index = store.text_index()
        child = os.fork()
        if child == 0:
            done = index.state("scope") == b"1" and index.apply(
                "scope", b"1", b"2", [(1000, {"word"})]
            )
            os._exit(0 if done else 1)
        _, status = os.waitpid(child, 0)

        assert status == 0
        assert index.find("scope", b"2", ["word"], Within(1, newest_first=True)) == [1000]
        assert works(store)
