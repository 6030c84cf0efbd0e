"""The store of plain files: its files, and what it does with threads, forks and limits."""

from __future__ import annotations

import json
import os
import shutil
import threading
import warnings
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ropewalk
from ropewalk.errors import InvalidInput, RefMoved, StoreFull
from ropewalk.history import History
from ropewalk.store import FileStore, Move, ref_name, space_name
from ropewalk.store.files.formats import folder_name
from ropewalk.store.folder import Filesystem
from ropewalk.store.quota import folder_bytes
from ropewalk.testing.helpers import MAIN, SPACE, in_threads, noise, point, read, value
from ropewalk.tree import Kind, Object, make_object


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(tmp_path / "store") as opened:
        yield opened


def large(size: int, seed: int = 0) -> Object:
    """A chunk that is shared, and so has a file of its own."""
    assert size >= 32 * 1024
    return make_object(Kind.CHUNK, noise(size, seed))


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
    one, text = value("one"), large(40_000)
    moves = [Move(MAIN, None, one.id), Move(ref_name("branch", "text"), None, text.id)]
    store.commit(SPACE, [one, text], moves=moves, operation={"by": "me"})
    store.acquire(SPACE, ref_name("lease", "x"), "me", 10.0)
    store.close()

    assert files(store.path) == [
        "lock", f"objects/{text.id.hex()[:2]}/{text.id.hex()[2:]}", "ropewalk.json",
        "spaces.list", "spaces/test/one/leases.json", "spaces/test/one/log",
        "spaces/test/one/space.json",
    ]  # fmt: skip
    lines = (store.path / "spaces" / "test" / "one" / "log").read_text("utf-8").splitlines()
    start, record, witness = map(json.loads, lines)
    assert start["space"] == SPACE
    assert record["moves"][0] == [MAIN, None, one.id.hex()]
    assert record["names"] == [text.id.hex()]
    assert record["operation"] == {"by": "me"}
    assert len(b64decode(record["frame"])) == record["length"]
    assert witness == {"synced": 1}


def test_a_copy_of_the_folder_is_the_store(store: FileStore, tmp_path: Path) -> None:
    text = large(40_000)
    point(store, value("one"))
    store.commit(SPACE, [text])
    shutil.copytree(store.path, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "new")  # As a tool does that leaves out empty folders.

    with FileStore(tmp_path / "copy") as copy:
        assert copy.header == store.header
        assert read(copy, [value("one").id, text.id]) == [value("one"), text]
        copy.commit(SPACE, [large(40_000, 2)])
        assert copy.gc(recent=0).freed == 2
        assert copy.check().ok


def test_closing_waits_for_a_commit_that_was_begun(tmp_path: Path) -> None:
    inside, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow(Filesystem):
        def append(self, path: Path, data: bytes, *, sync: bool) -> None:
            inside.set()
            go_on.wait(30)
            super().append(path, data, sync=sync)

    store = type("Tested", (FileStore,), {"_disk": Slow()})(tmp_path / "store")
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


def test_many_may_make_one_store_at_once(tmp_path: Path) -> None:
    opened: list[FileStore] = []
    in_threads(6, lambda number: opened.append(FileStore(tmp_path / "store")))

    assert len({store.header.store_id for store in opened}) == 1
    for store in opened:
        store.commit(SPACE)
    assert opened[0].view(SPACE).sequence == 6
    for store in opened:
        store.close()


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


# Logs.


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
        assert read(store, [value("one").id]) == [value("one")]
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


# Shared objects and collection.


def test_a_commit_that_changes_nothing_leaves_no_file(store: FileStore) -> None:
    point(store, value("one"))
    before = files(store.path)

    for write_id in (None, "mine"):
        move = Move(MAIN, None, value("two").id)
        with pytest.raises(RefMoved):
            store.commit(SPACE, [value("two"), large(40_000)], moves=[move], write_id=write_id)

    assert files(store.path) == before


