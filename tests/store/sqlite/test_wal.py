"""SQLite's log of a writer that was killed: damage is told from a torn end before it is opened."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from ropewalk.errors import Corrupt, RopewalkError
from ropewalk.store import Move, SqliteStore, ref_name
from ropewalk.store.sqlite import database as connections
from ropewalk.testing import Journal, crash_states, recording
from ropewalk.testing._crashes._journal import Cut, Made, Removed, Renamed, Step, Wrote
from ropewalk.testing.helpers import SPACE, noise
from ropewalk.tree import Kind, make_object
from tests.conftest import SOAK
from tests.store.crashes import check_usable
from tests.store.test_crashes import noted

Files: TypeAlias = dict[str, bytearray | None]

COMMITS = 8
FRAME = 24 + 1024
_SYNC_FAILED = 10 | 4 << 8


def left_by_killed(folder: Path, durability: str = "full", commits: int = COMMITS) -> Path:
    """The folder of a writer that was killed, with all commits in SQLite's log."""
    with SqliteStore(folder / "work", durability=durability) as store:  # type: ignore[arg-type]
        for number in range(commits):
            store.commit(SPACE, [make_object(Kind.CHUNK, noise(2000, seed=number))])
        return Path(shutil.copytree(folder / "work", folder / "left"))


def log_of(left: Path) -> Path:
    return left / "store.db-wal"


def ends_of_transactions(log: bytes) -> list[int]:
    """The bytes at which transactions end."""
    frames = range(32, len(log), FRAME)
    return [at + FRAME for at in frames if log[at + 4 : at + 8] != bytes(4)]


