"""For stores that do not wait for long, on a machine that may be slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ropewalk.errors import Unavailable

R = TypeVar("R")

PATIENCE = 60.0
"""Seconds after which what is not answered has failed."""


def patiently(call: Callable[[], R]) -> R:
    """What a call gives to a hasty store, once the server is fast enough for it.

    The call may be made several times, so it must be one that can be repeated.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except Unavailable:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def wait_until(done: Callable[[], bool]) -> None:
    """Wait for what another thread does; what has not come after `PATIENCE` has failed."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.001)
