"""Get and put of what agents share, beside LangGraph's InMemoryStore in the same process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bench._artifacts import SIZES, Make
from bench._model import EngineInfo, Measured, Metric, Run, Scenario, Target
from bench.engines.artifacts import KEY, InMemory, Shared, shared
from bench.scenarios._in_turns import Block, in_turns
from bench.scenarios._sides import OUR_SHARED, PEERS_SHARED, SHARED_MEMORY

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
