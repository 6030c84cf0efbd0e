"""Statistics of logs of records: what takes the room, by space, ref and key.

Each space is read once, from its last record back. Links lead to the same or to earlier records
only, so when a node is come to, all that lead to it have said so: which refs reach it, and as
part of which key. What was said of a node is forgotten with it, so that memory follows what the
newest versions hold, however long the log is. Shared objects are looked at after the log.

A node takes its part of the bytes that it is compressed with, in proportion to its length. A node
that holds several keys is divided by the lengths of what each has in it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ropewalk.codec import decode
from ropewalk.errors import Corrupt, MissingObjects, RopewalkError
from ropewalk.store.collection import recent_ends, stretches
from ropewalk.store.record import BY_HASH, POSITION_BITS, Piece, Place, Record, read_hints
from ropewalk.tree import ID_SIZE, Kind, Object, ObjectId, links
from ropewalk.tree.objects import parts_of_commit
from ropewalk.tree.read import divide

if TYPE_CHECKING:
    from ropewalk.store.collection import Progress
    from ropewalk.store.log import LogStore
    from ropewalk.store.model import View

_UNDO: Final = 1
"""In a mask of refs: reached by what can be undone. The bits above are those of the refs."""
_TOP: Final = 1
"""In a role: the node is at the top of a value. The bits above are the row that it belongs to."""
_SEVERAL, _COMMITS, _METADATA, _EVENTS, _VALUE, _STRUCTURE = range(1, 7)
_ROWS: Final = ("", "several", "commits", "metadata", "events", "value", "structure")
_BATCH: Final = 64
_LAYOUTS: Final = 256
_TRIES: Final = 8
_NO_ID: Final = bytes(ID_SIZE)


@dataclass(frozen=True, slots=True)
class KeyStats:
    """What one top-level key takes, over all versions that refs reach."""

    kind: str
    """`key`; or what is none: `value` (values without keys), `structure` (indexes and the
    order of keys), `commits`, `metadata`, `events`, and `several`, for what more than one
    of these share."""
    key: str
    """The key, as text; empty for the other kinds."""
    stored: int


@dataclass(frozen=True, slots=True)
class RefStats:
    """What one ref reaches."""

    name: str
    stored: int
    alone: int
    """Bytes that no other ref of the space reaches."""
    commits: int


@dataclass(frozen=True, slots=True)
class SpaceStats:
    """What the refs of one space reach."""

    name: str
    objects: int
    stored: int
    alone: int
    """Bytes that the refs of no other space reach."""
    payload: int
    commits: int
    operations: int
    refs: tuple[RefStats, ...]
    keys: tuple[KeyStats, ...]
    """The largest first; together they are `stored`."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store holds. `stored` are bytes as they are stored, `payload` those of the objects."""

    objects: int
    stored: int
    payload: int
    reached: int
    """Bytes that refs reach."""
    shared: int
    """Of these, what the refs of more than one space reach."""
    freed: int
    """Objects that a collection would delete now."""
    freed_bytes: int
    commits: int
    """Commits that refs reach."""
    operations: int
    disk: int | None
    """Bytes that the engine takes for everything; None if it cannot say."""
    spaces: tuple[SpaceStats, ...]


def statistics(store: LogStore, recent: int, progress: Progress | None = None) -> Stats:
    """Count what a store holds; changes nothing.

    Raises what a damaged or missing node raises, if something leads to it.
    """
    tell = progress or (lambda step, done: None)
    shared = _Shared(store)
    counted: list[_SpaceCount] = []
    for space in store.spaces():
        one = _counted(store, space, recent, shared)
        shared.own(one.shared, len(counted) + 1)
        one.shared = {}
        counted.append(one)
        tell("reading", sum([one.objects for one in counted]))
    freed, freed_bytes = shared.freed()
    spaces = tuple([one.finished(shared.alone[at]) for at, one in enumerate(counted, 1)])
    return Stats(
        objects=sum([one.objects for one in counted]) + len(shared.stored),
        stored=sum([one.stored for one in counted]) + sum(shared.stored),
        payload=sum([one.payload for one in counted]) + sum(shared.lengths),
        reached=sum([one.private for one in counted]) + sum(shared.alone) + shared.several,
        shared=shared.several,
        freed=sum([one.freed for one in counted]) + freed,
        freed_bytes=sum([one.freed_bytes for one in counted]) + freed_bytes,
        commits=sum([one.commits for one in spaces]),
        operations=sum([one.view.sequence for one in counted]),
        disk=store._disk_bytes(),
        spaces=spaces,
    )


