"""Sides that record whole values: floors, peers and ours, in memory and on disk."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

from bench._model import Durability, Engine, EngineInfo, Place, our_engine, ours


class Floor(Engine):
    """Counts what every step would store and keeps the newest, which costs it least."""

    def __init__(self, dump: Callable[[Any], bytes], load: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._dump, self._load = dump, load
        self._newest = b""
        self._bytes = 0

    def commit(self, value: Any) -> None:
        self._newest = self._dump(value)
        self._bytes += len(self._newest)

    def read(self) -> Any:
        return self._load(self._newest)

    def stored_bytes(self) -> int:
        return self._bytes


def _open_msgpack_whole() -> Engine:
    import ormsgpack

    return Floor(ormsgpack.packb, ormsgpack.unpackb)


def _open_pickle_whole() -> Engine:
    return Floor(lambda value: pickle.dumps(value, protocol=5), pickle.loads)


def _open_zstd_whole() -> Engine:
    import ormsgpack
    import zstandard

    squeeze = zstandard.ZstdCompressor(level=3).compress
    expand = zstandard.ZstdDecompressor().decompress
    return Floor(
        lambda value: squeeze(ormsgpack.packb(value)),
        lambda data: ormsgpack.unpackb(expand(data)),
    )


Change = tuple[tuple[str | int, ...], Any]
"""A path and what stands there from then on; without a path it is the whole value."""


def replayed(changes: Sequence[Change]) -> Any:
    """The value after all changes."""
    value: Any = [] if changes[0][0] else None
    for path, new in changes:
        value = _changed(value, path, new)
    return value


def _changed(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    part = value
    for step in path[:-1]:
        part = part[step]
    if isinstance(part, list) and path[-1] == len(part):
        part.append(new)
    else:
        part[path[-1]] = new
    return value


SYNCHRONOUS = {"full": "FULL", "relaxed": "NORMAL"}

_TABLES = (
    "CREATE TABLE IF NOT EXISTS versions (number INTEGER PRIMARY KEY, branch TEXT, data BLOB)",
    "CREATE TABLE IF NOT EXISTS keys (name TEXT PRIMARY KEY, data BLOB)",
)


class Versions:
    """Rows with pickled data, one for each commit. The checkpoint interval is Ropewalk's."""

    def __init__(self, place: Place) -> None:
        self._branch = place.branch
        path = place.folder / "floor.db"
        self.db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {SYNCHRONOUS[place.durability]}")
        self.db.execute("PRAGMA wal_autocheckpoint = 4000")
        for table in _TABLES:
            self.db.execute(table)

    def add(self, value: Any) -> None:
        """One transaction with one row."""
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute(
            "INSERT INTO versions (branch, data) VALUES (?, ?)", (self._branch, dump(value))
        )
        self.db.execute("COMMIT")

    def newest(self) -> Any:
        """What was added last."""
        asked = "SELECT data FROM versions WHERE branch = ? ORDER BY number DESC LIMIT 1"
        return pickle.loads(self.db.execute(asked, (self._branch,)).fetchone()[0])

    def all(self) -> list[Any]:
        """Everything that was added, in order."""
        asked = "SELECT data FROM versions WHERE branch = ? ORDER BY number"
        return [pickle.loads(row[0]) for row in self.db.execute(asked, (self._branch,))]


def dump(value: Any) -> bytes:
    """The bytes of a row."""
    return pickle.dumps(value, protocol=5)


class PickleSqlite(Engine):
    """A row for each commit, with the whole state."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._versions = Versions(place)

    def commit(self, value: Any) -> None:
        self._versions.add(value)

    def read(self) -> Any:
        return self._versions.newest()

    def close(self) -> None:
        self._versions.db.close()


class BareSqlite(Engine):
    """It is told what changed, and inserts that and its path. Reading replays all rows."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._versions = Versions(place)

    def commit(self, value: Any) -> None:
        self._versions.add(((), value))

    def change(self, value: Any, path: tuple[str | int, ...], new: Any) -> None:
        self._versions.add((path, new))

    def read(self) -> Any:
        return replayed(self._versions.all())

    def load(self, pairs: Mapping[str, Any]) -> None:
        db = self._versions.db
        db.execute("BEGIN IMMEDIATE")
        rows = ((name, dump(value)) for name, value in pairs.items())
        db.executemany("INSERT INTO keys VALUES (?, ?)", rows)
        db.execute("COMMIT")

    def put(self, key: str, value: Any) -> None:
        db = self._versions.db
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE keys SET data = ? WHERE name = ?", (dump(value), key))
        db.execute("COMMIT")

    def get(self, key: str) -> Any:
        found = self._versions.db.execute("SELECT data FROM keys WHERE name = ?", (key,))
        return pickle.loads(found.fetchone()[0])

    def close(self) -> None:
        self._versions.db.close()


