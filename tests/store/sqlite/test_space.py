"""What an embedded store takes on disk: its limit, and what it gives back."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from ropewalk.errors import InvalidInput, StoreFull
from ropewalk.store import Move, SqliteStore
from ropewalk.store.sqlite import packs
from ropewalk.testing.helpers import MAIN, OTHER_SPACE, SPACE, noise, point, read, value
from tests.store.sqlite.contract import connected, pack_files

LIMIT = 400_000
KEPT = value(noise(1000, seed=1))


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("size", [LIMIT - 150_000, LIMIT])
def test_a_commit_over_the_limit_writes_nothing(tmp_path: Path, size: int) -> None:
    # The smaller one is a record, the larger one would be a file.
    store = SqliteStore(tmp_path / "store", size_limit=LIMIT)
    point(store, KEPT)
    point(store, other := value(noise(150_000, seed=2)), "branch/other")

    with pytest.raises(StoreFull, match=f"size_limit of {LIMIT}"):
        point(store, value(noise(size, seed=3)), "branch/third")

    assert store.operations(SPACE)[-1].sequence == 2
    assert pack_files(store.path) == []
    assert read(store, [KEPT.id, other.id]) == [KEPT, other]
    assert store.commit(SPACE, moves=[Move(MAIN, KEPT.id, None)]).sequence == 3
    store.close()


@pytest.mark.parametrize("size", [200_000, 300_000])
def test_what_nothing_reaches_makes_room_under_the_limit(tmp_path: Path, size: int) -> None:
    first, second = value(noise(size, seed=4)), value(noise(size, seed=5))
    with SqliteStore(tmp_path / "store", size_limit=LIMIT) as store:
        point(store, first)
        store.commit(SPACE, moves=[Move(MAIN, first.id, None)])
        store.commit(SPACE)  # What the last operation did can be undone.

        point(store, second)  # There is no room before something is collected.

        assert read(store, [second.id]) == [second]
        assert store.missing([first.id], SPACE) == [first.id]


def test_a_collection_gives_its_room_back(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store:
        for number in range(40):
            point(store, value(noise(20_000, seed=number)), f"branch/{number}")
        for ref in store.refs(SPACE):
            store.commit(SPACE, moves=[Move(ref.name, ref.target, None)])
        store.close()
        before = folder_bytes(store.path)

    with SqliteStore(store.path) as store:
        store.gc(recent=0)

    assert before > 800_000
    assert folder_bytes(store.path) < 100_000


def test_closing_gives_back_what_packing_freed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", durability="relaxed")
    for number in range(100):  # Much the same as the third one before, so segments are smaller.
        point(store, value(noise(1500, seed=number % 3) + bytes([number])), f"branch/{number}")
    store.close()

    with connected(store.path) as db:
        (free,) = db.execute("PRAGMA freelist_count").fetchone()
    assert free == 0
    assert folder_bytes(store.path) < 100_000


def test_closing_gives_back_what_was_packed_before(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", durability="relaxed")
    for seed in range(3):  # Beside which a tail is less than a tenth of the file.
        store.commit(SPACE, [value(noise(1_000_000, seed=seed))])
    for number in range(128):
        point(store, value(noise(1500, seed=number % 3) + bytes([number])), f"branch/{number}")
    store.close()

    with connected(store.path) as db:
        (free,) = db.execute("PRAGMA freelist_count").fetchone()
    assert free == 0


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_limit_is_a_number_of_bytes(tmp_path: Path, limit: object) -> None:
    with pytest.raises(InvalidInput):
        SqliteStore(tmp_path / "store", size_limit=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [100_000, packs.LARGE + 1])
def test_deleting_makes_the_folder_small_while_others_write(tmp_path: Path, size: int) -> None:
    store = SqliteStore(tmp_path / "store", durability="relaxed")
    for seed in range(20_000_000 // size):
        store.commit(SPACE, [value(noise(size, seed=seed))])
    point(store, KEPT)
    stop, written = threading.Event(), list[bytes]()

    def write() -> None:
        with SqliteStore(store.path, durability="relaxed") as other:
            while not stop.is_set() or not written:
                one = value(f"number {len(written)}")
                move = Move(f"branch/{len(written)}", None, one.id)
                other.commit(OTHER_SPACE, [one], moves=[move])
                written.append(one.id)
                time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    before = folder_bytes(store.path)
    try:
        store.gc(recent=0)
    finally:
        stop.set()
        writer.join()
    store.close()

    assert before > 20_000_000
    assert folder_bytes(store.path) < 1_000_000 + 1_000 * len(written)
    with SqliteStore(store.path) as again:
        assert read(again, [KEPT.id]) == [KEPT]
        assert again.missing(written, OTHER_SPACE) == []
        assert len(read(again, written, OTHER_SPACE)) == len(written)


def test_a_log_that_grew_is_cut(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", durability="relaxed")
    with connected(store.path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM facts").fetchall()
        for seed in range(150):
            store.commit(SPACE, [value(noise(200_000, seed=seed))])
        grown = (store.path / "store.db-wal").stat().st_size
        reader.execute("ROLLBACK")

    for seed in range(3):
        point(store, value(f"{seed}"), f"branch/{seed}")

    assert grown > 20_000_000
    assert (store.path / "store.db-wal").stat().st_size <= 3_000_000
    store.close()


def test_an_open_folder_takes_little_more_than_what_was_committed(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store", durability="relaxed") as store:
        before = None
        for number in range(1000):
            one = value(noise(1000, seed=number))
            store.commit(SPACE, [one], moves=[Move(MAIN, before, one.id)])
            before = one.id

        assert folder_bytes(store.path) < 2_000_000
