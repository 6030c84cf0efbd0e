"""Threads that commit at once to an embedded store share a transaction, and nothing else."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ropewalk.errors import Corrupt, NotAllowed, RefMoved, Unavailable
from ropewalk.store import Move, Operation, SqliteStore, _sqlite_database
from ropewalk.store._sqlite_group import Member, Transaction, run_members
from ropewalk.testing._stores._base import MAIN, PATIENCE, SPACE, value


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


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many members each transaction had."""
    run, seen = run_members, list[int]()

    def counted(transaction: Transaction, leader: Member, others: list[Member]) -> list[Member]:
        seen.append(1 + len(others))
        return run(transaction, leader, others)

    monkeypatch.setattr(_sqlite_database, "run_members", counted)
    return seen


@contextmanager
def busy(store: SqliteStore) -> Iterator[None]:
    """Keep everybody from writing."""
    other = sqlite3.connect(store.path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def run_together(store: SqliteStore, works: list[Callable[[], object]]) -> list[object]:
    """Start works so that each waits behind the one before, then let them go."""
    group = store._database._here().group
    threads = Threads()
    with busy(store):
        for number, work in enumerate(works):
            threads.start(work)
            until(lambda number=number: group._led and len(group._waiting) == number)  # type: ignore[misc]
    return threads.join()


def commit(store: SqliteStore, name: str, expected: bytes | None = None) -> Callable[[], Operation]:
    one = value(f"for {name}")
    return lambda: store.commit(SPACE, [one], moves=[Move(f"branch/{name}", expected, one.id)])


def sequences(results: list[object]) -> list[int]:
    return [one.sequence for one in results if isinstance(one, Operation)]


def test_who_waits_is_taken_along_in_order(store: SqliteStore, sizes: list[int]) -> None:
    results = run_together(store, [commit(store, f"{number}") for number in range(5)])

    assert sizes == [5]
    assert sequences(results) == [1, 2, 3, 4, 5]
    assert [one.sequence for one in store.operations(SPACE)] == [1, 2, 3, 4, 5]
    assert store.read([value(f"for {number}").id for number in range(5)])


def test_a_group_is_bounded(
    store: SqliteStore, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.store._sqlite_group.MOST_MEMBERS", 2)

    results = run_together(store, [commit(store, f"{number}") for number in range(5)])

    assert max(sizes) == 2
    assert sorted(sequences(results)) == [1, 2, 3, 4, 5]


def test_one_that_fails_in_the_middle_harms_nobody(store: SqliteStore, sizes: list[int]) -> None:
    wrong = commit(store, "1", expected=value("another").id)

    results = run_together(store, [commit(store, "0"), wrong, commit(store, "2")])

    assert sizes == [3]
    assert isinstance(results[1], RefMoved)
    assert sequences(results) == [1, 2]
    assert [ref.name for ref in store.refs(SPACE)] == ["branch/0", "branch/2"]
    assert store.missing([value("for 1").id]) == [value("for 1").id]


def test_members_see_what_was_done_before_them(store: SqliteStore, sizes: list[int]) -> None:
    one = value("one")
    again = value("two")

    results = run_together(
        store,
        [
            lambda: store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], write_id="w"),
            lambda: store.commit(SPACE, [again], [one.id], [Move(MAIN, one.id, again.id)]),
            lambda: store.commit(SPACE, [one], moves=[Move(MAIN, None, one.id)], write_id="w"),
        ],
    )

    assert sizes == [3]
    assert sequences(results) == [1, 2, 1]
    assert store.ref(SPACE, MAIN) == (MAIN, again.id, 2)


def test_what_was_undone_by_sqlite_is_done_again(store: SqliteStore, sizes: list[int]) -> None:
    def lose(transaction: Transaction) -> None:
        transaction.db.execute("ROLLBACK")
        raise sqlite3.OperationalError("the disk was full for a moment")

    results = run_together(
        store,
        [
            commit(store, "0"),
            lambda: store._database.transact(lose),
            commit(store, "2"),
        ],
    )

    assert sizes[0] == 3
    assert isinstance(results[1], Corrupt)
    assert sorted(sequences(results)) == [1, 2]
    assert [ref.name for ref in store.refs(SPACE)] == ["branch/0", "branch/2"]


def test_all_are_told_when_the_transaction_cannot_be_committed(
    store: SqliteStore, sizes: list[int]
) -> None:
    def forbid(transaction: Transaction) -> None:
        def decide(action: int, what: str | None, *rest: object) -> int:
            refused = action == sqlite3.SQLITE_TRANSACTION and what == "COMMIT"
            return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

        transaction.db.set_authorizer(decide)

    results = run_together(
        store,
        [commit(store, "0"), lambda: store._database.transact(forbid), commit(store, "2")],
    )

    assert sizes == [3]
    assert [type(one) for one in results] == [NotAllowed] * 3
    assert store.refs(SPACE) == []
    assert commit(store, "0")().sequence == 1


def test_one_that_waits_no_longer_harms_nobody(store: SqliteStore, sizes: list[int]) -> None:
    with busy(store):
        threads = Threads()
        threads.start(commit(store, "0"))
        until(lambda: store._database._here().group._led)
        store._database._busy_seconds = 0.01
        with pytest.raises(Unavailable):
            commit(store, "late")()
        store._database._busy_seconds = PATIENCE
        threads.start(commit(store, "2"))
        until(lambda: len(store._database._here().group._waiting) == 1)

    assert sequences(threads.join()) == [1, 2]
    assert [ref.name for ref in store.refs(SPACE)] == ["branch/0", "branch/2"]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system cannot interrupt")
def test_one_that_is_interrupted_while_it_waits_harms_nobody(store: SqliteStore) -> None:
    def interrupt(*_: object) -> None:
        raise Interrupted

    group = store._database._here().group
    main, threads = threading.main_thread().ident, Threads()
    assert main is not None

    def interrupt_when_waiting() -> None:
        until(lambda: len(group._waiting) == 1)
        signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with busy(store):
            threads.start(commit(store, "0"))
            until(lambda: group._led)
            threads.start(interrupt_when_waiting)
            with pytest.raises(Interrupted):
                commit(store, "interrupted")()
            threads.start(commit(store, "2"))
            until(lambda: len(group._waiting) == 1)
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert sequences(threads.join()) == [1, 2]
    assert [ref.name for ref in store.refs(SPACE)] == ["branch/0", "branch/2"]
    assert commit(store, "main")().sequence == 3


def test_a_leader_that_is_interrupted_leaves_the_others_to_the_next(store: SqliteStore) -> None:
    def interrupted(transaction: Transaction) -> None:
        raise Interrupted

    results = run_together(
        store,
        [
            lambda: store._database.transact(interrupted),
            commit(store, "1"),
            commit(store, "2"),
        ],
    )

    assert isinstance(results[0], Interrupted)
    assert sequences(results) == [1, 2]
