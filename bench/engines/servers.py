"""Clients of one server: floors on Postgres, Redis and S3, LangGraph's saver, and ours."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo, Place, our_engine, ours
from bench.engines.values import Change, replayed


class Client(Engine):
    """What one agent commits. Each client has a history of its own on the server."""

    @abstractmethod
    def another(self, name: str) -> Client:
        """One more client in this process. It must be asked for by one thread at a time."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the server, for the clients that came from this one too."""


class Floor(Client):
    """Sends what changed in the fewest round trips that make it durable, and nothing else."""

    def commit(self, value: Any) -> None:
        self.change(value, (), value)

    def change(self, value: Any, path: tuple[str | int, ...], new: Any) -> None:
        self._send(pickle.dumps((path, new), protocol=5))

    def read(self) -> Any:
        changes: list[Change] = [pickle.loads(data) for data in self._sent()]
        return replayed(changes)

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Keep these bytes so that a power loss does not take them."""

    @abstractmethod
    def _sent(self) -> list[bytes]:
        """All that this client ever sent, in order."""


_TABLE = "CREATE TABLE IF NOT EXISTS floor (number bigserial PRIMARY KEY, client text, data bytea)"


class FloorPostgres(Floor):
    """A connection for each client. The statement is prepared."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        import psycopg

        self._url, self._name = place.url, place.branch
        self._folder = place.folder
        self._connection: Any = psycopg.connect(place.url, autocommit=True)
        self._others: list[FloorPostgres] = []
        self._connection.execute("SET client_min_messages = warning")
        self._connection.execute(_TABLE)
        self._cursor: Any = self._connection.cursor()

    def _send(self, data: bytes) -> None:
        asked = "INSERT INTO floor (client, data) VALUES (%s, %b)"
        self._cursor.execute(asked, (self._name, data), prepare=True)

    def _sent(self) -> list[bytes]:
        asked = "SELECT data FROM floor WHERE client = %s ORDER BY number"
        return [bytes(row[0]) for row in self._connection.execute(asked, (self._name,))]

    def another(self, name: str) -> FloorPostgres:
        self._others.append(FloorPostgres(Place(self._folder, branch=name, url=self._url)))
        return self._others[-1]

    def close(self) -> None:
        for other in self._others:
            other.close()
        self._connection.close()


class FloorRedis(Floor):
    """One driver for the clients of a process; it has a connection for each thread."""

    def __init__(self, driver: Any, name: str) -> None:
        super().__init__()
        self._driver, self._name = driver, name
        self._number = len(self._keys())

    def _keys(self) -> list[bytes]:
        keys: list[bytes] = list(self._driver.scan_iter(f"floor:{self._name}:*", count=10_000))
        return sorted(keys)

    def _send(self, data: bytes) -> None:
        self._driver.set(f"floor:{self._name}:{self._number:08}", data)
        self._number += 1

    def _sent(self) -> list[bytes]:
        found: list[bytes] = self._driver.mget(self._keys())
        return found

    def another(self, name: str) -> FloorRedis:
        return FloorRedis(self._driver, name)

    def close(self) -> None:
        self._driver.close()


def _open_floor_redis(place: Place) -> FloorRedis:
    import redis

    return FloorRedis(redis.Redis.from_url(place.url), place.branch)


class FloorS3(Floor):
    """Two puts, the second after the first. One driver for the clients of a process."""

    def __init__(self, driver: Any, name: str) -> None:
        super().__init__()
        import obstore

        self._api, self._driver, self._name = obstore, driver, name
        self._number, self._tag = self._found()

    def _found(self) -> tuple[int, str | None]:
        try:
            found = self._api.get(self._driver, f"{self._name}/newest")
        except FileNotFoundError:
            return 0, None
        return int(bytes(found.bytes())), found.meta["e_tag"]

    def _key(self, number: int) -> str:
        return f"{self._name}/{number:08}"

    def _send(self, data: bytes) -> None:
        self._number += 1
        self._put(self._key(self._number), data, "overwrite")
        mode: Any = "create" if self._tag is None else {"e_tag": self._tag}
        self._tag = self._put(f"{self._name}/newest", str(self._number).encode(), mode)

    def _put(self, key: str, data: bytes, mode: Any) -> str | None:
        done = self._api.put(self._driver, key, data, mode=mode, use_multipart=False)
        tag: str | None = done["e_tag"]
        return tag

    def _sent(self) -> list[bytes]:
        keys = (self._key(number) for number in range(1, self._number + 1))
        return [bytes(self._api.get(self._driver, key).bytes()) for key in keys]

    def another(self, name: str) -> FloorS3:
        return FloorS3(self._driver, name)

    def close(self) -> None:
        """Nothing stays open."""


def _open_floor_s3(place: Place) -> FloorS3:
    from bench._servers import s3_driver

    return FloorS3(s3_driver(place.url, prefix="floor"), place.branch)