def _counted(store: LogStore, space: str, recent: int, shared: _Shared) -> _SpaceCount:
    """The figures of a space; counted again if a collection ran meanwhile."""
    for left in reversed(range(_TRIES)):
        count = _SpaceCount(space, store._view(space, ""))
        try:
            count.count_records(store, recent)
            count.count_shared(shared)
        except (Corrupt, MissingObjects):
            if not left or store._view(space, "").epoch == count.view.epoch:
                raise
        else:
            break
    return count


class _Group:
    """What the same refs reach."""

    __slots__ = ("commits", "nodes", "payload", "stored")

    def __init__(self) -> None:
        self.nodes = self.stored = self.payload = self.commits = 0


class _Layout(NamedTuple):
    """How a node at the top of a value is divided, and those after it that look the same."""

    keys: list[tuple[int, bytes]]
    """Where in the payload each key stands."""
    rows: list[int]
    sizes: list[int]
    roles: list[int]
    """Of its links, in their order."""
    stored: list[int]
    """The sum of all that are divided so."""

    def fits(self, payload: bytes) -> bool:
        """Whether a payload of the same length has the same keys at the same places."""
        for start, key in self.keys:  # noqa: SIM110 - half as fast as a generator
            if not payload.startswith(key, start):
                return False
        return True


