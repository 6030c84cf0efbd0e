"""Graphs with a checkpointer: the steps of one `invoke` on a watch, and what is common to all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench._apart import apart
from bench._clock import own_peak_bytes
from bench._model import EngineInfo, Measured, Metric, Place
from bench._servers import Server, running
from bench.engines.savers import Saver, saver
from bench.scenarios._sides import NO_SAVER

if TYPE_CHECKING:
    from bench._graphs import Loop

ALONE = "alone"
"""In a size: this side only, without another process beside it."""

STORED = Metric("stored_mb", "stored after close", "MB", 2)
ADDED = Metric("added_s", "CPU added over no checkpointer, client and server", "s", 2)
WALL = Metric("wall_s", "wall", "s", 2)
CLIENT = Metric("client_s", "CPU of the client", "s", 2)
SERVER = Metric("server_s", "CPU of the server", "s", 2)
RSS = Metric("rss_mb", "peak memory", "MB", 0)
STEPS = (
    STORED,
    ADDED,
    WALL,
    CLIENT,
    SERVER,
    Metric("first_ms", "wall per step, first tenth", "ms", 2),
    Metric("last_ms", "last tenth", "ms", 2),
    Metric("drain_s", "wall from the last node to the return of invoke", "s", 2),
    RSS,
)
"""The figures of graphs that take steps in one `invoke`."""

DURABLE = (
    "Both sides are as durable: SQLite with WAL and synchronous = FULL (SqliteSaver sets WAL and "
    "leaves synchronous as SQLite was built, here {synchronous}, where 2 is FULL), Postgres with "
    "fsync and synchronous_commit on. Stored is the whole folder after close, or the size of the "
    "database above one with its tables. Each side took two small steps in another thread before."
)
ADDED_NOTE = (
    "CPU added is that of the client and of all processes of the server, from the call of invoke "
    "until the saver was closed, less what the same graph took without a checkpointer in a fresh "
    "process just before."
)


@dataclass(frozen=True)
class Opened:
    """A side with its server; what it stores is counted from here on."""

    side: Saver
    server: Server
    place: Place
    empty: int
    used: float

    def stored(self) -> int:
        """The bytes of what was kept; the side must be closed if it is on disk."""
        if not self.side.lasting:
            return self.side.stored_bytes()
        return self.server.stored_bytes() - self.empty

    def server_seconds(self) -> float:
        """CPU of the server since."""
        return self.server.cpu_seconds() - self.used


@contextmanager
def opened(info: EngineInfo) -> Iterator[Opened]:
    """The side, on a fresh server or in a fresh folder."""
    with TemporaryDirectory() as name, running(info.server or "sqlite", Path(name)) as server:
        place = Place(Path(name), url=server.url if server.serves else "")
        side = saver(info.open(place))
        _warm_up(side)
        empty = server.stored_bytes() if server.serves else 0
        yield Opened(side, server, place, empty, server.cpu_seconds())


def _warm_up(side: Saver) -> None:
    """Take two small steps in a thread of their own: what a package imports late is no step's."""
    from bench._graphs import Stepping

    loop, checkpointer = Stepping(2), side.checkpointer()
    loop.compiled(checkpointer).invoke(loop.first(), loop.config("first"))


def options(checkpointer: Any, durability: str) -> dict[str, Any]:
    """How a graph is told its durability: without a checkpointer it has none."""
    return {} if checkpointer is None else {"durability": durability}


def one_invoke(info: EngineInfo, loop: Loop, durability: str) -> dict[str, float]:
    """Run the graph to its end, close the side, and check that all reads back."""
    from bench._graphs import now

    with opened(info) as found:
        side, checkpointer = found.side, found.side.checkpointer()
        graph = loop.compiled(checkpointer, side.delta)
        told = options(checkpointer, durability)
        began = now()
        values = graph.invoke(loop.first(), loop.config(), **told)
        returned = now()
        kept = found.stored() if not side.lasting else 0
        side.close()
        closed = now()
        figures = {
            "wall_s": closed.wall - began.wall,
            "client_s": closed.cpu - began.cpu,
            "drain_s": returned.wall - loop.marks[-1].wall,
            "rss_mb": own_peak_bytes() / 1e6,
        }
        if found.server.serves:
            figures["server_s"] = found.server_seconds()
        if checkpointer is not None:
            figures["stored_mb"] = (kept or found.stored()) / 1e6
        loop.check(values if checkpointer is None else read_back(info, found, loop))
    return figures | _tenths(loop)


def read_back(info: EngineInfo, found: Opened, loop: Loop) -> dict[str, Any]:
    """The newest state, by a side that was opened anew if there is something to open."""
    side = saver(info.open(found.place)) if found.side.lasting else found.side
    graph = loop.compiled(side.checkpointer(), side.delta)
    values: dict[str, Any] = graph.get_state(loop.config()).values
    side.close()
    return values


def _tenths(loop: Loop) -> dict[str, float]:
    walls = [mark.wall for mark in loop.marks]
    tenth = max(1, len(walls) // 10)
    return {
        "first_ms": (walls[tenth] - walls[0]) / tenth * 1e3,
        "last_ms": (walls[-1] - walls[-1 - tenth]) / tenth * 1e3,
    }


def steps(
    scenario: str,
    make: Callable[[Mapping[str, int]], Loop],
    durability: str,
    info: EngineInfo,
    size: Mapping[str, int],
    quarter: bool = False,
) -> Measured:
    """The figures of a graph that takes steps, beside those without a checkpointer."""
    if size.get(ALONE):
        return Measured(one_invoke(info, make(size), durability))
    beside = None if info.name == NO_SAVER else alone(scenario, NO_SAVER, size)
    figures = one_invoke(info, make(size), durability)
    if beside:
        used = figures["client_s"] + figures.get("server_s", 0.0)
        figures["added_s"] = used - beside["client_s"]
    if beside and quarter:
        part = alone(scenario, info.name, {**size, "steps": size["steps"] // 4})
        figures["grown"] = figures["stored_mb"] / part["stored_mb"]
    return Measured(figures)


def alone(scenario: str, side: str, size: Mapping[str, int]) -> dict[str, float]:
    """The figures of a unit of its own, in a fresh process."""
    told = json.dumps({**size, ALONE: 1})
    figures: dict[str, float] = apart("bench._unit", scenario, side, told)["figures"]
    return figures


def durable_note() -> str:
    """How durable the sides are, and what SqliteSaver's connection would be by itself."""
    import sqlite3

    with sqlite3.connect(":memory:") as connection:
        found = connection.execute("PRAGMA synchronous").fetchone()[0]
    connection.close()
    return DURABLE.format(synchronous=found)
