"""What a power loss may leave: all that was synced, and any part of the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ropewalk.errors import InvalidInput
from ropewalk.store import MemoryStore, SqliteStore
from ropewalk.store.folder import Filesystem
from ropewalk.testing import Journal, RecordingFilesystem, crash_states, recording
from ropewalk.testing._crashes._journal import Cut, Made, Removed, Synced, SyncedNames, Wrote
from ropewalk.testing._crashes._replay import Image, Replay
from ropewalk.testing.helpers import SPACE, value

OLD, NEW = b"old" * 500, b"new" * 500


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "work")


@pytest.fixture
def disk(journal: Journal) -> RecordingFilesystem:
    return RecordingFilesystem(journal)


@pytest.fixture
def file(journal: Journal) -> Path:
    return journal.folder / "file"


def left(journal: Journal) -> list[Image]:
    """What a power loss may leave after everything was done."""
    replay = Replay(journal.start)
    replay.do(journal.steps)
    return [replay.crash(Random(seed)) for seed in range(500)]


def contents(journal: Journal, name: str) -> set[bytes | None]:
    """What a file may hold then; None is no file."""
    return {image.files.get(name) for image in left(journal)}


# Bytes.


def test_what_was_synced_with_its_name_is_there(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, OLD, sync=True)
    disk.sync_folder(journal.folder)

    assert contents(journal, "file") == {OLD}


def test_bytes_that_were_not_synced_are_there_or_not_or_torn(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, OLD, sync=False)
    disk.sync_folder(journal.folder)

    found = contents(journal, "file")
    assert {b"", OLD, bytes(len(OLD))} < found
    assert None not in found
    assert any(one and 0 < len(one) < len(OLD) and OLD.startswith(one) for one in found)
    assert any(one and len(one) == len(OLD) and 0 < one.count(0) < len(OLD) for one in found)


def test_a_torn_write_is_torn_at_sectors_too(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, OLD, sync=True)
    disk.sync_folder(journal.folder)
    journal.wrote(file, 0, NEW)

    middle = NEW[:512] + OLD[512:1024] + NEW[1024:]
    assert {OLD, NEW, middle} < contents(journal, "file")


def test_a_later_write_may_survive_an_earlier_one(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, b"", sync=True)
    disk.sync_folder(journal.folder)
    disk.append(file, b"a", sync=False)
    disk.append(file, b"b", sync=False)

    assert contents(journal, "file") == {b"", b"a", b"ab", b"\0b", b"\0\0", b"a\0"}


def test_a_write_never_comes_back_over_a_later_one(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, b"a", sync=True)
    disk.sync_folder(journal.folder)
    journal.wrote(file, 0, b"b")
    journal.synced(file)
    journal.wrote(file, 0, b"c")

    assert contents(journal, "file") == {b"b", b"c"}


def test_a_file_may_not_have_been_cut(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, b"long", sync=True)
    disk.sync_folder(journal.folder)
    journal.cut(file, 2)

    assert contents(journal, "file") == {b"long", b"lo"}


def test_a_disk_cuts_durably(journal: Journal, disk: RecordingFilesystem, file: Path) -> None:
    disk.create(file, b"long", sync=True)
    disk.sync_folder(journal.folder)
    disk.truncate(file, 2)

    assert contents(journal, "file") == {b"lo"}
    assert file.read_bytes() == b"lo"


def test_a_file_may_have_been_made_longer_by_its_length(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, b"ab", sync=True)
    disk.sync_folder(journal.folder)
    journal.cut(file, 4)

    assert contents(journal, "file") == {b"ab", b"ab\0\0"}


# Names.


def test_a_synced_file_without_a_synced_name_may_be_gone(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, OLD, sync=True)

    assert contents(journal, "file") == {None, OLD}


def test_a_renamed_file_has_its_old_or_its_new_name(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, OLD, sync=True)
    disk.create(journal.folder / "new", NEW, sync=True)
    disk.sync_folder(journal.folder)
    disk.rename(journal.folder / "new", file)

    assert {tuple(sorted(state.files.items())) for state in left(journal)} == {
        (("file", OLD), ("new", NEW)),
        (("file", NEW),),
    }


def test_a_file_that_is_put_in_the_place_of_another_unsynced_may_be_empty(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, OLD, sync=True)
    disk.sync_folder(journal.folder)
    disk.create(journal.folder / "new", NEW, sync=False)
    disk.rename(journal.folder / "new", file)
    disk.sync_folder(journal.folder)

    found = contents(journal, "file")
    assert {b"", NEW} < found
    assert OLD not in found


def test_a_file_is_never_lost_between_two_folders(
    journal: Journal, disk: RecordingFilesystem
) -> None:
    here, there = journal.folder / "here", journal.folder / "there"
    disk.make_folder(here)
    disk.make_folder(there)
    disk.sync_folder(journal.folder)
    disk.create(here / "file", OLD, sync=True)
    disk.sync_folder(here)
    disk.rename(here / "file", there / "file")

    found = {(("here/file" in one.files), ("there/file" in one.files)) for one in left(journal)}
    assert found == {(True, False), (False, True), (True, True)}
    disk.sync_folder(here)
    assert contents(journal, "there/file") == {OLD}


def test_a_removed_file_may_be_there_until_its_folder_is_synced(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, OLD, sync=True)
    disk.sync_folder(journal.folder)
    disk.remove(file)

    assert contents(journal, "file") == {None, OLD}
    disk.sync_folder(journal.folder)
    assert contents(journal, "file") == {None}


def test_a_folder_takes_with_it_what_is_inside(journal: Journal, disk: RecordingFilesystem) -> None:
    folder = journal.folder / "folder"
    disk.make_folder(folder)
    disk.make_folder(folder)
    disk.create(folder / "file", OLD, sync=True)
    disk.sync_folder(folder)

    assert {tuple(state.files) for state in left(journal)} == {(), ("folder", "folder/file")}


def test_what_was_there_before_has_survived(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(OLD)
    journal = Journal(tmp_path)
    RecordingFilesystem(journal).append(tmp_path / "folder" / "file", b"", sync=False)

    assert left(journal)[0].files == {"folder": None, "folder/file": OLD}


# States.


def test_states_are_distinct_and_the_same_for_a_seed(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, OLD, sync=False)
    journal.mark("end")

    states = list(crash_states(journal, seed=7, count=50))

    assert len({state.digest for state in states}) == 50
    assert len({(state.digest, state.marks) for state in states}) == len(states)
    assert states == list(crash_states(journal, seed=7, count=50))
    assert states != list(crash_states(journal, seed=8, count=50))


def test_there_are_no_more_states_than_can_be(journal: Journal, disk: RecordingFilesystem) -> None:
    disk.create(journal.folder / "file", b"", sync=True)

    assert len(list(crash_states(journal, seed=1, count=100))) == 2


def test_a_state_that_is_right_before_a_note_and_wrong_after_it_comes_twice(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, b"", sync=True)
    journal.mark("ack")

    states = [
        (len(state.marks), "file" in state.files)
        for state in crash_states(journal, seed=1, count=3)
    ]
    assert sorted(states) == [(0, False), (0, True), (1, False), (1, True)]


def test_a_state_knows_what_was_noted_before_it(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.create(file, OLD, sync=True)
    disk.sync_folder(journal.folder)
    journal.mark("ack", 1)
    disk.append(file, NEW, sync=False)
    journal.mark("ack", 2)

    states = list(crash_states(journal, seed=1, count=100))
    assert {tuple(state.marked("ack")) for state in states} == {(), (1,), (1, 2)}
    for state in states:
        if state.marked("ack"):
            assert (state.files["file"] or b"").startswith(OLD)


def test_a_state_takes_the_place_of_what_a_folder_held(
    journal: Journal, disk: RecordingFilesystem, tmp_path: Path
) -> None:
    disk.make_folder(journal.folder / "folder")
    disk.create(journal.folder / "folder" / "file", OLD, sync=True)
    disk.sync_folder(journal.folder / "folder")
    disk.sync_folder(journal.folder)
    journal.mark("end")
    state = next(one for one in crash_states(journal, seed=1, count=50) if one.marked("end"))
    (tmp_path / "left" / "other").mkdir(parents=True)

    root = state.write_to(tmp_path / "left")

    assert sorted(root.rglob("*")) == [root / "folder", root / "folder" / "file"]
    assert (root / "folder" / "file").read_bytes() == OLD


# What is recorded.


def test_a_recording_disk_records_every_step_of_a_disk() -> None:
    steps = {name for name in vars(Filesystem) if not name.startswith("_")}

    assert steps - {"discard"} <= vars(RecordingFilesystem).keys()


def test_a_failed_step_is_not_recorded(
    journal: Journal, disk: RecordingFilesystem, file: Path
) -> None:
    disk.discard([file])
    with pytest.raises(FileNotFoundError):
        disk.rename(file, journal.folder / "other")

    assert journal.steps == []


def test_a_file_elsewhere_is_refused(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not in"):
        journal.made(tmp_path / "elsewhere")


def test_an_engine_without_a_disk_is_refused(journal: Journal) -> None:
    with pytest.raises(InvalidInput, match="_disk"):
        recording(MemoryStore, journal)


@pytest.fixture
def database(journal: Journal) -> Iterator[sqlite3.Connection]:
    """A database in WAL mode whose files are recorded."""
    vfs = recording(SqliteStore, journal)._vfs
    place = (journal.folder / "some.db").as_uri()
    db = sqlite3.connect(f"{place}?vfs={vfs}", uri=True, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE t (x)")
    yield db
    db.close()


def test_what_sqlite_writes_and_syncs_is_recorded(
    journal: Journal, database: sqlite3.Connection
) -> None:
    before = len(journal.steps)
    database.execute("INSERT INTO t VALUES (1)")

    *writes, sync = journal.steps[before:]
    assert {type(step) for step in writes} == {Wrote}
    assert sync == Synced("some.db-wal")
    wal = (journal.folder / "some.db-wal").read_bytes()
    for step in writes:
        assert isinstance(step, Wrote)
        assert wal[step.offset :].startswith(step.data)


def test_the_first_sync_of_a_log_syncs_its_name(
    journal: Journal, database: sqlite3.Connection
) -> None:
    steps = journal.steps
    first = steps.index(Synced("some.db-wal"))

    assert Made("some.db-wal", False) in steps[:first]
    assert steps[first + 1] == SyncedNames("")


def test_what_sqlite_cuts_and_removes_is_recorded(
    journal: Journal, database: sqlite3.Connection
) -> None:
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()

    assert Cut("some.db-wal", 0) in journal.steps
    assert journal.steps[-1] == Removed("some.db-wal")


def test_the_files_of_others_are_not_recorded(
    journal: Journal, database: sqlite3.Connection, tmp_path: Path
) -> None:
    before = journal.steps
    vfs = recording(SqliteStore, journal)._vfs
    other = sqlite3.connect(f"{(tmp_path / 'other.db').as_uri()}?vfs={vfs}", uri=True)
    other.execute("CREATE TABLE t (x)")
    other.close()

    assert journal.steps == before


def test_a_recorded_store_is_like_any_other(journal: Journal, tmp_path: Path) -> None:
    one = value("one")
    with recording(SqliteStore, journal)(journal.folder / "store") as store:
        done = store.commit(SPACE, [one])
        for number in range(1000):
            journal.mark("end", number)  # Most moments are after the commit.

    states = crash_states(journal, seed=1, count=50)
    state = next(state for state in states if state.marked("end"))
    with SqliteStore(state.write_to(tmp_path / "left") / "store") as store:
        assert store.operations(SPACE) == [done]
        assert store.reader(SPACE)([one.id])[0].payload == b"one"
