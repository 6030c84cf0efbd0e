"""One commit, as an engine receives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ropewalk.errors import LeaseHeld, LeaseLost
from ropewalk.store.model import Fence, Move, Scalar
from ropewalk.tree.objects import Commit, ObjectId


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
