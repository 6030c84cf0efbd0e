"""Collection in logs of records: what no ref and no recent operation reaches is dropped.

Each space is looked at from its last record back. Links lead to the same or to earlier records
only, so one pass finds what is reached, a segment at a time. Segments of which something is not
reached are written anew without it, under the same numbers, in one swap; the swap raises the
epoch of the space, after which nobody trusts what he knew of it. It gives up if a record that
came since the look builds on what it found dead.

So every node that is there leads only to nodes that are there, and a writer who finds one may
build on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ropewalk.errors import Conflict, Corrupt, MissingObjects
from ropewalk.store.packer import heads_of, pack_whole
from ropewalk.store.record import (
    BY_HASH,
    GROUP,
    POSITION_BITS,
    Place,
    Record,
    ids_in_header,
    moved_in,
    place_of,
    position_of,
    read_hints,
    sequence_of,
    settled_header,
)
from ropewalk.store.reserved import CONTENT_SPACE, NEVER_UNDONE, hash_of
from ropewalk.store.segment import Packed, build, without
from ropewalk.tree.nodes import links

if TYPE_CHECKING:
    from ropewalk.store.log import LogStore
    from ropewalk.store.model import Ref
    from ropewalk.tree.objects import Object, ObjectId

_ATTEMPTS: Final = 8
_PORTION: Final = 4 << 20
_READ_AT_ONCE: Final = 256


Progress = Callable[[str, int], None]
"""Is told what is being done, and how many objects have been dealt with so far."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection found and did."""

    kept: int
    """Objects that stay."""
    kept_bytes: int
    """Bytes that they take."""
    freed: int
    """Objects that were deleted, or would be."""
    freed_bytes: int
    dry_run: bool


class Sweep(NamedTuple):
    """What a look at a space found."""

    last: int
    """The last record that was looked at."""
    epoch: int
    """The epoch of the space then: another collection raises it."""
    kept: int
    kept_bytes: int
    freed: int
    freed_bytes: int
    replaced: list[Packed]
    """Segments without what is dead, under the numbers that they have."""
    dead: dict[int, int]
    """By record, the positions of dead nodes as bits."""
    gone: list[tuple[ObjectId, int]]
    """The ids of dead nodes, with their records."""
    named: set[ObjectId]
    """Shared objects that living nodes lead to."""


def collect(
    store: LogStore, recent: int, grace: float, dry_run: bool, progress: Progress | None
) -> Collected:
    """Delete what no ref and no recent operation reaches; what that freed.

    Raises what a damaged or missing node raises, with nothing of its space deleted: what lies
    behind it cannot be seen.
    """
    tell = progress or (lambda step, done: None)
    kept = kept_bytes = freed = freed_bytes = 0
    named: set[ObjectId] = set()
    sound: set[ObjectId] = set()
    for space in store.spaces():
        found = sweep(store, space, recent, grace, dry_run, sound)
        kept, kept_bytes = kept + found.kept, kept_bytes + found.kept_bytes
        freed, freed_bytes = freed + found.freed, freed_bytes + found.freed_bytes
        named |= found.named
        tell("marking", kept)
    more, size = store._collect_shared(named if dry_run else None)
    there, there_bytes = store._count_shared()
    if dry_run:
        there, there_bytes = there - more, there_bytes - size
    tell("deleting", freed + more)
    return Collected(kept + there, kept_bytes + there_bytes, freed + more, freed_bytes + size,
                     dry_run)  # fmt: skip


def collect_contents(
    store: LogStore, dropped: Sequence[Ref], recent: int, grace: float
) -> tuple[int, int]:
    """Delete what only dropped pins held: how many contents are gone, and their bytes."""
    roots = [bytes.fromhex(hash_of(ref)) for ref in dropped]
    found = sweep(store, CONTENT_SPACE, recent, grace, dry_run=False, sound=set())
    _, size = store._collect_shared(None)
    return len(store.missing(roots)), found.freed_bytes + size


def sweep(
    store: LogStore, space: str, recent: int, grace: float, dry_run: bool, sound: set[ObjectId]
) -> Sweep:
    """Drop what is dead in one space; shared objects that are `sound` need no second look."""
    for attempt in range(_ATTEMPTS):
        # Busy writers go on to build on what was written and left a moment ago: spare that.
        spared = GROUP << attempt if attempt else 0
        if not dry_run:
            pack_whole(store, space)
        moment = store._view(space, "")
        try:
            found = look(store, space, recent, spared, rewrite=not dry_run)
            _expect_shared(store, found.named, sound)
        except (MissingObjects, Corrupt):
            now = store._view(space, "")
            if (now.sequence, now.epoch) == (moment.sequence, moment.epoch):
                raise
            continue  # Another collection took what was dropped meanwhile.
        if dry_run or (not found.dead and not store._names_more(space, found.named)):
            return found
        if grace:
            time.sleep(grace)
        if store._replace(space, found):
            store._forget_space(space)
            return found
    raise Conflict(
        f"{space!r} is written to faster than it can be collected. Nothing of it was deleted: "
        "collect again when there is less work."
    )


