"""A history with several handles, compared with plain dicts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ropewalk.errors import Conflict, MergeConflict, MissingObjects, NotFound
from ropewalk.history import Branch, Commit, History
from ropewalk.history.merge import DIFFERS
from ropewalk.store import FileStore, MemoryStore, SqliteStore, Store
from ropewalk.tree import ObjectId, put
from tests.conftest import SOAK
from tests.history.conftest import SPACE

State = dict[str, Any]
NAMES = ["main", "left", "right"]
MERGERS = {"n": "add"}
ABSENT = object()
SLOTS = st.integers(0, 5)


def three_way(base: State, ours: State, theirs: State) -> tuple[State, set[str]]:
    """What both sides' changes make of a dict, and the keys where they conflict."""
    merged, conflicts = dict(ours), set()
    for key in sorted(base.keys() | ours.keys() | theirs.keys()):
        before, mine, other = (one.get(key, ABSENT) for one in (base, ours, theirs))
        if before in (mine, other):
            result = other if mine == before else mine
        elif key == "n":
            result = mine + other - (0 if before is ABSENT else before)
        else:
            result = mine
            if mine != other:
                conflicts.add(key)
        merged[key] = result
    return {key: value for key, value in merged.items() if value is not ABSENT}, conflicts


@dataclass
class Known:
    """A commit, as the model has it."""

    parents: tuple[ObjectId, ...]
    value: State
    generation: int


@dataclass
class Handle:
    """A handle, and what its caller holds."""

    branch: Branch
    seen: ObjectId | None
    held: State