def test_a_writer_that_slept_until_its_file_was_removed_loses_nothing(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, text = store._lock.held, large(40_000)

    def late() -> object:
        for path in (store.path / "new").iterdir():
            path.unlink()
        return held()

    monkeypatch.setattr(store._lock, "held", late)
    store.commit(SPACE, [text])

    assert store.read([text.id]) == [text]


def test_only_old_temporary_files_are_removed(store: FileStore) -> None:
    old, fresh = store.path / "new" / "old", store.path / "new" / "fresh"
    for path in (old, fresh):
        path.write_bytes(b"left by somebody who was killed")
    os.utime(old, (1, 1))

    store.gc()

    assert files(store.path / "new") == ["fresh"]


def test_many_objects_are_written_on_several_threads(tmp_path: Path) -> None:
    used: set[int] = set()

    class Watching(Filesystem):
        def create(self, path: Path, data: bytes, *, sync: bool) -> None:
            used.add(threading.get_ident())
            super().create(path, data, sync=sync)

    with type("Tested", (FileStore,), {"_disk": Watching()})(tmp_path / "store") as store:
        store.commit(SPACE, [value(noise(100, seed)) for seed in range(64)], share=True)

    assert 2 < len(used) <= 5


def test_what_one_space_still_names_is_kept(store: FileStore) -> None:
    text, other = large(40_000), space_name("test", "two")
    for space in (SPACE, other):
        store.commit(space, [text], moves=[Move(MAIN, None, text.id)])
    store.commit(SPACE, moves=[Move(MAIN, text.id, None)])

    assert store.gc(recent=0).freed == 0
    assert store.read([text.id]) == [text]
    store.commit(other, moves=[Move(MAIN, text.id, None)])
    assert store.gc(recent=0).freed == 1
    assert files(store.path / "objects") == []


def test_what_came_after_a_collection_looked_keeps_what_it_leads_to(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    History(store, SPACE).open().commit({"text": noise(100_000).hex()})
    scan = store._scan_shared
    monkeypatch.setattr(
        store, "_scan_shared", lambda: (one for one in scan() if one.kind == Kind.CHUNK)
    )
    assert len(list(store._scan_shared())) > 1

    assert store.gc(recent=0).freed == 0

    assert store.check(read_data=True).ok


# Limits.


def test_a_store_keeps_within_its_limit(tmp_path: Path) -> None:
    limit = 100_000
    with FileStore(tmp_path / "store", size_limit=limit) as store:
        kept = large(60_000, 1)
        point(store, kept)
        before = files(store.path / "objects"), store.operations(SPACE)

        with pytest.raises(StoreFull, match="size_limit of 100000"):
            store.commit(SPACE, [large(60_000, 2)])

        assert (files(store.path / "objects"), store.operations(SPACE)) == before
        assert files(store.path / "new") == []
        assert store.read([kept.id]) == [kept]
        assert store.commit(SPACE, [value("small")]).sequence == 2
        store.commit(SPACE, moves=[Move(MAIN, kept.id, None)])
        store.gc(recent=0)
        assert store.commit(SPACE, [large(60_000, 2)]).sequence == 4
        assert folder_bytes(store.path) <= limit


def test_what_others_wrote_counts_before_a_commit_is_refused(tmp_path: Path) -> None:
    limited = FileStore(tmp_path / "store", size_limit=100_000)
    limited.commit(SPACE, [large(60_000, 1)])
    with FileStore(tmp_path / "store") as other:
        other.gc(recent=0)

    limited.commit(SPACE, [large(60_000, 2)])

    assert folder_bytes(limited.path) < 100_000
    limited.close()


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1", True])
def test_a_limit_is_a_whole_number(tmp_path: Path, limit: int) -> None:
    with pytest.raises(InvalidInput, match="size_limit"):
        FileStore(tmp_path / "store", size_limit=limit)
