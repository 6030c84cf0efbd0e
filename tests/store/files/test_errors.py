"""What the store of plain files says when its folder, its disk or its files are not right."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from ropewalk.errors import (
    Corrupt,
    DamagedObject,
    FormatError,
    MissingObjects,
    NewerFormat,
    NotAllowed,
    RopewalkError,
    StoreClosed,
    StoreFull,
    Unavailable,
)
from ropewalk.store import FileStore, Move, ref_name, space_name
from ropewalk.store.files.formats import encode_witness, object_path, seal
from ropewalk.store.folder import Filesystem
from ropewalk.testing.helpers import MAIN, OTHER_SPACE, SPACE, noise, point, read, value
from ropewalk.tree import Kind, Object, make_object
from tests.store.users import as_nobody


def chunk(text: str | bytes) -> Object:
    """An object that may hold any bytes."""
    return make_object(Kind.CHUNK, text.encode() if isinstance(text, str) else text)


LEASE = ref_name("lease", "x")
LARGE = chunk(noise(3_000_000))
TEXT = chunk(noise(40_000))
TEXTS = space_name("test", "texts")


def text(number: int) -> Object:
    """An object that is shared, and so has a file of its own."""
    return chunk(noise(500, 100 + number))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a store that was filled and closed."""
    with FileStore(tmp_path / "store") as store:
        for number in range(5):
            store.commit(SPACE, [chunk(noise(500, number))], operation={"number": number})
        store.commit(TEXTS, [text(1), text(2)], share=True)
        point(store, chunk("one"))
        store.commit(OTHER_SPACE)
        store.acquire(SPACE, LEASE, "me", 10.0)
    return tmp_path / "store"


def log_of(folder: Path, space: str = SPACE) -> Path:
    return folder / "spaces" / space / "log"


def lines_of(folder: Path) -> list[bytes]:
    return log_of(folder).read_bytes().splitlines(keepends=True)


def assert_the_rest_is_there(store: FileStore) -> None:
    assert store.view(OTHER_SPACE).sequence == 1
    assert store.commit(OTHER_SPACE, [chunk("more")]).sequence == 2
    assert store.read([text(1).id]) == [text(1)]


class Refusing(Filesystem):
    """A disk that fails from the n-th change on, until it is mended."""

    def __init__(self, number: int, at: int, method: str | None = None) -> None:
        self.number, self.left, self.method = number, at, method

    def check(self, method: str) -> None:
        if self.method in (None, method):
            self.left -= 1
            if self.left < 0:
                raise OSError(self.number, os.strerror(self.number))

    def create(self, path: Path, data: bytes, *, sync: bool) -> None:
        self.check("create")
        super().create(path, data, sync=sync)

    def append(self, path: Path, data: bytes, *, sync: bool) -> None:
        try:
            self.check("append")
        except OSError:
            super().append(path, data[: len(data) // 2], sync=False)  # As a full disk does.
            raise
        super().append(path, data, sync=sync)

    def truncate(self, path: Path, size: int) -> None:
        self.check("truncate")
        super().truncate(path, size)

    def rename(self, path: Path, target: Path) -> None:
        self.check("rename")
        super().rename(path, target)

    def make_folder(self, path: Path) -> None:
        self.check("make_folder")
        super().make_folder(path)

    def sync_folder(self, folder: Path) -> None:
        self.check("sync_folder")
        super().sync_folder(folder)


def with_disk(disk: Filesystem, path: Path) -> FileStore:
    store: FileStore = type("Tested", (FileStore,), {"_disk": disk})(path)
    return store


# Folders that are no store.


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(FormatError, match="A store is a folder"):
        FileStore(tmp_path / "file")


@pytest.mark.parametrize("name", ["store.db", "notes.txt"])
def test_a_folder_with_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"theirs")

    with pytest.raises(FormatError, match=name):
        FileStore(tmp_path)

    assert os.listdir(tmp_path) == [name]


def test_an_unfinished_creation_is_ended(tmp_path: Path) -> None:
    for name in ("objects", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "lock").write_bytes(b"!\n")

    with FileStore(tmp_path) as store:
        assert store.commit(SPACE).sequence == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"{}",
        b"[1]",
        noise(100),
        b'{"ropewalk": 5}',
        b'{"ropewalk": "file store", "layout": 2}',
        b'{"ropewalk": "file store", "layout": 2, "format": 1, "algorithm": "x", "store_id": 5}',
    ],
)
def test_a_garbage_header_is_no_store(folder: Path, content: bytes) -> None:
    (folder / "ropewalk.json").write_bytes(content)

    with pytest.raises(FormatError, match=r"ropewalk\.json is not the header"):
        FileStore(folder)