def _expect_shared(store: LogStore, named: set[ObjectId], sound: set[ObjectId]) -> None:
    """Raise `MissingObjects` unless shared objects are there with all that they lead to."""
    pending = named - sound
    while pending:
        gone = pending - store._stored_shared(list(pending))
        if gone:
            raise MissingObjects(sorted(gone))
        sound |= pending
        leading = store._shared_objects(list(store._leading_shared(pending)))
        pending = {id for one in leading.values() for id in links(one)} - sound


def unreached(
    store: LogStore, there: Mapping[ObjectId, int], named: set[ObjectId]
) -> dict[ObjectId, int]:
    """Those of some shared objects to which nothing leads that a space names, and their sizes."""
    free = {id: size for id, size in there.items() if id not in named}
    seen: set[ObjectId] = set()
    pending = set(named)
    while free and pending:
        seen |= pending
        leading = list(store._leading_shared(pending))
        pending = set()
        for at in range(0, len(leading), _READ_AT_ONCE):
            some = store._shared_objects(leading[at : at + _READ_AT_ONCE])
            pending.update(id for one in some.values() for id in links(one))
        for id in pending:
            free.pop(id, None)
        pending -= seen
    return free


def look(store: LogStore, space: str, recent: int, spared: int, *, rewrite: bool) -> Sweep:
    """What is reached in a space, and its segments without the rest.

    Of so many last records nothing is dropped.
    """
    store._forget_space(space)  # Another process may have collected it.
    packed, _ = store._span(space)
    view = store._view(space, "")
    last = view.sequence
    alive: dict[int, int] = {}
    named: set[ObjectId] = set()
    _mark(store, space, [ref.target for ref in view.refs], alive, named, strict=True)
    places, ids = recent_ends(store, space, last, recent)
    for place in places:
        alive[sequence_of(place)] = alive.get(sequence_of(place), 0) | 1 << position_of(place)
    _mark(store, space, ids, alive, named, strict=False)
    kept = kept_bytes = freed = freed_bytes = 0
    replaced: list[Packed] = []
    dead: dict[int, int] = {}
    gone: list[tuple[ObjectId, int]] = []
    for records in stretches(store, space, last):
        thin = False
        for record in reversed(records):
            sequence, mask = record.sequence, alive.pop(record.sequence, 0)
            if sequence > min(packed, last - spared) and rewrite:  # And nothing from a tail.
                mask = sum(1 << at for at, one in enumerate(record.pieces) if one is not None)
            mask, scale = _follow(store, space, record, mask, alive, named), record.scale
            for at, piece in enumerate(record.pieces):
                if piece is None:
                    continue
                size = piece.stored(scale)
                if mask >> at & 1:
                    kept, kept_bytes = kept + 1, kept_bytes + size
                else:
                    freed, freed_bytes = freed + 1, freed_bytes + size
                    dead[sequence] = dead.get(sequence, 0) | 1 << at
                    thin = True
        if thin and rewrite:
            gone += [
                (node.id, record.sequence)
                for record in records
                if record.sequence in dead
                for at, node in enumerate(record.nodes())
                if node is not None and dead[record.sequence] >> at & 1
            ]
            replaced.append(_without_dead(space, records, dead))
    return Sweep(
        last, view.epoch, kept, kept_bytes, freed, freed_bytes, replaced, dead, gone, named
    )