_SYNCHRONOUS = {"full": 2, "relaxed": 1}

NOTE = (
    "on diskcache, whose own setting is SQLite's synchronous=NORMAL, our relaxed; for full it is "
    "set to FULL. Values from 32 KB on are files, which diskcache never syncs, so even then a "
    "power loss may take them"
)

OWN_NOTE = (
    "on diskcache at its own setting, SQLite's synchronous=NORMAL, our relaxed; values from 32 KB "
    "on are files, which it never syncs"
)


def set_durability(cache: Any, durability: Durability) -> None:
    """Set what a commit survives; the setting is kept in the cache's folder."""
    wanted = _SYNCHRONOUS[durability]
    if cache.sqlite_synchronous != wanted:
        cache.reset("sqlite_synchronous", wanted)


class Agex(Engine):
    """The whole value as one key; single keys for keyed work."""

    def __init__(self, kept: Any = None, key: str = "value") -> None:
        super().__init__()
        self._versioned = import_module("agex.state").Versioned
        self._kept = import_module("agex.state.kv").Memory() if kept is None else kept
        self._handle = self._versioned(self._kept)
        self._key = key

    def commit(self, value: Any) -> None:
        self.put(self._key, value)

    def read(self) -> Any:
        return self.get(self._key)

    def stored_bytes(self) -> int:
        return sum(len(value) for _, value in self._kept.items())

    def load(self, pairs: Mapping[str, Any]) -> None:
        for key, value in pairs.items():
            self._handle.set(key, value)
        self._handle.snapshot()

    def put(self, key: str, value: Any) -> None:
        self._handle.set(key, value)
        self._handle.snapshot()

    def get(self, key: str) -> Any:
        return self._versioned(self._kept).get(key)


NO_LIMIT = 1 << 62


class AgexDisk(Agex):
    """The same, with a limit that is never reached: at its own of 1 GiB it drops live data."""

    def __init__(self, place: Place) -> None:
        self._disk = import_module("agex.state.kv").Disk(str(place.folder), size_limit=NO_LIMIT)
        set_durability(self._disk.store, place.durability)
        super().__init__(self._disk, place.branch)

    def load(self, pairs: Mapping[str, Any]) -> None:
        # It would write each key in a transaction of its own, for minutes.
        with self._disk.store.transact():
            super().load(pairs)

    def close(self) -> None:
        self._disk.store.close()


class AgentRef(Engine):
    """Keeps each checkpoint as the reference in JSON, beside the content store."""

    def __init__(self, content: Any = None) -> None:
        super().__init__()
        agentref = import_module("agentref")
        kept = import_module("agentref.storage").InMemoryCAS() if content is None else content
        self._content = kept
        self._runtime = agentref.create_runtime(backend=self._content)
        field = agentref.Externalized[object]
        bases = (agentref.AgentRefState,)
        self._class: Any = type(bases[0])("State", bases, {"__annotations__": {"value": field}})
        self._reference: Any = agentref.ContentRef
        self._now = self._class(_runtime=self._runtime)
        self._checkpoints: list[str] = []

    def commit(self, value: Any) -> None:
        self._now.value = value
        self._keep(self._now.to_checkpoint_dict()["value"].to_json())

    def _keep(self, reference: str) -> None:
        self._checkpoints.append(reference)

    def _newest(self) -> str:
        return self._checkpoints[-1]

    def read(self) -> Any:
        reference = self._reference.from_json(self._newest())
        state = self._class.from_checkpoint_dict({"value": reference}, runtime=self._runtime)
        return state.value

    def stored_bytes(self) -> int:
        content = sum(len(self._content.get(one)) for one in self._content.iter_hashes())
        return content + sum(map(len, self._checkpoints))


class AgentRefDisk(AgentRef):
    """The references, which it leaves to its user, are lines of one file."""

    def __init__(self, place: Place) -> None:
        content = import_module("agentref.storage").FilesystemCAS(place.folder / "content")
        super().__init__(content)
        self._references = place.folder / f"{place.branch}.jsonl"

    def _keep(self, reference: str) -> None:
        with self._references.open("a") as lines:
            lines.write(reference + "\n")

    def _newest(self) -> str:
        return self._references.read_text().splitlines()[-1]


