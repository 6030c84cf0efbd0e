"""One commit beside one collection, on a key-value store and in a bucket, at every pair of calls.

A thread does one of them, call by call; the test says how many calls it may make before the
other one goes on. So every way in which the one can be cut into two by the other is tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from ropewalk.errors import Corrupt, MissingObjects, RefMoved
from ropewalk.store import Move, Store
from ropewalk.store.packer import pack
from ropewalk.store.records.cells import PACKS, PARTS
from ropewalk.store.records.shared import Cell, SharedObjects
from ropewalk.store.records.space import Space
from ropewalk.store.records.spaces import Spaces
from ropewalk.store.records.store import CellStore
from ropewalk.testing.helpers import MAIN, OTHER_SPACE, SPACE, noise
from ropewalk.tree import Object, ObjectId, TreeWriter
from tests.conftest import SOAK
from tests.store.manifests import manifest
from tests.store.records.stepping import ENGINES, Data, Engine, Steps

KEPT, OLD, OWN, NEW = (
    TreeWriter().write(text).objects[0]
    for text in ("kept", "shared once " * 20, "of one space " * 20, "new content " * 20)
)
LARGE = TreeWriter().write({"noise": noise(20_000)}).objects
ON_OLD, ON_OWN = manifest([OLD.id]), manifest([OWN.id])
NEW_SPACE = "test/new"

EVERY = 1 if SOAK else 9
"""Of the places at which one is cut in two by the other, this many are one tried."""


class Case(NamedTuple):
    """A commit that has to do with what nothing reaches any more: `OLD` and `OWN`."""

    name: str
    objects: Sequence[Object]
    needs: list[Object] = []  # noqa: RUF012 - never changed
    space: str = SPACE
    share: bool = False
    beside: bool = False
    """Whether killed writers left something in the same space."""

    @property
    def target(self) -> Object:
        """Where a ref will lead."""
        return self.objects[-1]


CASES = [
    Case("shared", [ON_OLD], [OLD]),
    Case("shared, in a new space", [ON_OLD], [OLD], NEW_SPACE),
    Case("shared, written again", [OLD], share=True),
    Case("shared, new", [NEW], share=True, beside=True),
    Case("its own", [ON_OWN], [OWN]),
    Case("large", LARGE, beside=True),
]
by_name = {case.name: case for case in CASES}
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))


def begin(engine: Engine, beside: bool) -> Data:
    """A store with something that nothing reaches."""
    data: Data = {}
    store = engine.opened(data)
    store.commit(SPACE, [KEPT], moves=[Move(MAIN, None, KEPT.id)])
    store.commit(SPACE, [OWN], moves=[Move("branch/own", None, OWN.id)])
    store.commit(SPACE, moves=[Move("branch/own", OWN.id, None)])
    store.commit(OTHER_SPACE, [OLD], moves=[Move("branch/old", None, OLD.id)], share=True)
    store.commit(OTHER_SPACE, moves=[Move("branch/old", OLD.id, None)])
    store.commit(SPACE)
    store.commit(OTHER_SPACE)
    if beside:
        store._parts.set_many({f"{PARTS}{SPACE}/{'0' * 16}": b"?", f"{PACKS}{'0' * 16}": b"?"})
    return data


def write(store: Store, case: Case, branch: str) -> None:
    """Let a ref lead to the objects of a case; send again what was collected."""
    for _ in range(9):
        try:
            store.commit(
                case.space, case.objects, [one.id for one in case.needs],
                [Move(branch, None, case.target.id)],
                share=case.share,
            )  # fmt: skip
        except MissingObjects:
            store.commit(case.space, case.needs, share=OLD in case.needs)
            continue
        return
    raise AssertionError("what was sent again was called missing again and again")


def collect(store: CellStore) -> None:
    store.gc(recent=1)


def expect_whole(store: Store, case: Case, branch: str) -> None:
    ref = store.ref(case.space, branch)
    assert ref is not None and ref.target == case.target.id
    wanted = [case.target, *case.needs]
    found = store.reader(case.space)([one.id for one in wanted])
    assert [one.payload for one in found] == [one.payload for one in wanted]


class Race:
    """Commits and a collection on one store, each in a thread."""

    def __init__(self, engine: Engine, case: Case, writers: int = 1, knows: bool = False) -> None:
        self.engine, self.case = engine, case
        self.data = begin(engine, case.beside)
        self.collection, collector = engine.stepping(self.data)
        self.commits: list[Steps] = []
        for number in range(writers):
            steps, writer = engine.stepping(self.data)
            if knows:
                assert writer.missing([one.id for one in case.needs], case.space) == []
                writer.view(SPACE)
            steps.run(partial(write, writer, case, f"branch/{number}"))
            self.commits.append(steps)
        self.collection.run(partial(collect, collector))
        self.commit = self.commits[0]

    def finish(self, *order: Steps) -> None:
        """Let them come to their ends, and look at what is left."""
        for one in order:
            one.go_on(None)
        for again in (False, True):
            store = self.engine.opened(self.data)
            for number in range(len(self.commits)):
                expect_whole(store, self.case, f"branch/{number}")
            assert store.check(read_data=True).problems == ()
            if not again:
                store.gc(recent=1)
        assert not [key for key in self.data if key.endswith("0" * 16)]


def lengths(engine: Engine, case: Case, knows: bool) -> tuple[int, int]:
    """How many calls the two make, at most."""
    ways = [Race(engine, case, knows=knows) for _ in range(2)]
    ways[0].finish(ways[0].collection, ways[0].commit)
    ways[1].finish(ways[1].commit, ways[1].collection)
    return max(one.commit.calls for one in ways), max(one.collection.calls for one in ways)


def cut_the_commit(engine: Engine, case: Case, knows: bool, every: int = EVERY) -> None:
    commits, collections = lengths(engine, case, knows)
    for before in range(len(case.name) % every, collections + 1, every):
        for inside in range(1, commits + 1):
            race = Race(engine, case, knows=knows)
            race.collection.go_on(before)
            race.commit.go_on(inside)
            race.finish(race.collection, race.commit)


def cut_the_collection(engine: Engine, case: Case, knows: bool, every: int = EVERY) -> None:
    commits, collections = lengths(engine, case, knows)
    for before in range(commits + 1):
        for inside in range(1 + len(case.name) % every, collections + 1, every):
            race = Race(engine, case, knows=knows)
            race.commit.go_on(before)
            race.collection.go_on(inside)
            race.finish(race.commit, race.collection)


def take_turns(engine: Engine, case: Case, rounds: int, writers: int) -> None:
    choose = random.Random(5)
    for _ in range(rounds):
        race = Race(engine, case, writers, knows=choose.random() < 0.5)
        every = [race.collection, *race.commits]
        for _ in range(choose.randrange(2, 20)):
            choose.choice(every).go_on(choose.randrange(1, 6))
        choose.shuffle(every)
        race.finish(*every)


knowing = pytest.mark.parametrize("knows", [False, True], ids=["new", "knowing"])


@engines
@cases
@knowing
def test_a_commit_that_a_collection_cuts_in_two_keeps_what_it_needs(
    engine: Engine, case: Case, knows: bool
) -> None:
    cut_the_commit(engine, case, knows)


@engines
@cases
@knowing
def test_a_collection_that_a_commit_cuts_in_two_takes_nothing_it_needs(
    engine: Engine, case: Case, knows: bool
) -> None:
    cut_the_collection(engine, case, knows)


@engines
@cases
@pytest.mark.parametrize("writers", [1, 2])
def test_commits_and_a_collection_that_take_turns_lose_nothing(
    engine: Engine, case: Case, writers: int
) -> None:
    take_turns(engine, case, 3000 if SOAK else 5, writers)


# Writers that give up or are killed half way, packers and collections, in an order by chance.


def gives_up(store: CellStore, choose: random.Random, name: str) -> None:
    """Try once to commit what leads to something that may be gone."""
    case = choose.choice(CASES)
    try:
        store.commit(case.space, case.objects, [one.id for one in case.needs],
                     [Move(name, None, case.target.id)], share=case.share)  # fmt: skip
    except MissingObjects:
        return


def goes_on(store: CellStore, choose: random.Random, name: str) -> None:
    """Commit, and send again what is missing."""
    write(store, choose.choice(CASES), name)


def removes(store: CellStore, choose: random.Random, name: str) -> None:
    """Remove a ref, so that there is something to collect."""
    for space in (SPACE, NEW_SPACE):
        for ref in store.refs(space, "branch/"):
            try:
                store.commit(space, moves=[Move(ref.name, ref.target, None)])
            except RefMoved:
                continue


def packs(store: CellStore, choose: random.Random, name: str) -> None:
    """Pack a space."""
    pack(store, choose.choice([SPACE, OTHER_SPACE]), whole=True)


def collects(store: CellStore, choose: random.Random, name: str) -> None:
    """Delete what nothing reaches."""
    store.gc(recent=choose.choice([0, 1]))


def campaign(engine: Engine, seed: int) -> None:
    """Play a round, and look at what is left."""
    choose = random.Random(seed)
    data = begin(engine, choose.random() < 0.5)
    players: list[Steps] = []
    for play in (collects, collects, packs, removes, gives_up, goes_on, goes_on):
        if choose.random() < 0.7:
            steps, store = engine.stepping(data)
            own, name = random.Random(choose.random()), f"branch/{len(players)}"
            steps.run(partial(play, store, own, name))
            players.append(steps)
    for _ in range(choose.randrange(4, 60) if players else 0):
        choose.choice(players).go_on(choose.randrange(1, 8))
    choose.shuffle(players)
    for one in players:
        if choose.random() < 0.3:
            one.kill()
        else:
            one.go_on(None)
    for _ in range(2):
        assert engine.opened(data).check(read_data=True).problems == ()
        engine.opened(data).gc(recent=1)
    assert not [key for key in data if key.endswith("0" * 16)]


@engines
def test_nothing_is_lost_among_writers_packers_and_collections_that_are_killed(
    engine: Engine,
) -> None:
    for seed in range(20_000 if SOAK else 60):
        campaign(engine, seed)


# A test that cannot fail proves nothing: these leave out one step each.


def does_nothing(*_: object) -> None:
    pass


def passes_over_new_spaces(self: Spaces) -> list[str]:
    return self.names("")


def looks_at_the_objects_first(store: Any, batch: Any) -> Any:
    if batch.names or batch.shared:
        store._shared.keep(batch.shared, batch.names)
    store._shared.keep = does_nothing
    try:
        return _commit(store, batch)
    finally:
        del store._shared.keep


def trusts_the_first_look(store: Any, named: set[ObjectId] | None) -> Any:
    known = store._named()
    store._named = lambda: known
    return _collect(store, named)


def removes_at_once(self: Spaces) -> None:
    for key in self._parts.keys(PARTS):
        name = key.removeprefix(PARTS).rpartition("/")[0]
        if key not in self.ask(name, Space.parts):
            self._parts.remove([key])


def removes_packs_at_once(self: SharedObjects) -> None:
    self._parts.remove(sorted(set(self._parts.keys(PACKS)) - self._ask(self._named)))


def changes_without_looking(self: SharedObjects, change: Callable[[Cell], Cell | None]) -> Cell:
    if self._cell is not None and self._cell.raw is not None:
        fresh = change(self._cell)
        if fresh is None:
            return self._cell
    return _change(self, change)


_commit, _collect, _change = CellStore._commit, CellStore._collect_shared, SharedObjects._change


@pytest.mark.parametrize(
    ("place", "step", "instead", "name"),
    [
        (Spaces, "raise_epoch", does_nothing, "shared"),
        (Spaces, "all_names", passes_over_new_spaces, "shared, in a new space"),
        (CellStore, "_commit", looks_at_the_objects_first, "shared, in a new space"),
        (CellStore, "_collect_shared", trusts_the_first_look, "shared"),
        (Spaces, "remove_orphans", removes_at_once, "large"),
        (SharedObjects, "remove_orphans", removes_packs_at_once, "shared, new"),
        (SharedObjects, "_change", changes_without_looking, "shared, in a new space"),
    ],
)
def test_the_races_show_a_store_that_leaves_out(
    place: Any, step: str, instead: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ENGINES["key-value"]
    monkeypatch.setattr(place, step, instead)

    with pytest.raises((AssertionError, MissingObjects, Corrupt)):
        race_all(engine, by_name[name])


def race_all(engine: Engine, case: Case) -> None:
    for knows in (True, False):
        cut_the_commit(engine, case, knows, every=1)
        cut_the_collection(engine, case, knows, every=1)
    take_turns(engine, case, 500, 2)
