"""Artifacts that agents share: reads, writes, invalidations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from threading import Barrier, Thread
from typing import Any

from bench._clock import MICRO, Bounds
from bench._model import EngineInfo, Measured, Metric, Run, Scenario, Target
from bench._text import SIZES, Make, fields, text
from bench.engines.artifacts import KEY, InMemory, Shared, shared
from bench.scenarios._sides import OUR_SHARED, PEERS_SHARED, SHARED_MEMORY

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


_KEPT = 16
"""Different artifacts, which are put in turn."""
_FAR = 3.0
SIDES = (*OUR_SHARED, SHARED_MEMORY, *PEERS_SHARED)
_METRICS = (
    *(Metric(f"us_{name}", f"{length:,} B", "us") for name, length in SIZES.items()),
    *(
        Metric(f"times_{name}", f"times InMemoryStore, {length:,} B", "x", 1)
        for name, length in SIZES.items()
    ),
)
NOTES = (
    "CPU of the process with all its threads. Blocks of calls take turns with blocks of calls of "
    "InMemoryStore, in one process; times is the median over pairs of blocks.",
)


def getting(name: str, title: str, make: Make, *, order: int) -> Scenario:
    """An agent reads what another put, again and again."""
    return _scenario(name, title, partial(_getting, make), _targets(4.0, "a get"), order)


def putting(name: str, title: str, make: Make, *, order: int) -> Scenario:
    """An agent puts one artifact after the other in the place of the last."""
    return _scenario(name, title, partial(_putting, make), _targets(15.0, "a put"), order)


def _scenario(name: str, title: str, run: Run, targets: tuple[Target, ...], order: int) -> Scenario:
    return Scenario(
        name=name,
        title=title,
        run=run,
        engines=SIDES,
        metrics=_METRICS,
        size={"blocks": 20},
        quick={"blocks": 5},
        targets=targets,
        notes=NOTES,
        order=order,
        repeat=3,
    )


def _getting(make: Make, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    figures: dict[str, float] = {}
    for name, length in SIZES.items():
        value = make(length, 1)
        mine, other = shared(info.open()), InMemory()
        blocks = [_gets(side, value) for side in (mine, other)]
        found = in_turns(blocks[0], blocks[1], size["blocks"])
        figures |= {f"us_{name}": found.micros, f"times_{name}": found.times}
        assert mine.read() == value, "an artifact did not read back"
        mine.close()
    return Measured(figures)


def _putting(make: Make, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    figures: dict[str, float] = {}
    for name, length in SIZES.items():
        values = [make(length, number) for number in range(_KEPT)]
        mine, other = shared(info.open()), InMemory()
        blocks = [_puts(side, values) for side in (mine, other)]
        found = in_turns(blocks[0], blocks[1], size["blocks"])
        figures |= {f"us_{name}": found.micros, f"times_{name}": found.times}
        assert mine.read() in values, "an artifact did not read back"
        mine.close()
    return Measured(figures)


def _gets(side: Shared, value: Any) -> Block:
    side.commit(value)
    get, where, key = side.store.get, side.namespace("reader"), KEY

    def block(count: int) -> None:
        for _ in range(count):
            get(where, key).value  # noqa: B018 - some make it only when it is asked for

    return block


def _puts(side: Shared, values: list[Any]) -> Block:
    put, where, key = side.store.put, side.namespace("writer"), KEY

    def block(count: int) -> None:
        for number in range(count):
            put(where, key, values[number % _KEPT])
        side.settle()

    return block


def _targets(limit: float, what: str) -> tuple[Target, ...]:
    """Ours at most so many times InMemoryStore, and far below the peer."""
    bounded = [
        Target(
            f"times_{name}",
            limit,
            f"{what} of {length:,} B, times InMemoryStore",
            side=OUR_SHARED[0],
        )
        for name, length in SIZES.items()
    ]
    beside = [
        Target(
            f"us_{name}", _FAR, f"{what} of {length:,} B, CCSStore's CPU over ours", "at least",
            side=OUR_SHARED[0], under=PEERS_SHARED,
        )
        for name, length in SIZES.items()
    ]  # fmt: skip
    return (*bounded, *beside)


_KEPT_ASYNC = 16


def run_async(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Read a text again and again; then put texts."""
    values = [text(SIZES["4k"], number) for number in range(_KEPT_ASYNC)]

    async def work() -> dict[str, float]:
        mine, other = shared(info.open()), InMemory()
        figures: dict[str, float] = {}
        for name, make in (("get", _gets_async), ("put", _puts_async)):
            blocks = [await make(side, values) for side in (mine, other)]
            found = await awaited_in_turns(blocks[0], blocks[1], size["blocks"])
            figures |= {f"{name}_us": found.micros, f"{name}_times": found.times}
        assert mine.read() in values, "an artifact did not read back"
        mine.close()
        return figures

    return Measured(run_awaited(work))


