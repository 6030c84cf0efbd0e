"""One commit beside one collection on a key-value store, at every pair of calls.

A thread does one of them, call by call; the test says how many calls it may make before the
other one goes on. So every way in which the one can be cut into two by the other is tried.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import pytest

from ropewalk.errors import Corrupt, MissingObjects
from ropewalk.store import Batch, KeyValueStore, Move, Presence, Store
from ropewalk.store._key_value_cells import Cell, decode_cell, object_key
from ropewalk.store._key_value_objects import Objects
from ropewalk.store._own import manifest
from ropewalk.store._record_store import Moment
from ropewalk.testing._stores._base import MAIN, PATIENCE, SPACE
from ropewalk.tree import Object, ObjectId, TreeWriter
from tests.conftest import SOAK
from tests.store.key_values import DictKV

TEXT = " ".join(f"word {number}" for number in range(200))
OLD = TreeWriter().write(TEXT).objects[0]
KEPT = TreeWriter().write("kept").objects[0]
TOP = manifest([OLD.id], None)
NEXT = TreeWriter().write(TEXT + " and more").objects[0]._replace(base=OLD.id)
LAST = TreeWriter().write(TEXT + " and still more").objects[0]._replace(base=NEXT.id)
NEW_SPACE = "test/new"


class Case(NamedTuple):
    """A commit that has to do with what nothing reaches: `OLD`."""

    name: str
    objects: list[Object]
    target: Object
    needs: list[Object] = []  # noqa: RUF012 - never changed
    space: str = SPACE
    trusted: bool = False


CASES = [
    Case("looked up", [TOP], TOP, [OLD]),
    Case("trusted", [TOP], TOP, [OLD], trusted=True),
    Case("written again", [TOP, OLD], TOP, [OLD]),
    Case("in a new space", [TOP], TOP, [OLD], NEW_SPACE),
    Case("in a new space and trusted", [TOP], TOP, [OLD], NEW_SPACE, trusted=True),
    Case("stored against", [NEXT], NEXT),
    Case("stored against, in a chain", [NEXT, LAST], LAST),
    Case("stored against, in a new space", [NEXT, LAST], LAST, space=NEW_SPACE),
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


class Killed(BaseException):
    """What ends somebody who is killed."""


class Stepping(DictKV):
    """Waits before each call until it is let go on."""

    def __init__(self, data: dict[str, bytes]) -> None:
        super().__init__(data)
        self.calls = 0
        self._allowed = 0
        self._changed = threading.Condition()
        self._waiting = self._ended = self._killed = False

    def run(self, action: Callable[[], None]) -> None:
        """Do something with this store, in a thread of its own."""
        self.raised: list[BaseException] = []

        def work() -> None:
            try:
                action()
            except BaseException as error:  # noqa: BLE001 - raised again by the test
                self.raised.append(error)
            with self._changed:
                self._ended = True
                self._changed.notify_all()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def go_on(self, calls: int | None) -> None:
        """Let it make so many calls more, or all; return when it waits again or has ended."""
        with self._changed:
            self._allowed = 10**9 if calls is None else self._allowed + calls
            self._changed.notify_all()
            assert self._changed.wait_for(self._is_still, PATIENCE)
        if calls is None:
            self._thread.join(PATIENCE)
            if self.raised:
                raise self.raised[0]

    def kill(self) -> None:
        """Let it end at its next call."""
        with self._changed:
            self._killed = True
            self._allowed = 10**9
            self._changed.notify_all()
        self._thread.join(PATIENCE)
        if self.raised and not isinstance(self.raised[0], Killed):
            raise self.raised[0]

    def _is_still(self) -> bool:
        return self._ended or (self._waiting and self.calls >= self._allowed)

    def allow_all(self) -> None:
        """Do not wait."""
        self._allowed = 10**9

    def allow_none(self) -> None:
        """Count from here on, and wait before the first."""
        self._allowed = self.calls = 0

    def _step(self) -> None:
        with self._changed:
            self._waiting = self.calls >= self._allowed
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.calls < self._allowed, PATIENCE)
            self._waiting = False
            self.calls += 1
            if self._killed:
                raise Killed

    def get(self, key: str) -> bytes | None:
        self._step()
        return super().get(key)

    def set(self, key: str, value: bytes) -> None:
        self._step()
        super().set(key, value)

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        self._step()
        return {key: self.data[key] for key in keys if key in self.data}

    def compare_and_set_many(
        self, changes: Sequence[tuple[str, bytes | None, bytes | None]]
    ) -> list[bool]:
        return [self.compare_and_set(*change) for change in changes]

    def keys(self, prefix: str) -> Iterable[str]:  # type: ignore[override]
        self._step()
        return list(super().keys(prefix))

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        self._step()
        return super().compare_and_set(key, expected, value)


def begin() -> tuple[dict[str, bytes], int]:
    """A store in which something is no longer reached, and the epoch at which it was."""
    data: dict[str, bytes] = {}
    store = KeyValueStore(DictKV(data))
    store.commit(SPACE, [KEPT], moves=[Move(MAIN, None, KEPT.id)])
    done = store.commit(SPACE, [OLD], moves=[Move("branch/old", None, OLD.id)])
    store.commit(SPACE, moves=[Move("branch/old", OLD.id, None)])
    store.commit(SPACE)
    return data, done.epoch


def write(store: Store, case: Case, epoch: int, branch: str = "branch/new") -> None:
    """Let a ref point to the objects of a case; send again what was collected."""
    sent, needs = case.objects, [one.id for one in case.needs]
    trusted = epoch if case.trusted else None
    for _ in range(5):
        try:
            store.commit(case.space, sent, needs, [Move(branch, None, case.target.id)],
                         epoch=trusted)  # fmt: skip
        except MissingObjects:
            sent = [*case.objects, *case.needs]
        else:
            return
    raise AssertionError("what was sent again was called missing again and again")


def expect_whole(data: dict[str, bytes], case: Case, branch: str = "branch/new") -> None:
    store = KeyValueStore(DictKV(data))
    ref = store.ref(case.space, branch)
    assert ref is not None and ref.target == case.target.id
    needed = [case.target, *case.needs]
    read = store.read([one.id for one in needed])
    assert [one.payload for one in read] == [one.payload for one in needed]
    assert store.missing([one.id for one in needed]) == []
    assert store.check(read_data=True).problems == ()
    store.gc(recent=1)
    assert store.check(read_data=True).problems == ()


def collect(store: Store) -> None:
    store.gc(recent=1)


def opened(kv: Stepping, engine: type[KeyValueStore]) -> KeyValueStore:
    """A store whose calls are counted from now on."""
    kv.allow_all()
    store = engine(kv)
    kv.allow_none()
    return store


class Race:
    """Commits and a collection on one key-value store, each in a thread."""

    def __init__(
        self, case: Case, engine: type[KeyValueStore] = KeyValueStore, writers: int = 1
    ) -> None:
        self.case = case
        self.data, epoch = begin()
        self.collection = Stepping(self.data)
        collector = opened(self.collection, engine)
        self.collection.run(lambda: collect(collector))
        self.commits = [Stepping(self.data) for _ in range(writers)]
        for number, kv in enumerate(self.commits):
            writer = opened(kv, engine)
            kv.run(partial(write, writer, case, epoch, f"branch/{number}"))
        self.commit = self.commits[0]

    def finish(self, *order: Stepping) -> None:
        """Let them come to their ends, and look at what is left."""
        for one in order:
            one.go_on(None)
        for number in range(len(self.commits)):
            expect_whole(self.data, self.case, f"branch/{number}")


def lengths(case: Case) -> tuple[int, int]:
    """How many calls the two make, at most."""
    ways = [Race(case), Race(case)]
    ways[0].finish(ways[0].collection, ways[0].commit)
    ways[1].finish(ways[1].commit, ways[1].collection)
    return max(one.commit.calls for one in ways), max(one.collection.calls for one in ways)


def cut_the_commit(case: Case, engine: type[KeyValueStore] = KeyValueStore) -> None:
    commits, collections = lengths(case)
    for before in range(collections + 1):
        for inside in range(1, commits + 1):
            race = Race(case, engine)
            race.collection.go_on(before)
            race.commit.go_on(inside)
            race.finish(race.collection, race.commit)


def cut_the_collection(case: Case, engine: type[KeyValueStore] = KeyValueStore) -> None:
    commits, collections = lengths(case)
    for before in range(commits + 1):
        for inside in range(1, collections + 1):
            race = Race(case, engine)
            race.commit.go_on(before)
            race.collection.go_on(inside)
            race.finish(race.commit, race.collection)


def take_turns(
    case: Case, rounds: int, writers: int, engine: type[KeyValueStore] = KeyValueStore
) -> None:
    choose = random.Random(5)
    for _ in range(rounds):
        race = Race(case, engine, writers)
        every = [race.collection, *race.commits]
        for _ in range(choose.randrange(2, 16)):
            choose.choice(every).go_on(choose.randrange(1, 5))
        choose.shuffle(every)
        race.finish(*every)


@cases
def test_a_commit_that_a_collection_cuts_in_two_keeps_what_it_needs(case: Case) -> None:
    cut_the_commit(case)


@cases
def test_a_collection_that_a_commit_cuts_in_two_takes_nothing_it_needs(case: Case) -> None:
    cut_the_collection(case)


@cases
@pytest.mark.parametrize("writers", [1, 2])
def test_commits_and_a_collection_that_take_turns_lose_nothing(case: Case, writers: int) -> None:
    take_turns(case, 3000 if SOAK else 60, writers)


# A test that cannot fail proves nothing: these stores leave out one step each.


class RaisesOnlyItsOwnEpoch(KeyValueStore):
    def _raise_epoch(self, space: str, epoch: int) -> None:
        pass


class TakesAnEmptySpaceAsItIs(KeyValueStore):
    def _epoch(self) -> int:
        return 1


class LooksAtObjectsFirst(KeyValueStore):
    def _to_write(self, space: str, names: Iterable[str] = (), recall: bool = False) -> Moment:
        self._looked = dict(super()._presence([OLD.id, TOP.id]))
        return super()._to_write(space, names, recall)

    def _present(self, batch: Batch, epoch: int) -> Mapping[ObjectId, Presence]:
        return {**super()._present(batch, epoch), **self._looked}


class WithObjects(KeyValueStore):
    """A store whose objects are kept in another way."""

    kind: ClassVar[type[Objects]]

    def __init__(self, kv: DictKV) -> None:
        super().__init__(kv)
        self._objects = self.kind(self._calls)


class DeletesWithoutComparing(WithObjects):
    class kind(Objects):  # noqa: N801
        def change(
            self, ids: Sequence[ObjectId], change: Callable[[Cell], Cell | None]
        ) -> list[ObjectId]:
            cells = {id: decode_cell(data) for id, data in self._cells(ids).items()}
            doomed = [id for id, cell in cells.items() if cell and change(cell) is None]
            for id in doomed:
                self._calls.swap(object_key(id), self._calls.get(object_key(id)), None)
            return doomed + super().change([id for id in ids if id not in doomed], change)


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (RaisesOnlyItsOwnEpoch, "looked up"),
        (TakesAnEmptySpaceAsItIs, "in a new space and trusted"),
        (LooksAtObjectsFirst, "looked up"),
        (DeletesWithoutComparing, "looked up"),
    ],
)
def test_the_races_show_a_store_that(engine: type[KeyValueStore], name: str) -> None:
    (case,) = (one for one in CASES if one.name == name)

    with pytest.raises((AssertionError, MissingObjects, Corrupt)):
        race_all(case, engine)


def race_all(case: Case, engine: type[KeyValueStore]) -> None:
    cut_the_commit(case, engine)
    cut_the_collection(case, engine)
    take_turns(case, 1000, 2, engine)
