"""Threads that commit at once to a store in Postgres share a statement, and nothing else."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from ropewalk.errors import Corrupt, RefMoved, Unavailable
from ropewalk.store import Move, Operation, PostgresStore
from ropewalk.store.postgres.commit import Answer, Draft
from ropewalk.testing.helpers import MAIN, PATIENCE, read, value
from ropewalk.tree import Object
from tests.patience import wait_until
from tests.postgres import Postgres

FIRST = "test/first"
_numbers = itertools.count(1)


class Slow(PostgresStore):
    """A store in which a commit to the first space waits to be let go."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.go = threading.Event()
        self.sizes: list[int] = []
        """How many commits each shared statement had."""
        self.failing: Callable[[], None] = lambda: None
        super().__init__(*arguments, **settings)

    def _send(self, drafts: Sequence[Draft]) -> list[Answer]:
        if drafts[0].batch.space == FIRST:
            assert self.go.wait(PATIENCE)
        if len(drafts) > 1:
            self.sizes.append(len(drafts))
            self.failing()
        return super()._send(drafts)


@pytest.fixture
def schema() -> str:
    return f"group_{next(_numbers)}"


@pytest.fixture
def store(postgres: Postgres, schema: str) -> Iterator[Slow]:
    with Slow(postgres.url(), schema=schema) as opened:
        opened._group.seconds = PATIENCE
        yield opened


class Space:
    """A space with one branch, and where that is."""

    def __init__(self, store: PostgresStore, name: str) -> None:
        self.store, self.name = store, name
        self.begun = value(f"the beginning of {name}")
        store.commit(name, [self.begun], moves=[Move(MAIN, None, self.begun.id)])

    def go_on(self, one: Object, **others: Any) -> Operation:
        """Commit an object, on top of the beginning unless told otherwise."""
        name, expected = others.pop("name", MAIN), others.pop("expected", self.begun.id)
        return self.store.commit(self.name, [one], moves=[Move(name, expected, one.id)], **others)


@pytest.fixture
def spaces(store: Slow) -> list[Space]:
    store.go.set()
    made = [Space(store, FIRST), *(Space(store, f"test/{number}") for number in range(4))]
    store.go.clear()
    return made


def run_together(store: Slow, first: Space, works: Sequence[Callable[[], object]]) -> list[object]:
    """Start works that wait until a commit before them is through; what came of each."""
    results: list[object] = [None] * len(works)

    def run(number: int) -> None:
        try:
            results[number] = works[number]()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            results[number] = error

    threads = [in_background(lambda: first.go_on(value("first")))]
    wait_until(lambda: store._group.leader is not None)
    for number in range(len(works)):
        threads.append(threading.Thread(target=run, args=(number,), daemon=True))
        threads[-1].start()
        wait_until(lambda number=number: len(store._group.waiting) > number)  # type: ignore[misc]
    store.go.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    return results


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def heads(spaces: list[Space]) -> list[bytes | None]:
    found = [space.store.ref(space.name, MAIN) for space in spaces]
    return [None if ref is None else ref.target for ref in found]


@contextmanager
def held(postgres: Postgres, schema: str, space: str) -> Iterator[None]:
    """Keep everybody from committing to a space."""
    with psycopg.connect(postgres.url()) as other:
        statement = f"SELECT FROM {schema}.spaces WHERE name = %s FOR UPDATE"
        other.execute(statement.encode(), (space,))
        yield
        other.rollback()


def test_those_who_wait_go_together(store: Slow, spaces: list[Space]) -> None:
    first, *others = spaces
    new = [value(f"new {number}") for number in range(4)]
    works = [
        lambda space=space, one=one: space.go_on(one)
        for space, one in zip(others, new, strict=True)
    ]

    results = run_together(store, first, works)

    assert store.sizes == [4]
    assert [one.sequence for one in results if isinstance(one, Operation)] == [2, 2, 2, 2]
    assert heads(others) == [one.id for one in new]
    for space, one in zip(others, new, strict=True):
        assert read(store, [one.id], space.name) == [one]
    assert [store.operations(space.name)[-1] for space in others] == results


def test_new_spaces_are_made_together(store: Slow, spaces: list[Space]) -> None:
    names = [f"new/{number}" for number in range(4)]

    def work(name: str) -> Callable[[], object]:
        return lambda: Space(store, name)

    run_together(store, spaces[0], [work(name) for name in names])

    assert store.sizes == [4]
    assert store.spaces("new/") == names


def test_one_that_is_refused_harms_nobody(store: Slow, spaces: list[Space]) -> None:
    first, *others = spaces
    wrong, late = value("another"), value("late")
    works = [
        lambda: others[0].go_on(value("a")),
        lambda: others[1].go_on(late, expected=wrong.id),
        lambda: others[2].go_on(value("c")),
    ]

    results = run_together(store, first, works)

    assert store.sizes == [3]
    assert isinstance(results[1], RefMoved)
    assert results[1].actual == others[1].begun.id
    assert heads(others[:3]) == [value("a").id, others[1].begun.id, value("c").id]
    assert store.missing([late.id], others[1].name) == [late.id]
    assert others[1].go_on(late).sequence == 2


def test_two_branches_of_one_space_go_together(store: Slow, spaces: list[Space]) -> None:
    first, other, *_ = spaces
    works = [
        lambda: other.go_on(value("a")),
        lambda: other.go_on(value("b"), name="branch/b", expected=None),
    ]

    results = run_together(store, first, works)

    assert store.sizes == [2]
    assert sorted(one.sequence for one in results if isinstance(one, Operation)) == [2, 3]
    with PostgresStore(store._database.pool.place.conninfo, schema=store.schema) as fresh:
        assert fresh.check().ok
        assert read(fresh, [value("a").id, value("b").id], other.name)