async def _gets_async(side: Shared, values: list[Any]) -> AwaitedBlock:
    await side.store.aput(side.namespace("writer"), KEY, values[0])
    get, where = side.store.aget, side.namespace("reader")

    async def block(count: int) -> None:
        for _ in range(count):
            (await get(where, KEY)).value  # noqa: B018 - some make it only when it is asked for

    return block


async def _puts_async(side: Shared, values: list[Any]) -> AwaitedBlock:
    put, where = side.store.aput, side.namespace("writer")

    async def block(count: int) -> None:
        for number in range(count):
            await put(where, KEY, values[number % _KEPT_ASYNC])
        side.settle()

    return block


AGENTS = (4, 8)
_COUNTER = "counter"
_PATIENCE = 300.0


def run_contended(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """4 agents, then 8, each a thread."""
    figures: dict[str, float] = {}
    for agents in AGENTS:
        side = shared(info.open())
        side.store.put(side.namespace("agent-0"), _COUNTER, {"count": 0})
        adders = [_Adder(side, f"agent-{number}", size) for number in range(agents)]
        began = time.perf_counter()
        _together(adders)
        took = time.perf_counter() - began
        stored = side.store.get(side.namespace("looks"), _COUNTER).value["count"]
        acknowledged = sum(adder.acknowledged for adder in adders)
        figures |= {
            f"acknowledged_{agents}": acknowledged,
            f"lost_{agents}": acknowledged - stored,
            f"errors_{agents}": sum(adder.errors for adder in adders),
            f"rate_{agents}": stored / took,
        }
        side.close()
    return Measured(figures)


class _Adder(Thread):
    """One agent, which adds one again and again."""

    def __init__(self, side: Shared, agent: str, size: Mapping[str, int]) -> None:
        super().__init__(name=agent)
        self._side, self._agent, self._size = side, agent, size
        self.barrier: Barrier | None = None
        self.acknowledged = self.errors = 0

    def run(self) -> None:
        """Count what was acknowledged, and what was refused."""
        assert self.barrier is not None
        self.barrier.wait(_PATIENCE)
        bounds = Bounds(self._size["seconds"])
        for _ in range(self._size["adds"]):
            try:
                self._side.add_one(self._agent, _COUNTER)
            except Exception:
                self.errors += 1
            else:
                self.acknowledged += 1
            if bounds.reached():
                return


def _together(adders: list[_Adder]) -> None:
    barrier = Barrier(len(adders))
    for adder in adders:
        adder.barrier = barrier
        adder.start()
    for adder in adders:
        adder.join()


SCENARIOS = (
    getting(
        "coherence-get",
        "An agent reads a text that another put, again and again, in one process",
        text,
        order=600,
    ),
    getting(
        "coherence-get-fields",
        "An agent reads many small fields that another put, again and again, in one process",
        fields,
        order=601,
    ),
    putting(
        "coherence-put",
        "An agent puts texts, each in the place of the last, in one process",
        text,
        order=602,
    ),
    putting(
        "coherence-put-fields",
        "An agent puts many small fields, each time in the place of the last, in one process",
        fields,
        order=603,
    ),
    Scenario(
        name="coherence-async",
        title="An agent awaits a text of 4 KB that another put; then it puts such texts",
        run=run_async,
        engines=SIDES,
        metrics=(
            Metric("get_us", "aget", "us"),
            Metric("get_times", "aget, times InMemoryStore", "x", 1),
            Metric("put_us", "aput", "us"),
            Metric("put_times", "aput, times InMemoryStore", "x", 1),
        ),
        size={"blocks": 20},
        quick={"blocks": 5},
        targets=(
            Target("get_times", 4.0, "an aget of 4 KB, times InMemoryStore", side=OUR_SHARED[0]),
            Target("put_times", 15.0, "an aput of 4 KB, times InMemoryStore", side=OUR_SHARED[0]),
        ),
        notes=NOTES,
        order=604,
        repeat=3,
    ),
    Scenario(
        name="coherence-contended",
        title="4 and 8 agents, threads of one process, add to one counter",
        run=run_contended,
        engines=(*OUR_SHARED, SHARED_MEMORY, *PEERS_SHARED),
        metrics=tuple(
            metric
            for agents in AGENTS
            for metric in (
                Metric(f"acknowledged_{agents}", f"acknowledged, {agents} agents", digits=0),
                Metric(f"lost_{agents}", f"of them lost, {agents}", digits=0),
                Metric(f"errors_{agents}", f"errors, {agents}", digits=0),
                Metric(f"rate_{agents}", f"kept, {agents}", "1/s", 0),
            )
        ),
        size={"adds": 500, "seconds": 60},
        quick={"adds": 50, "seconds": 20},
        targets=tuple(
            Target(f"lost_{agents}", 0.0, f"acknowledged and lost, {agents} agents", side=side)
            for agents in AGENTS
            for side in OUR_SHARED
        ),
        notes=(
            "Ours add with edit: read, change, compare-and-swap, and again if somebody else was "
            "faster. The others have only get and put, so they read, add and put back.",
        ),
        order=640,
        repeat=3,
    ),
)
