"""What graphs do with a checkpointer of LangGraph."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

from bench._apart import apart
from bench._clock import Stopwatch, growth, own_peak_bytes
from bench._model import EngineInfo, Measured, Metric, Place, Run
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


SIZE_TURNS = {"turns": 500}
QUICK_TURNS = {"turns": 40}
METRICS_TURNS = (
    STORED,
    Metric("growth_us", "a turn takes longer per message there, wall", "us", 2),
    Metric("growth_cpu_us", "the same, CPU of the client", "us", 2),
    Metric("first_ms", "wall per turn, first tenth", "ms", 2),
    Metric("last_ms", "last tenth", "ms", 2),
    Metric("again_ms", "wall of a turn with a saver that was just opened", "ms", 1),
    WALL,
    CLIENT,
    SERVER,
    RSS,
)
NOTES_TURNS = (
    "The time per turn is fitted by least squares over medians of twentieths of the turns, per "
    "message that is already there. Without a checkpointer the caller hands over all messages "
    "at each turn, and add_messages goes through them: that is the graph's own growth.",
    "Afterwards the saver is closed, opened again, and takes one more turn.",
)


def _run_turns(durability: str, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    from bench._graphs import Turns

    turns = Turns(size["turns"] + 1)
    with opened(info) as found:
        watch = Stopwatch()
        graph = Dialogue(found, turns, durability)
        for turn in range(size["turns"]):
            message = turns.asked(turn)
            watch(partial(graph.ask, message))
        figures = _figures(watch)
        kept = found.stored() if not found.side.lasting else 0
        watch(found.side.close)
        figures |= {"wall_s": sum(watch.wall), "client_s": sum(watch.cpu)}
        figures["rss_mb"] = own_peak_bytes() / 1e6
        if found.server.serves:
            figures["server_s"] = found.server_seconds()
        if graph.keeps:
            figures["stored_mb"] = (kept or found.stored()) / 1e6
            figures |= _again(info, found, turns, durability, size["turns"])
    return Measured(figures)


class Dialogue:
    """The graph, with the messages in the caller's hand if there is no checkpointer."""

    def __init__(self, found: Opened, turns: Any, durability: str) -> None:
        from bench._graphs import THREAD

        checkpointer = found.side.checkpointer()
        self.keeps = checkpointer is not None
        self._told = options(checkpointer, durability)
        self._graph, self._config = turns.compiled(checkpointer, found.side.delta), THREAD
        self._messages: list[Any] = []

    def ask(self, message: Any) -> None:
        """Take one turn."""
        given = [message] if self.keeps else [*self._messages, message]
        done = self._graph.invoke({"messages": given}, self._config, **self._told)
        self._messages = done["messages"]


