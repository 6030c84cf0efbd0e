"""Checking a store: everything that refs and operations lead to is there and sound."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.codec import check_canonical
from ropewalk.errors import Corrupt, FormatError, MissingObjects, RopewalkError
from ropewalk.store._collecting import Progress, ends, operations, roots
from ropewalk.store._own import may_be_manifest
from ropewalk.store._reaching import BATCH, Visit, walk
from ropewalk.store._reading import read_objects
from ropewalk.tree import Kind, Object, ObjectId, check_commit, check_links
from ropewalk.tree.verify import Verifier

if TYPE_CHECKING:
    from ropewalk.store._object_store import ObjectStore
    from ropewalk.store._records import Ref

_TOLD_AFTER = 1000
_NODES = (Kind.VALUE, Kind.ITEMS, Kind.PAIRS)


class Problem(NamedTuple):
    """One thing that is not as it must be."""

    code: str
    """`missing-object`, `damaged-object`, `bad-commit`, `bad-log`, `bad-ref` or `bad-engine`."""
    subject: str
    """What it is about: an object's id in hex, a space, a ref, a file."""
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What `check` looked at and found."""

    problems: tuple[Problem, ...]
    spaces: int
    refs: int
    operations: int
    objects: int
    """Objects that were read and verified."""
    read_data: bool

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def check(store: ObjectStore, read_data: bool = False, progress: Progress | None = None) -> Report:
    """Look at a store and say what is wrong with it; changes nothing.

    Without `read_data`: logs, refs, and all objects that they reach but for the bytes
    of chunks. With it: every byte of every object, what several objects must say together
    for their value to be read, and what the engine can say. No class is needed for it. Each
    object is looked at once, however many versions share it.
    """
    checker = Checker(store, progress or (lambda step, done: None))
    checker.attempt(partial(checker.check_engine, read_data))
    checker.attempt(checker.check_spaces)
    if read_data:
        checker.attempt(checker.check_everything)
    return Report(
        tuple(dict.fromkeys(checker.problems)),
        checker.spaces,
        checker.refs,
        checker.operations,
        checker.objects,
        read_data,
    )


class Checker:
    """One look at a store."""

    def __init__(self, store: ObjectStore, tell: Progress) -> None:
        self.problems: list[Problem] = []
        self.spaces = self.refs = self.operations = self.objects = 0
        self._store, self._tell = store, tell
        self._seen: set[ObjectId] = set()
        self._verifier = Verifier(partial(read_objects, fetch=store._frames))
        self._commits: dict[ObjectId, tuple[int, tuple[ObjectId, ...]]] = {}

    def attempt(self, look: Callable[[], None]) -> None:
        """Look, and report what keeps from looking further."""
        try:
            look()
        except Corrupt as error:
            self._report("bad-engine", self._store.backend_id, str(error))

    def check_engine(self, read_data: bool) -> None:
        """What the engine itself can say about its files and tables."""
        for subject, message in self._store._examine(read_data):
            self._report("bad-engine", subject, message)

    def check_spaces(self) -> None:
        """Every space: its log, its refs, and what they reach."""
        spaces = self._store.spaces()
        self.spaces = len(spaces)
        # All refs before any log: what a log led to may be gone, and is not looked at twice.
        for look in (self._check_refs, self._check_log):
            for space in spaces:
                try:
                    look(space)
                except Corrupt as error:
                    self._report("bad-log", space, str(error))
        self._tell("checking", self.objects)
        self._check_generations()

    def check_everything(self) -> None:
        """Every object, whether something reaches it or not, and its one accepted form."""
        ids = (one.id for one in self._store.scan())
        done = 0
        while some := list(islice(ids, BATCH)):
            self._check_all(some)
            done += len(some)
            self._tell("reading", done)

    # Spaces.

    def _check_refs(self, space: str) -> None:
        view = self._store.view(space)
        self.refs += len(view.refs)
        self._reach(space, roots(space, view)[0], strict=True)

    def _check_log(self, space: str) -> None:
        view = self._store.view(space)
        self._reach(space, roots(space, view)[1], strict=False)
        refs: dict[str, tuple[ObjectId, int]] = {}
        expected = 0
        for operation in operations(self._store, space, 0):
            expected += 1
            if operation.sequence != expected:
                found = f"operation {operation.sequence} stands in the place of {expected}"
                self._report("bad-log", space, found)
                return
            for name, before, target in operation.moves:
                if before != refs.get(name, (None, 0))[0]:
                    self._report("bad-log", space, f"operation {expected} moves {name} from afar")
                refs.pop(name, None)
                if target is not None:
                    refs[name] = (target, expected)
            if expected == view.sequence:
                self._compare(space, refs, view.refs)
            # What was moved away from may have been collected; what is there must be sound.
            self._reach(space, ends(operation), strict=False)
        self.operations += expected
        if expected < view.sequence:
            self._report("bad-log", space, f"its log ends before operation {view.sequence}")

    def _compare(
        self, space: str, logged: dict[str, tuple[ObjectId, int]], refs: Iterable[Ref]
    ) -> None:
        actual = {ref.name: (ref.target, ref.sequence) for ref in refs}
        for name in sorted(logged.keys() | actual.keys()):
            if logged.get(name) != actual.get(name):
                self._report(
                    "bad-ref", f"{space}/{name}", "it is not where its last operation put it"
                )

    # Objects.

    def _reach(self, space: str, roots: Iterable[ObjectId], strict: bool) -> None:
        for visit in walk(roots, self._store._frames, self._seen):
            self.objects += visit.problem is None
            if self.objects % _TOLD_AFTER == 0:
                self._tell("checking", self.objects)
            if visit.problem is not None:
                if strict or not isinstance(visit.problem, MissingObjects):
                    self._blame(space, visit)
                else:
                    self._seen.discard(visit.id)
            elif visit.object is not None and visit.object.kind == Kind.COMMIT:
                commit = check_commit(visit.object)
                self._commits[visit.id] = commit.generation, commit.parents

    def _blame(self, space: str, visit: Visit) -> None:
        source = f"a ref or operation of {space}" if visit.source is None else visit.source.hex()
        if isinstance(visit.problem, MissingObjects):
            self._report("missing-object", visit.id.hex(), f"it is missing; {source} points to it")
        else:
            self._report("damaged-object", visit.id.hex(), str(visit.problem))

    def _check_generations(self) -> None:
        for id, (generation, parents) in self._commits.items():
            known = [self._commits[parent][0] for parent in parents if parent in self._commits]
            # A parent that is missing was said to be.
            if len(known) == len(parents) and generation != 1 + max(known, default=0):
                message = f"its generation is {generation}, which its parents' do not explain"
                self._report("bad-commit", id.hex(), message)

    def _check_all(self, ids: list[ObjectId]) -> None:
        try:
            for read in read_objects(ids, self._store._frames):
                self._check_object(read)
        except RopewalkError:
            for id in ids:
                self._check_one(id)

    def _check_one(self, id: ObjectId) -> None:
        try:
            (read,) = read_objects([id], self._store._frames)
            self._check_object(read)
        except MissingObjects:
            pass  # Deleted since it was listed, or reported where something points to it.
        except FormatError as error:
            self._report("damaged-object", id.hex(), f"object {id.hex()[:12]}: {error}")
        except RopewalkError as error:
            self._report("damaged-object", id.hex(), str(error))

    def _check_object(self, read: Object) -> None:
        check_links(read)
        if read.kind in _NODES:
            check_canonical(read.payload)
        if not may_be_manifest(read):
            self._verifier.verify(read)

    def _report(self, code: str, subject: str, message: str) -> None:
        self.problems.append(Problem(code, subject, message))
