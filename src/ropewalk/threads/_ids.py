"""Ids that sort by birth.

48 bits of milliseconds, 20 bits that count, and 52 random bits: 24 characters, of which
the order as text is the order of birth. Within one process each id is greater than the
one before, from any thread, and also while the clock stands still or goes back. Ids of
other processes, forked ones too, differ by chance: the random bits are new for each id.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
_SHIFTS = tuple(range(110, -1, -10))
_RANDOM_BITS = 52
_COUNTER_BITS = 20


class Ticks:
    """Numbers that only grow: milliseconds by a clock in nanoseconds, and a count in them."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin_anew)

    def next(self) -> int:
        """A number that is greater than the one before."""
        at_least = self._clock() // 1_000_000 << _COUNTER_BITS
        with self._lock:
            # A full count runs over into the milliseconds, and order still holds.
            self._last = max(at_least, self._last + 1)
            return self._last

    def _begin_anew(self) -> None:
        # Another thread of the parent may have held the lock, and is not here.
        self._lock = threading.Lock()


_ticks = Ticks(time.time_ns)


def new_id() -> str:
    """A new id: 24 characters, greater than any that this process made before."""
    number = _ticks.next() << _RANDOM_BITS
    number |= int.from_bytes(os.urandom(7), "big") >> 4
    pairs = _PAIRS
    return "".join([pairs[number >> shift & 1023] for shift in _SHIFTS])
