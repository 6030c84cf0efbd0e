"""How soon a holder in another process hears of a write, beside what its bus takes itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

from bench._model import Engine, EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._registry import engines
from bench._servers import running
from bench.scenarios._sides import EVERY_TOLD

if TYPE_CHECKING:
    from bench._told import Teller

_PAUSE = 0.005
_PATIENCE = 60.0
_WARM = 5


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
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
        for number in range(size["writes"] + _WARM):
            time.sleep(pauses.random() * _PAUSE)  # Else both would wait in step.
            bus.append(_sent(writer, holder))
            time.sleep(pauses.random() * _PAUSE)
            told.append(_told(writer, holder, number))
        driver += _driven(writer, size["writes"] // 2)
        holder.send("end")
        stack.callback(writer.close)
    bus, told = bus[_WARM:], told[_WARM:]
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
    from bench._told import Teller

    assert isinstance(engine, Teller), f"{type(engine).__name__} tells nobody"
    return engine


def _driven(writer: Teller, rounds: int) -> list[float]:
    """What the driver of the bus takes from process to process, without anything of ours."""
    if not writer.driver:
        return []
    from bench._drivers import carried

    return carried(writer.driver, rounds + _WARM)[_WARM:]


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


SCENARIO = Scenario(
    name="coherence-invalidation",
    title="From an acknowledged write in one process until a copy in another is invalid",
    run=run,
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
        "Wall times, by the clock that all processes of this machine share. The driver alone sends "
        "a message of its own from one process to the other. Our bus alone: from the call of "
        "publish until a subscriber in the other process is called; where the log is followed, "
        "from the end of a commit until watch gives it there. In process and for the log there is "
        "no driver, and our bus stands for it. The copy is looked at every 0.1 ms, which is "
        "counted against us.",
    ),
    order=605,
    repeat=3,
)
