"""The embedded store: the contract, its files, and what it does with threads and forks."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import ropewalk
from ropewalk.errors import DamagedObject, InvalidInput, MissingObjects, RefMoved
from ropewalk.store import MemoryStore, Move, SqliteStore, Store, _sqlite_collection, _sqlite_index
from ropewalk.store import _sqlite_packs as packs
from ropewalk.store._sqlite_entries import read_entries
from ropewalk.testing import StoreContract
from ropewalk.testing._stores._base import (
    MAIN,
    SPACE,
    Opener,
    growing,
    in_threads,
    noise,
    point,
    value,
)
from ropewalk.tree import ObjectId

LARGE = value(noise(packs.LARGE + 1, seed=1))
LARGER = value(noise(packs.LARGE + 2, seed=2))


def connect(store: Store) -> sqlite3.Connection:
    """A connection of the test's own to the database of a store."""
    assert isinstance(store, SqliteStore)
    return sqlite3.connect(store.path / "store.db", isolation_level=None)


def pack_files(store: SqliteStore) -> list[Path]:
    return sorted((store.path / "packs").glob("*"))


class SqliteContract(StoreContract):
    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, SqliteStore)
        db = connect(store)
        number, file, data, entry = next(
            (number, file, data, one)
            for number, entries, bases, file, data in db.execute(
                "SELECT number, entries, bases, file, data FROM log"
            )
            for one in read_entries(entries, bases)
            if one.id == id and not one.gone
        )
        end = entry.start + entry.length - 1
        path = None if file is None else store.path / "packs" / file
        changed = bytearray(data if path is None else path.read_bytes())
        changed[end] ^= 1
        if path is None:
            db.execute("UPDATE log SET data = ? WHERE number = ?", (bytes(changed), number))
        else:
            path.write_bytes(changed)
        db.close()
        return True


