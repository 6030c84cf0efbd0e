"""The pins of references, brought into a store that has references of its own.

A pin is named by the hash of what it keeps, so the pins of two stores never mean
different things. Where both have one, the one that lasts longer stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ropewalk.errors import RefMoved
from ropewalk.store._own import EXPIRES_AT
from ropewalk.store._records import MIGRATE, Move, Operation, Ref, View
from ropewalk.store._replaying import send
from ropewalk.tree import ObjectId, read_commit

if TYPE_CHECKING:
    from ropewalk.store._contract import Store

_PAGE = 256


def join(
    target: Store, space: str, view: View, epoch: int, broken: Collection[ObjectId]
) -> Iterator[Operation]:
    """Add the pins of a view to a space of the target; yields what was done.

    Pins that do not lead to something whole are left out. Raises `EpochRaised` if the
    target's epoch is not the one given.
    """
    sound = [ref for ref in view.refs if ref.target not in broken]
    for start in range(0, len(sound), _PAGE):
        done = _joined(target, space, sound[start : start + _PAGE], epoch)
        if done is not None:
            yield done


def _joined(target: Store, space: str, refs: Sequence[Ref], epoch: int) -> Operation | None:
    while True:
        moves = [move for ref in refs if (move := _move(target, space, ref)) is not None]
        if not moves:
            return None
        try:
            return send(target, space, moves, {MIGRATE: "pins"}, epoch)
        except RefMoved:
            continue  # Somebody assigned the same value meanwhile: look again.


def _move(target: Store, space: str, ref: Ref) -> Move | None:
    actual = target.ref(space, ref.name)
    if actual is None:
        return Move(ref.name, None, ref.target)
    if actual.target == ref.target:
        return None
    here, there = target.read([actual.target, ref.target])
    ends, other = (read_commit(one).extension.get(EXPIRES_AT) for one in (here, there))
    longer = ends is not None and (other is None or other > ends)
    return Move(ref.name, actual.target, ref.target) if longer else None