_KEY = "value"


class Kvgit(Engine):
    """A kvgit worktree on a backend, with its default settings."""

    def __init__(self, backend: Any = None, branch: str = "main") -> None:
        super().__init__()
        self._kvgit = import_module("kvgit")
        self._backend = import_module("kvgit.kv").Memory() if backend is None else backend
        self._branch = branch

    @cached_property
    def _tree(self) -> Any:
        # When it is first needed: it reads all keys, which reading one key does not.
        return self._kvgit.Repo(self._backend).worktree(self._branch, create=True)

    def commit(self, value: Any) -> None:
        self._tree[_KEY] = value
        self._tree.commit()

    def read(self) -> Any:
        return self.get(_KEY)

    def stored_bytes(self) -> int:
        return sum(len(value) for _, value in self._backend.items())

    def load(self, pairs: Mapping[str, Any]) -> None:
        self._tree.update(pairs)
        self._tree.commit()

    def put(self, key: str, value: Any) -> None:
        self._tree[key] = value
        self._tree.commit()

    def get(self, key: str) -> Any:
        # A second repository: the first one would answer from its cache of objects.
        return self._kvgit.Repo(self._backend).snapshot(branch=self._branch)[key]


class KvgitDisk(Kvgit):
    """The same worktree on its disk backend."""

    def __init__(self, place: Place) -> None:
        disk = import_module("kvgit.kv").Disk(str(place.folder))
        set_durability(disk.store, place.durability)
        super().__init__(disk, place.branch)

    def close(self) -> None:
        self._backend.close()


class AgentStateProtocol(Engine):
    """The value is one entry of its state, which must be a dict."""

    def __init__(self, storage: Any = None) -> None:
        super().__init__()
        package = import_module("agentstateprotocol")
        self._agent = package.AgentStateProtocol("bench", storage_backend=storage)
        self._uncounted: list[Any] = []
        self._bytes = 0

    def commit(self, value: Any) -> None:
        self._uncounted.append(self._agent.checkpoint({"value": value}))

    def read(self) -> Any:
        return self._agent.get_state()["value"]

    def stored_bytes(self) -> int:
        # It holds copies as Python objects; its storage writes each of them as JSON.
        for checkpoint in self._uncounted:
            self._bytes += len(json.dumps(checkpoint.to_dict(), default=str))
        self._uncounted.clear()
        return self._bytes


class AgentStateProtocolDisk(AgentStateProtocol):
    """It never reads its storage itself, so we ask for the newest checkpoint of the branch."""

    def __init__(self, place: Place) -> None:
        storage = import_module("agentstateprotocol").SQLiteStorage
        self._storage = storage(str(place.folder / "agent.db"))
        super().__init__(self._storage)
        self._branch = place.branch
        self._agent.branch(place.branch)

    def commit(self, value: Any) -> None:
        self._agent.checkpoint({"value": value})

    def read(self) -> Any:
        newest = self._storage.list_checkpoints(self._branch, limit=1)[0]
        return self._storage.load_checkpoint(newest["id"]).state["value"]


_CHANNEL = "value"


class LangGraph(Engine):
    """One thread; every commit puts one checkpoint in which the channel changed."""

    def __init__(self) -> None:
        super().__init__()
        self._base = import_module("langgraph.checkpoint.base")
        self._saver = import_module("langgraph.checkpoint.memory").InMemorySaver()
        self._config: Any = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
        self._version: Any = None
        self._step = 0

    def commit(self, value: Any) -> None:
        self._version = self._saver.get_next_version(self._version, None)
        checkpoint = self._base.empty_checkpoint()
        checkpoint["channel_values"] = {_CHANNEL: value}
        checkpoint["channel_versions"] = versions = {_CHANNEL: self._version}
        metadata = {"source": "loop", "step": self._step, "parents": {}}
        self._config = self._saver.put(self._config, checkpoint, metadata, versions)
        self._step += 1

    def read(self) -> Any:
        return self._saver.get_tuple(self._config).checkpoint["channel_values"][_CHANNEL]

    def stored_bytes(self) -> int:
        blobs = sum(len(data) for _, data in self._saver.blobs.values())
        rows = [
            row
            for spaces in self._saver.storage.values()
            for checkpoints in spaces.values()
            for row in checkpoints.values()
        ]
        return blobs + sum(len(row[0][1]) + len(row[1][1]) for row in rows)