@dataclass
class Model:
    commits: dict[ObjectId, Known] = field(default_factory=dict)
    refs: dict[str, ObjectId] = field(default_factory=dict)
    log: list[dict[str, tuple[ObjectId | None, ObjectId | None]]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    gone: set[ObjectId] = field(default_factory=set)
    """Commits that a collection may have deleted."""

    def value(self, id: ObjectId | None) -> State:
        return {} if id is None else self.commits[id].value

    def add(self, commit: Commit, value: State) -> None:
        self.commits[commit.id] = Known(commit.parents, value, commit.generation)

    def move(self, **targets: ObjectId | None) -> None:
        """One operation."""
        self.log.append({name: (self.refs.get(name), new) for name, new in targets.items()})
        for name, new in targets.items():
            if new is None:
                del self.refs[name]
            else:
                self.refs[name] = new
                self.gone -= self.ancestors([new])

    def work(self, **targets: ObjectId | None) -> None:
        """An operation that is no undo and no redo."""
        self.move(**targets)
        self.done.append(len(self.log) - 1)
        self.undone.clear()

    def ancestors(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        found: set[ObjectId] = set()
        pending = list(ids)
        while pending:
            id = pending.pop()
            if id not in found:
                found.add(id)
                pending += self.commits[id].parents
        return found

    def collect(self, recent: int) -> None:
        ends = {id for one in self.log[-recent:] for pair in one.values() for id in pair if id}
        kept = self.ancestors([*self.refs.values(), *(ends - self.gone)])
        self.gone = self.commits.keys() - kept

    def bases(self, ours: Iterable[ObjectId], theirs: ObjectId) -> list[ObjectId]:
        common = self.ancestors(ours) & self.ancestors([theirs])
        lower = {id for one in common for id in self.ancestors(self.commits[one].parents)}
        return sorted(
            common - lower, key=lambda id: (self.commits[id].generation, id), reverse=True
        )

    def together(self, ids: list[ObjectId]) -> State:
        """What common ancestors make together."""
        joined = self.value(ids[0]) if ids else {}
        for number, id in enumerate(ids[1:], 1):
            base = self.together(self.bases(ids[:number], id))
            joined, conflicts = three_way(base, joined, self.value(id))
            joined |= dict.fromkeys(conflicts, DIFFERS)
        return joined


class HistoryMachine(RuleBasedStateMachine):
    """Does the same to a history and to the model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.handles: dict[int, Handle] = {}
        self.folder = tempfile.TemporaryDirectory()
        self.stores: list[Store] = []
        self.ticks = 0

    @property
    def now(self) -> int:
        """A time that makes the same ids in each run of the same steps."""
        self.ticks += 1
        return self.ticks

    def make(self) -> Store:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.reopen()

    def teardown(self) -> None:
        for store in self.stores:
            assert store.check(read_data=True).problems == ()
            store.close()
        self.folder.cleanup()

    # Reading and writing.

    def handle(self, slot: int) -> Handle:
        """One of six handles: two for each branch, on two store objects."""
        if slot not in self.handles:
            name = NAMES[slot // 2]
            branch = History(self.stores[slot % 2], SPACE).open(name)
            seen = self.model.refs.get(name)
            assert (None if branch.head is None else branch.head.id) == seen
            self.handles[slot] = Handle(branch, seen, dict(self.model.value(seen)))
        return self.handles[slot]

    @rule(slot=SLOTS)
    def open_again(self, slot: int) -> None:
        self.handles.pop(slot, None)
        self.handle(slot)

    @rule(slot=SLOTS)
    def read(self, slot: int) -> None:
        handle = self.handle(slot)
        head = self.model.refs.get(handle.branch.name)
        if head is None:
            expect(NotFound, handle.branch.read)
            return
        handle.held, handle.seen = handle.branch.read(), head
        assert handle.held == self.model.value(head)

    @rule(slot=SLOTS, key=st.sampled_from("abc"), value=st.integers(0, 3))
    def read_and_commit(self, slot: int, key: str, value: int) -> None:
        self.read(slot)
        self.commit(slot, key, value)

    @rule(slot=SLOTS, key=st.sampled_from("abc"), value=st.integers(0, 3))
    def commit(self, slot: int, key: str, value: int) -> None:
        handle = self.handle(slot)
        model, branch, held = self.model, handle.branch, dict(handle.held)
        if value == 0:
            held.pop(key, None)
        else:
            held[key] = [value] * 400
        held["n"] = held.get("n", 0) + 1
        head = model.refs.get(branch.name)
        if head is None and handle.seen is not None:
            expect(Conflict, lambda: branch.commit(held))
            self.open_again(slot)
            return
        merged, conflicts = held, set[str]()
        if head != handle.seen:
            merged, conflicts = three_way(model.value(handle.seen), held, model.value(head))
        try:
            made = branch.commit(held, mergers=MERGERS, time=self.now)
        except MergeConflict as error:
            expect_paths(error, conflicts)
        except Conflict:
            assert handle.seen in model.gone
        else:
            assert not conflicts
            model.add(made, merged)
            handle.seen, handle.held = made.id, held
            if head is not None and len(made.parents) == 2:
                ours = branch.history.resolve(made.parents[1])
                model.add(ours, held)
                handle.seen = ours.id
            model.work(**{branch.name: made.id})

    @rule(slot=SLOTS, value=st.integers(0, 3))
    def update(self, slot: int, value: int) -> None:
        branch = self.handle(slot).branch
        head = self.model.refs.get(branch.name)
        if head is not None:
            made = branch.update(
                lambda root, read: put(root or b"", ("u",), value, read), time=self.now
            )
            self.model.add(made, {**self.model.value(head), "u": value})
            self.model.work(**{branch.name: made.id})

    # Refs.

    @precondition(lambda self: self.model.commits)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def create_or_move(self, data: st.DataObject, name: str) -> None:
        id = data.draw(st.sampled_from(list(self.model.commits)))
        there = name in self.model.refs
        try:
            if there:
                self.history.move_branch(name, id)
            else:
                self.history.create_branch(name, id)
        except (NotFound, MissingObjects):
            assert id in self.model.gone
        else:
            self.model.work(**{name: id})
        if there:
            expect(Conflict, lambda: self.history.create_branch(name, name))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if name in self.model.refs:
            self.history.delete_branch(name)
            self.model.work(**{name: None})
        else:
            expect(NotFound, lambda: self.history.delete_branch(name))

    @precondition(lambda self: len(self.model.refs) > 1)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        model = self.model
        pairs = st.permutations(sorted(model.refs))
        source, into = data.draw(pairs)[:2]
        theirs, ours = model.refs[source], model.refs[into]
        bases = model.bases([ours], theirs)
        base = model.together(bases)
        merged, conflicts = three_way(base, model.value(ours), model.value(theirs))
        try:
            made = self.history.merge(source, into, mergers=MERGERS, time=self.now)
        except MergeConflict as error:
            assert not {ours, theirs} & set(bases)
            expect_paths(error, conflicts)
            return
        if bases == [theirs]:
            assert made.id == ours
        elif bases == [ours]:
            assert made.id == theirs
            model.work(**{into: theirs})
        else:
            assert not conflicts
            model.add(made, merged)
            model.work(**{into: made.id})

    # Going back.

    @rule()
    def undo(self) -> None:
        self.take_back(self.history.undo, self.model.done, self.model.undone)

    @rule()
    def redo(self) -> None:
        self.take_back(self.history.redo, self.model.undone, self.model.done)

    def take_back(self, call: Callable[[], object], source: list[int], target: list[int]) -> None:
        if not source:
            expect(NotFound, call)
            return
        moves = self.model.log[source[-1]]
        try:
            call()
        except MissingObjects:
            assert {before for before, _ in moves.values()} & self.model.gone
        else:
            source.pop()
            self.model.move(**{name: before for name, (before, _) in moves.items()})
            target.append(len(self.model.log) - 1)

    # Care.

    @rule(recent=st.integers(1, 8), at=st.integers(0, 1))
    def collect(self, recent: int, at: int) -> None:
        self.stores[at].gc(recent=recent)
        self.model.collect(recent)

    @rule()
    def reopen(self) -> None:
        opened = [self.make(), self.make()]
        for store in self.stores:
            store.close()
        self.stores, self.handles = opened, {}
        self.history = History(self.stores[0], SPACE)

    @invariant()
    def branches_are_where_they_should_be(self) -> None:
        if self.stores:
            assert self.history.branches() == self.model.refs

    @invariant()
    def the_log_has_every_operation(self) -> None:
        if self.stores:
            assert self.stores[1].view(SPACE).sequence == len(self.model.log)

    @rule(data=st.data())
    def look_at_a_version(self, data: st.DataObject) -> None:
        kept = [id for id in self.model.commits if id not in self.model.gone]
        if kept:
            id = data.draw(st.sampled_from(kept))
            assert self.history.value(id) == self.model.value(id)


def expect_paths(error: MergeConflict, keys: set[str]) -> None:
    assert keys
    assert {one.path for one in error.conflicts} == {(key,) for key in keys}


def expect(error: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected")


class InMemory(HistoryMachine):
    def __init__(self) -> None:
        super().__init__()
        self.first = MemoryStore()

    def make(self) -> Store:
        return self.first.another()


class InDatabase(HistoryMachine):
    def make(self) -> Store:
        return SqliteStore(f"{self.folder.name}/store", durability="relaxed")


class InFiles(HistoryMachine):
    def make(self) -> Store:
        return FileStore(f"{self.folder.name}/store", durability="relaxed")


def run(machine: type[HistoryMachine], share: int) -> None:
    """As many runs as the profile says, or a share of them where each costs more."""
    profile = settings()
    runs = profile.max_examples // (4 if SOAK else share)
    run_state_machine_as_test(machine, settings=settings(max_examples=runs))


def test_a_history_in_memory_does_what_the_model_does() -> None:
    run(InMemory, 4)


def test_a_history_in_a_database_does_what_the_model_does() -> None:
    run(InDatabase, 20)


def test_a_history_in_files_does_what_the_model_does() -> None:
    run(InFiles, 20)
