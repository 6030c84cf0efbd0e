"""A power loss at any moment: every folder that it may leave opens, and nothing told is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from ropewalk.errors import RopewalkError
from ropewalk.store import FileStore, SqliteStore, log, packer
from ropewalk.store.sqlite import database, packs
from ropewalk.testing import Journal, RecordingFilesystem, crash_states, recording
from ropewalk.testing._crashes._journal import Removed, Synced
from ropewalk.testing.helpers import SPACE, in_threads, noise
from ropewalk.tree import Kind, make_object
from tests.conftest import SOAK
from tests.store.crashes import Work
from tests.store.crashing_history import HistoryWork

Engine: TypeAlias = type[SqliteStore] | type[FileStore]

STEPS = 60
STATES = 10_000 if SOAK else 500  # Of all variants together.
SEEDS = 10 if SOAK else 1
VARIANTS = [
    (engine, durability, work, seed)
    for engine in (SqliteStore, FileStore)
    for durability in ("full", "relaxed")
    for work in (Work, HistoryWork)
    for seed in range(SEEDS)
]


@pytest.fixture(autouse=True)
def what_is_rare_is_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints and packing are part of many states."""
    monkeypatch.setattr(database, "CHECKPOINT_BYTES", 30 * 1024)
    monkeypatch.setattr(log, "TAIL_RECORDS", 16)
    monkeypatch.setattr(packer, "SEGMENT_RECORDS", 16)


def campaign(
    engine: Engine,
    durability: Literal["full", "relaxed"],
    work: type[Work | HistoryWork],
    seed: int,
    count: int,
    folder: Path,
    disk: RecordingFilesystem | None = None,
) -> int:
    """Work, then lose power in so many ways; how many different ones there were."""
    journal = disk.journal if disk is not None else Journal(folder / "work")
    recorded = recording(engine, journal, disk)
    store = journal.folder / "store"
    done = work(lambda: recorded(store, durability=durability), journal.mark, seed)
    done.run(STEPS)
    found = set[bytes]()
    for state in crash_states(journal, seed=seed, count=count):
        found.add(state.digest)
        with noted(repr(state)):
            left = state.write_to(folder / "left") / "store"
            with engine(left, durability=durability) as opened:
                done.check(opened, state)
            engine(left, durability=durability).close()
    return len(found)


@contextmanager
def noted(note: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(note)
        raise


@pytest.mark.parametrize(("engine", "durability", "work", "seed"), VARIANTS)
def test_a_power_loss_takes_nothing_that_it_may_not(
    engine: Engine,
    durability: Literal["full", "relaxed"],
    work: type[Work | HistoryWork],
    seed: int,
    memory_folder: Path,
) -> None:
    wanted = -(-STATES // len(VARIANTS))

    assert campaign(engine, durability, work, seed, wanted, memory_folder) == wanted


@pytest.mark.parametrize("engine", [SqliteStore, FileStore])
def test_what_threads_commit_together_is_durable_for_each_of_them(
    engine: Engine, memory_folder: Path
) -> None:
    journal = Journal(memory_folder / "work")
    with recording(engine, journal)(journal.folder / "store") as store:

        def work(number: int) -> None:
            for step in range(10):
                new = make_object(Kind.CHUNK, noise(300, seed=100 * number + step))
                journal.mark("told", (store.commit(SPACE, [new]), new.id))

        in_threads(4, work)

    for state in crash_states(journal, seed=1, count=100 if SOAK else 20):
        told: list[Any] = state.marked("told")
        with engine(state.write_to(memory_folder / "left") / "store") as opened:
            operations = opened.operations(SPACE)
            assert all(operations[operation.sequence - 1] == operation for operation, _ in told)
            assert opened.missing([id for _, id in told], SPACE) == []
            assert opened.check(read_data=True).problems == ()


def test_a_pack_is_removed_only_when_the_rows_that_named_it_are_gone_for_good(
    memory_folder: Path,
) -> None:
    journal = Journal(memory_folder / "work")
    large = make_object(Kind.CHUNK, noise(packs.LARGE + 1))
    recorded = recording(SqliteStore, journal)
    with recorded(journal.folder / "store", durability="relaxed") as store:
        store.commit(SPACE, [large])
        store.gc(recent=0)
        steps = journal.steps

    removed = next(
        number
        for number, step in enumerate(steps)
        if isinstance(step, Removed) and "packs" in step.path
    )
    wal = [step for step in steps[:removed] if getattr(step, "path", "").endswith("-wal")]
    assert isinstance(wal[-1], Synced)


# The campaign itself: it finds what it is there for.


def test_the_campaign_finds_a_database_that_never_syncs(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_SYNCHRONOUS", {"full": "OFF", "relaxed": "OFF"})

    with pytest.raises((AssertionError, RopewalkError)):
        campaign(SqliteStore, "full", Work, 1, 100, memory_folder)


def test_the_campaign_finds_files_that_are_removed_too_early(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_THROUGH", "PRAGMA synchronous = NORMAL")

    with pytest.raises((AssertionError, RopewalkError)):
        campaign(SqliteStore, "relaxed", Work, 0, 200, memory_folder)


class ForgetsToSyncNewFiles(RecordingFilesystem):
    def create(self, path: Path, data: bytes, *, sync: bool) -> None:
        super().create(path, data, sync=False)


class ForgetsToSyncWhatItAppends(RecordingFilesystem):
    def append(self, path: Path, data: bytes, *, sync: bool) -> None:
        super().append(path, data, sync=False)


class ForgetsToSyncFolders(RecordingFilesystem):
    def sync_folder(self, folder: Path) -> None:
        pass


@pytest.mark.parametrize(
    ("engine", "disk"),
    [
        (SqliteStore, ForgetsToSyncNewFiles),
        (SqliteStore, ForgetsToSyncFolders),
        (FileStore, ForgetsToSyncNewFiles),
        (FileStore, ForgetsToSyncWhatItAppends),
        (FileStore, ForgetsToSyncFolders),
    ],
)
def test_the_campaign_finds_a_disk_that(
    engine: Engine, disk: type[RecordingFilesystem], memory_folder: Path
) -> None:
    broken = disk(Journal(memory_folder / "work"))

    with pytest.raises((AssertionError, RopewalkError)):
        campaign(engine, "full", Work, 1, 200, memory_folder, broken)
