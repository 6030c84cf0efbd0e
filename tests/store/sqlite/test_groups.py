"""Threads that commit at once to an embedded store share a transaction, and nothing else."""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from ropewalk.errors import Corrupt, NotAllowed, RefMoved, Unavailable
from ropewalk.store import Move, Operation, SqliteStore, group
from ropewalk.testing.helpers import MAIN, PATIENCE, SPACE, read, value
from tests.patience import wait_until
from tests.store.sqlite.contract import connected
from tests.store.sqlite.test_wal import ends_of_transactions


class Interrupted(BaseException):
    """What the handler of a signal raises in these tests."""


class Threads:
    """Works that run in threads, and what came of each."""

    def __init__(self) -> None:
        self.results: dict[int, object] = {}
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], object]) -> None:
        number = len(self._threads)

        def run() -> None:
            try:
                self.results[number] = work()
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.results[number] = error

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def join(self) -> list[object]:
        for thread in self._threads:
            thread.join(PATIENCE)
        return [self.results[number] for number in range(len(self._threads))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "store") as opened:
        yield opened


def transactions(store: SqliteStore) -> int:
    """How many transactions are in SQLite's log."""
    return len(ends_of_transactions((store.path / "store.db-wal").read_bytes()))


@contextmanager
def busy(store: SqliteStore) -> Iterator[None]:
    """Keep everybody from writing."""
    with connected(store.path) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def run_together(store: SqliteStore, works: Sequence[Callable[[], object]]) -> list[object]:
    """Start works so that each waits behind the one before, then let them go."""
    here = store._database.group
    threads = Threads()
    with busy(store):
        for number, work in enumerate(works):
            threads.start(work)
            wait_until(
                lambda number=number: (
                    here.leader is not None  # type: ignore[misc]
                    and len(here.waiting) == number
                )
            )
    return threads.join()


def commit(store: SqliteStore, name: str, expected: bytes | None = None) -> Callable[[], Operation]:
    one = value(f"for {name}")
    return lambda: store.commit(SPACE, [one], moves=[Move(f"branch/{name}", expected, one.id)])


def sequences(results: list[object]) -> list[int]:
    return [one.sequence for one in results if isinstance(one, Operation)]


def test_who_waits_is_taken_along_in_order(store: SqliteStore) -> None:
    before = transactions(store)
    results = run_together(store, [commit(store, f"{number}") for number in range(5)])

    assert transactions(store) == before + 1
    assert sequences(results) == [1, 2, 3, 4, 5]
    assert [one.sequence for one in store.operations(SPACE)] == [1, 2, 3, 4, 5]
    assert read(store, [value(f"for {number}").id for number in range(5)])


def test_new_spaces_share_a_transaction_too(store: SqliteStore) -> None:
    before = transactions(store)
    works = [partial(store.commit, f"thread/{number}", [value("x")]) for number in range(5)]

    results = run_together(store, works)

    assert transactions(store) == before + 1
    assert sequences(results) == [1] * 5
    assert len(store.spaces("thread/")) == 5


def test_a_group_is_bounded(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "MOST_MEMBERS", 2)
    before = transactions(store)

    results = run_together(store, [commit(store, f"{number}") for number in range(5)])

    assert transactions(store) == before + 3
    assert sorted(sequences(results)) == [1, 2, 3, 4, 5]


def test_one_that_fails_in_the_middle_harms_nobody(store: SqliteStore) -> None:
    before = transactions(store)
    wrong = commit(store, "1", expected=value("another").id)

    results = run_together(store, [commit(store, "0"), wrong, commit(store, "2")])

    assert transactions(store) == before + 1
    assert isinstance(results[1], RefMoved)
    assert sequences(results) == [1, 2]
    assert [ref.name for ref in store.refs(SPACE)] == ["branch/0", "branch/2"]
    assert store.missing([value("for 1").id], SPACE) == [value("for 1").id]


