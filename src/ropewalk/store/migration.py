"""Migration: everything that the refs of a store lead to, and its logs, in another of any engine.

Each space is followed operation by operation. An operation arrives with the objects that it
brought, under the number, write id, time and metadata that it had; so what has arrived is kept by
its refs from the beginning, and a run that ended early left a store as the source once was. A move
to what the source has collected since is left out. Where a log cannot be followed, one operation
puts the refs where they are: it says up to which operation of the source.

See docs/in-depth/care.md for what is promised.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ropewalk.errors import (
    Conflict,
    Corrupt,
    FormatError,
    InvalidInput,
    MissingObjects,
    RefMoved,
    WriteIdReused,
)
from ropewalk.store.collection import Progress
from ropewalk.store.contract import Store
from ropewalk.store.log import LogStore
from ropewalk.store.model import KEY, MAX_WRITE_ID, MIGRATE, UNDOES, Move, Operation, Scalar
from ropewalk.store.record import BY_HASH, decode_header, ids_in_header, prepare, read_hints
from ropewalk.store.reserved import ALIAS, CONTENT_SPACE, EXPIRES_AT, OWN_SPACE, alias_ref
from ropewalk.store.verification import Problem
from ropewalk.tree import Kind, Object, ObjectId, TreeWriter, links, load, read_commit

if TYPE_CHECKING:
    from ropewalk.store.model import View
    from ropewalk.store.record import Record
    from ropewalk.tree import Commit, Reader

_JUMP: Final = b"migrated"
"""What operations are found by that put refs where they are in the source."""
_ATTEMPTS: Final = 3
"""How often a source may collect what a ref led to when we began."""
_BATCH: Final = 256
_PAGE: Final = 1000
_BATCH_BYTES: Final = 4 << 20

Step = tuple[Operation, dict[ObjectId, Object]]
Refs = dict[str, ObjectId]


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did."""

    objects: int
    """Objects that were copied, each as often as a space of the target has it for itself."""
    bytes: int
    """Bytes of their payloads."""
    present: int
    """Objects of the operations that were replayed that the target had already."""
    spaces: int
    operations: int
    """Operations that were added to the target's logs."""
    lost: tuple[Problem, ...]
    """What is damaged, or missing although something points to it."""
    left: tuple[str, ...]
    """Refs, as `tenant/space/kind/name`, that lead to that and were not moved."""


def migrate(
    source: Store, target: Store, *, keep_going: bool = False, progress: Progress | None = None
) -> Migrated:
    """Copy what the refs of a store lead to, and its logs, into another, of any engine.

    Can be run again: after it was killed it goes on, and later it brings what is new.
    Others may use the source meanwhile; what arrives is the source as it was when this
    began, or later. The source is not changed. Ids stay what they are, and the target
    then answers to the source's backend id.

    References of both stores come together. Raises `Conflict`, with nothing copied, if
    another space has a history of its own in the target. Raises `MissingObjects` or
    `DamagedObject`, after everything else was copied, if a ref leads to an object that
    cannot be read; with `keep_going` such refs stay behind and are listed instead.
    """
    for store in (source, target):
        if not isinstance(store, Store):
            raise InvalidInput(f"migrate takes two stores, not {store!r:.80}")
        store._check_open()
    return _Migration(source, target, progress or (lambda step, done: None)).run(keep_going)


async def amigrate(
    source: Store, target: Store, *, keep_going: bool = False, progress: Progress | None = None
) -> Migrated:
    """The asynchronous twin of `migrate`; it runs on a thread of the target."""
    call = partial(migrate, source, target, keep_going=keep_going, progress=progress)
    return await target._threads.run(call)


class Lost(NamedTuple):
    """An object that cannot be brought, in words and as what to raise."""

    problem: Problem
    error: Corrupt | MissingObjects


