"""One key changes in a small state, on each engine."""

from __future__ import annotations

from collections.abc import Mapping

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios import _clients as clients
from bench.scenarios._commits import Small
from bench.scenarios._sides import ENGINES, EVERY_SERVED
from bench.scenarios._work import Work


def client(size: Mapping[str, int], number: int) -> Work:
    """The work of one of several clients."""
    return Small(number)


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Commit alone, together, and in turns with the floor."""
    return clients.run(info, size, Small(1), client, beside=lambda: Small(1))


SCENARIO = Scenario(
    name="engines-small",
    title="One key changes in a state of 600 bytes: a durable commit on each engine",
    run=run,
    engines=EVERY_SERVED,
    metrics=clients.metrics(clients.OVER),
    size={
        "commits": 600, "seconds": 20, "blocks": 80,
        "processes": 4, "threads": 4, "together_seconds": 5,
    },
    quick={
        "commits": 100, "seconds": 10, "blocks": 10,
        "processes": 2, "threads": 2, "together_seconds": 1,
    },
    targets=(
        *(
            Target("over_ms", 1.0, f"{name}: wall of a small commit above the floor", side=name)
            for name in ENGINES
        ),
        *clients.beside_savers(1.5, "16 clients"),
        *clients.as_embedded("kb"),
    ),
    notes=(
        *clients.NOTES,
        "Wall above the floor is the difference of two medians: blocks of 5 commits take turns "
        "with blocks of the floor, in the same process and on the same server.",
    ),
    order=310,
    repeat=3,
)  # fmt: skip
