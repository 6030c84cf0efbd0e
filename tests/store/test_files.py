"""The store of plain files: the contract, its files, and what it does with threads and forks."""

from __future__ import annotations

import json
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ropewalk
from ropewalk.errors import InvalidInput, RefMoved, StoreFull
from ropewalk.store import FileStore, Move, Store, ref_name, space_name
from ropewalk.store import _file_objects as objects
from ropewalk.store import _file_spaces as spaces
from ropewalk.store._file_paths import OBJECTS, condemned_path, folder_name, object_path
from ropewalk.store._file_usage import folder_bytes
from ropewalk.store._filesystem import Filesystem
from ropewalk.testing import ObjectStoreContract
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


class FileContract(ObjectStoreContract):
    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, FileStore)
        path = object_path(store.path / OBJECTS, id)
        changed = bytearray(path.read_bytes())
        changed[-1] ^= 1
        path.write_bytes(changed)
        return True


class TestFileStore(FileContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Opener:
        return lambda clock: FileStore(tmp_path / "store", clock=clock)


class TestRelaxedFileStoreWithManySnapshots(FileContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
        monkeypatch.setattr(spaces, "_SNAPSHOT_BYTES", 0)
        return lambda clock: FileStore(tmp_path / "store", durability="relaxed", clock=clock)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(tmp_path / "store") as opened:
        yield opened


def files(folder: Path) -> list[str]:
    """All files of a folder, as paths inside it."""
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # That threads do not survive it.
        return os.fork()


def in_child(check: Callable[[], bool]) -> bool:
    """Whether a check holds in a child process."""
    child = fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Opening and closing.


@pytest.mark.parametrize("spelled", ["{}", "localhost{}"])
def test_a_url_opens_a_folder(tmp_path: Path, spelled: str) -> None:
    place = str(tmp_path / "my%20agent").replace("my%20", "my%20%2520")
    with ropewalk.open("file://" + spelled.format(place)) as store:
        store.commit(SPACE)

    with FileStore(tmp_path / "my %20agent") as again:
        assert isinstance(store, ropewalk.FileStore)
        assert again.spaces() == [SPACE]


@pytest.mark.parametrize("url", ["file://agent", "file://./agent", "file://./x/../agent"])
def test_a_url_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)

    with ropewalk.open(url) as store:
        monkeypatch.chdir("/")  # A store stays where it was opened.
        store.commit(SPACE)

    assert (tmp_path / "agent" / "ropewalk.json").is_file()


@pytest.mark.parametrize(
    "url", ["file://", "file://server/share", "file:///x?y=1", "file:///x#y", "file:///x%00y"]
)
def test_a_url_that_names_no_folder_here_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="file://"):
        ropewalk.open(url)


def test_durability_is_a_word_that_exists(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="relaxed"):
        FileStore(tmp_path / "store", durability="none")  # type: ignore[arg-type]


def test_what_is_in_the_folder_can_be_looked_at(store: FileStore) -> None:
    one = value("one")
    point(store, one)
    store.acquire(SPACE, ref_name("lease", "x"), "me", 10.0)
    store.close()

    assert files(store.path) == [
        "epoch.json", "lock", "lock.turn",
        f"objects/{one.id.hex()[:2]}/{one.id.hex()[2:]}", "ropewalk.json",
        "spaces/test/one/leases.json", "spaces/test/one/log", "spaces/test/one/space.json",
    ]  # fmt: skip
    lines = (store.path / "spaces" / "test" / "one" / "log").read_text("utf-8").splitlines()
    start, operation, witness = map(json.loads, lines)
    assert start["space"] == SPACE
    assert operation["moves"] == [[MAIN, None, one.id.hex()]]
    assert witness == {"synced": 1}