class LangGraphPostgres(Client):
    """A thread of a saver. A saver has one lock, so each client has its own, and a connection.

    A change gives a new version to the one channel that it is in, as a graph does whose node
    returns that channel.
    """

    def __init__(self, place: Place) -> None:
        super().__init__()
        import psycopg
        from psycopg.rows import dict_row

        self._base = import_module("langgraph.checkpoint.base")
        self._place = place
        self._connection: Any = psycopg.Connection.connect(
            place.url, autocommit=True, prepare_threshold=0, row_factory=dict_row
        )
        self._others: list[LangGraphPostgres] = []
        made = import_module("langgraph.checkpoint.postgres").PostgresSaver
        self._saver: Any = made(self._connection)
        self._thread: Any = {"configurable": {"thread_id": place.branch, "checkpoint_ns": ""}}
        self._config, self._versions, self._step = self._thread, dict[str, Any](), 0
        self._go_on()

    def _go_on(self) -> None:
        self._saver.setup()
        if found := self._saver.get_tuple(self._thread):
            self._config = found.config
            self._versions = dict(found.checkpoint["channel_versions"])
            self._step = found.metadata["step"] + 1

    def commit(self, value: Any) -> None:
        self._put(value, list(value))

    def change(self, value: Any, path: tuple[str | int, ...], new: Any) -> None:
        self._before_put(path, new)
        self._put(value, [str(path[0])])

    def _before_put(self, path: tuple[str | int, ...], new: Any) -> None:
        """What else a graph would tell the saver."""

    def _put(self, value: Any, changed: list[str]) -> None:
        new = {
            name: self._saver.get_next_version(self._versions.get(name), None) for name in changed
        }
        self._versions = {**self._versions, **new}
        checkpoint = self._base.empty_checkpoint()
        checkpoint["channel_values"] = value
        checkpoint["channel_versions"] = self._versions
        metadata = {"source": "loop", "step": self._step, "parents": {}}
        self._config = self._saver.put(self._config, checkpoint, metadata, new)
        self._step += 1

    def read(self) -> Any:
        return self._saver.get_tuple(self._thread).checkpoint["channel_values"]

    def another(self, name: str) -> LangGraphPostgres:
        place = Place(self._place.folder, branch=name, url=self._place.url)
        self._others.append(type(self)(place))
        return self._others[-1]

    def close(self) -> None:
        for other in self._others:
            other.close()
        self._connection.close()


class LangGraphStep(LangGraphPostgres):
    """Two calls for each step: `put_writes` when the node is done, `put` for the state."""

    def _before_put(self, path: tuple[str | int, ...], new: Any) -> None:
        written = [new] if len(path) > 1 else new  # A reducer appends it.
        self._saver.put_writes(self._config, [(str(path[0]), written)], f"task-{self._step}")


ENGINES = (
    EngineInfo(
        name="floor-postgres",
        label="floor: one INSERT, Postgres",
        open=FloorPostgres,
        environment="ours",
        note="it is told what changed; a prepared statement in autocommit, synchronous_commit on, "
        "a connection for each client",
        server="postgres",
    ),
    EngineInfo(
        name="floor-redis",
        label="floor: one SET, Redis",
        open=_open_floor_redis,
        environment="ours",
        note="it is told what changed; appendfsync always",
        server="redis",
    ),
    EngineInfo(
        name="floor-s3",
        label="floor: two dependent puts, S3",
        open=_open_floor_s3,
        environment="ours",
        note="it is told what changed; the second put is conditional",
        server="s3",
    ),
    EngineInfo(
        name="langgraph-postgres",
        label="LangGraph PostgresSaver",
        open=LangGraphPostgres,
        environment="peers",
        package="langgraph-checkpoint-postgres",
        imports="langgraph.checkpoint.postgres",
        note="only `put` is called, the least that keeps a state; each key of the state is a "
        "channel, and only the changed one gets a new version; a saver and a connection "
        "for each client, "
        "because a saver works one call at a time",
        server="postgres",
    ),
    EngineInfo(
        name="langgraph-postgres-step",
        label="LangGraph PostgresSaver, as in a graph",
        open=LangGraphStep,
        environment="peers",
        package="langgraph-checkpoint-postgres",
        imports="langgraph.checkpoint.postgres",
        note="`put_writes` and `put`, which a graph calls for each step of one node; the "
        "graph's own time is left out",
        server="postgres",
    ),
    our_engine(
        name="engine-postgres",
        label="Ropewalk, Postgres",
        open=lambda place: ours().opened(place),
        note="one store with its pool for the clients of a process",
        server="postgres",
    ),
    our_engine(
        name="engine-redis",
        label="Ropewalk, Redis",
        open=lambda place: ours().opened(place),
        note="one store with its connections for the clients of a process",
        server="redis",
    ),
    our_engine(
        name="engine-s3",
        label="Ropewalk, S3",
        open=lambda place: ours().opened(place),
        note="one store for the clients of a process; spaces are in the bucket, by "
        "conditional puts",
        server="s3",
    ),
    our_engine(
        name="engine-sqlite",
        label="Ropewalk, SQLite",
        open=lambda place: ours().opened(place),
        note="the embedded store, for orientation: no server, and nothing to send",
        server="sqlite",
    ),
)
