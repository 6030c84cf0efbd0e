"""Small steps of graphs, over what other savers add."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bench._interleaved import Turn, Work, interleaved
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench.engines.savers import saver
from bench.scenarios import savers
from bench.scenarios._sides import NO_SAVER, NULL_SAVER, OUR_SAVER, SAVER_SQLITE
from bench.scenarios.savers import Dialogue, Opened, options

_SIDES = (OUR_SAVER, SAVER_SQLITE, NULL_SAVER, NO_SAVER)
_BLOCK, _STEPS_BLOCK = 10, 50
_DURABILITY = "sync"

Left = Callable[[Any], None]
"""Fails if a checkpointer does not give what the graph left."""


def new_threads(info: EngineInfo, size: Mapping[str, int], turn: Turn) -> dict[str, float]:
    """Invoke a graph of three nodes in a new thread each time."""
    return _measured(info, turn, partial(_requests, size, turn, new=True))


def one_thread(info: EngineInfo, size: Mapping[str, int], turn: Turn) -> dict[str, float]:
    """Invoke it in one thread, again and again."""
    return _measured(info, turn, partial(_requests, size, turn, new=False))


def small_steps(info: EngineInfo, size: Mapping[str, int], turn: Turn) -> dict[str, float]:
    """Take steps in one invoke that change one number in a state of 600 bytes."""
    from bench._graphs import Stepping

    return _measured(info, turn, partial(_steps, Stepping(size["steps"]), turn))


def chat(info: EngineInfo, size: Mapping[str, int], turn: Turn) -> dict[str, float]:
    """Take steps in one invoke that add a message each."""
    from bench._graphs import Talking

    return _measured(info, turn, partial(_steps, Talking(size["steps"]), turn))


def dialogue(info: EngineInfo, size: Mapping[str, int], turn: Turn) -> dict[str, float]:
    """Take one invoke for each turn of two messages."""
    return _measured(info, turn, partial(_dialogue, size, turn))


def _measured(info: EngineInfo, turn: Turn, drive: Callable[[Opened], Left]) -> dict[str, float]:
    with savers.opened(info) as found:
        turn()
        began = time.process_time()
        left = drive(found)
        keeps = found.side.lasting and found.side.checkpointer() is not None
        found.side.close()
        figures = {"cpu_s": time.process_time() - began}
        if keeps:
            figures["stored_mb"] = found.stored() / 1e6
            again = saver(info.open(found.place))
            left(again.checkpointer())
            again.close()
    return figures


def _requests(size: Mapping[str, int], turn: Turn, found: Opened, *, new: bool) -> Left:
    from bench._graphs import Requests

    requests, checkpointer = Requests(), found.side.checkpointer()
    graph, told = requests.compiled(checkpointer), options(checkpointer, _DURABILITY)
    for number in range(size["invokes"]):
        if number % _BLOCK == 0:
            turn()
        config: Any = {"configurable": {"thread_id": f"thread-{number if new else 0}"}}
        given = requests.first() if new or not number else requests.next()
        graph.invoke(given, config, **told)
    return lambda kept: requests.check(requests.compiled(kept).get_state(config).values)


def _steps(loop: Any, turn: Turn, found: Opened) -> Left:
    step, checkpointer = loop.step, found.side.checkpointer()

    def in_turn(state: Any) -> Any:
        if len(loop.marks) % _STEPS_BLOCK == 0:
            turn()
        return step(state)

    loop.step = in_turn
    told = options(checkpointer, _DURABILITY)
    loop.compiled(checkpointer).invoke(loop.first(), loop.config(), **told)
    return lambda kept: loop.check(loop.compiled(kept).get_state(loop.config()).values)


def _dialogue(size: Mapping[str, int], turn: Turn, found: Opened) -> Left:
    from bench._graphs import THREAD, Turns

    turns = Turns(size["turns"])
    graph = Dialogue(found, turns, _DURABILITY)
    for number in range(size["turns"]):
        if number % _BLOCK == 0:
            turn()
        graph.ask(turns.asked(number))
    return lambda kept: turns.check(turns.compiled(kept).get_state(THREAD).values["messages"])


def _run(work: Work, unit: str, info: EngineInfo, size: Mapping[str, int]) -> Measured:
    found = interleaved(work, (info.name, *_SIDES[1:]), size)
    alone = found[NO_SAVER]["cpu_s"]
    ours, peer, null = (
        (found[side]["cpu_s"] - alone) / size[unit] * 1e3
        for side in (info.name, SAVER_SQLITE, NULL_SAVER)
    )
    return Measured(
        {
            "times": ours / peer,
            "null_times": null / peer,
            "added_ms": ours,
            "peer_ms": peer,
            "alone_ms": alone / size[unit] * 1e3,
            "stored_mb": found[info.name]["stored_mb"],
            "peer_mb": found[SAVER_SQLITE]["stored_mb"],
        }
    )


def _scenario(
    name: str,
    title: str,
    work: Work,
    size: Mapping[str, int],
    times: float | None = None,
    stored: float | None = None,
) -> Scenario:
    (unit,) = size
    limits = (
        ("times", times, "CPU added, over SqliteSaver's"),
        ("stored_mb", stored, "bytes after close"),
    )
    return Scenario(
        name=name,
        title=title,
        run=partial(_run, work, unit),
        engines=(OUR_SAVER,),
        metrics=(
            Metric("times", "CPU added / SqliteSaver's", "x", 3),
            Metric("null_times", "of a saver that stores nothing", "x", 3),
            Metric("added_ms", f"CPU added, one of the {unit}", "ms", 3),
            Metric("peer_ms", "SqliteSaver's", "ms", 3),
            Metric("alone_ms", "the graph without a checkpointer", "ms", 3),
            Metric("stored_mb", "stored after close", "MB", 2),
            Metric("peer_mb", "SqliteSaver's", "MB", 2),
        ),
        size=size,
        quick={unit: max(20, size[unit] // 10)},
        targets=tuple(
            Target(metric, limit, text, side=OUR_SAVER)
            for metric, limit, text in limits
            if limit is not None
        ),
        notes=(
            savers.durable_note(),
            "Ropewalk, SqliteSaver, a saver that stores nothing and the graph without a "
            "checkpointer do the same in a process each and take turns, every 10 invokes or 50 "
            "steps. CPU is that of the whole process, from the first block until the saver was "
            'closed; added is what it takes more than without a checkpointer. durability="sync".',
        ),
        order=20,
        repeat=3,
        timeout=1200,
        environment="python-3.12",
    )


SCENARIOS = (
    *(
        _scenario(
            "steps-new-threads",
            "A graph of three nodes, a new thread for each invoke",
            new_threads,
            {"invokes": 300},
            times=1.0,
        ),
        _scenario(
            "steps-one-thread",
            "A graph of three nodes, again and again in one thread",
            one_thread,
            {"invokes": 300},
            times=1.0,
        ),
        _scenario(
            "steps-invoke",
            "1,000 small steps in one invoke",
            small_steps,
            {"steps": 1000},
            times=0.95,
        ),
        _scenario(
            "steps-chat",
            "2,000 steps in one invoke, each adds a message of 1 KB",
            chat,
            {"steps": 2000},
            times=0.2,
            stored=1.8,
        ),
        _scenario(
            "steps-dialogue",
            "500 turns of two messages of 1 KB, one invoke each",
            dialogue,
            {"turns": 500},
            stored=1.4,
        ),
    ),
)
