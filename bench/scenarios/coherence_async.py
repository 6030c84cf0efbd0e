"""The same with `aget` and `aput`, in an event loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench._artifacts import SIZES, text
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench.engines.artifacts import KEY, InMemory, Shared, shared
from bench.scenarios._in_turns import AwaitedBlock, awaited_in_turns, run_awaited
from bench.scenarios._shared import NOTES, SIDES
from bench.scenarios._sides import OUR_SHARED

_KEPT = 16


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Read a text again and again; then put texts."""
    values = [text(SIZES["4k"], number) for number in range(_KEPT)]

    async def work() -> dict[str, float]:
        mine, other = shared(info.open()), InMemory()
        figures: dict[str, float] = {}
        for name, make in (("get", _gets), ("put", _puts)):
            blocks = [await make(side, values) for side in (mine, other)]
            found = await awaited_in_turns(blocks[0], blocks[1], size["blocks"])
            figures |= {f"{name}_us": found.micros, f"{name}_times": found.times}
        assert mine.read() in values, "an artifact did not read back"
        mine.close()
        return figures

    return Measured(run_awaited(work))


async def _gets(side: Shared, values: list[Any]) -> AwaitedBlock:
    await side.store.aput(side.namespace("writer"), KEY, values[0])
    get, where = side.store.aget, side.namespace("reader")

    async def block(count: int) -> None:
        for _ in range(count):
            (await get(where, KEY)).value  # noqa: B018 - some make it only when it is asked for

    return block


async def _puts(side: Shared, values: list[Any]) -> AwaitedBlock:
    put, where = side.store.aput, side.namespace("writer")

    async def block(count: int) -> None:
        for number in range(count):
            await put(where, KEY, values[number % _KEPT])
        side.settle()

    return block


SCENARIO = Scenario(
    name="coherence-async",
    title="An agent awaits a text of 4 KB that another put; then it puts such texts",
    run=run,
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
)
