"""Clocks, memory and the bounds of one measured unit."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Stopwatch:
    """Collects the CPU and wall seconds of each call made through it.

    CPU time is that of this process with all its threads.
    """

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []

    def __call__(self, action: Callable[[], T]) -> T:
        wall, cpu = time.perf_counter(), time.process_time()
        result = action()
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)
        return result


def cpu_seconds() -> float:
    """CPU seconds of this process and of the children it waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


def available_bytes() -> int | None:
    """Memory that can still be had on this machine, where the system says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [line for line in lines if line.startswith("MemAvailable:")]
    return int(found[0].split()[1]) * 1024 if found else None


class Bounds:
    """Stops a quadratic side in time: a cap of seconds and a cap of memory."""

    def __init__(self, seconds: float, memory: int = 4 << 30) -> None:
        available = available_bytes()
        self._memory = memory if available is None else min(memory, available * 6 // 10)
        self._ends = time.monotonic() + seconds
        self._seconds = seconds

    def reached(self) -> str | None:
        """Which cap was reached, in words, or None."""
        if time.monotonic() > self._ends:
            return f"its time cap of {self._seconds:.0f} s"
        if peak_bytes() > self._memory:
            return f"its memory cap of {self._memory / 1e9:.1f} GB"
        return None
