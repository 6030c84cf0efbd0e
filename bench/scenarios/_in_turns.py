"""Calls of two sides in turns, in one process: a busy machine is so to both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench._stats import MICRO

_BLOCK_SECONDS = 0.01
_FEWEST, _MOST = 5, 2000

Block = Callable[[int], None]
"""Makes so many calls."""
AwaitedBlock = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Compared:
    """What a call takes, in microseconds of CPU, and how many times the other's that is."""

    micros: float
    times: float


def in_turns(mine: Block, other: Block, blocks: int) -> Compared:
    """Make blocks of calls of both, one after the other."""
    counts = [_count(block) for block in (mine, other)]
    pairs = [(_took(mine, counts[0]), _took(other, counts[1])) for _ in range(blocks)]
    return compared(pairs)


async def awaited_in_turns(mine: AwaitedBlock, other: AwaitedBlock, blocks: int) -> Compared:
    """The same for what has to be awaited."""
    counts = [await _awaited_count(block) for block in (mine, other)]
    pairs = []
    for _ in range(blocks):
        first = await _awaited_took(mine, counts[0])
        pairs.append((first, await _awaited_took(other, counts[1])))
    return compared(pairs)


def compared(pairs: Sequence[tuple[float, float]]) -> Compared:
    """What pairs of blocks say, in seconds for each call."""
    times = median(mine / other for mine, other in pairs)
    return Compared(median(mine for mine, _ in pairs) * MICRO, times)


def _count(block: Block) -> int:
    """How many calls take about as long as a block should; it also warms up."""
    block(_FEWEST)
    return _fitting(_took(block, _FEWEST))


async def _awaited_count(block: AwaitedBlock) -> int:
    await block(_FEWEST)
    return _fitting(await _awaited_took(block, _FEWEST))


def _fitting(seconds: float) -> int:
    return min(_MOST, max(_FEWEST, int(_BLOCK_SECONDS / max(seconds, 1e-7))))


def _took(block: Block, count: int) -> float:
    """The CPU of a call, with that of all threads which it set going."""
    before = time.process_time()
    block(count)
    return (time.process_time() - before) / count


async def _awaited_took(block: AwaitedBlock, count: int) -> float:
    before = time.process_time()
    await block(count)
    return (time.process_time() - before) / count


def run_awaited(work: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
    """Run it in an event loop of its own."""

    async def whole() -> dict[str, float]:
        return await work()

    return asyncio.run(whole())