def test_members_see_what_was_done_before_them(store: SqliteStore) -> None:
    before = transactions(store)
    one = value("one")
    moves = [Move(MAIN, None, one.id)]

    results = run_together(
        store,
        [
            lambda: store.commit(SPACE, [one], moves=moves, write_id="w"),
            lambda: store.commit(SPACE, [one], moves=[Move("branch/2", None, one.id)]),
            lambda: store.commit(SPACE, [one], moves=moves, write_id="w"),
            lambda: store.commit(SPACE, [one], moves=moves),
        ],
    )

    assert transactions(store) == before + 1
    assert sequences(results) == [1, 2, 1]
    assert isinstance(results[3], RefMoved)
    assert [ref.sequence for ref in store.refs(SPACE)] == [2, 1]


def test_records_of_a_group_are_read_back(store: SqliteStore) -> None:
    rounds = [[commit(store, f"{turn}-{number}") for number in range(7)] for turn in range(5)]

    for works in rounds:
        run_together(store, works)

    assert store.view(SPACE).sequence == 35
    with SqliteStore(store.path) as again:
        assert again.check().problems == ()
        ids = [value(f"for {turn}-{number}").id for turn in range(5) for number in range(7)]
        assert [one.id for one in read(again, ids)] == ids


def test_what_was_undone_by_sqlite_is_done_again(store: SqliteStore) -> None:
    def lose(db: sqlite3.Connection) -> None:
        db.execute("ROLLBACK")
        raise sqlite3.OperationalError("the disk was full for a moment")

    results = run_together(
        store,
        [commit(store, "0"), lambda: store._database.write(lose), commit(store, "2")],
    )

    assert isinstance(results[1], Corrupt)
    assert sorted(sequences(results)) == [1, 2]
    assert [ref.name for ref in store.refs(SPACE)] == ["branch/0", "branch/2"]


def test_all_are_told_when_the_transaction_cannot_be_committed(store: SqliteStore) -> None:
    def forbid(db: sqlite3.Connection) -> None:
        def decide(action: int, what: str | None, *rest: object) -> int:
            refused = action == sqlite3.SQLITE_TRANSACTION and what == "COMMIT"
            return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

        db.set_authorizer(decide)

    results = run_together(
        store,
        [commit(store, "0"), lambda: store._database.write(forbid), commit(store, "2")],
    )

    assert [type(one) for one in results] == [NotAllowed] * 3
    assert store.refs(SPACE) == []
    assert commit(store, "0")().sequence == 1


def test_one_that_waits_no_longer_harms_nobody(store: SqliteStore) -> None:
    here = store._database.group
    with busy(store):
        threads = Threads()
        threads.start(commit(store, "0"))
        wait_until(lambda: here.leader is not None)
        here.seconds = 0.01
        with pytest.raises(Unavailable):
            commit(store, "late")()
        here.seconds = PATIENCE
        threads.start(commit(store, "2"))
        wait_until(lambda: len(here.waiting) == 1)

    assert sequences(threads.join()) == [1, 2]
    assert [ref.name for ref in store.refs(SPACE)] == ["branch/0", "branch/2"]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system cannot interrupt")
def test_one_that_is_interrupted_while_it_waits_harms_nobody(store: SqliteStore) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    here = store._database.group
    main, threads = threading.main_thread().ident, Threads()
    assert main is not None

    def interrupt_when_waiting() -> None:
        wait_until(lambda: len(here.waiting) == 1)
        signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with busy(store):
            threads.start(commit(store, "0"))
            wait_until(lambda: here.leader is not None)
            threads.start(interrupt_when_waiting)
            with pytest.raises(Interrupted):
                commit(store, "interrupted")()
            threads.start(commit(store, "2"))
            wait_until(lambda: len(here.waiting) == 1)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert sequences(threads.join()) == [1, 2]
    assert [ref.name for ref in store.refs(SPACE)] == ["branch/0", "branch/2"]
    assert commit(store, "main")().sequence == 3


def test_a_leader_that_is_interrupted_leaves_the_others_to_the_next(store: SqliteStore) -> None:
    def interrupted(db: sqlite3.Connection) -> None:
        raise Interrupted

    results = run_together(
        store,
        [lambda: store._database.write(interrupted), commit(store, "1"), commit(store, "2")],
    )

    assert isinstance(results[0], Interrupted)
    assert sequences(results) == [1, 2]
