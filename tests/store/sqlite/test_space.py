"""What an embedded store takes on disk: its limit, and what it gives back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ropewalk.errors import InvalidInput, StoreFull
from ropewalk.store import Move, SqliteStore
from ropewalk.store.sqlite import packs
from ropewalk.testing._stores._base import MAIN, OTHER_SPACE, SPACE, noise, point, value

LIMIT = 400_000
KEPT = value(noise(1000, seed=1))


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("size", [LIMIT - 150_000, LIMIT])
def test_a_commit_over_the_limit_writes_nothing(tmp_path: Path, size: int) -> None:
    # The smaller one is a row of the log, the larger one would be a file.
    store = SqliteStore(tmp_path / "store", size_limit=LIMIT)
    point(store, KEPT)
    point(store, other := value(noise(150_000, seed=2)), "branch/other")

    with pytest.raises(StoreFull, match=f"size_limit of {LIMIT}"):
        point(store, value(noise(size, seed=3)), "branch/third")

    assert store.operations(SPACE)[-1].sequence == 2
    assert list((store.path / "packs").iterdir()) == []
    assert store.read([KEPT.id, other.id]) == [KEPT, other]
    assert store.commit(SPACE, moves=[Move(MAIN, KEPT.id, None)]).sequence == 3
    store.close()


def test_what_is_deleted_makes_room_under_the_limit(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", size_limit=LIMIT)
    first, second = value(noise(300_000, seed=4)), value(noise(300_000, seed=5))
    store.commit(SPACE, [first])
    with store, SqliteStore(store.path) as unlimited:
        used = unlimited._database.read(used_bytes)
        store.delete(store.condemn([first.id]))

        assert used > 300_000
        assert store._database.read(used_bytes) < 150_000
        point(store, second)
        assert store.read([second.id]) == [second]


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_limit_is_a_number_of_bytes(tmp_path: Path, limit: object) -> None:
    with pytest.raises(InvalidInput):
        SqliteStore(tmp_path / "store", size_limit=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [100_000, packs.LARGE + 1])
def test_deleting_makes_the_folder_small_while_others_write(tmp_path: Path, size: int) -> None:
    store = SqliteStore(tmp_path / "store", durability="relaxed")
    many = [value(noise(size, seed=seed)) for seed in range(20_000_000 // size)]
    for one in many:
        store.commit(SPACE, [one])
    point(store, KEPT)
    stop, written = threading.Event(), list[bytes]()

    def write() -> None:
        with SqliteStore(store.path, durability="relaxed") as other:
            while not stop.is_set() or not written:
                one = value(f"number {len(written)}")
                other.commit(OTHER_SPACE, [one])
                written.append(one.id)

    writer = threading.Thread(target=write)
    writer.start()
    before = folder_bytes(store.path)
    gone = store.delete(store.condemn([one.id for one in many]))
    stop.set()
    writer.join()
    store.close()

    assert len(gone) == len(many)
    assert before > 20_000_000
    assert folder_bytes(store.path) < 1_000_000 + 1_000 * len(written)
    with SqliteStore(store.path) as again:
        assert again.read([KEPT.id]) == [KEPT]
        assert again.missing(written) == []
        assert len(again.read([one.id for one in again.scan()])) == len(written) + 1


def test_a_log_that_grew_is_cut(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", durability="relaxed")
    reader = store._database._here().connections.take(to_write=False)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM facts").fetchall()
    for seed in range(150):
        store.commit(SPACE, [value(noise(200_000, seed=seed))])
    grown = (store.path / "store.db-wal").stat().st_size
    reader.execute("ROLLBACK")
    store._database._here().connections.give_back(reader, sound=True)

    for seed in range(3):
        point(store, value(f"{seed}"), f"branch/{seed}")

    assert grown > 20_000_000
    assert (store.path / "store.db-wal").stat().st_size <= 17_000_000
    store.close()
