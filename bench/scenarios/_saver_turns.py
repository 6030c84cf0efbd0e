"""A chat as users have it: one `invoke` for each turn of two messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bench._clock import Stopwatch, own_peak_bytes
from bench._model import EngineInfo, Measured, Metric, Run
from bench._stats import growth
from bench.engines.savers import saver
from bench.scenarios import _savers as savers
from bench.scenarios._savers import Opened, options

SIZE = {"turns": 500}
QUICK = {"turns": 40}
METRICS = (
    savers.STORED,
    Metric("growth_us", "a turn takes longer per message there, wall", "us", 2),
    Metric("growth_cpu_us", "the same, CPU of the client", "us", 2),
    Metric("first_ms", "wall per turn, first tenth", "ms", 2),
    Metric("last_ms", "last tenth", "ms", 2),
    Metric("again_ms", "wall of a turn with a saver that was just opened", "ms", 1),
    savers.WALL,
    savers.CLIENT,
    savers.SERVER,
    savers.RSS,
)
NOTES = (
    "The time per turn is fitted by least squares over medians of twentieths of the turns, per "
    "message that is already there. Without a checkpointer the caller hands over all messages "
    "at each turn, and add_messages goes through them: that is the graph's own growth.",
    "Afterwards the saver is closed, opened again, and takes one more turn.",
)


def _run(durability: str, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    from bench._graphs import Turns

    turns = Turns(size["turns"] + 1)
    with savers.opened(info) as found:
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
    return partial(_run, durability)