def test_a_folder_of_format_1_is_refused_and_not_called_damaged(folder: Path) -> None:
    path = folder / "ropewalk.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"layout": 1, "format": 1}))

    with pytest.raises(NotAllowed, match=r"format 1.* choose another folder") as caught:
        FileStore(folder)
    assert not isinstance(caught.value, Corrupt)


@pytest.mark.parametrize("field", ["layout", "format"])
def test_a_newer_format_is_refused(folder: Path, field: str) -> None:
    path = folder / "ropewalk.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {field: 3}))

    with pytest.raises(NewerFormat, match="Install a newer Ropewalk"):
        FileStore(folder)


# Objects.


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(b""),
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: path.write_bytes(noise(300, 9)),
        lambda path: path.write_bytes(b"\xff" + path.read_bytes()),
    ],
)
def test_a_damaged_object_is_said_and_the_rest_can_be_read(
    folder: Path, harm: Callable[[Path], object]
) -> None:
    bad, good = text(1), text(2)
    harm(object_path(folder / "objects", bad.id))

    with FileStore(folder) as store:
        with pytest.raises(DamagedObject) as caught:
            store.read([good.id, bad.id])
        assert caught.value.id == bad.id
        assert store.read([good.id]) == [good]
        assert not store.check(read_data=True).ok


def test_a_missing_object_is_said(folder: Path) -> None:
    one = text(1)
    object_path(folder / "objects", one.id).unlink()

    with FileStore(folder) as store:
        with pytest.raises(MissingObjects):
            store.read([one.id])
        store.commit(TEXTS, [one], share=True)
        assert store.read([one.id]) == [one]


def test_files_of_others_are_passed_over(folder: Path) -> None:
    for name in ("objects/README", "objects/ab/x", "spaces/x/y/z", "new/x"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"theirs")

    with FileStore(folder) as store:
        assert len(list(store.scan())) == 8
        assert store.spaces() == [SPACE, TEXTS, OTHER_SPACE]
        assert store.check(read_data=True).ok


# Logs.


@pytest.mark.parametrize("torn", [b"{", b"\x00" * 700, b'{"sequence":7,"ep', noise(90), b"\n\n"])
def test_a_torn_end_is_passed_over_and_cut_off(folder: Path, torn: bytes) -> None:
    before = log_of(folder).read_bytes()
    with log_of(folder).open("ab") as file:
        file.write(torn)

    with FileStore(folder) as store:
        assert store.view(SPACE).sequence == 6
        assert store.commit(SPACE).sequence == 7

    assert log_of(folder).read_bytes().startswith(before + b'{"sequence":7')


@pytest.mark.parametrize("keep", [0, 1, 50, 200])
def test_a_first_operation_that_is_torn_did_not_happen(folder: Path, keep: int) -> None:
    path = log_of(folder, OTHER_SPACE)
    content = path.read_bytes()
    path.write_bytes(content[:keep])
    # Both are written when the first operation was synced.
    path.with_name("space.json").unlink()
    (folder / "spaces.list").unlink()

    with FileStore(folder) as store:
        assert store.spaces() == [SPACE, TEXTS]
        assert store.commit(OTHER_SPACE).sequence == 1
        assert store.spaces() == [SPACE, TEXTS, OTHER_SPACE]


def flip(lines: list[bytes], at: int) -> None:
    lines[at] = lines[at][:40] + bytes([lines[at][40] ^ 1]) + lines[at][41:]


