"""Sides that hold a state, which a program changes in place."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo, Place, our_engine, ours
from bench.engines.values import NO_LIMIT, OWN_NOTE, Agex, Kvgit

VALUE = "value"
"""The name of the value that is large, or grows."""
SMALL = "small"
"""The name of a number beside it."""


class Held(Engine):
    """A handle on a state, as a program keeps it between its commits."""

    @abstractmethod
    def look(self, name: str) -> Any:
        """The object that the handle gives for a name."""

    @abstractmethod
    def set(self, name: str, value: Any) -> None:
        """Assign a value, which the next commit stores."""

    @abstractmethod
    def save(self) -> None:
        """Commit."""

    @abstractmethod
    def reopen(self) -> None:
        """Go on with a new handle on what was committed."""

    def changed(self, name: str, value: Any) -> None:
        """Say that an object was changed in place, where a side does not look itself."""


def held(engine: Engine) -> Held:
    """The engine, which must be one that holds a state."""
    assert isinstance(engine, Held), f"{type(engine).__name__} holds no state"
    return engine


class Checkpointed(Held):
    """A typed state with one externalized field. Each checkpoint is a line of JSON."""

    def __init__(self, state_class: Any, runtime: Any) -> None:
        super().__init__()
        self._class, self._runtime = state_class, runtime
        self._checkpoints: list[str] = []
        self._now: Any = None
        self.reopen()

    def look(self, name: str) -> Any:
        return getattr(self._now, name)

    def set(self, name: str, value: Any) -> None:
        setattr(self._now, name, value)

    def save(self) -> None:
        self._keep(json.dumps(self._checkpoint()))

    def _checkpoint(self) -> dict[str, Any]:
        """What is kept of the state, as JSON can say it."""
        found: dict[str, Any] = self._now.to_checkpoint_dict()
        return found

    def reopen(self) -> None:
        newest = self._newest()
        told = json.loads(newest) if newest else {}
        self._now = self._class.from_checkpoint_dict(told, runtime=self._runtime)

    def _keep(self, checkpoint: str) -> None:
        self._checkpoints.append(checkpoint)

    def _newest(self) -> str:
        return self._checkpoints[-1] if self._checkpoints else ""

    def commit(self, value: Any) -> None:
        self.set(VALUE, value)
        self.save()

    def read(self) -> Any:
        self.reopen()
        return self.look(VALUE)

    def load(self, pairs: Mapping[str, Any]) -> None:
        self.commit(dict(pairs))

    def put(self, key: str, value: Any) -> None:
        whole = self.look(VALUE)
        whole[key] = value
        self.commit(whole)


class Lines:
    """Appends lines, and gives the newest."""

    def __init__(self, place: Place) -> None:
        self._file = place.folder / "checkpoints.jsonl"

    def add(self, line: str) -> None:
        """Append one."""
        with self._file.open("a") as lines:
            lines.write(line + "\n")

    def newest(self) -> str:
        """The last one; empty if there is none."""
        return self._file.read_text().splitlines()[-1] if self._file.exists() else ""


class AgexState(Agex, Held):
    """It looks itself for changes in what was read, once in the time between two commits."""

    def look(self, name: str) -> Any:
        return self._handle.get(name)

    def set(self, name: str, value: Any) -> None:
        self._handle.set(name, value)

    def save(self) -> None:
        self._handle.snapshot()

    def reopen(self) -> None:
        self._handle = self._versioned(self._kept)


class AgexStateDisk(AgexState):
    """The same on a folder, as durable as it is by itself."""

    def __init__(self, place: Place) -> None:
        self._disk = import_module("agex.state.kv").Disk(str(place.folder), size_limit=NO_LIMIT)
        super().__init__(self._disk)

    def load(self, pairs: Mapping[str, Any]) -> None:
        # It would write each key in a transaction of its own, for minutes.
        with self._disk.store.transact():
            super().load(pairs)

    def close(self) -> None:
        self._disk.store.close()


class KvgitState(Kvgit, Held):
    """It looks for no change, so what was changed in place is assigned again."""

    def look(self, name: str) -> Any:
        return self._tree[name]

    def set(self, name: str, value: Any) -> None:
        self._tree[name] = value

    def save(self) -> None:
        self._tree.commit()

    def reopen(self) -> None:
        self.__dict__.pop("_tree", None)

    def changed(self, name: str, value: Any) -> None:
        self.set(name, value)


class KvgitStateDisk(KvgitState):
    """The same on a folder, as durable as it is by itself."""

    def __init__(self, place: Place) -> None:
        super().__init__(import_module("kvgit.kv").Disk(str(place.folder)))

    def close(self) -> None:
        self._backend.close()


class AgentRefState(Checkpointed):
    """The content in a store, and the checkpoints beside it."""

    def __init__(self, content: Any = None) -> None:
        agentref = import_module("agentref")
        kept = import_module("agentref.storage").InMemoryCAS() if content is None else content
        self._content = kept
        fields = {VALUE: agentref.Externalized[object], SMALL: agentref.Inline[object]}
        bases = (agentref.AgentRefState,)
        made = type(bases[0])("State", bases, {"__annotations__": fields})
        super().__init__(made, agentref.create_runtime(backend=kept))

    def changed(self, name: str, value: Any) -> None:
        self.set(name, value)

    def _checkpoint(self) -> dict[str, Any]:
        found = super()._checkpoint()
        return found | {VALUE: found[VALUE].to_dict()} if VALUE in found else found

    def stored_bytes(self) -> int:
        content = sum(len(self._content.get(one)) for one in self._content.iter_hashes())
        return content + sum(map(len, self._checkpoints))


class AgentRefStateDisk(AgentRefState):
    """The checkpoints are lines of one file."""

    def __init__(self, place: Place) -> None:
        self._lines = Lines(place)
        super().__init__(import_module("agentref.storage").FilesystemCAS(place.folder / "content"))

    def _keep(self, checkpoint: str) -> None:
        self._lines.add(checkpoint)

    def _newest(self) -> str:
        return self._lines.newest()


ENGINES = (
    EngineInfo(
        name="agex-state",
        label="agex 0.3, memory",
        open=AgexState,
        environment="peers",
        package="agex",
        imports="agex.state",
        note="it loads a value at each first read after a commit, and pickles it again at the next "
        "commit to see whether it changed",
    ),
    EngineInfo(
        name="agex-state-disk",
        label="agex 0.3, disk",
        open=AgexStateDisk,
        environment="peers",
        package="agex",
        imports="agex.state",
        note=f"{OWN_NOTE}. Its size limit of 1 GiB, at which it drops live data, is lifted",
    ),
    EngineInfo(
        name="kvgit-state",
        label="kvgit, memory",
        open=KvgitState,
        environment="peers",
        package="kvgit",
        imports="kvgit",
        note="it detects no change in place: the program has to assign the value again, and a "
        "change of which it does not say so is lost. It loads a value above 8 "
        "MB at each read",
    ),
    EngineInfo(
        name="kvgit-state-disk",
        label="kvgit, disk",
        open=KvgitStateDisk,
        environment="peers",
        package="kvgit",
        imports="kvgit",
        note=f"{OWN_NOTE}. It detects no change in place either",
    ),
    EngineInfo(
        name="agentref-state",
        label="AgentRef, memory",
        open=AgentRefState,
        environment="peers",
        package="agent-checkpoint-cas",
        imports="agentref",
        note="one externalized field, beside an inline number; it has no history, so each "
        "checkpoint is a line that its user keeps. It detects no change in "
        "place: the program has to "
        "assign the value again, and a change of which it does not say so is "
        "lost. Many keys are one "
        "dict in the field",
    ),
    EngineInfo(
        name="agentref-state-disk",
        label="AgentRef, files",
        open=AgentRefStateDisk,
        environment="peers",
        package="agent-checkpoint-cas",
        imports="agentref",
        note="each file is synced, its folder is not; the checkpoints, which it leaves to the "
        "user's framework, are lines of a file, not synced",
    ),
    our_engine(
        name="versioned",
        label="Ropewalk, Versioned, memory",
        open=lambda: ours().VersionedState(),
        note="bytes are all frames that were ever written, with the commits",
    ),
    our_engine(
        name="versioned-disk",
        label="Ropewalk, Versioned, SQLite",
        open=lambda place: ours().VersionedOnDisk(place),
        note="durable: a commit that returned survives a power loss",
    ),
    our_engine(
        name="versioned-relaxed",
        label="Ropewalk, Versioned, SQLite, relaxed",
        open=lambda place: ours().VersionedOnDisk(replace(place, durability="relaxed")),
        note="a commit that returned survives a kill; a power loss may take the last moments",
    ),
    our_engine(
        name="typed-disk",
        label="Ropewalk, AgentState, SQLite",
        open=lambda place: ours().TypedState(place),
        note="durable; one externalized field, beside an inline number; the checkpoints, which "
        "belong to the user's framework, are lines of a file",
    ),
)