class _Migration:
    def __init__(self, source: Store, target: Store, tell: Progress) -> None:
        self.source, self.target, self._tell = source, target, tell
        self.objects = self.bytes = self.present = self.operations = 0
        self.met: set[ObjectId] = set()
        """Shared objects that records led to."""

    def run(self, keep_going: bool) -> Migrated:
        """All spaces, then the names that the source goes by."""
        source = self.source
        moment = {space: source.view(space) for space in source.spaces() if space != OWN_SPACE}
        self._refuse_other_histories(moment)
        lost: list[Lost] = []
        left: list[str] = []
        for space, view in moment.items():
            bringing = (_Contents if space == CONTENT_SPACE else _Log)(self, space)
            left += [f"{space}/{name}" for name in bringing.bring(view)]
            lost += bringing.lost
        self._remember_names()
        if left and not keep_going:
            error = lost[0].error
            error.add_note(
                f"Ref {left[0]} leads to it. All else was copied; restore it in the source and "
                "migrate again, or leave such refs behind with keep_going=True."
            )
            raise error
        problems = tuple(dict.fromkeys([one.problem for one in lost]))
        return Migrated(
            self.objects,
            self.bytes,
            self.present,
            len(moment),
            self.operations,
            problems,
            tuple(left),
        )

    def landed(self, objects: Iterable[Object]) -> None:
        """Count what one operation brought."""
        sizes = [len(one.payload) for one in objects]
        self.objects += len(sizes)
        self.bytes += sum(sizes)
        self.operations += 1
        if sizes:
            self._tell("copying", self.objects)
        self._tell("replaying", self.operations)

    def _refuse_other_histories(self, moment: Mapping[str, View]) -> None:
        strange = [
            space
            for space, view in moment.items()
            if space != CONTENT_SPACE
            and _position(self.source, self.target, space) is None
            and _refs(self.target.view(space)) != _refs(view)
        ]
        if strange:
            shown = ", ".join(strange[:3]) + (" and more" if len(strange) > 3 else "")
            raise Conflict(
                f"{len(strange)} space(s) have a history of their own in the target: {shown}. "
                "Nothing was copied. Migrate into a store without them."
            )

    def _remember_names(self) -> None:
        """Let the target answer to what the source answers to."""
        source, target = self.source, self.target
        read = source.reader(OWN_SPACE)
        remembered = [load(ref.target, read) for ref in source.refs(OWN_SPACE, ALIAS)]
        for name in dict.fromkeys([source.backend_id, *source.backend_aliases, *remembered]):
            # One that it was opened with has to be kept too: next time it may not be given.
            if name != target.backend_id and target.ref(OWN_SPACE, alias_ref(name)) is None:
                written = TreeWriter().write(name)
                move = Move(alias_ref(name), None, written.root)
                target.commit(OWN_SPACE, written.objects, written.needs, [move])