def test_a_copy_of_the_folder_is_the_store(store: FileStore, tmp_path: Path) -> None:
    point(store, value("one"))
    shutil.copytree(store.path, tmp_path / "copy")
    for name in ("collections", "new"):  # As a tool does that leaves out empty folders.
        shutil.rmtree(tmp_path / "copy" / name)

    with FileStore(tmp_path / "copy") as copy:
        assert copy.read([value("one").id]) == [value("one")]
        assert copy.header == store.header
        point(copy, value("two"), expected=value("one").id)
        assert copy.condemn([value("one").id]) == [value("one").id]


def test_many_may_make_one_store_at_once(tmp_path: Path) -> None:
    opened: list[FileStore] = []
    in_threads(6, lambda number: opened.append(FileStore(tmp_path / "store")))

    assert len({store.header.store_id for store in opened}) == 1
    for store in opened:
        store.commit(SPACE)
    assert opened[0].view(SPACE).sequence == 6
    for store in opened:
        store.close()


def test_closing_waits_for_a_commit_that_was_begun(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    stage = store._objects.stage

    def slow(frames: object) -> dict[ObjectId, Path]:
        inside.set()
        go_on.wait(30)
        return stage(frames)  # type: ignore[arg-type]

    monkeypatch.setattr(store._objects, "stage", slow)
    writer = threading.Thread(target=point, args=(store, value("one")))
    writer.start()
    inside.wait(30)

    def close() -> None:
        store.close()
        closed.set()

    closer = threading.Thread(target=close)
    closer.start()
    assert not closed.wait(0.05)
    go_on.set()
    writer.join()
    closer.join()

    with FileStore(store.path) as again:
        assert again.ref(SPACE, MAIN) == (MAIN, value("one").id, 1)


# Names.


def test_folders_differ_for_every_file_system() -> None:
    parts = [
        "a", "A", "a.", "a.b", ".a", "..a", "con", "con.txt", "cone", "%C3%BC", "Agent", "agent",
        "x" * 400, "x" * 399, "X" * 400, "-", "~",
    ]  # fmt: skip

    folders = [folder_name(part) for part in parts]

    assert len({folder.lower() for folder in folders}) == len(parts)
    assert all(len(folder) <= 140 and folder[0] != "." != folder[-1] for folder in folders)
    assert [folder_name(part) for part in ("a.b", "%C3%BC", "cone")] == ["a.b", "%C3%BC", "cone"]


def test_a_space_of_the_longest_name_is_found(store: FileStore) -> None:
    space = space_name("t" * 250, "S" * 250)
    store.commit(space)

    with FileStore(store.path) as again:
        assert again.spaces() == [space]
        assert again.view(space).sequence == 1


# Logs and snapshots.


def test_a_new_process_reads_a_snapshot_and_what_is_behind_it(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spaces, "_SNAPSHOT_BYTES", 20_000)
    names = [ref_name("branch", str(number)) for number in range(7)]
    before: dict[str, ObjectId | None] = dict.fromkeys(names)
    for step in range(300):
        name, one = names[step % 7], value(f"step {step}")
        move = Move(name, before[name], one.id)
        store.commit(SPACE, [one], moves=[move], operation={"turn": step}, write_id=f"w{step}")
        before[name] = one.id
    log = store.path / "spaces" / "test" / "one" / "log"
    assert (log.parent / "snapshot.json").is_file()

    with FileStore(store.path) as again:
        with again._log.looking(SPACE) as state:
            assert 0 < state.snapshot_end < state.end
        assert again.view(SPACE) == store.view(SPACE)
        assert [one.metadata["turn"] for one in again.operations(SPACE, 100, 130)] == list(
            range(100, 230)
        )
        last = value("step 299")
        move = Move(names[299 % 7], value("step 292").id, last.id)
        repeated = again.commit(
            SPACE, [last], moves=[move], operation={"turn": 299}, write_id="w299"
        )
        assert repeated.sequence == 300


def test_a_garbage_snapshot_is_passed_over(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spaces, "_SNAPSHOT_BYTES", 0)
    for number in range(3):
        store.commit(SPACE, operation={"number": number})
    snapshot = store.path / "spaces" / "test" / "one" / "snapshot.json"
    snapshot.write_bytes(noise(100))

    with FileStore(store.path) as again:
        assert again.commit(SPACE).sequence == 4


def test_metadata_comes_back_as_it_was(store: FileStore) -> None:
    given: dict[str, ropewalk.store.Scalar] = {
        "none": None, "true": True, "int": -(2**63), "large": 2**64 - 1, "float": -0.0,
        "tiny": 5e-324, "inf": float("inf"), "bytes": b"\x00\xff", "text": "grüße\n\u2028🌍",
        "": "", "one": 1, "one.0": 1.0,
    }  # fmt: skip
    store.commit(SPACE, operation=given)
    store.commit(SPACE, operation={"nan": float("nan")})

    with FileStore(store.path) as again:
        first, second = again.operations(SPACE)
        assert repr(dict(first.metadata)) == repr(given)
        assert repr(second.metadata["nan"]) == "nan"


# Threads, forks and other store objects.


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_process_goes_on_with_the_store(store: FileStore) -> None:
    store.commit(SPACE)

    with store._lock.held():
        assert in_child(lambda: not store._lock._here().lock._try())
    assert in_child(lambda: store.commit(SPACE).sequence == 2)

    assert store.commit(SPACE).sequence == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_does_not_hold_what_its_parent_let_go(store: FileStore) -> None:
    ours, theirs = os.pipe()
    with store._lock.held():
        lock = store._lock._here().lock
        child = fork()
        if child == 0:
            os.read(ours, 1)
            os._exit(0)
        lock.close()  # As when the parent is killed: nobody unlocks, the file is closed.

    with FileStore(store.path) as other:
        assert other.commit(SPACE).sequence == 1
    os.write(theirs, b"x")
    os.waitpid(child, 0)
    os.close(ours)
    os.close(theirs)


def test_readers_do_not_wait_for_a_writer(store: FileStore) -> None:
    point(store, value("one"))
    with FileStore(store.path) as other, other._writing():
        assert store.refs(SPACE)[0].target == value("one").id
        assert store.read([value("one").id]) == [value("one")]
        assert len(store.operations(SPACE)) == 1


def test_a_second_store_object_is_seen_by_who_watches(store: FileStore) -> None:
    with FileStore(store.path) as second:
        watching = store.watch(SPACE, timeout=30)
        done = second.commit(SPACE)
        assert next(watching) == done
        watching.close()  # type: ignore[attr-defined]


def test_a_lock_file_that_was_removed_is_made_anew(store: FileStore) -> None:
    store.commit(SPACE)
    (store.path / "lock").unlink()

    with FileStore(store.path) as other, other._writing():
        assert not store._lock._here().lock._try()
    assert store.commit(SPACE).sequence == 2


# Objects and collection.


def test_a_commit_that_changes_nothing_leaves_no_file(store: FileStore) -> None:
    point(store, value("one"))
    before = files(store.path)

    with pytest.raises(RefMoved):
        point(store, value("two"))

    assert files(store.path) == before


def test_a_writer_that_slept_until_its_file_was_removed_loses_nothing(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = store._objects.stage

    def lost(frames: object) -> dict[ObjectId, Path]:
        staged = stage(frames)  # type: ignore[arg-type]
        monkeypatch.setattr(store._objects, "stage", stage)
        for path in staged.values():
            path.unlink()
        return staged

    monkeypatch.setattr(store._objects, "stage", lost)
    point(store, value("one"))

    assert store.read([value("one").id]) == [value("one")]


def test_only_old_temporary_files_are_removed(store: FileStore) -> None:
    old, fresh = store.path / "new" / "old", store.path / "new" / "fresh"
    for path in (old, fresh):
        path.write_bytes(b"left by somebody who was killed")
    os.utime(old, (1, 1))

    store.delete([])

    assert files(store.path / "new") == ["fresh"]


def test_a_large_collection_goes_in_portions(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.store._files._CHANGED_AT_A_TIME", 7)
    many = [value(f"number {number}") for number in range(30)]
    store.commit(SPACE, many)
    ids = [one.id for one in many]

    assert store.condemn(ids) == ids
    store.revive(ids[:10])
    assert store.delete(ids) == ids[10:]

    assert {one.id for one in store.scan()} == set(ids[:10])
    assert files(store.path / "collections") == []


def test_what_stands_beside_a_living_object_is_not_the_object(store: FileStore) -> None:
    one = value(noise(300))
    store.commit(SPACE, [one])
    stale = condemned_path(store.path / OBJECTS, one.id, 7)
    stale.write_bytes(b"what a power loss left")
    (store.path / "collections" / "7").touch()

    assert store.read([one.id]) == [one]
    assert store.missing([one.id]) == []
    assert [stored.condemned for stored in store.scan()] == [False]
    assert store.delete([one.id], collection=7) == []
    assert store.read([one.id]) == [one]
    assert not stale.exists()


def test_an_older_mark_does_not_come_back(store: FileStore) -> None:
    one = value(noise(300))
    store.commit(SPACE, [one])
    stale = condemned_path(store.path / OBJECTS, one.id, 3)
    stale.write_bytes(b"what a power loss left")
    (store.path / "collections" / "3").touch()

    assert store.condemn([one.id], collection=7) == [one.id]

    assert store.read([one.id]) == [one]
    assert store.delete([one.id], collection=7) == [one.id]
    assert list(store.scan()) == []
    assert files(store.path / "objects") == []


def test_a_chain_is_deleted_from_its_end(store: FileStore) -> None:
    versions = growing(6)
    for version in versions:
        store.commit(SPACE, [version])
    depths = {one: store._presence([one.id])[one.id].depth for one in versions}
    removed: list[Path] = []

    class Watching(Filesystem):
        def remove(self, path: Path) -> None:
            removed.append(path)
            super().remove(path)

    store._objects._disk = Watching()
    ids = [one.id for one in versions]
    store.condemn(ids)
    store.delete(ids)

    order = [condemned_path(store.path / OBJECTS, one.id, 1) for one in versions]
    assert [depths[versions[order.index(path)]] for path in removed if path in order] == sorted(
        depths.values(), reverse=True
    )


def test_many_objects_are_written_on_several_threads(store: FileStore) -> None:
    used: set[int] = set()

    class Watching(Filesystem):
        def create(self, path: Path, data: bytes, *, sync: bool) -> None:
            used.add(threading.get_ident())
            super().create(path, data, sync=sync)

    store._objects._disk = Watching()
    store.commit(SPACE, [value(noise(100, seed)) for seed in range(64)])

    assert len(used) > 1
    assert len(used) <= objects._SYNCED_AT_ONCE


# Limits.


def test_a_store_keeps_within_its_limit(tmp_path: Path) -> None:
    limit = 100_000
    with FileStore(tmp_path / "store", size_limit=limit) as store:
        kept = value(noise(60_000, 1))
        point(store, kept)
        before = files(store.path)

        with pytest.raises(StoreFull, match="size_limit of 100000"):
            store.commit(SPACE, [value(noise(60_000, 2))])

        assert files(store.path) == before
        assert store.read([kept.id]) == [kept]
        assert store.commit(SPACE, [value("small")]).sequence == 2
        store.delete(store.condemn([kept.id]))
        assert store.commit(SPACE, [value(noise(60_000, 2))]).sequence == 3
        assert folder_bytes(store.path) <= limit


def test_what_others_wrote_counts_before_a_commit_is_refused(tmp_path: Path) -> None:
    limited = FileStore(tmp_path / "store", size_limit=100_000)
    point(limited, value(noise(60_000, 1)))
    with FileStore(tmp_path / "store") as other:
        other.delete(other.condemn([value(noise(60_000, 1)).id]))

    limited.commit(SPACE, [value(noise(60_000, 2))])

    assert folder_bytes(limited.path) < 100_000
    limited.close()


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1", True])
def test_a_limit_is_a_whole_number(tmp_path: Path, limit: int) -> None:
    with pytest.raises(InvalidInput, match="size_limit"):
        FileStore(tmp_path / "store", size_limit=limit)