class _SpaceCount:
    """Counts one space."""

    def __init__(self, space: str, view: View) -> None:
        self.space, self.view = space, view
        self.objects = self.stored = self.payload = 0
        """Of all nodes that the space holds."""
        self.private = self.freed = self.freed_bytes = 0
        self.shared: dict[ObjectId, tuple[int, int]] = {}
        """Masks and roles of shared objects."""
        self._masks: dict[Place, int] = {}
        self._roles: dict[Place, int] = {}
        self._groups: dict[int, _Group] = {}
        self._rows: dict[bytes, int] = {}
        """Numbers of rows by their encoded keys, behind those that are of no key."""
        self._amounts: dict[int, int] = {}
        self._layouts: dict[tuple[int, int, int], _Layout] = {}

    # The log.

    def count_records(self, store: LogStore, recent: int) -> None:
        """All records, the last first."""
        space, last = self.space, self.view.sequence
        own, undone = recent_ends(store, space, last, recent)
        targets = [ref.target for ref in self.view.refs]
        places = store._find_places(space, [*targets, *undone])
        missing = [id for id in targets if id not in places]
        if missing:
            raise MissingObjects(sorted(missing))
        for at, id in enumerate(targets):
            self._reach(places[id], id, _UNDO << 1 + at, _TOP)
        for place in own:
            self._reach(place, _NO_ID, _UNDO, 0)
        for id in undone:
            if id in places:
                self._reach(places[id], id, _UNDO, 0)
        for records in stretches(store, space, last):
            for record in reversed(records):
                self._count_record(store, record)

    def _count_record(self, store: LogStore, record: Record) -> None:
        sequence, scale, masks = record.sequence, record.scale, self._masks
        pieces = list(record.pieces)
        leads = [read_hints(one.hints, sequence) if one and one.hints else () for one in pieces]
        for at in _parents_first(sequence, leads):
            place, piece = sequence << POSITION_BITS | at, pieces[at]
            mask = masks.pop(place, 0)
            if piece is None:
                if mask > _UNDO:
                    raise store._lost(self.space, sequence, at)
                continue
            kind, payload, hole, _ = piece
            size, length = piece.stored(scale), len(payload) + (ID_SIZE if hole else 0)
            self.objects += 1
            self.stored += size
            self.payload += length
            if mask:
                self._count_node(kind, piece, leads[at], mask, self._roles.pop(place, 0), size)
                self._add(mask, size, length, kind == Kind.COMMIT)
                self.private += size if mask > _UNDO else 0
            else:
                self.freed += 1
                self.freed_bytes += size

    def _count_node(
        self, kind: int, piece: Piece, leads: Sequence[Place], mask: int, role: int, size: int
    ) -> None:
        """Give a node to its row, and say of what it leads to who reaches that."""
        if not leads and not (role & _TOP and mask > _UNDO):
            self._take(kind, role, size, mask)
            return
        payload, hole = piece.payload, piece.hole
        if hole:
            payload = payload[: hole - 1] + _NO_ID + payload[hole - 1 :]
        found = Object(_NO_ID, Kind(kind), payload)
        ids = links(found) if BY_HASH in leads else [_NO_ID] * len(leads)
        roles = self._divided(found, len(leads), role, size, mask)
        for place, id, then in zip(leads, ids, roles, strict=True):
            self._reach(place, id, mask, then)

    def _reach(self, place: Place, id: ObjectId, mask: int, role: int) -> None:
        """Note who reaches a node, and as what."""
        if mask == _UNDO:
            role = 0
        if place == BY_HASH:
            before, was = self.shared.get(id, (0, 0))
            self.shared[id] = before | mask, _both(was, role)
            return
        masks, roles = self._masks, self._roles
        masks[place] = masks.get(place, 0) | mask
        if role:
            known = roles.get(place)
            roles[place] = role if known is None else _both(known, role)

    def _add(self, mask: int, size: int, length: int, commit: bool) -> None:
        group = self._groups.get(mask)
        if group is None:
            group = self._groups[mask] = _Group()
        group.nodes += 1
        group.stored += size
        group.payload += length
        group.commits += commit

    # Rows.

    def _take(self, kind: int, role: int, size: int, mask: int) -> None:
        """Give the whole of a node to its row."""
        if mask > _UNDO:
            row = _COMMITS if kind == Kind.COMMIT else role >> 1 or _VALUE
            self._amounts[row] = self._amounts.get(row, 0) + size

    def _divided(self, found: Object, count: int, role: int, size: int, mask: int) -> Iterable[int]:
        """Give a node to its rows; the roles of what its links lead to."""
        if found.kind == Kind.COMMIT:
            self._take(found.kind, role, size, mask)
            return _roles_of_commit(found, count)
        if mask == _UNDO or not role & _TOP:
            self._take(found.kind, role, size, mask)
            return [role & ~_TOP] * count
        layout = self._layout(found, count)
        if role == _TOP:
            layout.stored[0] += size
            return layout.roles
        # At the top of a value, and inside one.
        self._take(found.kind, _SEVERAL << 1, size, mask)
        return [_both(then, role & ~_TOP) for then in layout.roles]

    def _layout(self, found: Object, count: int) -> _Layout:
        """How a node is divided: like an earlier one, if its keys stand at the same places."""
        payload = found.payload
        shape = found.kind, len(payload), count
        known = self._layouts.get(shape)
        if known is not None and known.keys and known.fits(payload):
            return known
        if known is not None or len(self._layouts) == _LAYOUTS:
            self._settle()
        division = divide(found)
        other = _STRUCTURE if division.keyed else _VALUE
        rows = [other if one.key is None else self._row(one.key) for one in division.shares]
        roles = dict.fromkeys(division.below, _TOP)
        for row, share in zip(rows, division.shares, strict=True):
            for id in share.links:
                roles[id] = _both(roles.get(id, 0), row << 1)
        sizes = [one.size for one in division.shares]
        keys: list[tuple[int, bytes]] = []
        start = len(payload) - sum(sizes)
        for share in division.shares:
            if share.key is None or not payload.startswith(share.key, start):
                keys = []
                break
            keys.append((start, share.key))
            start += share.size
        made = _Layout(keys, rows, sizes, [roles[id] for id in links(found)], [0])
        self._layouts[shape] = made
        return made

    def _row(self, key: bytes) -> int:
        return self._rows.setdefault(key, len(_ROWS) + len(self._rows))

    def _settle(self) -> None:
        """Divide what nodes take that looked the same."""
        for layout in self._layouts.values():
            (stored,), whole = layout.stored, sum(layout.sizes)
            done = given = 0
            for row, size in zip(layout.rows, layout.sizes, strict=True):
                done += size
                share = stored * done // whole - given
                given += share
                self._amounts[row] = self._amounts.get(row, 0) + share
        self._layouts.clear()

    # Shared objects.

    def count_shared(self, shared: _Shared) -> None:
        """All shared objects that the records lead to."""
        reached = self.shared
        pending = list(reached)
        while pending:
            some, pending = pending[-_BATCH:], pending[:-_BATCH]
            for found in shared.leading(some):
                mask, role = reached[found.id]
                ids = links(found)
                roles = self._divided(found, len(ids), role, 0, mask) if ids else ()
                for id, then in zip(ids, roles, strict=True):
                    before = reached.get(id)
                    self._reach(BY_HASH, id, mask, then)
                    if reached[id] != before:
                        pending.append(id)
        listed = list(reached)
        for start in range(0, len(listed), _BATCH):
            some = listed[start : start + _BATCH]
            tops = [id for id in some if reached[id][1] & _TOP and reached[id][0] > _UNDO]
            opened = {found.id: found for found in shared.leading(tops)}
            for id in some:
                (mask, role), (size, length) = reached[id], shared.sizes(id)
                if id in opened:
                    self._divided(opened[id], len(links(opened[id])), role, size, mask)
                else:
                    self._take(Kind.CHUNK, role, size, mask)
                self._add(mask, size, length, commit=False)

    # What comes of it.

    def finished(self, alone: int) -> SpaceStats:
        """What is said of the space, of which `alone` bytes of shared objects are its own."""
        self._settle()
        reached = [(mask >> 1, one) for mask, one in self._groups.items() if mask > _UNDO]
        names = {number: key for key, number in self._rows.items()}
        keys = [
            KeyStats(_ROWS[row], "", stored)
            if row < len(_ROWS)
            else KeyStats("key", _text(names[row]), stored)
            for row, stored in self._amounts.items()
        ]
        return SpaceStats(
            self.space,
            sum([one.nodes for _, one in reached]),
            sum([one.stored for _, one in reached]),
            self.private + alone,
            sum([one.payload for _, one in reached]),
            sum([one.commits for _, one in reached]),
            self.view.sequence,
            self._refs(reached),
            tuple(sorted(keys, key=lambda row: (-row.stored, row.kind, row.key))),
        )

    def _refs(self, reached: Iterable[tuple[int, _Group]]) -> tuple[RefStats, ...]:
        names = [ref.name for ref in self.view.refs]
        stored, alone, commits = ([0] * len(names) for _ in range(3))
        for mask, group in reached:
            single = mask & (mask - 1) == 0
            for at in _bits(mask):
                stored[at] += group.stored
                commits[at] += group.commits
                alone[at] += group.stored if single else 0
        return tuple(map(RefStats, names, stored, alone, commits))


