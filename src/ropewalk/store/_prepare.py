"""What is checked of a commit before any engine sees it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence

from ropewalk.errors import InvalidInput
from ropewalk.store._checks import expect, expect_whole
from ropewalk.store._decide import Batch, digest_of
from ropewalk.store._frames import MAX_PAYLOAD
from ropewalk.store._names import check_name, check_space
from ropewalk.store._records import (
    MAX_WRITE_ID,
    Fence,
    Move,
    Scalar,
    check_ids,
    check_metadata,
)
from ropewalk.tree._objects import Kind, Object, ObjectId


def prepare(
    space: str,
    objects: Mapping[ObjectId, Object],
    needs: Iterable[ObjectId],
    moves: Iterable[Move],
    fence: Fence | Sequence[Fence] | None,
    operation: Mapping[str, Scalar] | None,
    write_id: str | None,
    epoch: int | None,
) -> Batch:
    """A batch without its frames; `InvalidInput` for what no store would take."""
    check_space(space)
    checked = check_moves(space, moves)
    if epoch is not None:
        expect_whole(epoch, 0, "an epoch")
    metadata = check_metadata({} if operation is None else operation)
    targets = frozenset(move.target for move in checked if move.target is not None)
    return Batch(
        space=space,
        frames=(),
        needs=frozenset(check_ids(needs, "needs")).difference(objects),
        targets=targets.difference(objects),
        moves=checked,
        fences=check_fences(space, fence),
        write_id=check_write_id(write_id),
        digest=digest_of(space, objects, checked, metadata),
        time=time.time_ns() // 1000,
        metadata=metadata,
        epoch=epoch,
    )


def check_objects(objects: Iterable[Object]) -> dict[ObjectId, Object]:
    """Objects by id, each once. That they are named by their hashes is trusted."""
    checked: dict[ObjectId, Object] = {}
    for one in objects:
        if not isinstance(one, Object) or type(one.payload) is not bytes:
            raise InvalidInput(f"objects must be Objects with bytes, not {type(one).__name__}")
        if not isinstance(one.kind, Kind):
            raise InvalidInput(f"{one.kind!r} is not a kind of object")
        if len(one.payload) > MAX_PAYLOAD:
            raise InvalidInput(
                f"an object of {len(one.payload)} bytes is too large: the most is "
                f"{MAX_PAYLOAD}. Cut it into several."
            )
        checked[one.id] = one
    check_ids(checked, "objects")
    check_ids([one.base for one in checked.values() if one.base is not None], "bases")
    return checked


def check_moves(space: str, moves: Iterable[Move]) -> tuple[Move, ...]:
    """Ref moves, each name at most once."""
    checked = tuple(moves)
    for move in checked:
        if not isinstance(move, Move):
            raise InvalidInput(
                f"moves is a list of Move(name, expected, target); it holds a {type(move).__name__}"
            )
        check_name(space, move.name)
        check_ids([id for id in (move.expected, move.target) if id is not None], "moves")
    if len({move.name for move in checked}) != len(checked):
        raise InvalidInput("a commit moves each ref at most once")
    return checked


def check_fences(space: str, fence: Fence | Sequence[Fence] | None) -> tuple[Fence, ...]:
    """One fence, several or none."""
    if fence is None:
        return ()
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


def check_write_id(write_id: str | None) -> str:
    """A write id, made here if the caller has none."""
    if write_id is None:
        return os.urandom(16).hex()
    if not isinstance(write_id, str) or not 1 <= len(write_id) <= MAX_WRITE_ID:
        raise InvalidInput(f"a write id has 1 to {MAX_WRITE_ID} characters, not {write_id!r:.80}")
    if not write_id.isascii() or not write_id.isprintable():
        raise InvalidInput(f"a write id is printable ASCII, not {write_id!r:.80}")
    return write_id
