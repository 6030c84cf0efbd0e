"""Who is inside a transaction of a handle.

A lock makes threads wait for each other. Tasks of one event loop share a thread, so what a
task is inside of is told by its context, which the tasks and threads that it starts share.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from ropewalk.errors import InvalidInput

_entered: Final[ContextVar[frozenset[object]]] = ContextVar(
    "ropewalk_transactions", default=frozenset()
)


class Blocks:
    """The open transactions of one handle, one inside another."""

    def __init__(self) -> None:
        self._depth = 0
        self._mark: object | None = None

    @property
    def are_open(self) -> bool:
        """Whether anybody is inside of one."""
        return self._depth > 0

    def are_own(self) -> bool:
        """Whether whoever asks is inside of them."""
        return self._mark is not None and self._mark in _entered.get()

    def enter(self) -> None:
        """Begin one; raises `InvalidInput` while somebody else is in one."""
        if self._depth and not self.are_own():
            raise InvalidInput(f"a transaction cannot begin here: {_OTHERS}")
        if self._mark is None:
            self._mark = object()
            _entered.set(_entered.get() | {self._mark})
        self._depth += 1

    def leave(self) -> bool:
        """End one; whether it was the outermost."""
        self._depth -= 1
        if self._depth:
            return False
        _entered.set(_entered.get() - {self._mark})
        self._mark = None
        return True

    def refuse_own(self, verb: str) -> None:
        """Raise `InvalidInput` inside of them. Asked before the lock, which may be waited for."""
        if self.are_own():
            raise InvalidInput(
                f"{verb}() has no place in a transaction, which is committed when its block ends"
            )

    def refuse_others(self, verb: str) -> None:
        """Raise `InvalidInput` if another task of this thread is in one."""
        if self._depth:
            raise InvalidInput(f"{verb}() cannot be done now: {_OTHERS}")


_OTHERS: Final = (
    "another task of this event loop is in a transaction of this state. Give each task a handle "
    "of its own: state.session()"
)