# The lines are: the start, then each operation with its witness.
HARMS: dict[str, Callable[[list[bytes]], None]] = {
    "the start is garbage": lambda lines: flip(lines, 0),
    "a bit of a line in the middle": lambda lines: flip(lines, 5),
    "a bit of the last line": lambda lines: flip(lines, 11),
    "a line is gone": lambda lines: lines.__delitem__(5),
    "a line and its witness are gone": lambda lines: lines.__delitem__(slice(5, 7)),
    "the last line is gone, its witness not": lambda lines: lines.__delitem__(11),
    "a line stands there twice": lambda lines: lines.insert(7, lines[5]),
    "two lines changed places": lambda lines: lines.insert(5, lines.pop(7)),
    "garbage in the middle": lambda lines: lines.insert(5, noise(200).replace(b"\n", b"") + b"\n"),
    "another's start": lambda lines: lines.__setitem__(0, lines[0].replace(b"one", b"two")),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
def test_a_log_that_lost_something_is_never_an_older_state(
    folder: Path, harm: Callable[[list[bytes]], None]
) -> None:
    lines = lines_of(folder)
    harm(lines)
    log_of(folder).write_bytes(b"".join(lines))

    with FileStore(folder) as store:
        for call in (store.view, store.operations, store.commit):
            with pytest.raises(Corrupt, match=str(log_of(folder))):
                call(SPACE)
        assert_the_rest_is_there(store)
        assert any(SPACE in one.subject for one in store.check().problems)


def test_a_broken_witness_is_none_and_harms_nothing(folder: Path) -> None:
    lines = lines_of(folder)
    lines[4] = b"\x00" * (len(lines[4]) - 1) + b"\n"
    log_of(folder).write_bytes(b"".join(lines))

    with FileStore(folder) as store:
        assert len(store.operations(SPACE)) == 6
        assert len(store.operations(SPACE, 1, 2)) == 2


def test_a_damaged_log_is_found_by_who_has_read_it_before(folder: Path) -> None:
    with FileStore(folder) as store:
        assert store.view(SPACE).sequence == 6
        lines = lines_of(folder)
        flip(lines, 11)
        log_of(folder).write_bytes(b"".join(lines))

        with pytest.raises(Corrupt):
            store.view(SPACE)


def test_damage_behind_the_last_witness_of_a_relaxed_log_is_taken_for_a_power_loss(
    tmp_path: Path,
) -> None:
    store = FileStore(tmp_path / "store", durability="relaxed")
    for _ in range(4):
        store.commit(SPACE)
    lines = lines_of(store.path)  # No witness yet: it comes when the store is closed.
    store.close()
    assert lines_of(store.path) == [*lines, encode_witness(4)]
    flip(lines, 3)
    log_of(store.path).write_bytes(b"".join(lines))
    log_of(store.path).with_name("space.json").unlink()  # So does what says where it ended.

    with FileStore(tmp_path / "store") as again:
        assert again.view(SPACE).sequence == 2
        assert again.commit(SPACE).sequence == 3


def test_a_newer_log_is_refused(folder: Path) -> None:
    lines = lines_of(folder)
    lines[0] = seal({"space": SPACE, "log": 3, "after": 0})
    log_of(folder).write_bytes(b"".join(lines))

    with FileStore(folder) as store, pytest.raises(NewerFormat, match="version 3"):
        store.refs(SPACE)


def test_damaged_leases_stop_only_leases(folder: Path) -> None:
    path = folder / "spaces" / SPACE / "leases.json"
    path.write_bytes(path.read_bytes().replace(b'"me"', b'"ME"'))

    with FileStore(folder) as store:
        with pytest.raises(FormatError, match=r"leases\.json is damaged"):
            store.acquire(SPACE, LEASE, "me", 10.0)
        assert store.commit(SPACE).sequence == 7
        assert [one.subject for one in store.check().problems] == [str(path)]


# Folders and disks.


def test_a_missing_parent_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="does not exist"):
        FileStore(tmp_path / "absent" / "store")


def test_a_store_that_vanished_is_not_made_anew(folder: Path) -> None:
    store = FileStore(folder)
    assert store.view(SPACE).sequence == 6
    shutil.rmtree(folder)
    folder.mkdir()

    calls: list[Callable[[], object]] = [
        lambda: store.commit(SPACE),
        lambda: store.acquire(SPACE, LEASE, "me", 1.0),
        lambda: store.ref(SPACE, MAIN),
        lambda: read(store, [chunk("one").id]),
        lambda: store.read([text(1).id]),
        store.spaces,
        lambda: list(store.scan()),
        store.gc,
    ]
    for call in calls:
        with pytest.raises(Unavailable):
            call()

    assert os.listdir(folder) == []
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_folder_that_may_not_be_written_can_be_read() -> None:
    # Not in the folder of the test, which another user cannot even enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        point(store := FileStore(folder / "store"), chunk("one"))
        store.close()
        every = [folder, folder / "store", *(folder / "store").rglob("*")]
        for path in every:
            path.chmod(0o555 if path.is_dir() else 0o444)

        def look() -> None:
            opened = FileStore(folder / "store")
            assert opened.ref(SPACE, MAIN) == (MAIN, chunk("one").id, 1)
            assert read(opened, [chunk("one").id]) == [chunk("one")]
            opened.close()

        assert as_nobody(lambda: FileStore(folder / "new")) == "NotAllowed"
        assert as_nobody(lambda: FileStore(folder / "store").commit(SPACE)) == "NotAllowed"
        assert as_nobody(look) == ""

        for path in every:
            path.chmod(0o755)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, StoreFull), (errno.EROFS, NotAllowed), (errno.EIO, Unavailable)],
)
def test_a_commit_that_fails_anywhere_has_not_happened(
    tmp_path: Path, number: int, expected: type[RopewalkError]
) -> None:
    """Whichever of its steps fails: nothing moved, and the same commit works afterwards."""
    two = chunk(noise(300, 2))
    for steps in range(100):
        disk = Refusing(number, 10**6)
        store = with_disk(disk, tmp_path / f"store {steps}")
        point(store, chunk("one"))
        disk.left = steps
        error = commit_two(store, two)
        disk.left = 10**6
        if error is None:
            break
        assert isinstance(error, expected | Unavailable)
        assert isinstance(error.__cause__, OSError)
        check_failed(store, isinstance(error, expected))
        assert commit_two(store, two) is None
        assert store.view(SPACE).sequence == 2
        store.close()
    store.close()
    assert steps > 5


