"""One commit beside one collection on a key-value store, at every pair of calls.

A thread does one of them, call by call; the test says how many calls it may make before the
other one goes on. So every way in which the one can be cut into two by the other is tried.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import pytest

from holdfast.errors import MissingObjects
from holdfast.store import KeyValueStore, Move, Presence, Store
from holdfast.store._key_value_cells import Cell, decode_cell, object_key
from holdfast.store._key_value_store import _Moment
from holdfast.store._own import manifest
from holdfast.testing._stores._base import MAIN, PATIENCE, SPACE
from holdfast.tree import Object, ObjectId, TreeWriter
from tests.conftest import SOAK
from tests.store.key_values import DictKV

OLD = TreeWriter().write("an old value that nothing reaches any more").objects[0]
KEPT = TreeWriter().write("kept").objects[0]
TOP = manifest([OLD.id], None)
NEW_SPACE = "test/new"

Case = Literal["looked up", "trusted", "new space", "written again", "new space, trusted"]
CASES: list[Case] = ["looked up", "trusted", "new space", "written again", "new space, trusted"]


class Stepping(DictKV):
    """Waits before each call until it is let go on."""

    def __init__(self, data: dict[str, bytes]) -> None:
        super().__init__(data)
        self.calls = 0
        self._allowed = 0
        self._changed = threading.Condition()
        self._waiting = self._ended = False

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

    def get(self, key: str) -> bytes | None:
        self._step()
        return super().get(key)

    def set(self, key: str, value: bytes) -> None:
        self._step()
        super().set(key, value)

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        self._step()
        return {key: self.data[key] for key in keys if key in self.data}

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


def write(store: Store, case: Case, epoch: int) -> None:
    """Let a ref point to what points to the old value; send it again if it was collected."""
    space = NEW_SPACE if case.startswith("new space") else SPACE
    sent: list[Object] = [TOP, OLD] if case == "written again" else [TOP]
    trusted = epoch if case.endswith("trusted") else None
    move = Move("branch/new", None, TOP.id)
    for _ in range(5):
        try:
            store.commit(space, sent, [OLD.id], [move], epoch=trusted)
        except MissingObjects:
            sent = [TOP, OLD]
        else:
            return
    raise AssertionError("what was sent again was called missing again and again")


def expect_whole(data: dict[str, bytes], case: Case) -> None:
    store = KeyValueStore(DictKV(data))
    ref = store.ref(NEW_SPACE if case.startswith("new space") else SPACE, "branch/new")
    assert ref is not None and ref.target == TOP.id
    assert store.read([TOP.id, OLD.id]) == [TOP, OLD]
    assert store.missing([TOP.id, OLD.id]) == []
    assert store.check(read_data=True).problems == ()
    assert store.gc(recent=1).freed == 0


def collect(store: Store) -> None:
    store.gc(recent=1)


def opened(kv: Stepping, engine: type[KeyValueStore]) -> KeyValueStore:
    """A store whose calls are counted from now on."""
    kv.allow_all()
    store = engine(kv)
    kv.allow_none()
    return store


class Race:
    """A commit and a collection on one key-value store, each in a thread."""

    def __init__(self, case: Case, engine: type[KeyValueStore] = KeyValueStore) -> None:
        self.case = case
        self.data, epoch = begin()
        self.commit, self.collection = Stepping(self.data), Stepping(self.data)
        writer = opened(self.commit, engine)
        collector = opened(self.collection, engine)
        self.commit.run(lambda: write(writer, case, epoch))
        self.collection.run(lambda: collect(collector))

    def finish(self, *order: Stepping) -> None:
        """Let them come to their ends, and look at what is left."""
        for one in order:
            one.go_on(None)
        expect_whole(self.data, self.case)


def lengths(case: Case) -> tuple[int, int]:
    """How many calls the two make, one after the other."""
    race = Race(case)
    race.finish(race.collection, race.commit)
    return race.commit.calls, race.collection.calls


@pytest.mark.parametrize("case", CASES)
def test_a_commit_that_a_collection_cuts_in_two_keeps_what_it_needs(case: Case) -> None:
    commits, collections = lengths(case)

    for before in range(collections + 1):
        for inside in range(1, commits + 1):
            race = Race(case)
            race.collection.go_on(before)
            race.commit.go_on(inside)
            race.finish(race.collection, race.commit)


@pytest.mark.parametrize("case", CASES)
def test_a_collection_that_a_commit_cuts_in_two_takes_nothing_it_needs(case: Case) -> None:
    commits, collections = lengths(case)

    for before in range(commits + 1):
        for inside in range(1, collections + 1):
            race = Race(case)
            race.commit.go_on(before)
            race.collection.go_on(inside)
            race.finish(race.commit, race.collection)


@pytest.mark.parametrize("case", CASES)
def test_a_commit_and_a_collection_that_take_turns_lose_nothing(case: Case) -> None:
    choose = random.Random(5)

    for _ in range(2000 if SOAK else 100):
        race = Race(case)
        both = [race.commit, race.collection]
        for _ in range(choose.randrange(2, 12)):
            choose.choice(both).go_on(choose.randrange(1, 4))
        choose.shuffle(both)
        race.finish(*both)


# A test that cannot fail proves nothing: these stores leave out one step each.


class RaisesOnlyItsOwnEpoch(KeyValueStore):
    def _raise_epoch(self, space: str, epoch: int) -> None:
        pass


class TakesAnEmptySpaceAsItIs(KeyValueStore):
    def _epoch(self) -> int:
        return 1


class DeletesWithoutComparing(KeyValueStore):
    def _change_one(
        self, id: ObjectId, data: bytes | None, change: Callable[[Cell], Cell | None]
    ) -> bool:
        cell = None if data is None else decode_cell(data)
        if cell is not None and change(cell) is None:
            while not self._calls.swap(object_key(id), self._calls.get(object_key(id)), None):
                pass
            return True
        return super()._change_one(id, data, change)


class LooksAtObjectsFirst(KeyValueStore):
    def _to_write(self, space: str, names: Iterable[str] = ()) -> _Moment:
        self._looked = dict(super()._presence([OLD.id, TOP.id]))
        return super()._to_write(space, names)

    def _presence(self, ids: Iterable[ObjectId]) -> Mapping[ObjectId, Presence]:
        return {**super()._presence(list(ids)), **getattr(self, "_looked", {})}


@pytest.mark.parametrize(
    "engine",
    [
        RaisesOnlyItsOwnEpoch,
        TakesAnEmptySpaceAsItIs,
        DeletesWithoutComparing,
        LooksAtObjectsFirst,
    ],
)
def test_the_races_show_a_store_that(engine: type[KeyValueStore]) -> None:
    with pytest.raises((AssertionError, MissingObjects)):
        race_all(engine)


def race_all(engine: type[KeyValueStore]) -> None:
    for case in CASES:
        commits, collections = lengths(case)
        for before in range(collections + 1):
            for inside in range(1, commits + 1):
                race = Race(case, engine)
                race.collection.go_on(before)
                race.commit.go_on(inside)
                race.finish(race.collection, race.commit)
        for before in range(commits + 1):
            for inside in range(1, collections + 1):
                race = Race(case, engine)
                race.commit.go_on(before)
                race.collection.go_on(inside)
                race.finish(race.commit, race.collection)
