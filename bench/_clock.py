"""Clocks, memory and files, and what is made of many figures."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

T = TypeVar("T")

_LOOK_SECONDS = 0.5
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
        self._note(wall, cpu)
        return result

    async def waits(self, action: Callable[[], Awaitable[T]]) -> T:
        """The same for what has to be awaited."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = await action()
        self._note(wall, cpu)
        return result

    def _note(self, wall: float, cpu: float) -> None:
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)


def cpu_seconds() -> float:
    """CPU seconds of this process and of the children it waited for."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


def own_peak_bytes() -> int:
    """The most memory that this program ever held.

    The figure of a process that was started by a large one may begin with what that one held.
    """
    found = _said(Path("/proc/self/status"), "VmHWM:")
    return peak_bytes() if found is None else found


def resident_bytes() -> int:
    """The memory that this process holds now; its peak where the system does not say."""
    found = _said(Path("/proc/self/status"), "VmRSS:")
    return peak_bytes() if found is None else found


def available_bytes() -> int | None:
    """Memory that can still be had on this machine, where the system says so."""
    return _said(Path("/proc/meminfo"), "MemAvailable:")


def _said(file: Path, name: str) -> int | None:
    """The bytes that a file of the system says under a name."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    found = [line for line in lines if line.startswith(name)]
    return int(found[0].split()[1]) * 1024 if found else None


class Bounds:
    """Stops a quadratic side in time: caps of seconds, of memory and of its folder."""

    def __init__(
        self,
        seconds: float,
        memory: int = 4 << 30,
        folder: Path | None = None,
        disk: int = 3_000_000_000,
    ) -> None:
        available = available_bytes()
        self._memory = memory if available is None else min(memory, available * 6 // 10)
        self._ends = time.monotonic() + seconds
        self._seconds = seconds
        self._folder, self._disk = folder, disk
        self._looks = time.monotonic()
        self.largest = 0
        """The most bytes that the folder was seen to hold."""

    def reached(self) -> str | None:
        """Which cap was reached, in words, or None."""
        if time.monotonic() > self._ends:
            return f"its time cap of {self._seconds:.0f} s"
        if peak_bytes() > self._memory:
            return f"its memory cap of {self._memory / 1e9:.1f} GB"
        if self._folder_bytes() > self._disk:
            return f"its disk cap of {self._disk / 1e9:.1f} GB"
        return None

    def _folder_bytes(self) -> int:
        # Now and then: a folder may hold thousands of files.
        if self._folder is None or time.monotonic() < self._looks:
            return 0
        found = folder_bytes(self._folder)
        self._looks = time.monotonic() + _LOOK_SECONDS
        self.largest = max(self.largest, found)
        return found


def folder_bytes(folder: Path) -> int:
    """The sizes of all files in a folder, together."""
    return sum(one.st_size for one in _files(folder))


def block_bytes(folder: Path) -> int:
    """The blocks that the file system gave to a folder, as `du` counts them."""
    return sum(one.st_blocks for one in (folder.stat(), *_files(folder, folders=True))) * 512


def _files(folder: Path, folders: bool = False) -> Iterator[os.stat_result]:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False)
                    continue
                if folders:
                    yield entry.stat(follow_symlinks=False)
                yield from _files(Path(entry.path), folders)
            except FileNotFoundError:
                continue  # A log that was just removed.


MICRO = 1e6


@dataclass(frozen=True)
class Summary:
    """What several repetitions of one measurement say."""

    median: float
    low: float
    high: float
    values: tuple[float, ...]


def summarise(values: Sequence[float]) -> Summary:
    """The median of the values and how far they spread."""
    if not values:
        raise ValueError("there is nothing to summarise")
    return Summary(median(values), min(values), max(values), tuple(values))


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The least-squares slope of `ys` over `xs`."""
    if len(xs) != len(ys) or len(xs) < 2:
        raise ValueError("a slope needs two sequences of the same length, at least 2")
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    if spread == 0:
        raise ValueError("a slope needs at least two different positions")
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread


def buckets(values: Sequence[float], count: int) -> list[tuple[float, float]]:
    """Cut the values into at most `count` runs: (middle position, median) of each."""
    size = max(1, -(-len(values) // count))
    runs = [(at, values[at : at + size]) for at in range(0, len(values), size)]
    return [(at + (len(run) - 1) / 2, median(run)) for at, run in runs]


def growth(seconds: Sequence[float], count: int = 20) -> float:
    """How much longer a step takes for each item already there, in microseconds.

    `seconds[i]` is the time of the step that found `i` items. Medians of runs come
    first, so that a few disturbed steps do not bend the line.
    """
    points = buckets(seconds, count)
    return slope([x for x, _ in points], [y for _, y in points]) * MICRO
