"""The embedded store: its files, and what it does with threads and forks."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from ormsgpack import packb

import ropewalk
from ropewalk.errors import DamagedObject, InvalidInput, MissingObjects, RefMoved
from ropewalk.store import MemoryStore, Move, SqliteStore, space_name
from ropewalk.store.sqlite import packs
from ropewalk.testing.helpers import MAIN, OTHER_SPACE, SPACE, in_threads, noise, point, read, value
from ropewalk.tree import Kind, Object, TreeWriter, make_object
from tests.store.sqlite.contract import connected, pack_files

LARGE = make_object(Kind.CHUNK, noise(packs.LARGE + 1, seed=1))
LARGER = make_object(Kind.CHUNK, noise(packs.LARGE + 2, seed=2))


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

    told = store._database.read(lambda db: db.execute("PRAGMA synchronous").fetchone())
    assert told == (synchronous,)
    assert store.durability == durability
    store.close()


def test_closing_leaves_one_database_to_copy(store: SqliteStore, tmp_path: Path) -> None:
    point(store, value("one"))

    store.close()

    assert {one.name for one in store.path.iterdir()} == {"packs", "store.db"}
    shutil.copytree(store.path, tmp_path / "copy")
    with SqliteStore(tmp_path / "copy") as copy:
        assert read(copy, [value("one").id]) == [value("one")]
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
    closed = threading.Event()

    def close() -> None:
        store.close()
        closed.set()

    closer = threading.Thread(target=close)
    with connected(store.path) as other:
        other.execute("BEGIN IMMEDIATE")  # So that the commit waits inside.
        writer = threading.Thread(target=store.commit, args=(SPACE,))
        writer.start()
        while not store._database.group.leader:
            time.sleep(0.001)
        closer.start()
        assert not closed.wait(0.05)
        other.execute("ROLLBACK")
    writer.join()
    closer.join()

    with SqliteStore(store.path) as again:
        assert again.view(SPACE).sequence == 1


# Threads and forks.


def test_threads_that_ended_leave_no_files_open(store: SqliteStore) -> None:
    def work() -> None:
        store.commit(SPACE)
        store.refs(SPACE)

    def run() -> int:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return len(os.listdir("/proc/self/fd"))

    opened = [run() for _ in range(20)]

    assert opened[-1] == opened[2]
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_process_opens_the_database_for_itself(store: SqliteStore) -> None:
    point(store, value("one"))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # That threads do not survive it.
        child = os.fork()
    if child == 0:
        try:
            store.commit(SPACE, [value("two")])
            sound = read(store, [value("one").id]) == [value("one")]
            store.close()
            os._exit(0 if sound else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    assert store.commit(SPACE).sequence == 3
    assert read(store, [value("two").id]) == [value("two")]
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
    with connected(store.path) as other:
        other.execute("BEGIN IMMEDIATE")

        assert store.refs(SPACE)[0].target == value("one").id
        assert read(store, [value("one").id]) == [value("one")]
        assert len(store.operations(SPACE)) == 1
    store.close()


def test_a_second_store_object_is_seen_by_who_watches(store: SqliteStore) -> None:
    with SqliteStore(store.path) as second:
        watching = store.watch(SPACE, timeout=30)
        done = second.commit(SPACE)
        assert next(watching) == done
        watching.close()  # type: ignore[attr-defined]
    store.close()


# Shared objects: what is large, or was shared on purpose.


def test_a_large_pack_is_a_file_of_its_own(store: SqliteStore) -> None:
    store.commit(SPACE, [LARGE])

    assert len(pack_files(store.path)) == 1
    assert (store.path / "store.db-wal").stat().st_size < packs.LARGE
    assert read(store, [LARGE.id]) == [LARGE]
    store.close()
    with SqliteStore(store.path) as again:
        assert read(again, [LARGE.id]) == [LARGE]


def test_a_large_commit_that_changes_nothing_leaves_no_file(store: SqliteStore) -> None:
    point(store, value("one"))
    with pytest.raises(RefMoved):
        point(store, LARGE)
    assert pack_files(store.path) == []

    for _ in range(2):
        store.commit(SPACE, [LARGE], write_id="once")
    store.commit(SPACE, [LARGE])
    assert len(pack_files(store.path)) == 1
    store.close()


def test_a_large_text_is_stored_once_for_many_spaces(store: SqliteStore) -> None:
    text = TreeWriter().write({"text": noise(1_000_000)})
    for number in range(50):
        move = Move(MAIN, None, text.root)
        store.commit(space_name("thread", str(number)), text.objects, moves=[move])

    assert len(pack_files(store.path)) == 1
    store.close()
    assert sum(file.stat().st_size for file in store.path.rglob("*")) < 1_200_000


def test_a_file_goes_with_its_objects(store: SqliteStore) -> None:
    point(store, LARGE, "branch/old")
    point(store, LARGER)
    (_, kept) = sorted(pack_files(store.path), key=lambda file: file.stat().st_size)

    store.commit(SPACE, moves=[Move("branch/old", LARGE.id, None)])
    store.gc(recent=0)

    assert pack_files(store.path) == [kept]
    assert read(store, [LARGER.id]) == [LARGER]
    with pytest.raises(MissingObjects):
        read(store, [LARGE.id])
    assert store.check(read_data=True).problems == ()
    store.close()


def test_what_is_left_of_a_large_pack_is_written_anew(store: SqliteStore) -> None:
    keep, drop = value(noise(300_000, 1)), value(noise(900_000, 2))
    store.commit(SPACE, [drop, keep], moves=[Move(MAIN, None, keep.id)])
    before = pack_files(store.path)

    store.gc(recent=0)

    (after,) = pack_files(store.path)
    assert [after] != before
    assert 300_000 < after.stat().st_size < 310_000
    assert read(store, [keep.id]) == [keep]
    store.close()


def test_a_shared_object_stays_as_long_as_one_space_leads_to_it(store: SqliteStore) -> None:
    point(store, LARGE)
    store.commit(OTHER_SPACE, [LARGE], moves=[Move(MAIN, None, LARGE.id)])

    store.commit(SPACE, moves=[Move(MAIN, LARGE.id, None)])
    store.gc(recent=0)
    assert read(store, [LARGE.id], OTHER_SPACE) == [LARGE]

    store.commit(OTHER_SPACE, moves=[Move(MAIN, LARGE.id, None)])
    store.gc(recent=0)
    assert pack_files(store.path) == []
    assert list(store.scan()) == []
    store.close()


def test_a_reader_finds_what_was_moved_meanwhile(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, drop = value(noise(300_000, 3)), value(noise(900_000, 4))
    store.commit(SPACE, [keep, drop], moves=[Move(MAIN, None, keep.id)])
    moved = list[int]()

    def late(path: Path, *how: object, **more: object) -> IO[bytes]:
        if not moved:
            moved.append(1)
            with SqliteStore(store.path) as collector:
                collector.gc(recent=0)
        return open(path, *how, **more)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(packs, "open", late, raising=False)

    assert read(store, [keep.id]) == [keep]
    assert moved
    store.close()


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 1000)])
def test_a_damaged_file_takes_only_its_own_objects(
    store: SqliteStore, harm: Callable[[Path], None]
) -> None:
    store.commit(SPACE, [LARGE])
    (file,) = pack_files(store.path)
    store.commit(SPACE, [LARGER])
    harm(file)

    with pytest.raises(DamagedObject) as caught:
        read(store, [LARGER.id, LARGE.id])

    assert caught.value.id == LARGE.id
    assert read(store, [LARGER.id]) == [LARGER]
    store.close()


def test_only_old_files_without_a_pack_are_removed(store: SqliteStore) -> None:
    point(store, LARGE)
    (named,) = pack_files(store.path)
    old, fresh = named.with_name("old.pack"), named.with_name("fresh.pack")
    for path in (old, fresh):
        path.write_bytes(b"left by somebody who was killed")
    for path in (old, named):
        os.utime(path, (1, 1))

    store.gc()

    assert sorted(pack_files(store.path)) == sorted([named, fresh])
    assert read(store, [LARGE.id]) == [LARGE]
    store.close()


def test_a_writer_that_slept_until_its_file_was_removed_loses_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ahead = packs.write_ahead

    def lost(*given: object) -> packs.Pack:
        ahead = write_ahead(*given)  # type: ignore[arg-type]
        assert ahead.file is not None
        ahead.file.unlink()
        return ahead

    monkeypatch.setattr(packs, "write_ahead", lost)
    point(store, LARGE)

    assert pack_files(store.path) == []
    assert read(store, [LARGE.id]) == [LARGE]
    assert store.ref(SPACE, MAIN) == (MAIN, LARGE.id, 1)
    assert store.commit(SPACE, moves=[Move(MAIN, LARGE.id, None)]).sequence == 2
    store.close()


def test_records_of_two_writers_are_read_whole_whatever_is_packed_between(tmp_path: Path) -> None:
    writers = [SqliteStore(tmp_path / "store") for _ in range(2)]
    dice, made, at = random.Random(7), list[Object](), 0
    for step in range(300):
        at = 1 - at if dice.random() < 0.2 else at
        store = writers[at]
        if dice.random() < 0.03:
            store.gc()
        if dice.random() < 0.1:  # The other one packs the tail, in the middle of a group.
            writers[1 - at].close()
            writers[1 - at] = SqliteStore(tmp_path / "store")
            assert writers[1 - at].missing([one.id for one in made[-1:]], SPACE) == []
        before = made[-1].id if made else None
        # Small records lean on the first of their group, large ones on the one before.
        text = "so it goes. " * dice.choice([3, 30, 300, 300, 600])
        one = make_object(Kind.VALUE, packb({"step": step, "text": text}))
        store.commit(SPACE, [one], moves=[Move(MAIN, before, one.id)])
        made.append(one)
        if dice.random() < 0.1:
            assert [one.id for one in store.reader(SPACE)([made[-1].id])] == [made[-1].id]
    for store in writers:
        store.close()

    with SqliteStore(tmp_path / "store") as store:
        assert [one.moves[0].target for one in store.operations(SPACE)] == [one.id for one in made]
        assert not store.check().problems
