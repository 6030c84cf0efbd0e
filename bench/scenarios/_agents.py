"""Many agents work on some artifacts at once: mostly they read, now and then they edit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Thread

from bench._model import Metric, Target
from bench._text import Text
from bench.engines.artifacts import Shared

METRICS = (
    Metric("completed", "operations", digits=0),
    Metric("edits", "of them edits", digits=0),
    Metric("lost", "edits lost", digits=0),
    Metric("errors", "errors", digits=0),
    Metric("again", "edits that had to try again", "%", 1),
    Metric("rate", "operations", "1/s", 0),
    Metric("cpu_us", "CPU per operation", "us", 0),
    Metric("more_mb", "memory for all of it", "MB", 1),
)


def targets(sides: Sequence[str]) -> tuple[Target, ...]:
    """No side loses an edit or raises."""
    return tuple(
        Target(metric, 0.0, f"{what} ({side[7:]})", side=side)
        for side in sides
        for metric, what in (("lost", "edits lost"), ("errors", "errors"))
    )


@dataclass
class Done:
    """What some agents did."""

    reads: int = 0
    edits: int = 0
    tries: int = 0
    errors: int = 0
    last_error: str = ""
    waits: list[float] = field(default_factory=list)
    """How long the edits took."""

    def __iadd__(self, other: Done) -> Done:
        self.reads += other.reads
        self.edits += other.edits
        self.tries += other.tries
        self.errors += other.errors
        self.last_error = other.last_error or self.last_error
        self.waits += other.waits
        return self

    def figures(self, counted: int) -> dict[str, float]:
        """What they say, beside what all counters hold together."""
        return {
            "completed": self.reads + self.edits,
            "edits": self.edits,
            "lost": self.edits - counted,
            "errors": self.errors,
            "again": (self.tries - self.edits) / max(self.edits, 1) * 100,
        }


def artifacts(count: int) -> list[str]:
    """The keys of the artifacts."""
    return [f"artifact-{number}" for number in range(count)]


def prepare(side: Shared, size: Mapping[str, int]) -> None:
    """Put the artifacts, about 1 KB each, with a counter."""
    text = Text(1)
    for key in artifacts(size["artifacts"]):
        side.store.put(side.namespace("first"), key, {"count": 0, "text": text.prose(950)})


def counted(side: Shared, size: Mapping[str, int]) -> int:
    """What all counters hold together."""
    where = side.namespace("looks")
    keys = artifacts(size["artifacts"])
    return sum(side.store.get(where, key).value["count"] for key in keys)


class Agent:
    """One agent, whose choices follow from its number."""

    def __init__(self, side: Shared, number: int, size: Mapping[str, int]) -> None:
        self._side, self._name, self._size = side, f"agent-{number}", size
        self._random, self._where = Random(number), side.namespace(f"agent-{number}")
        self.done = Done()

    def run(self) -> None:
        """Do everything, one after the other."""
        ends = time.monotonic() + self._size["seconds"]
        for key, edits in self._plan():
            try:
                if edits:
                    self._note(self._side.add_one(self._name, key))
                else:
                    self._look(self._side.store.get(self._where, key).value)
            except Exception as error:
                self._failed(error)
            if time.monotonic() > ends:
                return

    async def run_awaited(self) -> None:
        """The same as a task."""
        ends = time.monotonic() + self._size["seconds"]
        for key, edits in self._plan():
            try:
                if edits:
                    self._note(await self._side.await_add_one(self._name, key))
                else:
                    self._look((await self._side.store.aget(self._where, key)).value)
            except Exception as error:
                self._failed(error)
            if time.monotonic() > ends:
                return
            await asyncio.sleep(0)

    def _plan(self) -> list[tuple[str, bool]]:
        keys, share = artifacts(self._size["artifacts"]), self._size["edits_percent"]
        draw = self._random
        return [
            (draw.choice(keys), draw.random() * 100 < share)
            for _ in range(self._size["operations"])
        ]

    def _note(self, tries: int) -> None:
        self.done.edits += 1
        self.done.tries += tries

    def _look(self, value: dict[str, object]) -> None:
        assert "count" in value
        self.done.reads += 1

    def _failed(self, error: Exception) -> None:
        self.done.errors += 1
        self.done.last_error = repr(error)[:120]


def as_threads(agents: list[Agent]) -> Done:
    """Run each in a thread."""
    threads = [Thread(target=agent.run) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return together(agents)


def as_tasks(agents: list[Agent]) -> Done:
    """Run each as a task of one event loop."""

    async def whole() -> None:
        await asyncio.gather(*(agent.run_awaited() for agent in agents))

    asyncio.run(whole())
    return together(agents)


def together(agents: list[Agent]) -> Done:
    """What all of them did."""
    done = Done()
    for agent in agents:
        done += agent.done
    return done
