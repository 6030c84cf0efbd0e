"""Get and put on engines that last, beside LangGraph's store on Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench._artifacts import SIZES, text
from bench._clock import Bounds, Stopwatch
from bench._model import EngineInfo, Measured, Metric, Place, Scenario
from bench._servers import Server, running
from bench.engines.artifacts import Shared, shared
from bench.scenarios._sides import EVERY_SHARED_SERVED


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """An agent puts; then another gets, again and again; then each put is read by another."""
    with TemporaryDirectory() as name, running(info.server, Path(name)) as server:
        side = shared(info.open(Place(Path(name), url=server.url)))
        figures = _puts(side, server, size) | _gets(side, server, size) | _changed(side, size)
        side.close()
    return Measured(figures)


def _puts(side: Shared, server: Server, size: Mapping[str, int]) -> dict[str, float]:
    watch, bounds = Stopwatch(), Bounds(size["seconds"])
    side.commit(text(SIZES["4k"], 0))  # Connections and tables.
    before = server.cpu_seconds()
    for number in range(size["calls"]):
        watch(partial(side.commit, text(SIZES["4k"], number)))
        if bounds.reached():
            break
    return _figures("put", watch, server, before)


def _gets(side: Shared, server: Server, size: Mapping[str, int]) -> dict[str, float]:
    watch, bounds = Stopwatch(), Bounds(size["seconds"])
    value, before = side.read(), server.cpu_seconds()
    for _ in range(size["calls"]):
        found = watch(side.read)
        if bounds.reached():
            break
    assert found == value, "an artifact did not read back"
    return _figures("get", watch, server, before)


def _changed(side: Shared, size: Mapping[str, int]) -> dict[str, float]:
    watch, bounds = Stopwatch(), Bounds(size["seconds"])
    for number in range(size["calls"]):
        value = text(SIZES["4k"], number)
        side.commit(value)
        assert watch(side.read) == value, "an old artifact was read"
        if bounds.reached():
            break
    return {"changed_us": median(watch.wall) * 1e6}


def _figures(name: str, watch: Stopwatch, server: Server, before: float) -> dict[str, float]:
    count = len(watch.wall)
    figures = {
        f"{name}_us": median(watch.wall) * 1e6,
        f"{name}_client_us": sum(watch.cpu) / count * 1e6,
    }
    if server.serves:
        figures[f"{name}_server_us"] = (server.cpu_seconds() - before) / count * 1e6
    return figures


SCENARIO = Scenario(
    name="coherence-engines",
    title="A text of 4 KB is put and read on engines that last",
    run=run,
    engines=EVERY_SHARED_SERVED,
    metrics=(
        Metric("get_us", "get, wall", "us", 0),
        Metric("get_client_us", "CPU of the client", "us", 0),
        Metric("get_server_us", "CPU of the server", "us", 0),
        Metric("changed_us", "get of what another agent just put, wall", "us", 0),
        Metric("put_us", "put, wall", "us", 0),
        Metric("put_client_us", "CPU of the client", "us", 0),
        Metric("put_server_us", "CPU of the server", "us", 0),
    ),
    size={"calls": 500, "seconds": 10},
    quick={"calls": 50, "seconds": 10},
    notes=(
        "Both agents are in one process. A put of ours makes a version that stays, and is checked "
        "against what others wrote; PostgresStore replaces the row.",
    ),
    order=630,
    repeat=1,
)
