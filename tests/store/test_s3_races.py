"""One commit beside one collection in a bucket, at every pair of requests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import partial

import pytest

from ropewalk.errors import Corrupt, MissingObjects
from ropewalk.store import Batch, Move, Presence
from ropewalk.store._record_store import Moment
from ropewalk.testing._stores._base import MAIN, SPACE
from ropewalk.tree import ObjectId
from tests.conftest import SOAK
from tests.store.s3_memory import MemoryBucket, MemoryS3Store
from tests.store.test_key_value_races import CASES, KEPT, OLD, Case, Stepping, cases, write

EVERY = 1 if SOAK else 13
"""Of the places at which one is cut in two by the other, this many are one tried."""


class SteppingBucket(MemoryBucket):
    """Waits before each request until it is let go on."""

    def __init__(self, data: dict[str, bytes]) -> None:
        super().__init__(data)
        self.steps = Stepping({})
        self.before = lambda request: self.steps._step()


def begin() -> tuple[dict[str, bytes], int]:
    """A store in which something is no longer reached, and the epoch at which it was."""
    data: dict[str, bytes] = {}
    store = MemoryS3Store(MemoryBucket(data))
    store.commit(SPACE, [KEPT], moves=[Move(MAIN, None, KEPT.id)])
    done = store.commit(SPACE, [OLD], moves=[Move("branch/old", None, OLD.id)])
    store.commit(SPACE, moves=[Move("branch/old", OLD.id, None)])
    store.commit(SPACE)
    return data, done.epoch


class Race:
    """Commits and a collection in one bucket, each in a thread.

    Half of the writers know the store from before.
    """

    def __init__(
        self,
        case: Case,
        engine: type[MemoryS3Store] = MemoryS3Store,
        writers: int = 1,
        knows: bool = False,
    ) -> None:
        self.case = case
        self.data, epoch = begin()
        self.collection, collector = self._opened(engine)
        self.collection.run(lambda: collect(collector))
        self.commits: list[Stepping] = []
        for number in range(writers):
            steps, writer = self._opened(engine, knows=knows)
            steps.run(partial(write, writer, case, epoch, f"branch/{number}"))
            self.commits.append(steps)
        self.commit = self.commits[0]

    def _opened(
        self, engine: type[MemoryS3Store], knows: bool = False
    ) -> tuple[Stepping, MemoryS3Store]:
        bucket = SteppingBucket(self.data)
        bucket.steps.allow_all()
        store = engine(bucket)
        if knows:
            assert store.missing([OLD.id]) == []
            store.read([OLD.id])
            store.view(SPACE)
        bucket.steps.allow_none()
        return bucket.steps, store

    def finish(self, *order: Stepping) -> None:
        """Let them come to their ends, and look at what is left."""
        for one in order:
            one.go_on(None)
        for number in range(len(self.commits)):
            expect_whole(self.data, self.case, f"branch/{number}")


def collect(store: MemoryS3Store) -> None:
    store.gc(recent=1)


def expect_whole(data: dict[str, bytes], case: Case, branch: str) -> None:
    store = MemoryS3Store(MemoryBucket(data))
    ref = store.ref(case.space, branch)
    assert ref is not None and ref.target == case.target.id
    needed = [case.target, *case.needs]
    read = store.read([one.id for one in needed])
    assert [one.payload for one in read] == [one.payload for one in needed]
    assert store.missing([one.id for one in needed]) == []
    assert store.check(read_data=True).problems == ()
    store.gc(recent=1)
    assert store.check(read_data=True).problems == ()


def lengths(case: Case, knows: bool) -> tuple[int, int]:
    """How many requests the two make, at most."""
    ways = [Race(case, knows=knows), Race(case, knows=knows)]
    ways[0].finish(ways[0].collection, ways[0].commit)
    ways[1].finish(ways[1].commit, ways[1].collection)
    return max(one.commit.calls for one in ways), max(one.collection.calls for one in ways)


def cut_the_commit(
    case: Case, knows: bool, engine: type[MemoryS3Store] = MemoryS3Store, every: int = EVERY
) -> None:
    commits, collections = lengths(case, knows)
    for before in range(len(case.name) % every, collections + 1, every):
        for inside in range(1, commits + 1):
            race = Race(case, engine, knows=knows)
            race.collection.go_on(before)
            race.commit.go_on(inside)
            race.finish(race.collection, race.commit)


def cut_the_collection(
    case: Case, knows: bool, engine: type[MemoryS3Store] = MemoryS3Store, every: int = EVERY
) -> None:
    commits, collections = lengths(case, knows)
    for before in range(commits + 1):
        for inside in range(1 + len(case.name) % every, collections + 1, every):
            race = Race(case, engine, knows=knows)
            race.commit.go_on(before)
            race.collection.go_on(inside)
            race.finish(race.commit, race.collection)


def take_turns(
    case: Case, rounds: int, writers: int, engine: type[MemoryS3Store] = MemoryS3Store
) -> None:
    choose = random.Random(5)
    for _ in range(rounds):
        race = Race(case, engine, writers, knows=choose.random() < 0.5)
        every = [race.collection, *race.commits]
        for _ in range(choose.randrange(2, 20)):
            choose.choice(every).go_on(choose.randrange(1, 8))
        choose.shuffle(every)
        race.finish(*every)


knowing = pytest.mark.parametrize("knows", [False, True], ids=["new", "knowing"])


@cases
@knowing
def test_a_commit_that_a_collection_cuts_in_two_keeps_what_it_needs(
    case: Case, knows: bool
) -> None:
    cut_the_commit(case, knows)


@cases
@knowing
def test_a_collection_that_a_commit_cuts_in_two_takes_nothing_it_needs(
    case: Case, knows: bool
) -> None:
    cut_the_collection(case, knows)


@cases
@pytest.mark.parametrize("writers", [1, 2])
def test_commits_and_a_collection_that_take_turns_lose_nothing(case: Case, writers: int) -> None:
    take_turns(case, 3000 if SOAK else 12, writers)


# A test that cannot fail proves nothing: these stores leave out one step each.


class RaisesOnlyItsOwnEpoch(MemoryS3Store):
    def _raise_epoch(self, space: str, epoch: int) -> None:
        pass


class TakesAnEmptySpaceAsItIs(MemoryS3Store):
    def _epoch(self) -> int:
        return 1


class LooksAtObjectsFirst(MemoryS3Store):
    def _to_write(self, space: str, names: Iterable[str] = (), recall: bool = False) -> Moment:
        self._looked = dict(super()._presence([OLD.id]))
        return super()._to_write(space, names, recall)

    def _present(self, batch: Batch, epoch: int) -> Mapping[ObjectId, Presence]:
        return {**super()._present(batch, epoch), **self._looked}


class NeverLearnsOfMarks(MemoryS3Store):
    def _present(self, batch: Batch, epoch: int) -> Mapping[ObjectId, Presence]:
        return self._index.known(batch.asks(epoch)) or super()._present(batch, epoch)


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (RaisesOnlyItsOwnEpoch, "trusted"),
        (TakesAnEmptySpaceAsItIs, "in a new space and trusted"),
        (LooksAtObjectsFirst, "looked up"),
        (NeverLearnsOfMarks, "looked up"),
    ],
)
def test_the_races_show_a_store_that(engine: type[MemoryS3Store], name: str) -> None:
    (case,) = (one for one in CASES if one.name == name)

    with pytest.raises((AssertionError, MissingObjects, Corrupt)):
        race_all(case, engine)


def race_all(case: Case, engine: type[MemoryS3Store]) -> None:
    for knows in (False, True):
        cut_the_commit(case, knows, engine, every=1)
        cut_the_collection(case, knows, engine, every=1)
    take_turns(case, 500, 2, engine)