class _Space:
    """One space of the source, and what is known of it in the target."""

    def __init__(self, migration: _Migration, space: str) -> None:
        self.lost: list[Lost] = []
        self._migration, self._space = migration, space
        self._source, self._target = migration.source, migration.target
        self._read = self._source.reader(space)
        self._log, self._into = _log_store(self._source), _log_store(self._target)
        self._known: set[ObjectId] | None = None

    def _absent(self, ids: Sequence[ObjectId]) -> list[ObjectId]:
        """Those of some objects that the target does not have for this space."""
        if self._into is None:
            return self._target.missing(ids, self._space)
        if self._known is None:
            records = self._into.records(self._space)
            self._known = {node.id for one in records for node in one.nodes() if node}
        rest = [id for id in ids if id not in self._known]
        shared = self._into._present_shared(rest)
        return [id for id in rest if id not in shared]

    def _closure(self, roots: Iterable[ObjectId]) -> tuple[dict[ObjectId, Object], list[Lost]]:
        """What some objects lead to and the target does not have, and what of it is lost."""
        return closure(roots, self._read, self._absent)

    def _land(
        self,
        objects: dict[ObjectId, Object],
        moves: Sequence[Move],
        metadata: Mapping[str, Scalar],
        like: Operation | None = None,
    ) -> Operation:
        """Do something in the target; `like` an operation of the source, under its name.

        What it needs and a collection of the target took is brought along. What leads to
        something that cannot be read is left out.
        """
        write_id = None if like is None else like.write_id
        moves, again = list(moves), False
        while True:
            append = prepare(
                self._space,
                objects,
                _needs(objects),
                moves,
                None,
                metadata,
                write_id,
                share=self._space == CONTENT_SPACE,
                step=_step(objects, moves),
                fresh=True,
            )
            if like is not None:
                append.time = like.time
            try:
                done = self._target._land(append)
            except MissingObjects as error:
                self._known = None
                more, lost = self._closure(error.ids)
                gone = set(error.ids).difference(more)
                if not lost and not gone and objects.keys() >= more.keys():
                    raise
                objects = _whole({**more, **objects}, gone)
                moves = [one for one in moves if one.target is None or one.target not in gone]
                moves = [
                    one
                    for one in moves
                    if one.target is None or one.target in objects or not self._absent([one.target])
                ]
                continue
            except WriteIdReused:
                done = None
            if like is None or (done is not None and done.sequence == like.sequence):
                break
            if again:
                raise self._disturbed()
            # The source had forgotten this id when it was used again; the target has not.
            write_id, again = _second_id(like), True
        assert done is not None
        if self._known is not None:
            self._known.update(objects)
        self._migration.landed(objects.values())
        return done

    def _disturbed(self) -> Conflict:
        return Conflict(
            f"somebody else writes to space {self._space} of the target. Let one store be "
            "written at a time, then migrate again."
        )