def carried(store: LogStore, space: str, ids: list[ObjectId]) -> Iterator[list[Object]]:
    """The nodes of a space that some of its nodes lead to, in portions, what was first first."""
    alive: dict[int, int] = {}
    reached: list[tuple[int, int]] = []
    _mark(store, space, ids, alive, set(), strict=True)
    for records in stretches(store, space, max(alive, default=0)):
        for record in reversed(records):
            mask = alive.pop(record.sequence, 0)
            if mask:
                mask = _follow(store, space, record, mask, alive, set())
                reached.append((record.sequence, mask))
        if not alive:
            break
    portion: list[Object] = []
    size = 0
    for sequence, mask in reversed(reached):
        for at, node in enumerate(store._record(space, sequence).nodes()):
            if mask >> at & 1:
                assert node is not None
                portion.append(node.object())
                size += len(node.payload)
        if size > _PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def recent_ends(
    store: LogStore, space: str, last: int, recent: int
) -> tuple[list[Place], list[ObjectId]]:
    """What the last operations of a space lead to, as far as they can be undone.

    First nodes of their own records, then the ids of others, which may be gone.
    """
    places: list[Place] = []
    ids: dict[ObjectId, None] = {}
    end = 0 if space in NEVER_UNDONE else recent
    for records in stretches(store, space, last) if end else ():
        for record in reversed(records):
            if record.sequence <= last - end:
                return places, list(ids)
            places += [place_of(record.sequence, at) for _, at in moved_in(record)]
            named = ids_in_header(record.header)
            if named:
                own = {node.id: at for at, node in enumerate(record.nodes()) if node is not None}
                places += [place_of(record.sequence, own[id]) for id in named if id in own]
                ids.update((id, None) for id in named if id not in own)
    return places, list(ids)


def stretches(store: LogStore, space: str, last: int) -> Iterator[list[Record]]:
    """The records of a space, a segment or a group at a time, from the last one back."""
    while last > 0:
        records = [one for one in store._stretch(space, last, keep=False) if one.sequence <= last]
        last = records[0].sequence - 1
        yield records


def _mark(
    store: LogStore,
    space: str,
    ids: list[ObjectId],
    alive: dict[int, int],
    named: set[ObjectId],
    *,
    strict: bool,
) -> None:
    """Mark where roots are."""
    places = store._find_places(space, ids)
    missing = [id for id in ids if id not in places]
    if missing and strict:
        raise MissingObjects(sorted(missing))
    for id, place in places.items():
        if place == BY_HASH:
            named.add(id)
        else:
            node = store._node(space, id, place)  # That it is what it should be.
            if node is None and strict:
                raise MissingObjects([id])
            if node is not None:
                alive[sequence_of(place)] = alive.get(sequence_of(place), 0) | (
                    1 << position_of(place)
                )


def _follow(
    store: LogStore,
    space: str,
    record: Record,
    mask: int,
    alive: dict[int, int],
    named: set[ObjectId],
) -> int:
    """Mark what living nodes of a record lead to; which of its nodes live, as bits."""
    sequence = record.sequence
    pending = [at for at in range(len(record.pieces)) if mask >> at & 1]
    while pending:
        at = pending.pop()
        piece = record.pieces[at] if at < len(record.pieces) else None
        if piece is None:
            raise store._lost(space, sequence, at)
        if not piece.hints:
            continue
        places = read_hints(piece.hints, sequence)
        if BY_HASH in places:
            node = record.node(at)
            assert node is not None
            named.update(id for id, place in node.places(sequence).items() if place == BY_HASH)
        for place in places:
            there, position = place >> POSITION_BITS, position_of(place)
            if place == BY_HASH:
                continue
            if there == sequence:
                if not mask >> position & 1:
                    mask |= 1 << position
                    pending.append(position)
            else:
                alive[there] = alive.get(there, 0) | 1 << position
    return mask


def _without_dead(space: str, records: list[Record], dead: dict[int, int]) -> Packed:
    kept: list[Record] = []
    for record in records:
        mask = dead.get(record.sequence, 0)
        if not mask:
            kept.append(record)
            continue
        header = settled_header(record, lambda at, mask=mask: not mask >> at & 1)  # type: ignore[misc]
        kept.append(
            without(record, header, lambda place, mask=mask: not mask >> position_of(place) & 1)  # type: ignore[misc]
        )
    return build(space, kept, heads_of(kept))


def touches(records: Iterable[Record], dead: dict[int, int], gone: set[ObjectId]) -> bool:
    """Whether records lead to nodes that were found dead."""
    for record in records:
        for piece in record.pieces:
            if piece is not None and piece.hints:
                for place in read_hints(piece.hints, record.sequence):
                    if dead.get(sequence_of(place), 0) >> position_of(place) & 1:
                        return True
        if not gone.isdisjoint(ids_in_header(record.header)):
            return True
    return False


def names_of(records: Iterable[Record]) -> set[ObjectId]:
    """The shared objects that records lead to."""
    named: set[ObjectId] = set()
    for record in records:
        named.update(ids_in_header(record.header))
        for node in record.nodes():
            if node is not None and node.hints:
                places = node.places(record.sequence)
                named.update(id for id, place in places.items() if place == BY_HASH)
    return named
