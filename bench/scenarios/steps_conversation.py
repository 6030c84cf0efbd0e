"""An append to a conversation, in turns with OpenAI Agents' `SQLiteSession`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import Stopwatch
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._registry import engines
from bench.engines.conversations import Talk, talk
from bench.scenarios import _talks as talks
from bench.scenarios._sides import PEER_TALK_ON_DISK, TALK_AWAITED, TALK_ON_DISK
from bench.scenarios._talks import Conversation

_BLOCK = 20


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Blocks of appends of both, in one process and on one disk."""
    mine, other = Stopwatch(), Stopwatch()
    with TemporaryDirectory() as name:
        ours, theirs = (_opened(side, Path(name)) for side in (info.name, PEER_TALK_ON_DISK))
        pairs = [(ours, mine), (theirs, other)]
        items = Conversation(size["steps"]).items
        for at in range(0, len(items), _BLOCK):
            for side, watch in pairs:
                side.append_each([side.message(item) for item in items[at : at + _BLOCK]], watch)
            pairs.reverse()
        synchronous: Any = getattr(theirs, "synchronous", lambda: None)()
        for side, _ in pairs:
            side.close()
    return Measured(
        {
            "times": median(mine.wall) / median(other.wall),
            "times_sum": sum(mine.wall) / sum(other.wall),
            "times_cpu": sum(mine.cpu) / sum(other.cpu),
            "wall_ms": median(mine.wall) * 1e3,
            "peer_ms": median(other.wall) * 1e3,
            "cpu_ms": median(mine.cpu) * 1e3,
            "peer_cpu_ms": median(other.cpu) * 1e3,
        },
        [f"the peer's connections have synchronous = {synchronous} (2 is FULL)"],
    )


def _opened(name: str, folder: Path) -> Talk:
    place = Place(folder / name)
    place.folder.mkdir()
    return talk(engines()[name].open(place))


SCENARIO = Scenario(
    name="steps-conversation",
    title="Messages of 1 KB, appended to a conversation one by one",
    run=run,
    engines=(TALK_ON_DISK, TALK_AWAITED),
    metrics=(
        Metric("times", "median wall / SQLiteSession's", "x"),
        Metric("times_sum", "sum of walls / SQLiteSession's", "x"),
        Metric("times_cpu", "CPU / SQLiteSession's", "x"),
        Metric("wall_ms", "median wall per append", "ms", 3),
        Metric("peer_ms", "SQLiteSession's", "ms", 3),
        Metric("cpu_ms", "median CPU per append", "ms", 3),
        Metric("peer_cpu_ms", "SQLiteSession's", "ms", 3),
    ),
    size={"steps": 2000},
    quick={"steps": 100},
    targets=(
        Target("times", 1.1, "an append: median wall over the peer's", side=TALK_ON_DISK),
        Target("times", 1.1, "the same, awaited", side=TALK_AWAITED),
    ),
    notes=(
        talks.MESSAGES_NOTE,
        "Blocks of 20 appends alternate with the peer's in one process and on one disk. Both use "
        "WAL and synchronous = FULL: Ropewalk sets it, SQLiteSession leaves it as SQLite was "
        "built, which the unit asks. SQLiteSession offers coroutines only, which run on threads of "
        "the event loop; Ropewalk is measured as called, and awaited too.",
    ),
    order=23,
    repeat=3,
)