def test_two_commits_to_one_branch_are_made_one_after_the_other(
    store: Slow, spaces: list[Space]
) -> None:
    first, other, *_ = spaces
    works = [lambda: other.go_on(value("a")), lambda: other.go_on(value("b"))]

    results = run_together(store, first, works)

    made = [one for one in results if isinstance(one, Operation)]
    assert [one.sequence for one in made] == [2]
    assert len([one for one in results if isinstance(one, RefMoved)]) == 1


def test_a_write_that_was_made_before_is_recognised(store: Slow, spaces: list[Space]) -> None:
    first, *others = spaces
    one = value("once")
    made = others[0].go_on(one, write_id="w")
    works = [lambda: others[0].go_on(one, write_id="w"), lambda: others[1].go_on(value("b"))]

    results = run_together(store, first, works)

    assert results[0] == made
    assert store.view(others[0].name).sequence == made.sequence
    assert heads(others[1:2]) == [value("b").id]


def test_a_write_that_was_taken_back_is_not_made_again(store: Slow, spaces: list[Space]) -> None:
    first, *others = spaces
    one, space = value("once"), others[0]
    made = space.go_on(one, write_id="w")
    store.commit(space.name, moves=[Move(MAIN, one.id, space.begun.id)])
    works = [lambda: space.go_on(one, write_id="w"), lambda: others[1].go_on(value("b"))]

    results = run_together(store, first, works)

    assert results[0] == made
    assert heads(others[:2]) == [space.begun.id, value("b").id]


def test_a_group_with_a_space_that_is_held_up_goes_one_by_one(
    postgres: Postgres, schema: str, store: Slow, spaces: list[Space]
) -> None:
    first, *others = spaces
    passed = threading.Event()

    def pass_by() -> Operation:
        made = others[1].go_on(value("b"))
        passed.set()
        return made

    works = [lambda: others[0].go_on(value("a")), pass_by]

    with held(postgres, schema, others[0].name):
        released = in_background(lambda: run_together(store, first, works))
        assert passed.wait(PATIENCE)
    released.join(PATIENCE)

    assert heads(others[:2]) == [value("a").id, value("b").id]


def test_a_damaged_space_fails_alone(
    postgres: Postgres, schema: str, store: Slow, spaces: list[Space]
) -> None:
    first, *others = spaces
    postgres.run(f"UPDATE {schema}.spaces SET epoch = 7 WHERE name = 'test/0'")
    works = [lambda: others[0].go_on(value("a")), lambda: others[1].go_on(value("b"))]

    results = run_together(store, first, works)

    assert isinstance(results[0], Corrupt) and "test/0" in str(results[0])
    assert heads(others[1:2]) == [value("b").id]


def test_who_waits_for_a_leader_that_does_not_come_back_goes_ahead(
    store: Slow, spaces: list[Space]
) -> None:
    store._group.seconds = 0.01
    first, *others = spaces
    stuck = in_background(lambda: first.go_on(value("first")))
    wait_until(lambda: store._group.leader is not None)

    others[0].go_on(value("a"))
    others[1].go_on(value("b"))

    assert heads(spaces[:3]) == [first.begun.id, value("a").id, value("b").id]
    store.go.set()
    stuck.join(PATIENCE)
    assert heads(spaces[:1]) == [value("first").id]


def test_a_leader_waits_for_those_who_were_there_the_last_time(
    store: Slow, spaces: list[Space], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.store.group._LONGEST", PATIENCE)
    _, one, other, *_ = spaces
    group = store._group
    group._expected, group._took = 2, 2 * PATIENCE

    leader = in_background(lambda: one.go_on(value("a")))
    wait_until(lambda: group._gathered is not None)
    other.go_on(value("b"))
    leader.join(PATIENCE)

    assert store.sizes == [2]
    assert heads([one, other]) == [value("a").id, value("b").id]


def fail() -> None:
    raise Unavailable("for the test")


def test_what_fails_for_a_group_is_tried_by_each_alone(store: Slow, spaces: list[Space]) -> None:
    store.failing = fail
    first, *others = spaces
    works = [lambda: others[0].go_on(value("a")), lambda: others[1].go_on(value("b"))]

    run_together(store, first, works)

    assert heads(others[:2]) == [value("a").id, value("b").id]


def test_what_takes_long_to_fail_is_told_to_all(
    store: Slow, spaces: list[Space], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.failing = fail
    monkeypatch.setattr("ropewalk.store.group._SOON", -1.0)
    first, *others = spaces
    works = [lambda: others[0].go_on(value("a")), lambda: others[1].go_on(value("b"))]

    results = run_together(store, first, works)

    assert [type(one) for one in results] == [Unavailable, Unavailable]
    assert heads(others[:2]) == [others[0].begun.id, others[1].begun.id]


class Patient(PostgresStore):
    """A store whose watchers look only when they are woken."""

    poll_seconds = 10 * PATIENCE


def test_a_commit_that_went_with_others_wakes_its_watchers(
    postgres: Postgres, schema: str, store: Slow, spaces: list[Space]
) -> None:
    first, *others = spaces
    works = [lambda: others[0].go_on(value("a")), lambda: others[1].go_on(value("b"))]
    with Patient(postgres.url(), schema=schema) as watcher:
        seen = watcher.watch("test/1", timeout=PATIENCE)
        before = next(seen).sequence

        run_together(store, first, works)

        assert next(seen).sequence == before + 1
    assert store.sizes == [2]
