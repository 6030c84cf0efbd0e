"""A conversation through each adapter, beside what its framework has to keep one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench._clock import Stopwatch, folder_bytes
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench.engines.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from bench.frameworks import Conversations, Turn

_WARM = 4
"""Turns of another conversation, before the first that counts."""
_FEW = 3
"""Turns of a new session."""


class _Cost:
    """The CPU of each turn, and of what belongs to none."""

    def __init__(self) -> None:
        self.turns = Stopwatch()
        self.rest = Stopwatch()

    @property
    def total(self) -> float:
        return sum(self.turns.cpu) + sum(self.rest.cpu)

    def ends(self) -> tuple[float, float]:
        """Milliseconds of a turn in the first and in the last tenth."""
        cpu = self.turns.cpu
        tenth = max(1, len(cpu) // 10)
        return median(cpu[:tenth]) * 1e3, median(cpu[-tenth:]) * 1e3


async def _talked(side: Conversations, name: str, script: list[Turn]) -> _Cost:
    cost = _Cost()
    session = await cost.rest.waits(partial(side.session, name, script))
    for turn in script:
        await cost.turns.waits(partial(session.turn, turn))
    await cost.rest.waits(session.end)
    return cost


async def _opened(make: Any, folder: Path) -> Conversations:
    side: Conversations = make(Place(folder))
    await side.open()
    return side


async def _warmed(make: Any, folder: Path) -> None:
    """Take some turns of another conversation, in another store."""
    from bench.frameworks import turns

    side = await _opened(make, folder)
    await _talked(side, "warm", turns(_WARM, 9))
    await side.shut()


async def _alone(framework: str, script: list[Turn], folder: Path) -> tuple[float, float]:
    make = import_module(f"bench.frameworks.{framework}").Alone
    await _warmed(make, folder)
    side = await _opened(make, folder)
    cost = await _talked(side, "bench", script)
    await side.shut()
    return cost.ends()


async def _measured(
    framework: str, info: EngineInfo, size: Mapping[str, int], folders: list[Path]
) -> Measured:
    from bench.frameworks import turns

    alone, warm, place, news = folders
    script = turns(size["turns"])
    alone_first, alone_last = await _alone(framework, script, alone)
    await _warmed(info.open, warm)
    side = await _opened(info.open, place)
    cost = await _talked(side, "bench", script)
    await cost.rest.waits(side.shut)
    stored = folder_bytes(place)
    side = await _opened(info.open, place)
    found = await side.texts("bench")
    await side.shut()
    said = [text for turn in script for text in turn]
    assert found in (None, said), "the conversation did not read back"
    first, last = cost.ends()
    figures = {
        "cpu_s": cost.total,
        "first_ms": first,
        "last_ms": last,
        "beyond_ms": (last - first) - (alone_last - alone_first),
        "new_ms": await _new(info, news, size["sessions"]) * 1e3,
    }
    if found is not None:
        figures["stored_x"] = stored / sum(map(len, said))
    return Measured(figures)


async def _new(info: EngineInfo, folder: Path, sessions: int) -> float:
    """CPU seconds of a new session of few turns, in a store that has others."""
    from bench.frameworks import turns

    side = await _opened(info.open, folder)
    await _talked(side, "first", turns(_FEW, 99))
    costs = [
        (await _talked(side, f"session-{at}", turns(_FEW, 100 + at))).total
        for at in range(sessions)
    ]
    await side.shut()
    return median(costs)


def run(framework: str, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Take all turns, read them back, and take some in new sessions."""
    with TemporaryDirectory() as name:
        folders = [Path(name) / kind for kind in ("alone", "warm", "side", "news")]
        for folder in folders:
            folder.mkdir()
        return asyncio.run(_measured(framework, info, size, folders))


def _scenario(at: int, framework: str, title: str) -> Scenario:
    ours, own = f"{framework}-ropewalk", f"{framework}-own"
    return Scenario(
        name=f"frameworks-{framework.replace('_', '-')}",
        title=f"{title}: 500 turns of 1.9 KB, and new sessions of three",
        run=partial(run, framework),
        engines=(ours, own, f"{framework}-alone"),
        metrics=(
            Metric("stored_x", "folder, times the payload", "x", 2),
            Metric("cpu_s", "CPU of all turns", "s", 2),
            Metric("first_ms", "CPU of a turn, first tenth", "ms", 2),
            Metric("last_ms", "CPU of a turn, last tenth", "ms", 2),
            Metric("beyond_ms", "growth beyond the framework's", "ms", 2),
            Metric("new_ms", "CPU of a new session", "ms", 2),
        ),
        size={"turns": 500, "sessions": 30},
        quick={"turns": 20, "sessions": 3},
        targets=(
            Target("stored_x", 1.5, "folder, times the payload", side=ours),
            Target("cpu_s", 1.0, "CPU, of that of the framework's own", side=ours, over=(own,)),
            Target("beyond_ms", 1.0, "a turn's growth beyond the framework's", side=ours),
            Target("new_ms", 1.0, "CPU of a new session, of theirs", side=ours, over=(own,)),
        ),
        notes=(
            "A turn is 200 characters of a user, a call of a tool with 60, its result with 1,000, "
            "and an answer of 600; no model runs. Everything is read back by another object.",
            "What a turn grows by is its CPU in the last tenth less that in the first; what the "
            "framework alone grows by, measured in the same process just before, is taken off.",
        ),
        order=700 + at,
        repeat=3,
        timeout=600,
    )


SCENARIOS = tuple(
    _scenario(at, framework, title) for at, (framework, title) in enumerate(FRAMEWORKS.items())
)
