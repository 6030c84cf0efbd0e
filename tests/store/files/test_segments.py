"""Packing and collecting plain files: at each step, beside others, and of what is damaged."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ropewalk.errors import Corrupt, RopewalkError, Unavailable
from ropewalk.history import History
from ropewalk.store import FileStore, Move, Operation
from ropewalk.store.collection import collect
from ropewalk.store.files import formats
from ropewalk.store.packer import pack
from ropewalk.testing.helpers import MAIN, OTHER_SPACE, SPACE, noise, read
from ropewalk.tree import Kind, Object, make_object
from tests.store.files.contract import flip
from tests.store.files.test_errors import Refusing, with_disk

KEY = b"turn"


def chunk(number: int) -> Object:
    """An object that may hold any bytes."""
    return make_object(Kind.CHUNK, b"%d" % number + noise(100, number))


def fill(store: FileStore, count: int, space: str = SPACE) -> list[Operation]:
    """Commits, of which each moves a ref and has a key; some bring what is shared."""
    done: list[Operation] = []
    ref = store.ref(space, MAIN)
    before, first = (None, 0) if ref is None else (ref.target, ref.sequence)
    for number in range(first, first + count):
        one = chunk(number)
        done.append(
            store.commit(
                space,
                [one],
                moves=[Move(MAIN, before, one.id)],
                operation={"key": KEY + b"%d" % (number % 7), "number": number},
                share=number % 10 == 9,
            )
        )
        before = one.id
    return done


def folder_of(store: FileStore, space: str = SPACE) -> Path:
    return store.path / "spaces" / space


def names(folder: Path) -> set[str]:
    return {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    with FileStore(tmp_path / "store") as opened:
        yield opened


def test_a_packed_space_says_what_it_said_before(store: FileStore) -> None:
    done = fill(store, 40)
    before = store.view(SPACE)
    found = [store.find(SPACE, KEY + b"%d" % number) for number in range(8)]

    assert pack(store, SPACE) == 32
    assert pack(store, SPACE, whole=True) == 8

    for one in (store, FileStore(store.path)):
        assert one.view(SPACE) == before
        assert one.operations(SPACE) == done
        assert [one.find(SPACE, KEY + b"%d" % number) for number in range(8)] == found
        assert read(one, [chunk(number).id for number in range(40)]) == [
            chunk(number) for number in range(40)
        ]
        assert one.check().ok
    fill(store, 1)
    assert store.view(SPACE).sequence == 41
    inside = names(folder_of(store))
    assert {one.partition("/")[0] for one in inside} == {
        "catalog.0", "log.2", "lookup.0", "names.0", "segments", "space.json", "state.json",
    }  # fmt: skip
    assert sorted(one.partition(".")[0] for one in inside if one.startswith("segments/")) == [
        "segments/1-32", "segments/33-40",
    ]  # fmt: skip


def test_what_is_packed_can_be_looked_at(store: FileStore) -> None:
    fill(store, 20)
    pack(store, SPACE)

    folder = folder_of(store)
    state = json.loads((folder / "state.json").read_bytes())
    assert (state["space"], state["packed"], state["epoch"]) == (SPACE, 16, 1)
    assert state["refs"] == [[MAIN, chunk(15).id.hex(), 16]]
    (segment,) = (folder / "segments").iterdir()
    said = json.loads(segment.read_bytes().partition(b"\n")[0])
    assert (said["space"], said["first"], said["last"]) == (SPACE, 1, 16)
    lines = [json.loads(one) for one in (folder / state["log"]).read_text().splitlines()]
    assert [one.get("sequence", one.get("after")) for one in lines] == [16, 17, 18, 19, 20, None]


def test_a_long_tail_is_packed_by_whoever_commits(tmp_path: Path) -> None:
    with FileStore(tmp_path / "store", durability="relaxed") as store:
        fill(store, 300)

    with FileStore(tmp_path / "store") as again:
        packed, last = again._span(SPACE)
        assert last == 300
        assert last - packed < 128
        assert again.check().ok


def test_records_that_landed_meanwhile_stay_in_the_tail(store: FileStore) -> None:
    fill(store, 16)
    with FileStore(store.path) as other:
        settle = other._settle

        def late(*given: object) -> bool:
            fill(store, 3)
            return settle(*given)  # type: ignore[arg-type]

        other._settle = late  # type: ignore[method-assign,assignment]
        assert pack(other, SPACE) == 16

    assert store._span(SPACE) == (16, 19)
    assert len(store.operations(SPACE)) == 19


def test_of_two_that_pack_one_tail_one_does(store: FileStore) -> None:
    fill(store, 16)
    with FileStore(store.path) as other:
        settle = other._settle

        def second(*given: object) -> bool:
            assert pack(store, SPACE) == 16
            return settle(*given)  # type: ignore[arg-type]

        other._settle = second  # type: ignore[method-assign,assignment]
        assert pack(other, SPACE) == 0

    assert len(list((folder_of(store) / "segments").iterdir())) == 1
    assert store.check().ok


PACKER = """
import sys
from ropewalk.store import FileStore
from ropewalk.store.packer import pack
from ropewalk.testing.helpers import SPACE
store = FileStore(sys.argv[1], durability="relaxed")
print("ready", flush=True)
for line in sys.stdin:
    pack(store, SPACE, whole=True)
