"""The clock by which leases are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

steady: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Seconds that only go forward, also while the machine sleeps, where it can tell.

Linux stops `time.monotonic` meanwhile: a lease would be served for as long as it slept.
"""
