"""One commit, as an engine receives it: checked at the public door, and trusted inside."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import ormsgpack

from ropewalk.errors import InvalidInput, LeaseHeld, LeaseLost
from ropewalk.store.model import (
    KEY,
    MAX_METADATA_BYTES,
    MAX_WRITE_ID,
    SCALARS,
    STEP,
    Fence,
    Move,
    Scalar,
    check_ids,
    check_key,
)
from ropewalk.store.names import check_name, check_space, known_name, known_space
from ropewalk.store.validation import expect, expect_whole
from ropewalk.tree.objects import ID_SIZE, Commit, Kind, Object, ObjectId

MAX_PAYLOAD: Final = 16 * 1024 * 1024
"""The most bytes that one object may hold."""

_ID_TYPES: Final = (bytes, type(None))
_BYTES: Final = frozenset({bytes})
_SIZES: Final = frozenset({ID_SIZE})


@dataclass(slots=True)  # Frozen, it would take five times as long to make.
class Batch:
    """One commit, as an engine receives it: checked. Nobody changes it."""

    space: str
    needs: frozenset[ObjectId]
    """Must be present and not condemned, unless `epoch` is the space's own."""
    targets: frozenset[ObjectId]
    """Where refs will point; must be present and not condemned in any case."""
    moves: tuple[Move, ...]
    fences: tuple[Fence, ...]
    write_id: str
    time: int
    metadata: Mapping[str, Scalar]
    epoch: int | None
    share: bool = False
    """Whether its objects are for every space."""
    step: Commit | None = None
    """The commit that it brings."""
    fresh: bool = False
    """Whether nobody sent a write with its id before."""


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


def check_objects(objects: Iterable[Object]) -> dict[ObjectId, Object]:
    """Objects by id, each once. That they are named by their hashes is trusted."""
    checked: dict[ObjectId, Object] = {}
    for one in objects:
        if not isinstance(one, Object) or type(one.payload) is not bytes:
            raise InvalidInput(f"objects must be Objects with bytes, not {type(one).__name__}")
        id, kind, payload = one[:3]
        if type(kind) is not Kind:
            raise InvalidInput(f"{kind!r} is not a kind of object")
        if len(payload) > MAX_PAYLOAD:
            raise InvalidInput(
                f"an object of {len(payload)} bytes is too large: the most is "
                f"{MAX_PAYLOAD}. Cut it into several."
            )
        if type(id) is not bytes or len(id) != ID_SIZE:
            check_ids([id], "objects")
        checked[id] = one
    return checked


def prepare(  # noqa: PLR0913 - as `Store.commit`
    space: str,
    objects: Mapping[ObjectId, Object],
    needs: Iterable[ObjectId],
    moves: Iterable[Move],
    fence: Fence | Sequence[Fence] | None,
    operation: Mapping[str, Scalar] | None,
    write_id: str | None,
    epoch: int | None,
    *,
    share: bool,
    step: Commit | None,
    fresh: bool,
) -> Batch:
    """A batch; `InvalidInput` for what no store would take."""
    try:
        known_space(space)
    except TypeError:
        check_space(space)
    checked = check_moves(space, moves)
    if epoch is not None and (type(epoch) is not int or epoch < 0):
        expect_whole(epoch, 0, "an epoch")
    if write_id is not None and not fresh:
        check_write_id(write_id)
    if step is not None and not isinstance(step, Commit):
        expect(False, "a step is a Commit", step)
    metadata = {} if operation is None else check_metadata(operation)
    needed = frozenset(needs)
    if not ({*map(type, needed)} <= _BYTES and {*map(len, needed)} <= _SIZES):
        check_ids(needed, "needs")
    targets = frozenset([move.target for move in checked if move.target is not None])
    return Batch(
        space,
        needed.difference(objects),
        targets.difference(objects),
        checked,
        () if fence is None else check_fences(space, fence),
        os.urandom(16).hex() if write_id is None else write_id,
        time.time_ns() // 1000,
        metadata,
        epoch,
        share=share,
        step=step,
        fresh=fresh or write_id is None,
    )


def check_metadata(metadata: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """A copy of an operation's metadata; `InvalidInput` if it cannot be stored."""
    if type(metadata) is not dict and not isinstance(metadata, Mapping):
        raise InvalidInput(f"an operation's metadata is a dict, not {metadata!r:.80}")
    copy = dict(metadata)
    for key, value in copy.items():
        if type(key) is not str or type(value) not in SCALARS:
            raise InvalidInput(
                f"an operation's metadata holds plain values by string; {key!r} is "
                f"{type(value).__name__}. Put larger things into the commit."
            )
    try:
        size = len(ormsgpack.packb(copy))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"an operation's metadata cannot be stored: {error}") from None
    if KEY in copy:
        check_key(copy[KEY])
    if STEP in copy:
        check_ids([copy[STEP]], 'what an operation has as its "step"')  # type: ignore[list-item]
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(
            f"an operation's metadata takes {size} bytes; the most is {MAX_METADATA_BYTES}"
        )
    return copy


def check_moves(space: str, moves: Iterable[Move]) -> tuple[Move, ...]:
    """Ref moves, each name at most once."""
    checked = tuple(moves)
    for move in checked:
        if not isinstance(move, Move):
            raise InvalidInput(
                f"moves is a list of Move(name, expected, target); it holds a {type(move).__name__}"
            )
        try:
            known_name(space, move.name)
        except TypeError:
            check_name(space, move.name)
        for id in move[1:]:
            if type(id) not in _ID_TYPES or (id is not None and len(id) != ID_SIZE):
                check_ids([id], "moves")  # type: ignore[list-item]
    if len(checked) > 1 and len({move.name for move in checked}) != len(checked):
        raise InvalidInput("a commit moves each ref at most once")
    return checked


def check_fences(space: str, fence: Fence | Sequence[Fence]) -> tuple[Fence, ...]:
    """One fence or several."""
    checked: tuple[Fence, ...]
    if isinstance(fence, Iterable) and not isinstance(fence, str | bytes):
        checked = tuple(fence)
    else:
        checked = (fence,)
    for one in checked:
        expect(isinstance(one, Fence), "a fence must be a Fence", one)
        check_name(space, one.name)
        expect_whole(one.token, 0, "the token of a fence")
    return checked


def check_write_id(write_id: str) -> None:
    """Raise `InvalidInput` for a write id of a caller's own that cannot be stored."""
    if not isinstance(write_id, str) or not 1 <= len(write_id) <= MAX_WRITE_ID:
        raise InvalidInput(f"a write id has 1 to {MAX_WRITE_ID} characters, not {write_id!r:.80}")
    if not write_id.isascii() or not write_id.isprintable():
        raise InvalidInput(f"a write id is printable ASCII, not {write_id!r:.80}")