"""


def test_processes_that_pack_while_others_write_and_read_harm_nothing(tmp_path: Path) -> None:
    with FileStore(tmp_path / "store", durability="relaxed") as store:
        packers = [
            subprocess.Popen(
                [sys.executable, "-c", PACKER, str(store.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for one in packers:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        with FileStore(store.path) as reader:
            for turn in range(40):
                for one in packers:
                    assert one.stdin is not None
                    one.stdin.write("\n")
                    one.stdin.flush()
                fill(store, 4)
                assert len(reader.operations(SPACE)) == 4 * (turn + 1)
                assert read(reader, [chunk(2 * turn).id]) == [chunk(2 * turn)]
        for one in packers:
            one.communicate()
            assert one.returncode == 0

        assert store._span(SPACE)[0] > 0
        assert store.check().ok


def test_a_reader_that_stands_in_a_tail_finds_the_segment(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = fill(store, 20)
    with FileStore(store.path) as reader:
        assert reader.view(SPACE).sequence == 20
        with reader._log.looking(SPACE) as space:
            rows = space.rows

            def slow(first: int, last: int) -> object:
                monkeypatch.undo()
                pack(store, SPACE)
                return rows(first, last)

            monkeypatch.setattr(space, "rows", slow)
        assert reader.operations(SPACE) == done


# Each step fails, or is the last.


def collectable(store: FileStore) -> None:
    """Two segments with what is dead, and a tail."""
    branch = History(store, SPACE).open()
    for number in range(20):
        branch.commit({"step": number, "text": "x" * number})
    history = History(store, SPACE)
    history.open("other").commit({"text": noise(40_000)})
    pack(store, SPACE, whole=True)
    history.delete_branch("other")
    pack(store, SPACE, whole=True)
    branch.commit({"step": 20})


def test_a_reader_that_packers_overtake_again_and_again_goes_on(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    pack(store, SPACE, whole=True)
    plain, overtaken = formats.read_packing, list(range(8))

    def overtaking(path: Path, name: str) -> formats.Packing:
        found = plain(path, name)
        if overtaken:
            overtaken.pop()
            with monkeypatch.context() as patch:
                patch.setattr(formats, "read_packing", plain)
                fill(store, 1)
                pack(store, SPACE, whole=True)  # The log that was read of is gone.
        return found

    with FileStore(store.path) as reader:
        monkeypatch.setattr(formats, "read_packing", overtaking)

        assert reader.view(SPACE).sequence == 3 + 8
    assert overtaken == []


@pytest.mark.parametrize("work", ["pack", "collect"])
def test_work_that_fails_anywhere_changes_nothing_and_can_be_done_again(
    tmp_path: Path, work: str
) -> None:
    do: Callable[[FileStore], object] = (
        (lambda store: pack(store, SPACE, whole=True))
        if work == "pack"
        else (lambda store: collect(store, 0, 0.0, False, None))
    )
    for steps in range(100):
        disk = Refusing(errno.EIO, 10**6)
        store = with_disk(disk, tmp_path / f"store {steps}")
        collectable(store)
        operations, head = store.operations(SPACE), store.refs(SPACE)
        disk.left = steps
        failed = False
        try:
            do(store)
        except Unavailable:
            failed = True
        disk.left = 10**6
        for one in (store, FileStore(store.path)):
            assert one.operations(SPACE) == operations
            assert one.refs(SPACE) == head
            assert one.check(read_data=True).ok
        do(store)
        assert History(store, SPACE).open().commit({"step": 21}).generation == 22
        assert store.check(read_data=True).ok
        store.close()
        if not failed:
            break
    assert steps > 5


# Orphans.


def test_old_files_that_nothing_names_are_removed(store: FileStore) -> None:
    fill(store, 20)
    pack(store, SPACE, whole=True)
    folder = folder_of(store)
    before = names(folder)
    left = ["segments/1-16.0123456789abcdef", "log", "log.7", "catalog.3", "names.2"]
    for name in left:
        (folder / name).write_bytes(b"left by somebody who was killed")
        os.utime(folder / name, (1, 1))
    (folder / "segments" / "fresh").write_bytes(b"somebody is at work")

    store.gc()

    assert names(folder) == before | {"segments/fresh"}
    assert store.check().ok


def test_a_packer_whose_segment_was_removed_while_it_slept_names_nothing(
    store: FileStore,
) -> None:
    fill(store, 16)
    with FileStore(store.path) as other:
        write = other._log.write_segment

        def slow(*given: object) -> object:
            listed = write(*given)  # type: ignore[arg-type]
            shutil.rmtree(folder_of(store) / "segments")
            return listed

        other._log.write_segment = slow  # type: ignore[method-assign,assignment]
        assert pack(other, SPACE) == 0

    assert len(store.operations(SPACE)) == 16
    assert store.check().ok


# Damage.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a store with two segments and a tail, closed."""
    with FileStore(tmp_path / "store") as store:
        fill(store, 16)
        pack(store, SPACE)
        fill(store, 18)
        pack(store, SPACE)
        store.commit(OTHER_SPACE, [chunk(1)], moves=[Move(MAIN, None, chunk(1).id)])
    return tmp_path / "store"


