"""A timeline of many small commits: made, read and checked, each in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import ropewalk
from bench._clock import folder_bytes, own_peak_bytes, resident_bytes
from bench._text import Text, small_state


def make(folder: str, commits: int, reads: int) -> dict[str, Any]:
    """Commit a state of 600 bytes in which a number changes, relaxed; says what to read later."""
    timeline = ropewalk.Timeline("bench", ropewalk.SqliteStore(folder, durability="relaxed"))
    state = small_state(Text(1))
    wanted = set(Random(3).sample(range(commits // 2), reads))
    old: list[tuple[str, int]] = []
    before, began = resident_bytes(), time.process_time()
    for number in range(commits):
        state["step"] = number
        made = timeline.checkpoint(state)
        if number in wanted:
            old.append((made.id, number))
    held = resident_bytes() - before
    timeline.store.close()
    return {
        "cpu_us": (time.process_time() - began) / commits * 1e6,
        "writer_mb": held / 1e6,
        "folder_mb": folder_bytes(Path(folder)) / 1e6,
        "newest": (made.id, commits - 1),
        "old": old,
    }


def read(folder: str, id: str, step: int) -> dict[str, float]:
    """Open the timeline, and read one of its checkpoints."""
    made, store = ropewalk.Timeline, ropewalk.SqliteStore  # Imported when they are asked for.
    began = time.perf_counter(), time.process_time()
    timeline = made("bench", store(folder))
    opened = time.perf_counter(), time.process_time()
    found = timeline.get(id).state
    done = time.perf_counter(), time.process_time()
    timeline.store.close()
    assert found["step"] == step, "the checkpoint did not read back"
    return {
        "open_ms": (opened[0] - began[0]) * 1e3,
        "open_cpu_ms": (opened[1] - began[1]) * 1e3,
        "read_ms": (done[0] - opened[0]) * 1e3,
        "read_cpu_ms": (done[1] - opened[1]) * 1e3,
    }


def look(folder: str, verb: str) -> dict[str, float]:
    """`check` or `stats` of the store."""
    with ropewalk.SqliteStore(folder) as store:
        action: Callable[[], Any] = getattr(store, verb)
        before, began = own_peak_bytes(), time.process_time()
        found = action()
        used = time.process_time() - began
    assert verb != "check" or found.ok, f"the store is damaged: {found.problems[:3]}"
    return {
        "cpu_s": used,
        "objects": found.objects,
        "peak_mb": (own_peak_bytes() - before) / 1e6,
    }