class _Log(_Space):
    """A space whose log is followed."""

    def bring(self, view: View) -> list[str]:
        """Bring the target to where the view was; the refs that stay behind."""
        for left in reversed(range(_ATTEMPTS)):
            self.lost = []
            if not self._follow(view):
                return []
            behind = self._settle(view)
            now = self._source.view(self._space)
            if not behind or now.sequence == view.sequence or not left:
                break
            view = now  # What the refs led to was collected since: they are elsewhere by now.
        return behind

    def _follow(self, view: View) -> bool:
        """Replay the log; False if there is nothing to be done."""
        reached = _position(self._source, self._target, self._space)
        there = self._target.view(self._space)
        if reached is None:
            if _refs(there) == _refs(view):
                return False
            raise self._disturbed()
        self._refs, self._last = _refs(there), there.sequence
        self._shift = there.sequence - reached
        """How much higher the numbers of operations are in the target."""
        self._jumped = reached if self._shift else 0
        """Up to here, numbers of the source mean nothing in the target."""
        steps = self._records if self._log is not None else self._walked
        for number, step in steps(reached, view.sequence):
            if step is None:
                self._jump(number, [], {})
            else:
                self._replay(*step)
        return True

    def _replay(self, operation: Operation, objects: dict[ObjectId, Object]) -> None:
        moves: list[Move] = []
        for name, _, target in operation.moves:
            before = self._refs.get(name)
            if target != before and target not in self._dead:
                moves.append(Move(name, before, target))
        placed = _placed(operation, operation.sequence + self._shift, self._jumped)
        try:
            self._moved(self._land(objects, moves, placed.metadata, placed))
        except RefMoved as error:
            raise self._disturbed() from error

    def _jump(self, after: int, moves: Sequence[Move], objects: dict[ObjectId, Object]) -> None:
        """Put refs where they are after an operation of the source."""
        metadata: dict[str, Scalar] = {
            MIGRATE: "refs",
            KEY: _JUMP,
            "source": self._source.header.store_id,
            "after": after,
        }
        try:
            done = self._land(objects, moves, metadata)
        except RefMoved as error:
            raise self._disturbed() from error
        self._moved(done)
        self._shift, self._jumped = done.sequence - after, after

    def _moved(self, done: Operation) -> None:
        self._last += 1
        if done.sequence != self._last:
            raise self._disturbed()
        for name, _, target in done.moves:
            if target is None:
                self._refs.pop(name, None)
            else:
                self._refs[name] = target

    def _settle(self, view: View) -> list[str]:
        """Put refs where the view has them, as far as that is whole; those that stay behind."""
        wanted = _refs(view)
        names = sorted(self._refs.keys() | wanted.keys())
        differing = [name for name in names if self._refs.get(name) != wanted.get(name)]
        if not differing:
            return []
        targets = [wanted[name] for name in differing if name in wanted]
        objects, lost = self._closure(targets)
        whole = set(targets).difference(self._absent(targets)) | objects.keys()
        moves = [
            Move(name, self._refs.get(name), wanted.get(name))
            for name in differing
            if name not in wanted or wanted[name] in whole
        ]
        self.lost += lost
        if moves:
            self._jump(view.sequence, moves, objects)
        return [name for name in wanted if self._refs.get(name) != wanted[name]]

    # What operations brought.

    def _walked(self, after: int, last: int) -> Iterator[tuple[int, Step | None]]:
        """The operations of a source that finds objects by their hashes."""
        for operation in operations(self._source, self._space, after, last):
            targets = [move.target for move in operation.moves if move.target is not None]
            step = operation.metadata.get("step")
            objects, _ = self._closure([*targets, *([step] if isinstance(step, bytes) else [])])
            there = set(targets).difference(self._absent(targets))
            self._dead = set(targets).difference(there, objects)
            yield operation.sequence, (operation, objects)

    def _records(self, after: int, last: int) -> Iterator[tuple[int, Step | None]]:
        """The operations of a source that is a log of records; None for one that is damaged."""
        log, space = self._log, self._space
        assert log is not None
        self._dead = self._not_there(after, last)
        for record in _sound(log, space, after, last):
            try:
                if isinstance(record, Corrupt):
                    raise record
                nodes = {node.id: node.object() for node in record.nodes() if node is not None}
                operation = decode_header(space, record)
                shared = self._absent_shared(record)
            except (Corrupt, FormatError) as error:
                number = self._last - self._shift + 1
                error = error if isinstance(error, Corrupt) else Corrupt(str(error))
                self.lost.append(Lost(Problem("bad-log", space, str(error)), error))
                yield number, None
            else:
                yield operation.sequence, (operation, {**shared, **self._new(nodes)})

    def _new(self, nodes: dict[ObjectId, Object]) -> dict[ObjectId, Object]:
        """Those of the nodes of a record that must be sent."""
        if self._into is not None:
            return nodes
        absent = self._target.missing(nodes)
        self._migration.present += len(nodes) - len(absent)
        return {id: nodes[id] for id in nodes if id in set(absent)}

    def _absent_shared(self, record: Record) -> dict[ObjectId, Object]:
        """Shared objects that a record leads to and that the target does not have."""
        named: set[ObjectId] = set()
        for at, piece in enumerate(record.pieces):
            if piece is not None and BY_HASH in read_hints(piece.hints, record.sequence):
                node = record.node(at)
                assert node is not None
                places = node.places(record.sequence)
                named.update(id for id, place in places.items() if place == BY_HASH)
        named -= self._migration.met
        self._migration.met |= named
        if not named:
            return {}
        if self._into is not None:
            absent = named - self._into._present_shared(list(named))
        else:
            absent = set(self._target.missing(named))
        self._migration.present += len(named) - len(absent)
        return self._closure(absent)[0] if absent else {}

    def _not_there(self, after: int, last: int) -> set[ObjectId]:
        """What operations led to and the source has collected since; looked for together."""
        log, named = self._log, set[ObjectId]()
        assert log is not None
        for record in _sound(log, self._space, after, last):
            if not isinstance(record, Corrupt):
                try:
                    named.update(ids_in_header(record.header))
                except (Corrupt, ValueError, TypeError):
                    continue  # It is found again, and said then.
        try:
            return named.difference(log._find_places(self._space, list(named)))
        except Corrupt:
            return set()  # Each is missed where it is needed.