class TestSqliteStore(SqliteContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Opener:
        return lambda clock: SqliteStore(tmp_path / "store", clock=clock)


class TestSqliteStoreWithEveryPackAsFile(SqliteContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
        monkeypatch.setattr(packs, "LARGE", 0)
        return lambda clock: SqliteStore(tmp_path / "store", durability="relaxed", clock=clock)


class TestSqliteStoreWithAShortTail(SqliteContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
        monkeypatch.setattr(_sqlite_index, "LONGEST_TAIL", 3)
        return lambda clock: SqliteStore(tmp_path / "store", durability="relaxed", clock=clock)


class TestSqliteStoreWhoseIndexCollides(SqliteContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
        for module in (_sqlite_index, _sqlite_collection):
            monkeypatch.setattr(module, "prefix", lambda id: id[0] % 3)
        monkeypatch.setattr(_sqlite_index, "LONGEST_TAIL", 0)
        return lambda clock: SqliteStore(tmp_path / "store", durability="relaxed", clock=clock)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "store")


# Opening and closing.


def test_nothing_opens_a_folder_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with ropewalk.open() as store:
        store.commit(SPACE)
        monkeypatch.chdir("/")  # A store stays where it was opened.
        assert store.spaces() == [SPACE]

    assert (tmp_path / ".ropewalk" / "store.db").is_file()


@pytest.mark.parametrize("make", [str, Path])
def test_a_path_opens_a_store_in_a_folder(make: Callable[[Path], str], tmp_path: Path) -> None:
    with ropewalk.open(make(tmp_path / "my%20 agent?.ropewalk")) as store:
        store.commit(SPACE)

    with ropewalk.open(tmp_path / "my%20 agent?.ropewalk") as again:
        assert isinstance(again, ropewalk.SqliteStore)
        assert again.spaces() == [SPACE]


def test_memory_is_a_store_too() -> None:
    with ropewalk.open("memory://") as store:
        assert isinstance(store, MemoryStore)


@pytest.mark.parametrize("url", ["mysql://host", "memory://x", "://", "", b"x", 5])
def test_what_no_engine_opens_is_refused(url: object) -> None:
    with pytest.raises(InvalidInput):
        ropewalk.open(url)  # type: ignore[arg-type]


def test_a_refusal_names_what_there_is() -> None:
    with pytest.raises(InvalidInput, match=r"mysql://.*a path.*memory://"):
        ropewalk.open("mysql://host/name")


def test_durability_is_a_word_that_exists(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="relaxed"):
        SqliteStore(tmp_path / "store", durability="none")  # type: ignore[arg-type]


@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("relaxed", 1)])
def test_durability_is_what_sqlite_is_told(
    tmp_path: Path, durability: str, synchronous: int
) -> None:
    store = SqliteStore(tmp_path / "store", durability=durability)  # type: ignore[arg-type]

    told = store._database.read_once(lambda db: db.execute("PRAGMA synchronous").fetchone())
    assert told == (synchronous,)
    assert store.durability == durability
    store.close()


def test_closing_leaves_one_database_to_copy(store: SqliteStore, tmp_path: Path) -> None:
    point(store, value("one"))

    store.close()

    assert {one.name for one in store.path.iterdir()} == {"packs", "store.db", "store.turn"}
    shutil.copytree(store.path, tmp_path / "copy")
    with SqliteStore(tmp_path / "copy") as copy:
        assert copy.read([value("one").id]) == [value("one")]
        assert copy.header == store.header


def test_many_may_make_one_store_at_once(tmp_path: Path) -> None:
    opened: list[SqliteStore] = []
    in_threads(6, lambda number: opened.append(SqliteStore(tmp_path / "store")))

    assert len({store.header.store_id for store in opened}) == 1
    for store in opened:
        store.commit(SPACE)
    assert opened[0].view(SPACE).sequence == 6
    for store in opened:
        store.close()


def test_closing_waits_for_a_commit_that_was_begun(store: SqliteStore) -> None:
    inside, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def work(db: sqlite3.Connection) -> None:
        inside.set()
        go_on.wait(30)
        db.execute("UPDATE facts SET epoch = 7")

    def close() -> None:
        store.close()
        closed.set()

    writer = threading.Thread(target=lambda: store._database.write(work))
    writer.start()
    inside.wait(30)
    closer = threading.Thread(target=close)
    closer.start()
    assert not closed.wait(0.05)
    go_on.set()
    writer.join()
    closer.join()

    with SqliteStore(store.path) as again:
        assert again.view(SPACE).epoch == 7


# Threads and forks.


def test_threads_that_ended_leave_their_connections_to_others(store: SqliteStore) -> None:
    for _ in range(20):
        thread = threading.Thread(target=store.commit, args=(SPACE,))
        thread.start()
        thread.join()

    (process,) = store._database._processes.values()
    assert len(process.connections._free) == 1
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_process_opens_connections_of_its_own(store: SqliteStore) -> None:
    store.commit(SPACE)
    parents = {id(db) for db in store._database._processes[os.getpid()].connections._free}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # That threads do not survive it.
        child = os.fork()
    if child == 0:
        try:
            store.commit(SPACE)
            own = {id(db) for db in store._database._processes[os.getpid()].connections._free}
            store.close()
            os._exit(0 if own and own.isdisjoint(parents) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    assert store.commit(SPACE).sequence == 3
    assert {id(db) for db in store._database._processes[os.getpid()].connections._free} == parents
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_is_not_locked_out_by_what_other_threads_of_its_parent_did(
    store: SqliteStore,
) -> None:
    point(store, value("one"))
    ended = threading.Event()

    def keep_busy() -> None:
        while not ended.is_set():
            with SqliteStore(store.path) as another:  # Opening takes locks that all share.
                another.refs(SPACE)
            store.commit(SPACE)

    busy = [threading.Thread(target=keep_busy) for _ in range(3)]
    for thread in busy:
        thread.start()
    try:
        codes = [_code_of_a_child_that_reads(store) for _ in range(40)]
    finally:
        ended.set()
        for thread in busy:
            thread.join()
    store.close()

    assert codes == [0] * 40


def _code_of_a_child_that_reads(store: SqliteStore) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # That threads do not survive it.
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os._exit(0 if store.refs(SPACE)[0].target == value("one").id else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_readers_do_not_wait_for_a_writer(store: SqliteStore) -> None:
    point(store, value("one"))
    other = connect(store)
    other.execute("BEGIN IMMEDIATE")

    assert store.refs(SPACE)[0].target == value("one").id
    assert store.read([value("one").id]) == [value("one")]
    assert len(store.operations(SPACE)) == 1
    other.close()
    store.close()


def test_a_second_store_object_is_seen_by_who_watches(store: SqliteStore) -> None:
    with SqliteStore(store.path) as second:
        watching = store.watch(SPACE, timeout=30)
        done = second.commit(SPACE)
        assert next(watching) == done
        watching.close()  # type: ignore[attr-defined]
    store.close()


def test_a_large_collection_goes_in_portions(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.store._sqlite._CHANGED_AT_A_TIME", 7)
    many = [value(f"number {number}") for number in range(30)]
    store.commit(SPACE, many)
    ids = [one.id for one in many]

    assert store.condemn(ids) == ids
    store.revive(ids[:10])
    assert store.delete(ids) == ids[10:]

    assert {one.id for one in store.scan()} == set(ids[:10])
    assert store.read(ids[:10]) == many[:10]
    store.close()


# Large packs.


def test_a_large_pack_is_a_file_of_its_own(store: SqliteStore) -> None:
    point(store, LARGE)

    assert len(pack_files(store)) == 1
    assert (store.path / "store.db-wal").stat().st_size < packs.LARGE
    assert store.read([LARGE.id]) == [LARGE]
    store.close()
    with SqliteStore(store.path) as again:
        assert again.read([LARGE.id]) == [LARGE]


def test_a_large_commit_that_changes_nothing_leaves_no_file(store: SqliteStore) -> None:
    point(store, value("one"))
    with pytest.raises(RefMoved):
        point(store, LARGE)
    assert pack_files(store) == []

    for _ in range(2):
        store.commit(SPACE, [LARGE], write_id="once")
    store.commit(SPACE, [LARGE])
    assert len(pack_files(store)) == 1
    store.close()


def test_a_file_goes_with_its_objects(store: SqliteStore) -> None:
    small = value("small")
    store.commit(SPACE, [LARGE, small])
    store.commit(SPACE, [LARGER])
    ids = [LARGE.id, LARGER.id]

    store.condemn(ids)
    assert sorted(store.delete(ids)) == sorted(ids)

    assert pack_files(store) == []
    assert store.read([small.id]) == [small]  # It was moved before.
    with pytest.raises(MissingObjects):
        store.read(ids)
    store.close()


def test_what_is_left_of_large_packs_is_a_large_pack(store: SqliteStore) -> None:
    keep = [value(noise(200_000, seed)) for seed in range(2)]
    drop = [value(noise(300_000, seed)) for seed in range(2, 4)]
    for kept, dropped in zip(keep, drop, strict=True):
        store.commit(SPACE, [dropped, kept])
    before = pack_files(store)

    store.delete(store.condemn([one.id for one in drop]))

    (after,) = pack_files(store)
    assert after not in before
    assert store.read([one.id for one in keep]) == keep
    store.close()


def test_a_reader_finds_what_was_moved_meanwhile(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, drop = value(noise(100_000, 3)), value(noise(200_000, 4))
    store.commit(SPACE, [keep, drop])
    collector = SqliteStore(store.path)
    read_file, moved = packs._read_file, list[int]()

    def late(path: Path, *rest: object) -> None:
        if not moved:
            moved.append(1)
            collector.delete(collector.condemn([drop.id]))
        read_file(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(packs, "_read_file", late)

    assert store.read([keep.id]) == [keep]
    assert moved
    collector.close()
    store.close()


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 1000)])
def test_a_damaged_file_takes_only_its_own_objects(
    store: SqliteStore, harm: Callable[[Path], None]
) -> None:
    store.commit(SPACE, [LARGE])
    (file,) = pack_files(store)
    store.commit(SPACE, [LARGER])
    harm(file)

    with pytest.raises(DamagedObject) as caught:
        store.read([LARGER.id, LARGE.id])

    assert caught.value.id == LARGE.id
    assert store.read([LARGER.id]) == [LARGER]
    store.commit(SPACE, [LARGE._replace(base=None), *growing(2)])
    store.close()


def test_only_old_files_without_a_pack_are_removed(store: SqliteStore) -> None:
    store.commit(SPACE, [LARGE])
    (named,) = pack_files(store)
    old, fresh = named.with_name("old.pack"), named.with_name("fresh.pack")
    for path in (old, fresh):
        path.write_bytes(b"left by somebody who was killed")
    for path in (old, named):
        os.utime(path, (1, 1))

    store.delete([])

    assert sorted(pack_files(store)) == sorted([named, fresh])
    assert store.read([LARGE.id]) == [LARGE]
    store.close()


def test_a_writer_that_slept_until_its_file_was_removed_loses_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ahead = packs.write_ahead

    def lost(*given: object) -> packs.Ahead:
        ahead = write_ahead(*given)  # type: ignore[arg-type]
        ahead.path.unlink()
        return ahead

    monkeypatch.setattr(packs, "write_ahead", lost)
    point(store, LARGE)

    assert pack_files(store) == []
    assert store.read([LARGE.id]) == [LARGE]
    assert store.ref(SPACE, MAIN) == (MAIN, LARGE.id, 1)
    assert store.commit(SPACE, moves=[Move(MAIN, LARGE.id, None)]).sequence == 2
    store.close()
