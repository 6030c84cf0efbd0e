"""What the embedded store says when its folder, its disk or its file is not as it should be."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from ropewalk.errors import (
    Corrupt,
    FormatError,
    NewerFormat,
    NotAllowed,
    StoreFull,
    Unavailable,
)
from ropewalk.store import Move, SqliteStore
from ropewalk.store.engine import Header, encode_header
from ropewalk.store.packer import pack
from ropewalk.store.sqlite import packs
from ropewalk.testing.helpers import MAIN, OTHER_SPACE, SPACE, noise, point, read, value
from tests.store.logs import flipped
from tests.store.sqlite.contract import connected
from tests.store.users import as_nobody


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a store that was filled and closed."""
    with SqliteStore(tmp_path / "store") as store:
        store.commit(SPACE, [value(noise(500, seed)) for seed in range(100)])
        point(store, value("one"))
    return tmp_path / "store"


# Files that are no store.


@pytest.mark.parametrize("content", [b"hello", noise(10_000)])
def test_a_garbage_file_is_no_store(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store.db").write_bytes(content)

    with pytest.raises(FormatError, match="Restore it from a copy, or choose another folder"):
        SqliteStore(tmp_path)

    assert (tmp_path / "store.db").read_bytes() == content


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(FormatError, match="A store is a folder"):
        SqliteStore(tmp_path / "file")


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with connected(tmp_path) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = (tmp_path / "store.db").read_bytes()

    with pytest.raises(FormatError, match="another program"):
        SqliteStore(tmp_path)

    assert (tmp_path / "store.db").read_bytes() == before


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"")

    with SqliteStore(tmp_path) as store:
        assert store.commit(SPACE).sequence == 1


def test_newer_tables_are_refused(folder: Path) -> None:
    with connected(folder) as db:
        db.execute("PRAGMA user_version = 3")

    with pytest.raises(NewerFormat, match="version 3"):
        SqliteStore(folder)


def test_a_store_of_the_format_before_is_refused_and_left_alone(folder: Path) -> None:
    with connected(folder) as db:
        db.execute("PRAGMA user_version = 1")
    before = (folder / "store.db").read_bytes()

    with pytest.raises(NotAllowed, match=r"format 1.*begin anew") as caught:
        SqliteStore(folder)

    assert not isinstance(caught.value, Corrupt)
    assert (folder / "store.db").read_bytes() == before


def test_a_newer_format_is_refused(folder: Path) -> None:
    with connected(folder) as db:
        header = encode_header(Header(b"x" * 16, format=99))
        db.execute("UPDATE facts SET header = ?", (header,))

    with pytest.raises(NewerFormat, match="format 99"):
        SqliteStore(folder)


@pytest.mark.parametrize("harm", ["DELETE FROM facts", "DROP TABLE facts"])
def test_a_store_without_a_header_is_corrupt(folder: Path, harm: str) -> None:
    with connected(folder) as db:
        db.execute(harm)

    with pytest.raises(Corrupt):
        SqliteStore(folder)


def test_a_damaged_database_is_corrupt(folder: Path) -> None:
    path = folder / "store.db"
    content = bytearray(path.read_bytes())
    content[4096:] = noise(len(content) - 4096)
    path.write_bytes(content)

    with pytest.raises(Corrupt, match="Restore it from a copy"), SqliteStore(folder) as store:
        store.view(SPACE)


def test_a_truncated_database_is_never_read_as_another(folder: Path) -> None:
    path = folder / "store.db"
    os.truncate(path, path.stat().st_size // 2)

    with pytest.raises(Corrupt), SqliteStore(folder) as store:
        list(store.scan())


# Folders and disks.


def test_a_missing_parent_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="does not exist"):
        SqliteStore(tmp_path / "absent" / "store")


def test_a_database_that_vanished_is_not_made_anew(folder: Path) -> None:
    store = SqliteStore(folder)
    shutil.rmtree(folder)
    folder.mkdir()

    with pytest.raises(Unavailable):
        store.commit(SPACE)

    assert not (folder / "store.db").exists()
    store.close()