class _Contents(_Space):
    """The pins of references. Those of two stores come together.

    A pin is named by the hash of what it keeps, so the pins of two stores never mean
    different things. Where both have one, the one that lasts longer stays.
    """

    def bring(self, view: View) -> list[str]:
        """Add the pins of a view; those that stay behind."""
        behind: list[str] = []
        moves: list[Move] = []
        objects: dict[ObjectId, Object] = {}
        there = _refs(self._target.view(self._space))
        for name, target, _ in view.refs:
            if not self._lasts_longer(target, there.get(name)):
                continue
            found, lost = self._closure([target])
            if lost:
                self.lost += lost
                behind.append(name)
                continue
            objects.update(found)
            moves.append(Move(name, there.get(name), target))
            if sum([len(one.payload) for one in objects.values()]) > _BATCH_BYTES:
                self._join(moves, objects)
                moves, objects = [], {}
        if moves:
            self._join(moves, objects)
        return behind

    def _lasts_longer(self, pin: ObjectId, other: ObjectId | None) -> bool:
        if other is None or other == pin:
            return other is None
        try:
            (new,), (old,) = self._read([pin]), self._target.reader(self._space)([other])
        except (MissingObjects, Corrupt):
            return True  # Whether it can be brought is seen then.
        ends, end = (read_commit(one).extension.get(EXPIRES_AT) for one in (old, new))
        return ends is not None and (end is None or end > ends)

    def _join(self, moves: list[Move], objects: dict[ObjectId, Object]) -> None:
        while moves:
            try:
                self._land(objects, moves, {MIGRATE: "pins"})
            except RefMoved:  # Somebody assigned the same value meanwhile: look again.
                there = _refs(self._target.view(self._space))
                moves = [
                    Move(name, there.get(name), target)
                    for name, _, target in moves
                    if target is not None and self._lasts_longer(target, there.get(name))
                ]
            else:
                return


def closure(
    roots: Iterable[ObjectId],
    read: Reader,
    absent: Callable[[Sequence[ObjectId]], Sequence[ObjectId]],
) -> tuple[dict[ObjectId, Object], list[Lost]]:
    """What some objects lead to, as far as it is absent elsewhere, and what of it is lost.

    Each after what it leads to; without what leads to something lost.
    """
    found: dict[ObjectId, Object] = {}
    lost: dict[ObjectId, Lost] = {}
    leads: dict[ObjectId, list[ObjectId]] = {}
    above: defaultdict[ObjectId, list[ObjectId]] = defaultdict(list)
    pending = list(absent(list(dict.fromkeys(roots))))
    while pending:
        some, pending = pending[-_BATCH:], pending[:-_BATCH]
        further: dict[ObjectId, None] = {}
        for one in _readable(some, read, above, lost):
            found[one.id] = one
            leads[one.id] = links(one)
            for child in leads[one.id]:
                above[child].append(one.id)
                further[child] = None
        pending += absent([id for id in further if id not in found and id not in lost])
    gone = list(lost)
    for id in gone:  # Grows meanwhile.
        gone += [one for one in above[id] if found.pop(one, None) is not None]
    return {id: found[id] for id in _children_first(found, leads)}, list(lost.values())


def _readable(
    ids: Sequence[ObjectId],
    read: Reader,
    above: Mapping[ObjectId, Sequence[ObjectId]],
    lost: dict[ObjectId, Lost],
) -> Sequence[Object]:
    """Those of some objects that can be read; notes the others."""
    try:
        return read(ids)
    except (MissingObjects, Corrupt):
        found: list[Object] = []
    for id in ids:
        try:
            found += read([id])
        except MissingObjects as error:
            where = f"; {above[id][0].hex()} points to it" if id in above else ""
            lost[id] = Lost(Problem("missing-object", id.hex(), f"it is missing{where}"), error)
        except Corrupt as error:
            lost[id] = Lost(Problem("damaged-object", id.hex(), str(error)), error)
    return found


