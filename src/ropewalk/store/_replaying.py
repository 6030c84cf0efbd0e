"""The log of a space, replayed in another store.

Operations keep their moves, write ids, times and metadata. Where the log cannot be
followed from where the target stands, because what it led to was collected, one
operation jumps: it puts the refs where they were, and says after which operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.errors import MissingObjects, WriteIdReused
from ropewalk.store._collecting import ends, operations
from ropewalk.store._decide import digest_of
from ropewalk.store._prepare import prepare
from ropewalk.store._records import (
    MAX_WRITE_ID,
    MIGRATE,
    UNDOES,
    Move,
    Operation,
    Scalar,
    View,
    encode_operation,
)
from ropewalk.tree import ID_SIZE, ObjectId

if TYPE_CHECKING:
    from ropewalk.store._contract import Store

_PAGE = 256
_NO_OBJECT = bytes(ID_SIZE)
"""No object has this name, so who needs it is refused, unless its epoch is still the space's."""

Refs = dict[str, ObjectId]
Whole = Callable[[Iterable[ObjectId]], set[ObjectId]]
"""Those of some ids from which everything can be reached that they lead to."""


class EpochRaised(Exception):
    """A collection ran in the target: what was there may be gone. Nothing was changed."""


class Plan(NamedTuple):
    """How a space's log can be followed."""

    after: int
    """The number of the last operation that is left out."""
    refs: Refs
    """Where the refs were then."""


def refs_of(view: View) -> Refs:
    """Where the refs of a view are."""
    return {ref.name: ref.target for ref in view.refs}


def position(source: Store, target: Store, space: str) -> int | None:
    """Up to which operation the target has followed the source; None if it has not."""
    reached = after = 0
    expected = operations(source, space, 0)
    for found in operations(target, space, 0):
        jumped = _jumped(found, source)
        if jumped is None:
            if not _same(found, next(expected, None), after):
                return None
            reached += 1
        else:
            reached = after = jumped
            expected = operations(source, space, reached)
    # A source that was brought back from an older copy knows less than the target.
    return reached if reached <= source.view(space).sequence else None


def replay(
    source: Store, target: Store, space: str, view: View, epoch: int, whole: Whole
) -> Iterator[Operation]:
    """Bring a space of the target to where the view saw it; yields what was done.

    Refs that do not lead to something whole stay where they are. Raises `EpochRaised`
    if the target's epoch is not the one given.
    """
    reached = position(source, target, space)
    assert reached is not None, "another history must have been refused before"
    if reached > view.sequence:
        return  # Another migration came later and was faster.
    last = target.view(space).sequence
    plan = _plan(source, space, reached, view, whole)
    actual = refs_of(target.view(space))
    wanted = plan.refs | {
        name: actual[name] for name in actual.keys() - plan.refs if name in refs_of(view)
    }
    if plan.after > reached or actual != wanted:
        metadata: dict[str, Scalar] = {
            MIGRATE: "refs",
            "source": source.header.store_id,
            "after": plan.after,
        }
        yield send(target, space, _moves(actual, wanted), metadata, epoch)
        last += 1
    for one in islice(operations(source, space, plan.after), view.sequence - plan.after):
        last += 1
        yield _send_like(target, _placed(one, last, plan.after), epoch)


def _plan(source: Store, space: str, reached: int, view: View, whole: Whole) -> Plan:
    """The most operations that can be replayed, and where they begin."""
    after = reached
    first: dict[str, ObjectId | None] = {}
    """Where each ref was before the first of the operations moved it."""
    log = islice(operations(source, space, reached), view.sequence - reached)
    while page := list(islice(log, _PAGE)):
        sound = whole({id for one in page for id in ends(one)})
        for one in page:
            if not sound.issuperset(ends(one)):
                after = one.sequence
                first.clear()
                continue
            for name, expected, _ in one.moves:
                first.setdefault(name, expected)
    refs = refs_of(view)
    sound = whole(refs.values())
    states = {name: id for name, id in refs.items() if id in sound} | first
    return Plan(after, {name: id for name, id in states.items() if id is not None})


def _moves(actual: Refs, wanted: Refs) -> list[Move]:
    names = sorted(actual.keys() | wanted.keys())
    moves = [Move(name, actual.get(name), wanted.get(name)) for name in names]
    return [move for move in moves if move.expected != move.target]


def _placed(one: Operation, sequence: int, after: int) -> Operation:
    """An operation as it is when it gets another number.

    The number of one that it takes back changes with its own. Of what is before the last
    jump nothing can be taken back, and no operation has the number 0.
    """
    named = one.metadata.get(UNDOES)
    if not isinstance(named, int):
        return replace(one, sequence=sequence)
    moved = named + sequence - one.sequence if named > after else 0
    return replace(one, sequence=sequence, metadata={**one.metadata, UNDOES: moved})


def _send_like(target: Store, one: Operation, epoch: int) -> Operation:
    """Do in the target what an operation did in the source."""
    try:
        done = send(target, one.space, one.moves, one.metadata, epoch, one.write_id, one.time)
        if done.sequence == one.sequence:
            return done
    except WriteIdReused:
        pass
    # The source had forgotten this id when it was used again; the target has not.
    again = _second_id(one)
    return send(target, one.space, one.moves, one.metadata, epoch, again, one.time)


def _second_id(one: Operation) -> str:
    return f"again-{one.time}-{one.write_id}"[:MAX_WRITE_ID]


def send(
    target: Store,
    space: str,
    moves: Iterable[Move],
    metadata: Mapping[str, Scalar],
    epoch: int,
    write_id: str | None = None,
    time: int | None = None,
) -> Operation:
    """Move refs; raises `EpochRaised` if the target's epoch is not the one given."""
    batch = prepare(space, {}, [_NO_OBJECT], moves, None, metadata, write_id, epoch)
    batch.digest = digest_of(space, (), batch.moves, batch.metadata)
    try:
        return target._commit(batch if time is None else replace(batch, time=time))
    except MissingObjects as error:
        if _NO_OBJECT in error.ids:
            raise EpochRaised from error
        raise


def _jumped(operation: Operation, source: Store) -> int | None:
    found = operation.metadata
    after = found.get("after")
    ours = operation.arrived and found.get("source") == source.header.store_id
    return after if ours and isinstance(after, int) else None


def _same(one: Operation, other: Operation | None, after: int) -> bool:
    """Whether an operation of the target is this one of the source, by their bytes."""
    if other is None or one.write_id not in (other.write_id, _second_id(other)):
        return False
    placed = _placed(other, one.sequence, after)
    alike = replace(placed, epoch=one.epoch, write_id=one.write_id)
    return encode_operation(one) == encode_operation(alike)
