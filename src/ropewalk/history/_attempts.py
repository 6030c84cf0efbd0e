"""Trying again: how long to wait when somebody else was faster, and when to give up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from ropewalk.errors import StoreClosed, Unavailable
from ropewalk.store._haste import tries_for

R = TypeVar("R")

_FIRST, _LONGEST = 0.0005, 0.02
_RESENDS = 3
_SOON = 5.0
"""Whoever has waited longer than this for an answer sends only once more."""


class Backoff:
    """Waits of random length, longer with each attempt up to a bound.

    Whoever lost a race waits a little, and two who lost together do not keep step.
    """

    def __init__(self) -> None:
        self._span = _FIRST

    def wait(self) -> None:
        """Let others finish."""
        time.sleep(random.uniform(0, self._span))  # noqa: S311
        self._span = min(2 * self._span, _LONGEST)


def sent(send: Callable[[], R]) -> R:
    """Send a write that bears a write id, and again if no answer came.

    The store recognises a write that it has, so sending again is harmless, and tells
    whether the first one was done. Raises `Unavailable` when no answer comes at all: the
    write may have been done then. A server that is silent is asked twice, not for ever.
    """
    began = time.monotonic()
    for attempt in range(_RESENDS):
        try:
            return send()
        except StoreClosed:
            raise
        except Unavailable:
            if time.monotonic() - began > tries_for(_SOON):
                break
            time.sleep(_FIRST * 4**attempt)
    return send()