class _Shared:
    """The shared objects of a store, and which space alone reaches each."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._numbers: dict[ObjectId, int] = {}
        self.stored, self.lengths, self._kinds = array("Q"), array("Q"), bytearray()
        for one in store._scan_shared():
            self._add(one.id, one.kind, one.stored, one.length)
        self._owners = array("l", [0]) * len(self.stored)
        self._kept = bytearray(len(self.stored))
        self.alone: list[int] = [0]
        """By the number of a space."""
        self.several = 0

    def _add(self, id: ObjectId, kind: int, stored: int, length: int) -> None:
        self._numbers[id] = len(self.stored)
        self.stored.append(stored)
        self.lengths.append(length)
        self._kinds.append(kind)

    def sizes(self, id: ObjectId) -> tuple[int, int]:
        """What an object takes, and how long it is."""
        at = self._number(id)
        return self.stored[at], self.lengths[at]

    def leading(self, ids: Sequence[ObjectId]) -> Iterator[Object]:
        """Those of some objects that are no chunks, which lead nowhere and hold no keys."""
        asked = [id for id in ids if self._kinds[self._number(id)] != Kind.CHUNK]
        found = self._store._shared_objects(asked)
        missing = [id for id in asked if id not in found]
        if missing:
            raise MissingObjects(missing)
        return iter(found.values())

    def own(self, reached: Mapping[ObjectId, tuple[int, int]], space: int) -> None:
        """Note what a space reaches."""
        self.alone.append(0)
        for id, (mask, _) in reached.items():
            at = self._number(id)
            self._kept[at] = 1
            if mask == _UNDO:
                continue
            owner, size = self._owners[at], self.stored[at]
            if owner == 0:
                self._owners[at] = space
                self.alone[space] += size
            elif owner > 0:
                self._owners[at] = -1
                self.alone[owner] -= size
                self.several += size

    def freed(self) -> tuple[int, int]:
        """How many objects nothing leads to, and what they take."""
        sizes = [size for size, kept in zip(self.stored, self._kept, strict=True) if not kept]
        return len(sizes), sum(sizes)

    def _number(self, id: ObjectId) -> int:
        try:
            return self._numbers[id]
        except KeyError:
            raise MissingObjects([id]) from None


def _parents_first(sequence: int, leads: Sequence[Sequence[Place]]) -> Iterable[int]:
    """The positions of a record, each before those that it leads to."""
    base = sequence << POSITION_BITS
    if all([place <= base | at for at, some in enumerate(leads) for place in some]):  # noqa: C419
        return range(len(leads) - 1, -1, -1)
    order: dict[int, None] = {}
    for first in range(len(leads)):
        pending = [first]
        while pending:
            at = pending[-1]
            below = [place & (1 << POSITION_BITS) - 1 for place in leads[at] if place >= base]
            further = [one for one in below if one not in order]
            if further and at not in order:
                pending += further
            else:
                order[pending.pop()] = None
    return reversed(order)


def _roles_of_commit(found: Object, count: int) -> list[int]:
    if count == 1:
        return [_TOP]
    parents, metadata, events = parts_of_commit(found)
    roles = [_TOP] + [0] * parents
    roles += [_METADATA << 1] if metadata else []
    return roles + ([_EVENTS << 1] if events else [])


def _both(one: int, other: int) -> int:
    """The role of a node that has these two."""
    row, another = one >> 1, other >> 1
    if row and another and row != another:
        row = _SEVERAL
    return (one | other) & _TOP | (row or another) << 1


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _text(key: bytes) -> str:
    try:
        found = decode(key)
    except RopewalkError:
        return key.hex()  # Of a class that this program did not declare.
    return found if isinstance(found, str) else repr(found)