def _figures(watch: Stopwatch) -> dict[str, float]:
    tenth = max(1, len(watch.wall) // 10)
    return {
        # A turn finds two messages more than the one before.
        "growth_us": growth(watch.wall) / 2,
        "growth_cpu_us": growth(watch.cpu) / 2,
        "first_ms": sum(watch.wall[:tenth]) / tenth * 1e3,
        "last_ms": sum(watch.wall[-tenth:]) / tenth * 1e3,
    }


def _again(
    info: EngineInfo, found: Opened, turns: Any, durability: str, turn: int
) -> dict[str, float]:
    from bench._graphs import THREAD

    if not found.side.lasting:
        return {}
    watch, side = Stopwatch(), saver(info.open(found.place))
    graph = turns.compiled(side.checkpointer(), side.delta)
    given = {"messages": [turns.asked(turn)]}
    watch(partial(graph.invoke, given, THREAD, durability=durability))
    turns.check(graph.get_state(THREAD).values["messages"])
    side.close()
    return {"again_ms": watch.wall[0] * 1e3}


def turns(durability: str) -> Run:
    """The work of a scenario."""
    return partial(_run_turns, durability)


if TYPE_CHECKING:
    from bench._graphs import Loop

PATIENCE = 300.0
METRICS_THREADS = (
    Metric("rate", "supersteps", "1/s", 0),
    Metric("client_ms", "CPU of the client per superstep", "ms", 3),
    Metric("server_ms", "CPU of the server per superstep", "ms", 3),
    Metric("stored_kb", "stored per superstep", "KB", 2),
    Metric("slowest", "slowest / fastest thread", "x"),
    RSS,
)
NOTES_THREADS = (
    "16 threads of one process run a graph each with a thread id of its own and take the same "
    'number of steps in one invoke, durability="sync", after the history was made. '
    "They share one saver; PostgresSaver is shown on a pool, which it locks for each call, and "
    "with a saver and a connection for each thread, which a program has to arrange for itself.",
    "Without a checkpointer is what LangGraph itself can do in one interpreter.",
)

Make = Callable[[Mapping[str, int], int], "Loop"]
"""The n-th graph, which begins with its history."""


def together(make: Make, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the histories, run all threads at once, and check what each left."""
    with opened(info) as found:
        runs = [_Run(found, make(size, number), number) for number in range(size["threads"])]
        for run in runs:
            run.prepare()
        before = found.server.stored_bytes() if found.server.serves else 0
        figures = _all_at_once(found, runs)
        found.side.close()
        if found.server.serves:
            figures["stored_kb"] = (found.server.stored_bytes() - before) / _steps(runs) / 1e3
        _check(info, found, runs)
    return Measured(figures)


class _Run:
    """One thread with its graph."""

    def __init__(self, found: Opened, loop: Loop, number: int) -> None:
        self.loop, self.config = loop, loop.config(f"thread-{number}")
        self._checkpointer: Any = found.side.checkpointer()
        self._graph = loop.compiled(self._checkpointer)
        self.values: Any = None
        self.began = self.ended = 0.0
        self.failure: BaseException | None = None

    def prepare(self) -> None:
        """Make the history, so that the first step is next."""
        if self._checkpointer:
            self._graph.update_state(self.config, self.loop.first(), as_node="work")

    def run(self, barrier: Barrier) -> None:
        """Wait for the others; then take the steps."""
        told = options(self._checkpointer, "sync")
        given = None if self._checkpointer else self.loop.first()
        barrier.wait(PATIENCE)
        barrier.wait(PATIENCE)
        try:
            self.began = time.perf_counter()
            self.values = self._graph.invoke(given, self.config, **told)
            self.ended = time.perf_counter()
        except BaseException as failure:
            self.failure = failure
        barrier.wait(PATIENCE)


def _all_at_once(found: Opened, runs: list[_Run]) -> dict[str, float]:
    barrier = Barrier(len(runs) + 1)
    threads = [Thread(target=run.run, args=(barrier,)) for run in runs]
    for thread in threads:
        thread.start()
    barrier.wait(PATIENCE)
    server, client = found.server.cpu_seconds(), time.process_time()
    barrier.wait(PATIENCE)
    barrier.wait(PATIENCE)
    client, server = time.process_time() - client, found.server.cpu_seconds() - server
    for thread in threads:
        thread.join()
    failures = [run.failure for run in runs if run.failure]
    if failures:
        raise failures[0]
    took = [run.ended - run.began for run in runs]
    figures = {
        "rate": _steps(runs) / (max(run.ended for run in runs) - min(run.began for run in runs)),
        "client_ms": client / _steps(runs) * 1e3,
        "slowest": max(took) / min(took),
        "rss_mb": own_peak_bytes() / 1e6,
    }
    if found.server.serves:
        figures["server_ms"] = server / _steps(runs) * 1e3
    return figures


def _steps(runs: list[_Run]) -> int:
    return sum(run.loop.steps for run in runs)


def _check(info: EngineInfo, found: Opened, runs: list[_Run]) -> None:
    side = saver(info.open(found.place))
    checkpointer = side.checkpointer()
    for run in runs:
        graph = run.loop.compiled(checkpointer)
        values = graph.get_state(run.config).values if checkpointer else run.values
        run.loop.check(values)
    side.close()


if TYPE_CHECKING:
    from bench._graphs import Loop

SIZE_CHATS = {"steps": 2000}
QUICK_CHATS = {"steps": 100}
METRICS_CHATS = (*STEPS, Metric("grown", "stored / that of a quarter of the steps", "x"))


def _loop(size: Mapping[str, int]) -> Loop:
    from bench._graphs import Talking

    return Talking(size["steps"])


def _run_chats(name: str, durability: str, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    return steps(name, _loop, durability, info, size, quarter=True)


def chat(name: str, durability: str) -> Run:
    """The work of a scenario."""
    return partial(_run_chats, name, durability)
