"""Checking logs of records: everything that was written is there, sound, and leads where it says.

Records are read in order, each once. Of every node the first bytes of its id are remembered, so
that a link can be held against the place that its hint gives.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ropewalk.codec import check_canonical
from ropewalk.errors import Corrupt, FormatError, MissingObjects, RopewalkError
from ropewalk.store.record import (
    BY_HASH,
    MAX_NODES,
    POSITION_BITS,
    Node,
    Record,
    decode_header,
    read_hints,
)
from ropewalk.tree import Commit, Kind, ObjectId, check_commit, check_links, links
from ropewalk.tree.verify import Verifier

if TYPE_CHECKING:
    from ropewalk.store.collection import Progress
    from ropewalk.store.log import LogStore

_TOLD_AFTER: Final = 1000
_NODES: Final = (Kind.VALUE, Kind.ITEMS, Kind.PAIRS)
_BATCH: Final = 256
_PREFIX: Final = 8
"""So many bytes of an id tell nodes apart."""
_GONE: Final = bytes(_PREFIX)
_POSITION: Final = MAX_NODES - 1


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


def check(store: LogStore, read_data: bool, progress: Progress | None) -> Report:
    """Look at a store and say what is wrong with it; changes nothing.

    Every record is read and every node held against its hash, and logs, refs and links against
    each other. With `read_data` also the bytes of shared objects, what several nodes must say
    together for their value to be read, and what the engine can say of its files.
    """
    checker = Checker(store, read_data, progress or (lambda step, done: None))
    for look in (checker.check_engine, checker.check_spaces, checker.check_shared):
        try:
            look()
        except Corrupt as error:
            checker.report("bad-engine", store.backend_id, str(error))
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

    def __init__(self, store: LogStore, read_data: bool, tell: Progress) -> None:
        self.problems: list[Problem] = []
        self.spaces = self.refs = self.operations = self.objects = 0
        self.named: set[ObjectId] = set()
        """Shared objects that records lead to and that were not looked at."""
        self._store, self._read_data, self._tell = store, read_data, tell
        self._verifier = Verifier(store.read) if read_data else None

    def report(self, code: str, subject: str, message: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(code, subject, message))

    def check_engine(self) -> None:
        """What the engine itself can say about its files and tables."""
        for subject, message in self._store._examine(self._read_data):
            self.report("bad-engine", subject, message)

    def check_spaces(self) -> None:
        """Every space: its log, its refs, and what they reach."""
        spaces = self._store.spaces()
        self.spaces = len(spaces)
        for space in spaces:
            try:
                SpaceCheck(self, self._store, space, self._read_data).run()
            except Corrupt as error:
                self.report("bad-log", space, str(error))
        self._tell("checking", self.objects)

    def check_shared(self) -> None:
        """What shared objects lead to; of those that records lead to, if no bytes are read."""
        if not self._read_data:
            while self.named:
                some = [self.named.pop() for _ in range(min(len(self.named), _BATCH))]
                self._check_shared(list(self._store._leading_shared(some)))
            return
        pending: list[ObjectId] = []
        for one in self._store._scan_shared():
            pending.append(one.id)
            if len(pending) == _BATCH:
                self._check_shared(pending)
                pending = []
        self._check_shared(pending)

    def _check_shared(self, ids: list[ObjectId]) -> None:
        led: dict[ObjectId, ObjectId] = {}
        for id in ids:
            try:
                found = self._store._shared_objects([id]).get(id)
                if found is not None:
                    led.update(dict.fromkeys(check_links(found), id))
                    if self._read_data and found.kind in _NODES:
                        check_canonical(found.payload)
                    self.objects += 1
                    if self._verifier is not None:
                        self._verifier.verify(found)
            except MissingObjects:
                pass  # Said below.
            except FormatError as error:
                self.report("damaged-object", id.hex(), f"object {id.hex()[:12]}: {error}")
            except RopewalkError as error:
                self.report("damaged-object", id.hex(), str(error))
        there = self._store._stored_shared(list(led))
        if not self._read_data:
            self.named |= there
        for id, source in led.items():
            if id not in there:
                text = f"it is missing; {source.hex()} points to it"
                self.report("missing-object", id.hex(), text)
        self._tell("reading", self.objects)

    def seen(self, number: int) -> None:
        """Count nodes that were looked at."""
        before = self.objects // _TOLD_AFTER
        self.objects += number
        if self.objects // _TOLD_AFTER != before:
            self._tell("reading" if self._read_data else "checking", self.objects)


class SpaceCheck:
    """One look at a space."""

    def __init__(self, checker: Checker, store: LogStore, space: str, read_data: bool) -> None:
        self._checker, self._store, self._space = checker, store, space
        self._verifier = Verifier(store.reader(space)) if read_data else None
        self._first = array("L", [0])
        """By sequence number, where the nodes of a record begin in the two that follow."""
        self._ids = bytearray(_PREFIX)
        self._generations = array("L", [0])
        self._refs: dict[str, tuple[ObjectId, int]] = {}

    def run(self) -> None:
        """Read the records in order, then compare the refs with what they say."""
        view = self._store._view(self._space, "")
        self._checker.refs += len(view.refs)
        for record in self._store.records(self._space):
            self._first.append(len(self._generations))
            self._check_record(record)
            self._checker.operations += 1
            if record.sequence == view.sequence:
                self._compare({ref.name: (ref.target, ref.sequence) for ref in view.refs})
        places = self._store._find_places(self._space, [ref.target for ref in view.refs])
        self._checker.named.update(id for id, place in places.items() if place == BY_HASH)
        for ref in view.refs:
            if ref.target not in places:
                self._checker.report(
                    "missing-object",
                    ref.target.hex(),
                    f"it is missing; a ref of {self._space} points to it",
                )

    def _check_record(self, record: Record) -> None:
        nodes: list[Node | None] = []
        try:
            nodes = record.nodes()
            operation = decode_header(self._space, record)
        except FormatError as error:
            where = f"record {record.sequence}: {error}"
            self._checker.report("bad-log", self._space, where)
            self._ids += bytes(_PREFIX * len(record.pieces))
            self._generations.extend([0] * len(record.pieces))
            return
        self._ids += b"".join([_GONE if node is None else node.id[:_PREFIX] for node in nodes])
        self._generations.extend([0] * len(nodes))
        for at, node in enumerate(nodes):
            if node is None:
                continue
            # Most values are small: they lead nowhere, and their bytes were held against the hash.
            if (
                self._verifier is None
                and node.kind is Kind.VALUE
                and not node.hints
                and 0xC7 not in node.payload
            ):
                continue
            self._check_node(record, at, node)
        self._checker.seen(len(nodes))
        for name, before, target in operation.moves:
            if before != self._refs.get(name, (None, 0))[0]:
                self._checker.report(
                    "bad-log", self._space, f"operation {record.sequence} moves {name} from afar"
                )
            self._refs.pop(name, None)
            if target is not None:
                self._refs[name] = (target, record.sequence)

    def _check_node(self, record: Record, at: int, node: Node) -> None:
        found = node.object()
        try:
            commit = check_commit(found) if node.kind is Kind.COMMIT else None
            if commit is not None:
                targets = commit.links
            elif self._verifier is None:
                targets = links(found)
            else:
                targets = check_links(found)
                if node.kind in _NODES:
                    check_canonical(node.payload)
            spots: list[int] | None = []
            if targets or node.hints:
                spots = self._follow(record, node, targets)
            if spots is None:
                return
            if commit is not None:
                self._check_generation(record, at, commit, spots)
            elif self._verifier is not None:
                self._verifier.verify(found)
        except MissingObjects:
            return  # Said of the node that leads there.
        except RopewalkError as error:
            text = f"object {node.id.hex()[:12]}: {error}"
            self._checker.report("damaged-object", node.id.hex(), text)

    def _check_generation(self, record: Record, at: int, commit: Commit, spots: list[int]) -> None:
        self._generations[self._first[record.sequence] + at] = commit.generation
        parents = [self._generations[spot] for spot in spots[1 : 1 + len(commit.parents)]]
        if all(parents) and commit.generation != 1 + max(parents, default=0):
            message = f"its generation is {commit.generation}, which its parents' do not explain"
            self._checker.report("bad-commit", commit.id.hex(), message)

    def _follow(self, record: Record, node: Node, targets: list[ObjectId]) -> list[int] | None:
        """Where what is known of the targets of a node stands, 0 for shared ones.

        None if one is missing, which is reported.
        """
        places = read_hints(node.hints, record.sequence)
        if len(places) != len(targets):
            raise FormatError("its hints are not those of its links")
        first, ids = self._first, self._ids
        spots: list[int] = []
        missing: list[ObjectId] = []
        shared: list[ObjectId] = []
        for id, place in zip(targets, places, strict=True):
            if place == BY_HASH:
                shared.append(id)
                spots.append(0)
                continue
            sequence = place >> POSITION_BITS
            spot = first[sequence] + (place & _POSITION) if sequence < len(first) else 0
            if not ids.startswith(id[:_PREFIX], _PREFIX * spot):
                missing.append(id)
            spots.append(spot)
        if shared:
            there = self._store._stored_shared(shared)
            self._checker.named |= there
            missing += [id for id in shared if id not in there]
        for id in missing:
            text = f"it is missing; {node.id.hex()} points to it"
            self._checker.report("missing-object", id.hex(), text)
        if self._verifier is not None and not missing:
            # It reads them next. By their hashes alone it would look through the whole log.
            known = self._store._space(self._space).places
            known.trim()
            known.update(zip(targets, places, strict=True))
        return None if missing else spots

    def _compare(self, actual: dict[str, tuple[ObjectId, int]]) -> None:
        for name in sorted(self._refs.keys() | actual.keys()):
            if self._refs.get(name) != actual.get(name):
                self._checker.report(
                    "bad-ref",
                    f"{self._space}/{name}",
                    "it is not where its last operation put it",
                )
