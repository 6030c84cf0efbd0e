"""What agents learn of each other: engines, growth, invalidations, readers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any

from bench._clock import MICRO, Bounds, Stopwatch
from bench._model import Engine, EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._registry import engines
from bench._servers import Server, running
from bench._text import SIZES, text
from bench.engines.artifacts import KEY, Peer, Shared, shared
from bench.scenarios._sides import (
    EVERY_SHARED_SERVED,
    EVERY_TOLD,
    OUR_SHARED,
    PEERS_SHARED,
    SHARED_MEMORY,
)


def run_engines(info: EngineInfo, size: Mapping[str, int]) -> Measured:
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


_TIMES = 10
_VALUE = 500
_CALLS = 100
_SIDES = (OUR_SHARED[0], "shared-sqlite", "shared-redis")


def run_growth(info: EngineInfo, size: Mapping[str, int]) -> Measured:
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


if TYPE_CHECKING:
    from bench.ropewalk_sides import Teller

_PAUSE = 0.005
_PATIENCE = 60.0
_WARM_INVALIDATION = 5


def run_invalidation(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """One client writes, another holds; the same messages over the bus alone in between."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        url = stack.enter_context(running(info.server, folder)).url if info.server else ""
        place = Place(folder, url=url)
        writer = _teller(info.open(place))
        writer.commit({"step": 0})
        holder = stack.enter_context(_holder(info, place, writer))
        driver = _driven(writer, size["writes"] // 2)
        bus, told = list[float](), list[float]()
        pauses = Random(1)
        for number in range(size["writes"] + _WARM_INVALIDATION):
            time.sleep(pauses.random() * _PAUSE)  # Else both would wait in step.
            bus.append(_sent(writer, holder))
            time.sleep(pauses.random() * _PAUSE)
            told.append(_told(writer, holder, number))
        driver += _driven(writer, size["writes"] // 2)
        holder.send("end")
        stack.callback(writer.close)
    bus, told = bus[_WARM_INVALIDATION:], told[_WARM_INVALIDATION:]
    alone = median(driver or bus)
    figures = {
        "alone_us": alone * 1e6,
        "bus_us": median(bus) * 1e6,
        "told_us": median(told) * 1e6,
        "late_us": quantiles(told, n=20)[-1] * 1e6,
        "over_us": (median(told) - alone) * 1e6,
    }
    return Measured(figures)


def _teller(engine: Engine) -> Teller:
    from bench.ropewalk_sides import Teller

    assert isinstance(engine, Teller), f"{type(engine).__name__} tells nobody"
    return engine


def _driven(writer: Teller, rounds: int) -> list[float]:
    """What the driver of the bus takes from process to process, without anything of ours."""
    if not writer.driver:
        return []
    from bench._drivers import carried

    return carried(writer.driver, rounds + _WARM_INVALIDATION)[_WARM_INVALIDATION:]


def _sent(writer: Teller, holder: Connection) -> float:
    """What the bus alone takes."""
    _ask(holder, "hear")
    began = writer.send()
    return _moment(holder) - began


def _told(writer: Teller, holder: Connection, number: int) -> float:
    """From the end of a write until the holder's copy is invalid."""
    _ask(holder, "hold")
    writer.commit({"step": number})
    ended = time.monotonic()
    return _moment(holder) - ended


def _ask(holder: Connection, what: str) -> None:
    holder.send(what)
    assert holder.poll(_PATIENCE), "the holder does not answer"
    answer = holder.recv()
    assert answer == "ready", answer


def _moment(holder: Connection) -> float:
    assert holder.poll(_PATIENCE), "the holder heard nothing"
    found = holder.recv()
    assert isinstance(found, float), found
    return found


@contextmanager
def _holder(info: EngineInfo, place: Place, writer: Teller) -> Iterator[Connection]:
    """Somebody who holds: in a process of its own if there is a server, else in a thread."""
    mine, theirs = Pipe()
    if info.server:
        process = get_context("spawn").Process(target=_hold_apart, args=(info.name, place, theirs))
        process.start()
        yield mine
        process.join(_PATIENCE)
        return
    thread = Thread(target=_hold, args=(writer.another(), theirs), daemon=True)
    thread.start()
    yield mine
    thread.join(_PATIENCE)


def _hold_apart(name: str, place: Place, connection: Connection) -> None:
    _hold(_teller(engines()[name].open(place)), connection)


def _hold(side: Teller, connection: Connection) -> None:
    try:
        heard = side.hear()
        while (what := connection.recv()) != "end":
            if what == "hold":
                side.read()
                connection.send("ready")
                moment = side.invalidated()
                if side.bus is None:
                    heard()  # The log says that as well.
            else:
                connection.send("ready")
                moment = heard()
            connection.send(moment)
        side.close()
    except BaseException as failure:
        connection.send(f"the holder failed: {failure!r}")


READERS = (1, 10, 100, 400, 1000)
_PEERS_MOST = 400  # One put takes it seconds then.
_FEWEST = 3
_WARM_READERS = 20


def run_readers(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Some readers read, one agent puts; then more readers; and all of that again and again."""
    side = shared(info.open())
    most = _PEERS_MOST if isinstance(side, Peer) else READERS[-1]
    watches = {count: _Watch() for count in READERS if count <= most}
    bounds, done = Bounds(size["seconds"]), 0
    side.commit(text(1000, 0))
    while done < size["puts"] and not (bounds.reached() and done >= _FEWEST):
        done += 1
        for count, watch in watches.items():
            _put(side, count, text(1000, done * count), watch)
    side.close()
    figures: dict[str, float] = {"puts": done}
    for count, watch in watches.items():
        figures[f"cpu_{count}"] = median(watch.cpu) * MICRO
        figures[f"wall_{count}"] = median(watch.wall) * MICRO
    figures["flat"] = figures[f"wall_{max(watches)}"] / figures["wall_1"]
    figures["flat_cpu"] = figures[f"cpu_{max(watches)}"] / figures["cpu_1"]
    return Measured(figures)


def _put(side: Shared, count: int, value: Any, watch: _Watch) -> None:
    key = f"{KEY}-{count}"
    if not watch.wall:
        side.store.put(side.namespace("writer"), key, {})
    readers = [side.namespace(f"reader-{at}") for at in range(count)]
    for where in readers:
        side.store.get(where, key).value  # noqa: B018 - a reader looks at what it read
    watch.put(side, key, value)
    assert side.store.get(readers[-1], key).value == value, "a reader read an old artifact"


class _Watch:
    """The wall time of the call, and the CPU until everybody has been told."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def put(self, side: Shared, key: str, value: Any) -> None:
        """Put it, just after others of which nobody has read: reading has cooled the caches."""
        for _ in range(_WARM_READERS):
            side.store.put(side.namespace("writer"), "another", value)
        side.settle()
        called, cpu = Stopwatch(), time.process_time()
        called(partial(side.store.put, side.namespace("writer"), key, value))
        side.settle()
        self.cpu.append(time.process_time() - cpu)
        self.wall += called.wall


SCENARIOS = (
    Scenario(
        name="coherence-engines",
        title="A text of 4 KB is put and read on engines that last",
        run=run_engines,
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
            "Both agents are in one process. A put of ours makes a version that stays, and is "
            "checked against what others wrote; PostgresStore replaces the row.",
        ),
        order=630,
        repeat=1,
    ),
    Scenario(
        name="coherence-growth",
        title="Ten times the artifacts, the agents that hold one, and the versions of one",
        run=run_growth,
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
            "CPU of the client for one call, at a tenth of the size and at all of it. If all of "
            "the work grew with the size, the factor would be 10.",
        ),
        order=650,
        repeat=1,
    ),
    Scenario(
        name="coherence-invalidation",
        title="From an acknowledged write in one process until a copy in another is invalid",
        run=run_invalidation,
        engines=EVERY_TOLD,
        metrics=(
            Metric("alone_us", "the bus's driver alone, one way", "us", 0),
            Metric("bus_us", "our bus alone, one way", "us", 0),
            Metric("told_us", "until the copy is invalid, median", "us", 0),
            Metric("late_us", "the slowest twentieth", "us", 0),
            Metric("over_us", "above the driver alone", "us", 0),
        ),
        size={"writes": 200},
        quick={"writes": 10},
        targets=tuple(
            Target("over_us", 1000.0, f"above the bus's own one-way time ({side[5:]})", side=side)
            for side in EVERY_TOLD
        ),
        notes=(
            "Wall times, by the clock that all processes of this machine share. The driver alone "
            "sends a message of its own from one process to the other. Our bus alone: from the "
            "call of publish until a subscriber in the other process is called; where the log is "
            "followed, from the end of a commit until watch gives it there. In process and for "
            "the log there is no driver, and our bus stands for it. The copy is looked at every "
            "0.1 ms, which is counted against us.",
        ),
        order=605,
        repeat=3,
    ),
    Scenario(
        name="coherence-readers",
        title="One put of 1 KB, which 1 to 1,000 agents of this process have read",
        run=run_readers,
        engines=(*OUR_SHARED, SHARED_MEMORY, *PEERS_SHARED),
        metrics=(
            Metric("puts", "puts of each", digits=0),
            *(Metric(f"wall_{count}", f"wall, {count:,} readers", "us", 1) for count in READERS),
            Metric("flat", "wall, most / 1 reader", "x"),
            *(Metric(f"cpu_{count}", f"CPU, {count:,} readers", "us", 1) for count in READERS),
            Metric("flat_cpu", "CPU, most / 1 reader", "x"),
        ),
        size={"puts": 100, "seconds": 15},
        quick={"puts": 4, "seconds": 2},
        targets=tuple(
            Target(
                "flat", 2.0, f"a put with 1,000 readers, times one with 1 ({side[7:]})", side=side
            )
            for side in OUR_SHARED
        ),
        notes=(
            "All readers of an artifact read it before each put, so that all of them hold it. "
            "Wall is that of the call of put; CPU is that of the process until everybody has "
            "been told. Just before it another artifact, which nobody has read, is put 20 times: "
            "reading empties the "
            f"caches of the processor. The peers are asked for at most {_PEERS_MOST} readers.",
        ),
        order=610,
        repeat=3,
    ),
)