def commit_two(store: FileStore, two: Object) -> RopewalkError | None:
    move = Move(MAIN, chunk("one").id, two.id)
    try:
        store.commit(SPACE, [two, chunk("three"), TEXT], moves=[move], write_id="w")
    except RopewalkError as error:
        return error
    return None


def check_failed(store: FileStore, certain: bool) -> None:
    if certain:
        assert store.ref(SPACE, MAIN) == (MAIN, chunk("one").id, 1)
        assert store.view(SPACE).sequence == 1
    assert read(store, [chunk("one").id]) == [chunk("one")]
    assert store.check(read_data=True).ok


def test_who_cannot_say_whether_a_commit_happened_says_that(tmp_path: Path) -> None:
    disk = Refusing(errno.EIO, 10**6)
    store = with_disk(disk, tmp_path / "store")
    point(store, chunk("one"))

    class Unsure(Refusing):
        def append(self, path: Path, data: bytes, *, sync: bool) -> None:
            Filesystem.append(self, path, data, sync=False)
            if data:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    store._log._disk = Unsure(errno.EIO, 0, "truncate")
    with pytest.raises(Unavailable, match="same write id"):
        store.commit(SPACE, write_id="w")
    store._log._disk = Filesystem()

    assert store.commit(SPACE, write_id="w").sequence == 2
    assert store.view(SPACE).sequence == 2
    store.close()


LIMITED = """
import resource, signal, sys
from ropewalk.errors import StoreFull
from ropewalk.store import FileStore
from tests.store.files.test_errors import LARGE, chunk
from ropewalk.testing.helpers import SPACE, point

store = FileStore(sys.argv[1])
point(store, chunk("one"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
try:
    store.commit(SPACE, [LARGE])
except StoreFull as error:
    print(error)
assert store.reader(SPACE)([chunk("one").id]) == [chunk("one")]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert store.commit(SPACE, [LARGE]).sequence == 2
"""


def test_a_disk_that_has_no_room_is_said_and_survived(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )

    assert "make room and try again" in done.stdout
    with FileStore(tmp_path / "store") as store:
        assert store.read([LARGE.id]) == [LARGE]
        assert list((store.path / "new").iterdir()) == []