ENGINES = (
    EngineInfo(
        name="msgpack",
        label="floor: ormsgpack, whole each step",
        open=_open_msgpack_whole,
        environment="ours",
    ),
    EngineInfo(
        name="pickle",
        label="floor: pickle, whole each step",
        open=_open_pickle_whole,
        environment="ours",
    ),
    EngineInfo(
        name="zstd",
        label="floor: ormsgpack + zstd, whole each step",
        open=_open_zstd_whole,
        environment="ours",
    ),
    EngineInfo(
        name="pickle-sqlite",
        label="floor: pickle of the whole state into SQLite",
        open=PickleSqlite,
        environment="ours",
        note="WAL, synchronous=FULL for full and NORMAL for relaxed",
    ),
    EngineInfo(
        name="bare-sqlite",
        label="floor: bare SQLite transaction with the new bytes",
        open=BareSqlite,
        environment="ours",
        note="it is told what changed; WAL, synchronous=FULL for full and NORMAL for relaxed; "
        "for keys it updates a row in place and keeps no history",
    ),
    EngineInfo(
        name="agex",
        label="agex 0.3, memory",
        open=Agex,
        environment="peers",
        package="agex",
        imports="agex.state",
    ),
    EngineInfo(
        name="agex-disk",
        label="agex 0.3, disk",
        open=AgexDisk,
        environment="peers",
        package="agex",
        imports="agex.state",
        note=f"{NOTE}. Its size limit of 1 GiB, at which it drops live data, is lifted. It has one "
        "head for all who write to a store, so several processes overwrite "
        "each other's commits",
    ),
    EngineInfo(
        name="agentref",
        label="AgentRef, memory",
        open=AgentRef,
        environment="peers",
        package="agent-checkpoint-cas",
        imports="agentref",
    ),
    EngineInfo(
        name="agentref-disk",
        label="AgentRef, files",
        open=AgentRefDisk,
        environment="peers",
        package="agent-checkpoint-cas",
        imports="agentref",
        note="each file is synced, its folder is not, and there is no relaxed setting; the "
        "references, which it leaves to the user's framework, are lines of a "
        "file, not synced",
    ),
    EngineInfo(
        name="kvgit",
        label="kvgit, memory",
        open=Kvgit,
        environment="peers",
        package="kvgit",
        imports="kvgit",
    ),
    EngineInfo(
        name="kvgit-disk",
        label="kvgit, disk",
        open=KvgitDisk,
        environment="peers",
        package="kvgit",
        imports="kvgit",
        note=NOTE,
    ),
    EngineInfo(
        name="agentstateprotocol",
        label="AgentStateProtocol, memory",
        open=AgentStateProtocol,
        environment="peers",
        package="agentstateprotocol",
        imports="agentstateprotocol",
        note="bytes are its checkpoints as compact JSON, the form in which its storage keeps them; "
        "in memory it holds Python objects that share their strings",
    ),
    EngineInfo(
        name="agentstateprotocol-disk",
        label="AgentStateProtocol, SQLite",
        open=AgentStateProtocolDisk,
        environment="peers",
        package="agentstateprotocol",
        imports="agentstateprotocol",
        note="a connection for each commit with SQLite's defaults: a rollback journal and "
        "synchronous=FULL, which is durable; there is no relaxed setting",
    ),
    EngineInfo(
        name="langgraph",
        label="LangGraph InMemorySaver",
        open=LangGraph,
        environment="peers",
        package="langgraph-checkpoint",
        imports="langgraph.checkpoint.memory",
        note="the saver is driven directly, without a graph, which would only add to its time",
    ),
    our_engine(
        name="ropewalk",
        label="Ropewalk, memory",
        open=lambda: ours().Ropewalk(),
        note="bytes are all frames that were ever written; the ref move and its entry in the "
        "operation log are made but not counted",
    ),
    our_engine(
        name="ropewalk-disk",
        label="Ropewalk, SQLite",
        open=lambda place: ours().RopewalkDisk(place, ours().sqlite_store),
        note="it is handed the whole value and not told what changed",
    ),
    our_engine(
        name="ropewalk-files",
        label="Ropewalk, files",
        open=lambda place: ours().RopewalkDisk(place, ours().file_store),
        note="plain files; it is handed the whole value and not told what changed",
    ),
    our_engine(
        name="ropewalk-told",
        label="Ropewalk, SQLite, told the path",
        open=lambda place: ours().RopewalkTold(place, ours().sqlite_store),
        note="it is told the path of what changed, and reads only the nodes on the way",
    ),
)
