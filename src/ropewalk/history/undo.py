"""Which operation `undo` and `redo` mean, from the log alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ropewalk.store import Move, Operation

UNDOES = "undoes"
"""The key, in an operation's metadata, for the number of the operation that it takes back."""

REDOES = "redoes"
"""The same, for the number of the operation that a redo brings back."""

REDO = "redo"


def last_done(newest_first: Iterable[Operation]) -> Operation | None:
    """The newest operation that moved refs and was not undone; None if there is none."""
    undone: set[object] = set()
    for operation in newest_first:
        if operation.arrived:
            return None
        taken_back = operation.metadata.get(UNDOES)
        if taken_back is not None:
            # One that was taken back itself takes nothing back.
            if operation.sequence not in undone:
                undone.add(taken_back)
        elif operation.moves and operation.sequence not in undone:
            return operation
    return None


def last_undone(newest_first: Iterable[Operation]) -> Operation | None:
    """The newest undo that was not redone; None if there is none, or if work went on."""
    redone: set[object] = set()
    for operation in newest_first:
        if operation.arrived:
            return None
        taken_back = operation.metadata.get(UNDOES)
        if taken_back is None:
            if operation.moves:
                return None
        elif operation.metadata.get("action") == REDO:
            redone.add(taken_back)
        elif operation.sequence not in redone:
            return operation
    return None


def inverse(operation: Operation) -> list[Move]:
    """The moves that put refs back where an operation found them."""
    return [Move(name, target, expected) for name, expected, target in operation.moves]