def test_nothing_is_written_to_a_database_that_was_taken_away(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = SqliteStore(folder)
    point(store, value("one"))
    folder.rename(tmp_path / "aside")

    with pytest.raises(Unavailable, match=r"store\.db is gone"):
        store.commit(SPACE, [value("two")])

    (tmp_path / "aside").rename(folder)
    assert store.commit(SPACE, [value("two")]).sequence == 2
    store.close()


def test_nothing_is_written_to_a_database_that_was_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = SqliteStore(folder)
    point(store, value("one"))
    folder.rename(tmp_path / "aside")
    other = SqliteStore(folder)

    with pytest.raises(Corrupt, match=r"store\.db is another one"):
        store.commit(SPACE, [value("two")])

    assert list(other.scan()) == []
    other.close()
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_folder_that_may_not_be_written_is_not_allowed() -> None:
    # Not in the folder of the test, which another user cannot even enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        point(store := SqliteStore(folder / "store"), value("one"))
        store.close()
        for path in (folder, folder / "store"):
            path.chmod(0o555)

        assert as_nobody(lambda: SqliteStore(folder / "new")) == "NotAllowed"
        assert as_nobody(lambda: SqliteStore(folder / "store").commit(SPACE)) == "NotAllowed"
        assert as_nobody(lambda: _read_all(folder / "store")) == ""

        for path in (folder, folder / "store"):
            path.chmod(0o755)


def _read_all(folder: Path) -> None:
    """Read what there is without being allowed to write."""
    with SqliteStore(folder) as store:
        (ref,) = store.refs(SPACE)
        assert read(store, [ref.target]) == [value("one")]
        assert len(store.operations(SPACE)) == 1
        assert store.check().ok


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store")
    point(store, value("one"))

    def limit(db: sqlite3.Connection) -> None:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    store._database.write(limit)  # On the connection that writes.

    with pytest.raises(StoreFull, match="make room and try again"):
        store.commit(SPACE, [value(noise(100_000))])

    assert store.ref(SPACE, MAIN) == (MAIN, value("one").id, 1)
    assert read(store, [value("one").id]) == [value("one")]
    # The limit went with the connection: there is room again.
    assert store.commit(SPACE, [value(noise(100_000))]).sequence == 2
    store.close()


def test_no_room_for_a_new_store_is_said(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # The shared memory has more.
    try:
        with pytest.raises(StoreFull, match="make room and try again"):
            SqliteStore(tmp_path / "store")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    SqliteStore(tmp_path / "store").close()


@pytest.mark.parametrize("durability", ["full", "relaxed"])
@pytest.mark.parametrize("how", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_packs_without_their_database_are_no_new_store(
    tmp_path: Path, durability: Literal["full", "relaxed"], how: Callable[[Path], object]
) -> None:
    large = noise(packs.LARGE + 1)
    with SqliteStore(tmp_path, durability=durability) as store:
        point(store, value(large))
    saved = (tmp_path / "store.db").read_bytes()
    how(tmp_path / "store.db")

    for _ in range(2):
        with pytest.raises(Corrupt, match=r"restore store\.db from a copy"):
            SqliteStore(tmp_path, durability=durability)

    (tmp_path / "store.db").write_bytes(saved)
    with SqliteStore(tmp_path, durability=durability) as store:
        assert read(store, [value(large).id]) == [value(large)]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, StoreFull), (errno.EROFS, NotAllowed), (errno.EIO, Unavailable)],
)
def test_a_large_pack_that_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    store = SqliteStore(tmp_path / "store")
    large = value(noise(packs.LARGE + 1))

    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(expected) as caught:
            point(store, large)
    assert isinstance(caught.value.__cause__, OSError)
    assert store.spaces() == []
    assert list((tmp_path / "store" / "packs").glob("*")) == []

    point(store, large)
    assert read(store, [large.id]) == [large]
    store.close()


# Others.


def test_a_writer_waits_no_longer_than_it_was_told(folder: Path) -> None:
    store = SqliteStore(folder, busy_seconds=0.05)
    with connected(folder) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match=r"busy with other writers for 0\.05 seconds"):
            store.commit(SPACE)
        other.execute("ROLLBACK")

    assert store.commit(SPACE).sequence == 3
    store.close()


def test_every_error_of_sqlite_has_its_cause(folder: Path) -> None:
    store = SqliteStore(folder)
    with pytest.raises(Corrupt) as caught:
        store._database.write(lambda db: db.execute("SELECT nothing FROM nowhere"))

    assert isinstance(caught.value.__cause__, sqlite3.Error)
    assert store.commit(SPACE).sequence == 3
    store.close()


# Rows that are not as they were written.


