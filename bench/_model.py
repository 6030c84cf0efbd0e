"""What a scenario and an engine are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

Durability = Literal["full", "relaxed"]
Interpreter = Literal["ours", "peers", "python-3.12", "frameworks", "coherence-0.6"]
"""The interpreter, with its packages, in which a side runs."""


@dataclass(frozen=True)
class Place:
    """Where a side on disk keeps what it records, and what a commit has to survive."""

    folder: Path
    durability: Durability = "full"
    branch: str = "main"
    """Several processes may share a folder; each has a branch of its own."""
    url: str = ""
    """The server, for a side that works on one."""


class Engine(ABC):
    """One side of a benchmark: something that records versions of a value.

    Every call of `commit` is handed the whole value as plain Python and is not told
    what changed. `load` and `put` are for sides that keep single keys; a side that
    cannot records its whole state again.
    """

    def __init__(self) -> None:
        self._state: dict[str, Any] = {}

    @abstractmethod
    def commit(self, value: Any) -> None:
        """Record a version."""

    @abstractmethod
    def read(self) -> Any:
        """The newest version, read back from what is stored."""

    def stored_bytes(self) -> int:
        """The bytes of everything that is stored; on disk, the scenario looks itself."""
        raise NotImplementedError("what a side on disk stores is the size of its folder")

    def change(self, value: Any, path: tuple[str | int, ...], new: Any) -> None:
        """Record a version of `value` in which `new` stands at `path`.

        For sides that are told what changed. The others compare, or record everything.
        """
        self.commit(value)

    def close(self) -> None:  # noqa: B027 - in memory there is nothing to close
        """Let go of what is open on disk."""

    def load(self, pairs: Mapping[str, Any]) -> None:
        """Record many keys in one version."""
        self._state = dict(pairs)
        self.commit(self._state)

    def put(self, key: str, value: Any) -> None:
        """Record a version in which one key changed."""
        if not self._state:  # After a restart.
            self._state = self.read()
        self._state[key] = value
        self.commit(self._state)

    def get(self, key: str) -> Any:
        """The value of one key, read back from what is stored."""
        return self.read()[key]


@dataclass(frozen=True)
class EngineInfo:
    """How an engine is found, shown and opened."""

    name: str
    label: str
    open: Callable[..., Engine]
    """Called without arguments for a side in memory, with a `Place` for one on disk."""
    environment: Interpreter
    package: str | None = None
    """The distribution whose version is reported."""
    imports: str | None = None
    """What a program imports to use it; None for a floor."""
    note: str = ""
    server: Literal["", "sqlite", "postgres", "redis", "s3", "nats"] = ""
    """What the scenario starts for it; a side with one is made of clients."""


our_engine = partial(EngineInfo, environment="ours", package="ropewalk", imports="ropewalk")
"""A side of ours."""


def ours(needs: str = "ropewalk") -> Any:
    """Our sides, which need what the interpreters of peers may lack."""
    return import_module(f"bench.{needs}_sides")


@dataclass(frozen=True)
class Metric:
    """One figure of a scenario."""

    key: str
    label: str
    unit: str = ""
    digits: int = 2


PEAK = Metric("peak_mb", "peak memory of the process", "MB", 0)
"""Measured for every unit."""


OURS = "ropewalk"


@dataclass(frozen=True)
class Target:
    """A bound that one of our figures must keep, by itself or beside other sides.

    With `over` the figure is divided by that of each of these sides, with `under` that of
    each of these sides is divided by ours. The one that is worst for us decides.
    """

    metric: str
    limit: float
    text: str
    bound: Literal["at most", "at least"] = "at most"
    side: str = OURS
    over: tuple[str, ...] = ()
    under: tuple[str, ...] = ()

    @property
    def others(self) -> tuple[str, ...]:
        """The sides that it compares with."""
        return self.over or self.under

    def met(self, value: float) -> bool:
        """Whether the figure keeps the bound."""
        return value <= self.limit if self.bound == "at most" else value >= self.limit

    def ratio(self, ours: float, theirs: float) -> float:
        """The figure that the bound is for, beside one other side."""
        return ours / theirs if self.over else theirs / ours


@dataclass
class Measured:
    """What one unit found."""

    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    courses: dict[str, list[float]] = field(default_factory=dict)
    """How a figure grew with the work, at equal marks; shorter if a side stopped early."""


Run = Callable[[EngineInfo, Mapping[str, int]], Measured]
"""Does the work of one unit, in a process of its own."""


@dataclass(frozen=True)
class Scenario:
    """One workload with the sides that do it and the targets for ours."""

    name: str
    title: str
    run: Run
    engines: tuple[str, ...]
    metrics: tuple[Metric, ...]
    size: Mapping[str, int]
    quick: Mapping[str, int]
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()
    order: int = 100
    repeat: int = 5
    timeout: int = 600
    """Seconds after which a unit is stopped from outside."""
    environment: Interpreter | None = None
    """Where all its sides run, if not each where its engine says."""

    def sides(self, infos: Mapping[str, EngineInfo]) -> dict[str, EngineInfo]:
        """Its engines, each with the environment in which it runs here."""
        found = {name: infos[name] for name in self.engines}
        if self.environment is None:
            return found
        return {name: replace(one, environment=self.environment) for name, one in found.items()}
