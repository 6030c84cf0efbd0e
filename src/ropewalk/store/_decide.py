"""What a commit may do, decided from what a store holds: pure, and the same for every engine.

An engine locks the space (or opens its transaction), gathers `Facts`, calls `decide`,
and applies the `Decision`. An engine that does all of it in one statement or script
must come to the same decisions, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

import ormsgpack

from ropewalk.errors import LeaseHeld, LeaseLost, MissingObjects, RefMoved, WriteIdReused
from ropewalk.store._framing import Framed
from ropewalk.store._order import Below
from ropewalk.store._records import Fence, Move, Operation, Scalar
from ropewalk.tree.commits import Commit
from ropewalk.tree.objects import ObjectId


class Reframe(Exception):
    """These objects must be framed without a base; nothing was changed.

    No error: the commit frames them again and goes on.
    Their base is missing, condemned or deeper than thought; or they are condemned
    themselves, and what takes a condemned object's place must stand alone.
    """

    def __init__(self, ids: Iterable[ObjectId]) -> None:
        super().__init__()
        self.ids = frozenset(ids)


class Presence(NamedTuple):
    """What a store knows of an object that it holds."""

    depth: int
    condemned: bool


class Recorded(NamedTuple):
    """A write that a space remembers."""

    digest: bytes
    operation: Operation


@dataclass(slots=True)  # Frozen, it would take five times as long to make.
class Batch:
    """One commit, as an engine receives it: checked, named and framed. Nobody changes it."""

    space: str
    frames: Sequence[Framed]
    needs: frozenset[ObjectId]
    """Must be present and not condemned, unless `epoch` is the space's own."""
    targets: frozenset[ObjectId]
    """Where refs will point; must be present and not condemned in any case."""
    moves: tuple[Move, ...]
    fences: tuple[Fence, ...]
    write_id: str
    digest: bytes
    """Tells one write from another that took its id."""
    time: int
    metadata: Mapping[str, Scalar]
    epoch: int | None
    below: Below = field(default_factory=dict)
    """What the objects point to among themselves, for an engine that asks for it."""
    share: bool = False
    """Whether its objects are for every space."""
    step: Commit | None = None
    """The commit that it brings."""
    fresh: bool = False
    """Whether nobody sent a write with its id before."""

    def with_frames(self, frames: Sequence[Framed]) -> Batch:
        """The same commit with its objects; `dataclasses.replace` takes three times as long."""
        return Batch(
            self.space,
            frames,
            self.needs,
            self.targets,
            self.moves,
            self.fences,
            self.write_id,
            self.digest,
            self.time,
            self.metadata,
            self.epoch,
            self.below,
        )

    def required(self, epoch: int) -> frozenset[ObjectId]:
        """What must be present on a space of this epoch."""
        return self.targets if self.epoch == epoch else self.needs | self.targets

    def asks(self, epoch: int) -> set[ObjectId]:
        """Every object whose presence `decide` will want to know."""
        asked = set(self.required(epoch))
        for framed in self.frames:
            asked.add(framed.id)
            if framed.base is not None:
                asked.add(framed.base)
        return asked


class Facts(NamedTuple):
    """What a space and its store hold, as far as one batch asks."""

    sequence: int
    epoch: int
    recorded: Recorded | None
    """The write that has the batch's write id."""
    refs: Mapping[str, ObjectId]
    tokens: Mapping[str, int]
    """The tokens of the leases that are held, by name."""
    present: Mapping[ObjectId, Presence]


class Decision(NamedTuple):
    """What to apply: nothing if the write is `repeated`."""

    operation: Operation
    frames: tuple[Framed, ...]
    """What to store, in the place of a condemned frame too; the rest is there already."""
    repeated: bool


def decide(batch: Batch, facts: Facts) -> Decision:
    """What a commit does; raises `WriteIdReused`, `LeaseLost` or `LeaseHeld`, `RefMoved`,
    `MissingObjects` or `Reframe`, in this order of precedence."""
    if facts.recorded is not None:
        check_repeated(batch, facts.recorded)
        return Decision(facts.recorded.operation, (), True)
    _check_fences(batch, facts.tokens)
    _check_moves(batch, facts.refs)
    frames = tuple(one for one in batch.frames if not _alive(one.id, facts.present))
    storing = {one.id for one in frames}
    alive = {id for id, found in facts.present.items() if not found.condemned}
    absent = batch.required(facts.epoch) - alive - storing
    if absent:
        raise MissingObjects(sorted(absent))
    _check_bases(frames, storing, facts.present)
    return Decision(operation_of(batch, facts.sequence + 1, facts.epoch), frames, False)


def check_repeated(batch: Batch, recorded: Recorded) -> None:
    """Raise `WriteIdReused` unless the recorded write is this one."""
    if recorded.digest != batch.digest:
        raise WriteIdReused(
            f"write id {batch.write_id!r} stands for operation {recorded.operation.sequence} of "
            f"{batch.space!r}, which was another write. Take a new write id for a new write."
        )


def operation_of(batch: Batch, sequence: int, epoch: int) -> Operation:
    """The operation that a batch becomes."""
    return Operation(
        batch.space, sequence, batch.moves, batch.write_id, batch.time, epoch, batch.metadata
    )


def digest_of(
    space: str,
    objects: Iterable[ObjectId],
    moves: Iterable[Move],
    metadata: Mapping[str, Scalar],
) -> bytes:
    """What a write is, apart from how it is sent: needs, fence and epoch may differ."""
    listed = [space, sorted(objects), [list(move) for move in moves], sorted(metadata.items())]
    return sha256(ormsgpack.packb(listed)).digest()


def _check_fences(batch: Batch, tokens: Mapping[str, int]) -> None:
    for fence in batch.fences:
        if tokens.get(fence.name, 0) != fence.token:
            raise fenced_off(batch.space, fence)


def fenced_off(space: str, fence: Fence) -> LeaseLost | LeaseHeld:
    """What a fence that does not hold raises."""
    if fence.token == 0:
        return LeaseHeld(
            f"somebody holds lease {fence.name!r} of {space!r}, and only its holder may write. "
            "Nothing was written; try again when it was given back, or acquire it."
        )
    return LeaseLost(
        f"lease {fence.name!r} of {space!r} is no longer held with token {fence.token}. Nothing "
        "was written; acquire the lease again."
    )


def _check_moves(batch: Batch, refs: Mapping[str, ObjectId]) -> None:
    for move in batch.moves:
        actual = refs.get(move.name)
        if actual != move.expected:
            raise RefMoved(move.name, move.expected, actual)


def _alive(id: ObjectId, present: Mapping[ObjectId, Presence]) -> bool:
    found = present.get(id)
    return found is not None and not found.condemned


def _check_bases(
    frames: Iterable[Framed], storing: set[ObjectId], present: Mapping[ObjectId, Presence]
) -> None:
    wrong: list[ObjectId] = []
    for framed in frames:
        if framed.base is None:
            continue
        base = present.get(framed.base)
        usable = framed.base in storing or (
            base is not None and not base.condemned and base.depth < framed.depth
        )
        if framed.id in present or not usable:
            wrong.append(framed.id)
    if wrong:
        raise Reframe(wrong)
