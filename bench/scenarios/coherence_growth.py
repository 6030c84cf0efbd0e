"""Ten times the artifacts, agents or versions: what a get and a put cost then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

from bench._artifacts import text
from bench._clock import Stopwatch
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._servers import running
from bench._stats import MICRO
from bench.engines.artifacts import Shared, shared
from bench.scenarios._sides import OUR_SHARED

_TIMES = 10
_VALUE = 500
_CALLS = 100
_SIDES = (OUR_SHARED[0], "shared-sqlite", "shared-redis")


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Grow each of them, on an engine of its own."""
    figures: dict[str, float] = {}
    for what, grow in _GROWS.items():
        with _opened(info) as side:
            counts = [size[what] // _TIMES, size[what]]
            figures |= _grown(side, what, grow, counts)
    return Measured(figures)


@contextmanager
def _opened(info: EngineInfo) -> Iterator[Shared]:
    if not info.server:
        side = shared(info.open())
        yield side
        side.close()
        return
    with TemporaryDirectory() as name, running(info.server, Path(name)) as server:
        side = shared(info.open(Place(Path(name), url=server.url)))
        yield side
        side.close()


Grow = Callable[[Shared, int], None]
"""Adds the one with this number."""


def _artifact(side: Shared, number: int) -> None:
    side.store.put(side.namespace("writer"), f"artifact-{number}", text(_VALUE, 1))


def _agent(side: Shared, number: int) -> None:
    if number == 0:
        _artifact(side, 0)
    side.store.get(side.namespace(f"agent-{number}"), "artifact-0")


def _version(side: Shared, number: int) -> None:
    side.store.put(side.namespace("writer"), "artifact-0", {**text(_VALUE, 1), "at": number})


_GROWS: Mapping[str, Grow] = {"artifacts": _artifact, "agents": _agent, "versions": _version}


def _grown(side: Shared, what: str, grow: Grow, counts: list[int]) -> dict[str, float]:
    found: list[tuple[float, float]] = []
    there = 0
    for count in counts:
        for number in range(there, count):
            grow(side, number)
        there = count
        found.append(_costs(side, count if what == "artifacts" else 1))
    (get_few, put_few), (get_many, put_many) = found
    more = (counts[1] - counts[0]) / 1000
    return {
        f"{what}_get_us": get_many,
        f"{what}_get_times": get_many / get_few,
        f"{what}_put_us": put_many,
        f"{what}_put_times": put_many / put_few,
        f"{what}_slope": (put_many - put_few) / more,
    }


def _costs(side: Shared, artifacts: int) -> tuple[float, float]:
    """The CPU of a get and of a put, of artifacts by chance."""
    chosen = Random(1).choices(range(artifacts), k=_CALLS)
    gets, puts = Stopwatch(), Stopwatch()
    for number in chosen:
        key = f"artifact-{number}"
        side.store.get(side.namespace("reader"), key)
        gets(partial(side.store.get, side.namespace("reader"), key))
        puts(partial(side.store.put, side.namespace("writer"), key, text(_VALUE, number)))
    return median(gets.cpu) * MICRO, median(puts.cpu) * MICRO


SCENARIO = Scenario(
    name="coherence-growth",
    title="Ten times the artifacts, the agents that hold one, and the versions of one",
    run=run,
    engines=_SIDES,
    metrics=tuple(
        metric
        for what in _GROWS
        for metric in (
            Metric(f"{what}_get_us", f"get, most {what}", "us", 1),
            Metric(f"{what}_get_times", f"over a tenth of the {what}", "x"),
            Metric(f"{what}_put_us", f"put, most {what}", "us", 1),
            Metric(f"{what}_put_times", f"over a tenth of the {what}", "x"),
            Metric(f"{what}_slope", f"put, for each 1,000 {what}", "us"),
        )
    ),
    size={"artifacts": 5_000, "agents": 1_000, "versions": 1_000},
    quick={"artifacts": 200, "agents": 50, "versions": 50},
    targets=tuple(
        Target(f"{what}_{call}_times", 2.0, f"a {call} with ten times the {what}", side=side)
        for side in _SIDES
        for what in _GROWS
        for call in ("get", "put")
    ),
    notes=(
        "CPU of the client for one call, at a tenth of the size and at all of it. If all of the "
        "work grew with the size, the factor would be 10.",
    ),
    order=650,
    repeat=1,
)
