"""One artifact with ever more readers: what a put takes when all of them hold it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from bench._artifacts import text
from bench._clock import Bounds, Stopwatch
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench._stats import MICRO
from bench.engines.artifacts import KEY, Peer, Shared, shared
from bench.scenarios._sides import OUR_SHARED, PEERS_SHARED, SHARED_MEMORY

READERS = (1, 10, 100, 400, 1000)
_PEERS_MOST = 400  # One put takes it seconds then.
_FEWEST = 3
_WARM = 20


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
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
        for _ in range(_WARM):
            side.store.put(side.namespace("writer"), "another", value)
        side.settle()
        called, cpu = Stopwatch(), time.process_time()
        called(partial(side.store.put, side.namespace("writer"), key, value))
        side.settle()
        self.cpu.append(time.process_time() - cpu)
        self.wall += called.wall


SCENARIO = Scenario(
    name="coherence-readers",
    title="One put of 1 KB, which 1 to 1,000 agents of this process have read",
    run=run,
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
        Target("flat", 2.0, f"a put with 1,000 readers, times one with 1 ({side[7:]})", side=side)
        for side in OUR_SHARED
    ),
    notes=(
        "All readers of an artifact read it before each put, so that all of them hold it. Wall is "
        "that of the call of put; CPU is that of the process until everybody has been told. Just "
        "before it another artifact, which nobody has read, is put 20 times: reading empties the "
        f"caches of the processor. The peers are asked for at most {_PEERS_MOST} readers.",
    ),
    order=610,
    repeat=3,
)
