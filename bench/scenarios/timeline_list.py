"""An agent saves a thousand steps of a list that grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench._model import Engine, EngineInfo, Measured, Scenario, Target
from bench._text import Text
from bench._values import message, payload_bytes
from bench.scenarios._sides import EVERY_STEPS, PEERS_STEPS, STEPS_ON_DISK
from bench.scenarios._timeline import METRICS, NOTES, run_steps
from bench.scenarios._work import Step, Work

Make = Callable[[Text, int], dict[str, Any]]
"""Makes the message of a number."""


class Growing(Work):
    """A state with a list of messages that grows by one at each step."""

    def __init__(self, text: Text, make: Make = message) -> None:
        self._text, self._make = text, make
        self.state: dict[str, Any] = {"messages": []}

    def steps(self) -> Iterator[Step]:
        messages = self.state["messages"]
        while True:
            messages.append(self._make(self._text, len(messages)))
            yield self._record

    def _record(self, engine: Engine) -> None:
        engine.commit(self.state)

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.state, "the list did not read back"

    def payload(self) -> int:
        return payload_bytes(self.state)


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Save the steps and look back."""
    return run_steps(info, Growing(Text(1)), size["checkpoints"], size)


SCENARIO = Scenario(
    name="timeline-list",
    title="1,000 checkpoints of a list that grows by about 1 KB each",
    run=run,
    engines=EVERY_STEPS,
    metrics=METRICS,
    size={"checkpoints": 1_000, "seconds": 120},
    quick={"checkpoints": 100, "seconds": 20},
    targets=(
        Target(
            "commits_cpu",
            10.0,
            "CPU of the peer over ours",
            "at least",
            side=STEPS_ON_DISK,
            under=PEERS_STEPS,
        ),
        Target(
            "folder_mb",
            100.0,
            "bytes of the peer over ours",
            "at least",
            side=STEPS_ON_DISK,
            under=PEERS_STEPS,
        ),
    ),
    notes=NOTES,
    order=190,
    repeat=3,
)