def flip(file: Path, place: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1 << bit
    file.write_bytes(data)


def operations(left: Path) -> int:
    with SqliteStore(left) as store:
        return len(store.operations(SPACE))


def test_a_sound_log_of_a_killed_writer_is_opened(memory_folder: Path) -> None:
    assert operations(left_by_killed(memory_folder)) == COMMITS


def test_a_flipped_bit_before_the_last_transactions_is_damage(memory_folder: Path) -> None:
    left = left_by_killed(memory_folder)
    sound = log_of(left).read_bytes()
    # Its last frame is the one in which a bad checksum proves nothing.
    safe = ends_of_transactions(sound)[-2] - 2 * FRAME
    places = range(0, safe, 64 if SOAK else 997)

    for place in places:
        flip(log_of(left), place, place % 8)
        damaged = log_of(left).read_bytes()
        with noted(f"byte {place}"), pytest.raises(Corrupt, match="-wal is damaged"):
            SqliteStore(left)
        assert log_of(left).read_bytes() == damaged
        log_of(left).write_bytes(sound)
    assert operations(left) == COMMITS


def test_the_message_says_how_to_go_on_without_what_is_lost(memory_folder: Path) -> None:
    left = left_by_killed(memory_folder)
    ends = ends_of_transactions(log_of(left).read_bytes())
    flip(log_of(left), ends[3] + 500)  # In the fourth commit: the first transaction makes tables.
    with pytest.raises(Corrupt, match=f"cut it to {ends[3]} bytes"):
        SqliteStore(left)

    with log_of(left).open("r+b") as log:
        log.truncate(ends[3])

    assert operations(left) == 3


def test_a_bad_frame_in_the_last_transaction_is_a_torn_end(memory_folder: Path) -> None:
    left = left_by_killed(memory_folder)
    flip(log_of(left), ends_of_transactions(log_of(left).read_bytes())[-2] + 500)

    assert operations(left) == COMMITS - 1


@pytest.mark.parametrize("damage", [bytes, random.Random(1).randbytes], ids=["zeros", "garbage"])
def test_a_log_that_was_overwritten_is_damage(
    damage: Callable[[int], bytes], memory_folder: Path
) -> None:
    left = left_by_killed(memory_folder)
    log_of(left).write_bytes(damage(log_of(left).stat().st_size))

    with pytest.raises(Corrupt, match="damaged from byte 0"):
        SqliteStore(left)


def test_a_log_of_relaxed_writers_is_not_judged(memory_folder: Path) -> None:
    left = left_by_killed(memory_folder, "relaxed")
    flip(log_of(left), ends_of_transactions(log_of(left).read_bytes())[3] + 500)

    assert operations(left) == 3  # As after a power loss, by which it may have come.


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_log_without_its_database_is_damage(how: str, create: bool, memory_folder: Path) -> None:
    left = left_by_killed(memory_folder)
    sound, log = (left / "store.db").read_bytes(), log_of(left).read_bytes()
    (left / "store.db").unlink()
    if how == "empty":
        (left / "store.db").touch()
    with pytest.raises(Corrupt, match="-wal still holds"):
        SqliteStore(left, create=create)

    assert log_of(left).read_bytes() == log
    (left / "store.db").write_bytes(sound)
    assert operations(left) == COMMITS


@pytest.mark.parametrize("create", [True, False])
def test_packs_without_their_database_are_damage(create: bool, memory_folder: Path) -> None:
    with SqliteStore(memory_folder / "store") as store:
        store.commit(SPACE, [make_object(Kind.CHUNK, noise(300_000))])
    (memory_folder / "store" / "store.db").unlink()

    with pytest.raises(Corrupt, match="still holds"):
        SqliteStore(memory_folder / "store", create=create)


class FailingWork:
    """Commits of which some fail when SQLite syncs or writes: what they left is written over.

    A frame that a failed commit wrote has the salts of the log, as a writer leaves it who was
    killed beside others that go on.
    """

    def __init__(self, journal: Journal, seed: int) -> None:
        self._journal, self._random = journal, random.Random(seed)
        self._writes = 0

    def run(self, store: SqliteStore, steps: int) -> None:
        for _ in range(steps):
            if self._random.random() < 0.6:
                kind, left = self._random.choice(["sync", "write"]), self._random.randrange(4)
                self._journal.refuse = self._refusing(kind, left)
            self._commit(store)
            self._journal.refuse = lambda step: 0

    def _refusing(self, kind: str, left: int) -> Callable[[str], int]:
        rest = left if kind == "write" else 0

        def refuse(step: str) -> int:
            nonlocal rest
            if step != kind:
                return 0
            rest -= 1
            return _SYNC_FAILED if rest < 0 else 0

        return refuse

    def _commit(self, store: SqliteStore) -> None:
        self._writes += 1
        made = make_object(Kind.CHUNK, noise(self._random.randrange(1, 9000), seed=self._writes))
        name = ref_name("branch", str(self._writes))
        try:
            store.commit(SPACE, [made], moves=[Move(name, None, made.id)])
        except RopewalkError:
            return
        self._journal.mark("ack", name)


@pytest.mark.parametrize("seed", range(40 if SOAK else 2))
def test_no_power_loss_after_writers_that_failed_leaves_a_store_that_is_refused(
    seed: int, memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CHECKPOINT_BYTES", 40 * 1024)
    journal = Journal(memory_folder / "work")
    with recording(SqliteStore, journal)(journal.folder / "store") as store:
        FailingWork(journal, seed).run(store, 40)
        steps = len(journal.steps)

    for state in crash_states(journal, seed=seed, count=1000 if SOAK else 80):
        if state.point > steps:
            continue
        left = state.write_to(memory_folder / "left") / "store"
        with noted(repr(state)), SqliteStore(left) as opened:
            refs = {ref.name for ref in opened.refs(SPACE)}
            assert refs >= set(state.marked("ack"))
            assert opened.check(read_data=True).ok


def as_processes_see_it(start: Mapping[str, bytes | None], steps: Iterable[Step]) -> Files:
    """The files after some steps while the machine goes on: a kill takes nothing of them."""
    files: Files = {path: None if data is None else bytearray(data) for path, data in start.items()}
    for step in steps:
        match step:
            case Made(path, folder):
                files[path] = None if folder else bytearray()
            case Wrote(path, offset, data):
                file = files[path]
                assert file is not None
                file.extend(bytes(max(0, offset - len(file))))
                file[offset : offset + len(data)] = data
            case Cut(path, size):
                file = files[path]
                assert file is not None
                file.extend(bytes(max(0, size - len(file))))
                del file[size:]
            case Renamed(path, target):
                files[target] = files.pop(path)
            case Removed(path):
                del files[path]
    return files


@pytest.mark.parametrize("seed", [*range(200 if SOAK else 6), 1208])
def test_no_power_loss_after_kills_leaves_a_store_that_is_refused(
    seed: int, memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed writer did not sync is recovered, and others write behind it."""
    monkeypatch.setattr(connections, "CHECKPOINT_BYTES", 40 * 1024)
    choose = random.Random(seed)
    start: Mapping[str, bytes | None] = {}
    steps: list[Step] = []
    for life in range(4):
        journal = Journal(memory_folder / f"life{life}")
        for path, data in as_processes_see_it(start, steps).items():
            place = journal.folder / path
            place.mkdir() if data is None else place.write_bytes(data)
        killed_at = len(steps)
        journal.start, journal._steps = dict(start), list(steps)
        recorded = recording(SqliteStore, journal)
        with recorded(journal.folder / "store") as store:
            for _ in range(choose.randrange(1, 6)):
                check_usable(store)
            alive = len(journal.steps)
        # Most often while a commit is under way, which ends with a sync.
        writes = [at for at in range(killed_at, alive) if isinstance(journal.steps[at], Wrote)]
        killed_at = choose.choice(writes or [alive]) + 1
        steps = journal.steps[:killed_at]

    for state in crash_states(journal, seed=seed, count=200 if SOAK else 30):
        left = state.write_to(memory_folder / "left") / "store"
        with noted(repr(state)), SqliteStore(left) as opened:
            assert opened.check(read_data=True).ok


def test_a_database_that_was_cut_is_damage(memory_folder: Path) -> None:
    with SqliteStore(memory_folder / "store") as store:
        for number in range(20):
            store.commit(SPACE, [make_object(Kind.CHUNK, noise(3000, seed=number))])
    database = memory_folder / "store" / "store.db"
    with database.open("r+b") as file:
        file.truncate(database.stat().st_size - 1)

    with pytest.raises(Corrupt, match="was cut"):
        SqliteStore(memory_folder / "store")


def test_the_log_of_an_open_store_stays_small(memory_folder: Path) -> None:
    with SqliteStore(memory_folder / "store") as store:
        for number in range(60):
            store.commit(SPACE, [make_object(Kind.CHUNK, noise(200_000, seed=number))])
        assert log_of(store.path).stat().st_size < 2**20

        for number in range(400):
            store.commit(SPACE, [make_object(Kind.CHUNK, noise(1000, seed=number))])
        assert log_of(store.path).stat().st_size < 2**20
