"""Sides that record the steps of an agent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo, Place, our_engine, ours

_NAMES = ("plan", "search", "read", "extract", "compare", "write", "review", "answer")


class Steps(Engine):
    """Tells each state with the same words, whoever saves it."""

    can_look_back = False
    """Whether it can show the steps that were saved before it was opened."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def commit(self, value: Any) -> None:
        self._number += 1
        name = _NAMES[self._number % len(_NAMES)]
        self.save(value, f"Step {self._number}: {name} the sources", name)

    @abstractmethod
    def save(self, state: Any, description: str, logic_step: str) -> None:
        """Save one step."""

    def history(self, limit: int) -> int:
        """Ask for the newest steps; how many came."""
        raise NotImplementedError

    def tree(self) -> str:
        """The drawing of all steps."""
        raise NotImplementedError


_ENOUGH = 1_000_000
"""Past `max_checkpoints` it looks at every step each time, and removes none; it need not."""


class ProtocolSteps(Steps):
    """It never reads its storage itself, so we ask that for the newest checkpoint."""

    def __init__(self, place: Place, open_storage: Callable[[Any, Place], Any]) -> None:
        super().__init__()
        package = import_module("agentstateprotocol")
        self._storage = open_storage(package, place)
        self._agent = package.AgentStateProtocol(
            "bench", storage_backend=self._storage, max_checkpoints=_ENOUGH
        )

    def save(self, state: Any, description: str, logic_step: str) -> None:
        self._agent.checkpoint(state, description=description, logic_step=logic_step)

    def read(self) -> Any:
        # Its files are listed by the time of the file system, which is too coarse.
        listed = self._storage.list_checkpoints(limit=50)
        newest = max(listed, key=lambda one: float(one["timestamp"]))
        return self._storage.load_checkpoint(newest["id"]).state


def _storage_protocol_steps_files(package: Any, place: Place) -> Any:
    return package.FileSystemStorage(str(place.folder))


def _open_protocol_steps_files(place: Place) -> Engine:
    return ProtocolSteps(place, _storage_protocol_steps_files)


def _storage_protocol_steps_sqlite(package: Any, place: Place) -> Any:
    return package.SQLiteStorage(str(place.folder / "agent.db"))


def _open_protocol_steps_sqlite(place: Place) -> Engine:
    return ProtocolSteps(place, _storage_protocol_steps_sqlite)


ENGINES = (
    EngineInfo(
        name="protocol-steps-files",
        label="AgentStateProtocol, files",
        open=_open_protocol_steps_files,
        environment="peers",
        package="agentstateprotocol",
        imports="agentstateprotocol",
        note="not durable: a JSON file for each checkpoint that is never synced; "
        "max_checkpoints is raised, which spares it a look at all steps",
    ),
    EngineInfo(
        name="protocol-steps-sqlite",
        label="AgentStateProtocol, SQLite",
        open=_open_protocol_steps_sqlite,
        environment="peers",
        package="agentstateprotocol",
        imports="agentstateprotocol",
        note="durable: a connection for each checkpoint with SQLite's defaults, a rollback journal "
        "and synchronous=FULL; max_checkpoints is raised, which spares it a "
        "look at all steps",
    ),
    our_engine(
        name="timeline-files",
        label="Ropewalk, timeline, files",
        open=lambda place: ours().TimelineSteps(place, ours().file_store),
        note="durable: a checkpoint that returned survives a power loss, in plain files",
    ),
    our_engine(
        name="timeline-relaxed",
        label="Ropewalk, timeline, SQLite, relaxed",
        open=lambda place: ours().TimelineSteps(
            replace(place, durability="relaxed"), ours().sqlite_store
        ),
        note="a checkpoint that returned survives a kill; a power loss may take the last moments",
    ),
    our_engine(
        name="timeline-sqlite",
        label="Ropewalk, timeline, SQLite",
        open=lambda place: ours().TimelineSteps(place, ours().sqlite_store),
        note="durable: a checkpoint that returned survives a power loss",
    ),
)
