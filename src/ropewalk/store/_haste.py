"""Callers that are in a hurry: they do not wait for a server that is gone to come back.

An engine tries a lost connection again for as long as a call may take. Whoever has an answer
without the engine had rather be told soon. An answer that is on its way is waited for as
always: a server that is slow is not gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_hurry: ContextVar[float | None] = ContextVar("ropewalk_hurry", default=None)


@contextmanager
def hasty(seconds: float | None) -> Iterator[None]:
    """Within, a lost connection is tried again for so long at most; None: as long as always."""
    token = _hurry.set(seconds)
    try:
        yield
    finally:
        _hurry.reset(token)


def tries_for(seconds: float) -> float:
    """For how long to try a lost connection again, where a call may take so many seconds."""
    hurry = _hurry.get()
    return seconds if hurry is None else min(seconds, hurry)