def _position(source: Store, target: Store, space: str) -> int | None:
    """Up to which operation the target has followed the source; None if it has not."""
    last = target.view(space).sequence
    if not last:
        return 0
    shift = 0
    for number in target.find(space, _JUMP)[-1:]:
        (found,) = target.operations(space, number - 1, 1)
        after = found.metadata.get("after")
        if found.metadata.get("source") != source.header.store_id or not isinstance(after, int):
            return None
        if number == last:
            return after if after <= source.view(space).sequence else None
        shift = number - after
    # A source that was brought back from an older copy knows less than the target.
    if last - shift > source.view(space).sequence:
        return None
    (theirs,) = source.operations(space, last - shift - 1, 1)
    (ours,) = target.operations(space, last - 1, 1)
    if ours.write_id not in (theirs.write_id, _second_id(theirs)) or ours.time != theirs.time:
        return None
    return last - shift


def _sound(log: LogStore, space: str, after: int, last: int) -> Iterator[Record | Corrupt]:
    """The records of a space, and what is wrong where one cannot be read."""
    sequence = after + 1
    while sequence <= last:
        try:
            found = log._stretch(space, sequence, keep=False)
        except Corrupt as error:
            yield error
            sequence += 1
            continue
        for record in found:
            if sequence <= record.sequence <= last:
                yield record
        sequence = found[-1].sequence + 1


def _log_store(store: Store) -> LogStore | None:
    """The log of records that a store is, or that it is in front of."""
    while isinstance(inner := getattr(store, "inner", None), Store):
        store = inner
    return store if isinstance(store, LogStore) else None


def _refs(view: View) -> Refs:
    return {ref.name: ref.target for ref in view.refs}


def _needs(objects: Mapping[ObjectId, Object]) -> list[ObjectId]:
    needed = {id for one in objects.values() for id in links(one)}
    return [id for id in needed if id not in objects]


def _step(objects: Mapping[ObjectId, Object], moves: Sequence[Move]) -> Commit | None:
    """The commit that an operation brings, if it brings one."""
    commits = [one for one in objects.values() if one.kind == Kind.COMMIT]
    moved = {move.target for move in moves}
    found = [one for one in commits if one.id in moved] or commits
    return read_commit(found[-1]) if found else None


def _whole(objects: dict[ObjectId, Object], gone: Collection[ObjectId]) -> dict[ObjectId, Object]:
    """Objects without those that lead to what is gone."""
    dropped = set(gone)
    while True:
        bad = {
            id
            for id, one in objects.items()
            if id not in dropped and not dropped.isdisjoint(links(one))
        }
        if not bad:
            return {id: one for id, one in objects.items() if id not in dropped}
        dropped |= bad


def _children_first(
    found: Mapping[ObjectId, Object], leads: Mapping[ObjectId, Sequence[ObjectId]]
) -> list[ObjectId]:
    done: dict[ObjectId, None] = {}
    for first in found:
        pending = [first]
        while pending:
            id = pending[-1]
            below = [one for one in leads[id] if one in found and one not in done]
            if below and id not in done:
                pending += below
            else:
                done[pending.pop()] = None
    return list(done)


def _placed(one: Operation, sequence: int, after: int) -> Operation:
    """An operation as it is when it gets another number.

    The number of one that it takes back changes with its own. Of what is before the last
    jump nothing can be taken back, and no operation has the number 0.
    """
    named = one.metadata.get(UNDOES)
    if not isinstance(named, int):
        return one._replace(sequence=sequence)
    moved = named + sequence - one.sequence if named > after else 0
    return one._replace(sequence=sequence, metadata={**one.metadata, UNDOES: moved})


def _second_id(one: Operation) -> str:
    return f"again-{one.time}-{one.write_id}"[:MAX_WRITE_ID]


def operations(
    store: Store, space: str, after: int, until: float = math.inf
) -> Iterator[Operation]:
    """All operations of a space from number `after + 1` on, up to number `until`."""
    while after < until and (page := store.operations(space, after, _PAGE)):
        yield from (one for one in page if one.sequence <= until)
        after = page[-1].sequence


def ends(operation: Operation) -> list[ObjectId]:
    """Where an operation moved refs from and to."""
    found = [id for move in operation.moves for id in (move.expected, move.target)]
    return [id for id in found if id is not None]