@pytest.fixture(params=["tail", "segment"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store of two spaces with a few commits each, packed or not."""
    with SqliteStore(tmp_path / "store") as store:
        before: list[bytes | None] = [None, None]
        for number in range(12):
            for at, space in enumerate((SPACE, OTHER_SPACE)):
                one = value(f"{number} of {space}")
                store.commit(space, [one], moves=[Move(MAIN, before[at], one.id)])
                before[at] = one.id
        if request.param == "segment":
            for space in (SPACE, OTHER_SPACE):
                pack(store, space, whole=True)
    return tmp_path / "store"


def expect_damage_of_one_space(folder: Path) -> None:
    """It is found, who reads that space is told, and the other one is as it was."""
    with SqliteStore(folder) as store:
        problems = store.check(read_data=True).problems
        others = store.operations(OTHER_SPACE)
        (ref,) = store.refs(OTHER_SPACE)

        assert problems
        assert {one.subject for one in problems if one.code == "bad-log"} <= {SPACE}
        assert [one.sequence for one in others] == list(range(1, 13))
        assert read(store, [ref.target], OTHER_SPACE) == [value(f"11 of {OTHER_SPACE}")]
        with pytest.raises(Corrupt):
            store.operations(SPACE)


@pytest.mark.parametrize(
    ("filled", "column"),
    [("tail", "frame"), ("segment", "data"), ("segment", "head")],
    indirect=["filled"],
)
def test_a_record_that_was_changed_is_damage_and_other_spaces_are_sound(
    filled: Path, column: str
) -> None:
    with connected(filled) as db:
        table = "tail" if column == "frame" else "segments"
        key, data = db.execute(f"SELECT key, {column} FROM {table} ORDER BY key").fetchone()
        db.execute(
            f"UPDATE {table} SET {column} = ? WHERE key = ?", (flipped(data, len(data) // 2), key)
        )

    expect_damage_of_one_space(filled)


@pytest.mark.parametrize("first", [True, False])
def test_rows_that_are_lost_from_the_log_are_missed(filled: Path, first: bool) -> None:
    with connected(filled) as db:
        for table in ("tail", "segments"):
            order = "key" if first else "key DESC"
            db.execute(
                f"DELETE FROM {table} WHERE key = (SELECT key FROM {table} "
                f"WHERE key < 2 << 32 ORDER BY {order} LIMIT 1)"
            )

    with SqliteStore(filled) as store:
        assert not store.check().ok
        assert len(store.operations(OTHER_SPACE)) == 12
        with pytest.raises(Corrupt):
            _look_at_all(store)


def _look_at_all(store: SqliteStore) -> None:
    store.operations(SPACE)
    store.view(SPACE)


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM refs WHERE space = 1",
        "UPDATE refs SET target = (SELECT target FROM refs WHERE space = 2) WHERE space = 1",
        "UPDATE refs SET sequence = sequence - 1 WHERE space = 1",
        "UPDATE refs SET name = 'branch/maim' WHERE space = 1",
        "UPDATE refs SET mark = mark + 1 WHERE space = 1",
        "UPDATE spaces SET mark = mark + 1 WHERE number = 1",
    ],
)
def test_a_ref_that_was_changed_is_no_answer(filled: Path, harm: str) -> None:
    with connected(filled) as db:
        db.execute(harm)

    with SqliteStore(filled) as store:
        assert not store.check().ok
        assert store.ref(OTHER_SPACE, MAIN) is not None
        with pytest.raises(Corrupt):
            store.ref(SPACE, MAIN)
        with pytest.raises(Corrupt):
            store.view(SPACE)


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE spaces SET name = 'test/three' WHERE number = 1",
        "UPDATE spaces SET name = 'test/three' WHERE number = 2",
        "DELETE FROM spaces WHERE number = 1",
        "DELETE FROM spaces WHERE number = 2",
    ],
)
def test_a_space_that_was_renamed_or_removed_is_missed(filled: Path, harm: str) -> None:
    with connected(filled) as db:
        db.execute(harm)

    with pytest.raises(Corrupt), SqliteStore(filled) as store:
        store.spaces()


@pytest.mark.parametrize("prefix", ["", "te", "test/", "test/t"])
@pytest.mark.parametrize(
    "name", ["''", "'a/one'", "'\ufffd\ufffd'", "x'ff'", "CAST(x'ff' AS TEXT)"]
)
def test_a_list_misses_a_space_whose_name_was_changed(filled: Path, name: str, prefix: str) -> None:
    with connected(filled) as db:
        db.execute(f"UPDATE spaces SET name = {name} WHERE number = 2")

    with SqliteStore(filled) as store:
        with pytest.raises(Corrupt):
            store.spaces(prefix)
        assert store.spaces("another/") == []
        (problem,) = store.check().problems
        assert "row 2 of the list of spaces" in problem.message or "decode" in problem.message


def test_a_check_of_all_bytes_asks_the_database_about_its_pages(folder: Path) -> None:
    data = bytearray((folder / "store.db").read_bytes())
    with connected(folder) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'spaces'").fetchone()
    at = (page - 1) * 1024
    data[at + 3 : at + 5] = bytes(2)  # A page that says that it holds nothing.
    (folder / "store.db").write_bytes(data)

    with SqliteStore(folder) as store:
        problems = store.check(read_data=True).problems

        assert "bad-engine" in {one.code for one in problems}


def test_a_check_of_all_bytes_looks_at_the_definitions_of_tables(folder: Path) -> None:
    data = (folder / "store.db").read_bytes()
    harmed = data.replace(b"holder BLOB NOT NULL", b"holder BLOC NOT NULL")
    assert harmed != data
    (folder / "store.db").write_bytes(harmed)

    with SqliteStore(folder) as store:
        problems = store.check(read_data=True).problems

    (message,) = [one.message for one in problems if one.code == "bad-engine"]
    assert "'CREATE TABLE leases'" in message


def test_a_damaged_definition_of_a_table_is_damage(folder: Path) -> None:
    data = (folder / "store.db").read_bytes()
    harmed = data.replace(b"CREATE TABLE leases", b"CREATE TABL\xac leases")
    (folder / "store.db").write_bytes(harmed)

    with pytest.raises(Corrupt, match="Restore it from a copy"):
        SqliteStore(folder)
