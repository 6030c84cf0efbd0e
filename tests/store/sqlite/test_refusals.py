"""A disk that refuses one step of SQLite, whichever: the truth is told, and work goes on."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from ropewalk.errors import RopewalkError, StoreFull
from ropewalk.store import SqliteStore
from ropewalk.store.sqlite import database as connections
from ropewalk.testing import CrashState, Journal, Mark, recording
from tests.conftest import SOAK
from tests.store.crashes import Work

STEPS = 30
TRIED = None if SOAK else 60
"""How many of the steps are refused; None is each."""


class Refusal:
    """Makes an error of one step, counted from the first."""

    def __init__(self, at: int, code: int) -> None:
        self.at, self.code = at, code
        self.steps = 0

    def __call__(self, step: str) -> int:
        self.steps += 1
        return self.code if self.steps == self.at else 0


def work(folder: Path, refusal: Refusal) -> tuple[Journal, RopewalkError | None]:
    """Do the same work as always; what ended it."""
    journal = Journal(folder)
    journal.refuse = refusal
    recorded = recording(SqliteStore, journal)
    opened: list[SqliteStore] = []

    def open_store() -> SqliteStore:
        opened.append(recorded(folder / "store"))
        return opened[-1]

    try:
        Work(open_store, journal.mark, 1).run(STEPS)
    except RopewalkError as error:
        return journal, error
    finally:
        for store in opened:
            store.close()
    return journal, None


def check(journal: Journal, error: RopewalkError | None) -> None:
    marks = tuple(step for step in journal.steps if isinstance(step, Mark))
    told = sum(mark.name == "ack" for mark in marks)
    with SqliteStore(journal.folder / "store") as store:
        if isinstance(error, StoreFull):
            assert sum(len(store.operations(space)) for space in store.spaces()) == told
        doing = Work(lambda: store, journal.mark, 1)
        doing.check(store, CrashState(0, marks, {}, b""))


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR])
def test_whatever_step_a_disk_refuses(
    code: int, memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CHECKPOINT_BYTES", 30 * 1024)
    counting = Refusal(0, 0)
    work(memory_folder / "counting", counting)
    numbers = list(range(1, counting.steps + 1))
    if TRIED is not None:
        numbers = random.Random(code).sample(numbers, TRIED)
    ended = 0

    for number in numbers:
        journal, error = work(memory_folder / str(number), Refusal(number, code))
        try:
            check(journal, error)
        except BaseException as failed:
            failed.add_note(f"when step {number} was refused, which raised {error!r}")
            raise
        ended += error is not None
    assert ended > len(numbers) // 4