def _swapped(path: Path) -> None:
    other = next(one for one in sorted(path.parent.iterdir()) if one != path)
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


HARMS: dict[str, Callable[[Path], object]] = {
    "a bit": lambda path: flip(path, path.stat().st_size // 2),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "emptied": lambda path: path.write_bytes(b""),
    "deleted": Path.unlink,
    "garbage": lambda path: path.write_bytes(noise(path.stat().st_size)),
}


@pytest.mark.parametrize("file", ["state.json", "catalog.0", "log.2"])
@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_space_is_said_and_never_an_older_one(folder: Path, harm: str, file: str) -> None:
    if (file, harm) == ("log.2", "cut"):
        pytest.skip("its witness is cut, which holds nothing")
    HARMS[harm](folder / "spaces" / SPACE / file)

    with FileStore(folder) as store:
        for ask in (lambda: store.operations(SPACE), store.gc):
            with pytest.raises(Corrupt):
                ask()
        assert SPACE in store.spaces()
        assert SPACE in {one.subject for one in store.check().problems}
        if file != "catalog.0":
            with pytest.raises(Corrupt):
                store.commit(SPACE)
        assert store.commit(OTHER_SPACE).sequence == 2


@pytest.mark.parametrize("harm", [*HARMS, "swapped"])
def test_a_damaged_segment_is_said_and_the_tail_can_be_read(folder: Path, harm: str) -> None:
    (first, _) = sorted((folder / "spaces" / SPACE / "segments").iterdir())
    (_swapped if harm == "swapped" else HARMS[harm])(first)

    with FileStore(folder) as store:
        with pytest.raises(Corrupt):
            store.operations(SPACE)
        with pytest.raises(Corrupt):
            store.gc(recent=0)
        assert [one.sequence for one in store.operations(SPACE, 32)] == [33, 34]
        assert store.commit(SPACE).sequence == 35
        assert SPACE in {one.subject for one in store.check().problems}


@pytest.mark.parametrize("harm", HARMS)
def test_without_what_records_are_looked_up_by_they_are_found_slowly(
    folder: Path, harm: str
) -> None:
    with FileStore(folder) as store:
        found = store.find(SPACE, KEY + b"3")
    HARMS[harm](folder / "spaces" / SPACE / "lookup.0")

    with FileStore(folder) as store:
        assert store.find(SPACE, KEY + b"3") == found
        assert read(store, [chunk(4).id]) == [chunk(4)]
        assert not store.check().ok
        fill(store, 20)
        pack(store, SPACE)
        assert store.find(SPACE, KEY + b"3")[: len(found)] == found


@pytest.mark.parametrize("harm", HARMS)
def test_nothing_is_deleted_while_it_cannot_be_told_what_is_named(folder: Path, harm: str) -> None:
    with FileStore(folder) as store:
        ref = store.ref(SPACE, MAIN)
        assert ref is not None
        store.commit(SPACE, moves=[Move(MAIN, ref.target, None)])
    HARMS[harm](folder / "spaces" / SPACE / "names.0")

    with FileStore(folder) as store:
        with pytest.raises(RopewalkError):
            store.gc(recent=0)
        assert read(store, [chunk(9).id]) == [chunk(9)]
        assert not store.check().ok


def test_a_log_from_before_it_was_packed_is_damage(tmp_path: Path) -> None:
    with FileStore(tmp_path / "store") as store:
        fill(store, 16)
        old = folder_of(store) / "log"
        shutil.copy(old, tmp_path / "old")
        pack(store, SPACE)
        shutil.copy(tmp_path / "old", folder_of(store) / "log.1")

    with FileStore(tmp_path / "store") as again, pytest.raises(Corrupt, match="an older one"):
        again.view(SPACE)