def test_what_somebody_left_unfinished_is_made_durable_first(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watching(Filesystem):
        def sync_folder(self, folder: Path) -> None:
            synced.append(folder.name)
            super().sync_folder(folder)

    store = with_disk(Watching(), tmp_path / "store")
    store.commit(SPACE, [TEXT])
    (tmp_path / "store" / "lock").write_bytes(f"!{SPACE}\n".encode())
    synced.clear()

    assert store.commit(OTHER_SPACE, needs=[TEXT.id]).sequence == 1

    assert {"store", "objects", TEXT.id.hex()[:2], "one"} <= set(synced)
    assert not (tmp_path / "store" / "lock").read_bytes().startswith(b"!")
    store.close()


# Others.


def test_a_writer_waits_no_longer_than_it_was_told(folder: Path) -> None:
    store = FileStore(folder, busy_seconds=0.05)
    with FileStore(folder) as other, other._writing():
        with pytest.raises(Unavailable, match=r"busy with other writers for 0\.05 seconds"):
            store.commit(SPACE)
        with pytest.raises(Unavailable):
            store.acquire(SPACE, LEASE, "me", 1.0)

    assert store.commit(SPACE).sequence == 7
    store.close()


def test_an_engine_that_is_closed_says_so(folder: Path) -> None:
    store = FileStore(folder)
    store._lock.close()

    with pytest.raises(StoreClosed):
        store.commit(SPACE)


def test_two_names_with_one_folder_are_not_confused(folder: Path) -> None:
    source, target = folder / "spaces" / "test" / "one", folder / "spaces" / "test" / "three"
    shutil.copytree(source, target)

    with FileStore(folder) as store, pytest.raises(Corrupt, match="is that of 'test/one'"):
        store.refs(space_name("test", "three"))


# Logs that nothing sound is left of, and folders that are no longer the store's.


def _swap_logs(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


LOST = {
    "emptied": lambda log, other: log.write_bytes(b""),
    "deleted": lambda log, other: log.unlink(),
    "garbage": lambda log, other: log.write_bytes(noise(log.stat().st_size)),
    "lines of garbage": lambda log, other: log.write_bytes(b"garbage\n" * 100),
    "swapped": _swap_logs,
}


@pytest.mark.parametrize("durability", ["full", "relaxed"])
@pytest.mark.parametrize("how", LOST)
def test_a_log_of_which_nothing_is_left_is_damage(
    how: str, durability: Literal["full", "relaxed"], tmp_path: Path
) -> None:
    with FileStore(tmp_path / "store", durability=durability) as store:
        for space in (SPACE, OTHER_SPACE):
            store.commit(space, [value(space)], moves=[Move(MAIN, None, value(space).id)])
    LOST[how](log_of(store.path), log_of(store.path, OTHER_SPACE))

    with FileStore(store.path) as store:
        for ask in (
            lambda: store.ref(SPACE, MAIN),
            lambda: store.view(SPACE),
            lambda: store.operations(SPACE),
            lambda: store.commit(SPACE),
            store.gc,
        ):
            with pytest.raises(Corrupt):
                ask()
        assert SPACE in store.spaces()
        assert {SPACE} <= {one.subject for one in store.check().problems}


@pytest.mark.parametrize("how", ["moved away", "removed"])
def test_a_folder_that_became_another_store_is_noticed(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with FileStore(folder) as store:
        store.commit(SPACE, [value("one")], moves=[Move(MAIN, None, value("one").id)])
        if how == "removed":
            shutil.rmtree(folder)
        else:
            folder.rename(tmp_path / "away")
        with pytest.raises(Unavailable):
            store.operations(SPACE)
        with FileStore(folder) as other:
            other.commit(SPACE, [value("two")], moves=[Move(MAIN, None, value("two").id)])

        for ask in (
            lambda: store.ref(SPACE, MAIN),
            lambda: store.refs(SPACE),
            lambda: store.operations(SPACE),
            lambda: store.commit(SPACE),
            lambda: store.leases(SPACE),
            store.spaces,
        ):
            with pytest.raises(Corrupt, match="another store"):
                ask()
        assert not store.check().ok


def test_a_folder_that_was_put_back_is_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with FileStore(folder) as store:
        store.commit(SPACE)
        folder.rename(tmp_path / "away")
        shutil.copytree(tmp_path / "away", folder)

        assert store.commit(SPACE).sequence == 2


def test_a_log_that_lost_its_last_lines_since_the_store_was_closed_is_missed(folder: Path) -> None:
    lines = lines_of(folder)
    log_of(folder).write_bytes(b"".join(lines[:-2]))  # The last operation, and its witness.

    with FileStore(folder) as store:
        with pytest.raises(Corrupt, match="acknowledged are missing"):
            store.refs(SPACE)
        with pytest.raises(Corrupt):
            store.commit(SPACE)
        assert not store.check().ok


def test_a_space_whose_folder_is_gone_is_missed(folder: Path) -> None:
    shutil.rmtree(log_of(folder).parent)

    with FileStore(folder) as store:
        assert SPACE in store.spaces()
        with pytest.raises(Corrupt, match="is gone: operations that were acknowledged"):
            store.refs(SPACE)
        assert not store.check().ok


def test_where_logs_ended_takes_no_more_room_the_more_often_a_store_is_closed(
    folder: Path,
) -> None:
    for _ in range(80):
        with FileStore(folder) as store:
            store.commit(SPACE)
    with FileStore(folder) as store:
        assert store.check().ok

    assert log_of(folder).with_name("space.json").stat().st_size < 4096
