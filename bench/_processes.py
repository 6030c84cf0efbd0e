"""The CPU time and memory of other processes, as Linux tells it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICK = os.sysconf("SC_CLK_TCK")


class _Told(NamedTuple):
    parent: int
    seconds: float
    """Its own CPU and that of the children that it waited for."""


def tree_cpu_seconds(root: int) -> float:
    """CPU seconds of a process and of all that it started, also of those that have ended."""
    told = _everybody()
    return sum(told[pid].seconds for pid in _family(root, told) if pid in told)


def _everybody() -> dict[int, _Told]:
    told = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (one := _told(entry)):
            told[int(entry.name)] = one
    return told


def _told(entry: Path) -> _Told | None:
    try:
        # The name of the program comes first, in brackets, and may hold anything.
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return _Told(int(fields[1]), sum(map(int, fields[11:15])) / _TICK)


def tree_memory_bytes(root: int) -> int:
    """The memory of a process and of all that it started, what they share counted once."""
    return sum(map(_proportional, _family(root, _everybody())))


def _family(root: int, told: dict[int, _Told]) -> set[int]:
    family, grown = {root}, True
    while grown:
        more = {pid for pid, one in told.items() if one.parent in family} - family
        family |= more
        grown = bool(more)
    return family


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # It has ended meanwhile.
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
