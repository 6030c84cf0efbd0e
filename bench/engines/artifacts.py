"""Stores of what several agents share, and clients that tell each other of changes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench._model import Engine, EngineInfo, Place, our_engine, ours

KEY = "artifact"


class Shared(Engine):
    """A store that several agents of a process use at once."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self.store = store

    def namespace(self, agent: str) -> tuple[str, ...]:
        """Where an agent finds what all of them share."""
        return (agent, "shared")

    def commit(self, value: Any) -> None:
        self.store.put(self.namespace("writer"), KEY, value)

    def read(self) -> Any:
        return self.store.get(self.namespace("reader"), KEY).value

    def add_one(self, agent: str, key: str) -> int:
        """Add one to a counter, as well as the side can; how often it had to try.

        Most can only read it and put it back.
        """
        where = self.namespace(agent)
        found = self.store.get(where, key).value
        self.store.put(where, key, {**found, "count": found["count"] + 1})
        return 1

    async def await_add_one(self, agent: str, key: str) -> int:
        """The same, awaited."""
        where = self.namespace(agent)
        found = (await self.store.aget(where, key)).value
        await self.store.aput(where, key, {**found, "count": found["count"] + 1})
        return 1

    def settle(self) -> None:
        """Wait until nothing is left to do for the calls that returned."""


class InMemory(Shared):
    """LangGraph's InMemoryStore, which hands out the object that it was given."""

    def __init__(self, place: Place | None = None) -> None:
        super().__init__(import_module("langgraph.store.memory").InMemoryStore())

    def namespace(self, agent: str) -> tuple[str, ...]:
        return ("all", "shared")


class Peer(Shared):
    """agent-coherence's store, with its own defaults."""

    def __init__(self, place: Place | None = None) -> None:
        super().__init__(import_module("ccs.adapters").CCSStore(strategy="lazy"))


class OfPostgres(Shared):
    """LangGraph's PostgresStore on one connection, as its documentation opens it."""

    def __init__(self, place: Place) -> None:
        import psycopg
        from psycopg.rows import dict_row

        self._connection: Any = psycopg.Connection.connect(
            place.url, autocommit=True, prepare_threshold=0, row_factory=dict_row
        )
        super().__init__(import_module("langgraph.store.postgres").PostgresStore(self._connection))
        self.store.setup()

    def namespace(self, agent: str) -> tuple[str, ...]:
        return ("all", "shared")

    def close(self) -> None:
        self._connection.close()


def shared(engine: Engine) -> Shared:
    """The engine, which must be a store of what agents share."""
    assert isinstance(engine, Shared), f"{type(engine).__name__} is no store of shared artifacts"
    return engine


ENGINES = (
    EngineInfo(
        name="shared-memory",
        label="InMemoryStore",
        open=InMemory,
        environment="peers",
        package="langgraph-checkpoint",
        imports="langgraph.store.memory",
        note="promises nothing: it hands out the object that it was given, to everybody the same",
    ),
    EngineInfo(
        name="shared-peer",
        label="CCSStore",
        open=Peer,
        environment="peers",
        package="agent-coherence",
        imports="ccs.adapters",
        note="its default, lazy, in one process, the only place where it works",
    ),
    EngineInfo(
        name="shared-peer-page",
        label="CCSStore of its page",
        open=Peer,
        environment="coherence-0.6",
        package="agent-coherence",
        imports="ccs.adapters",
        note="the version that its page describes",
    ),
    EngineInfo(
        name="shared-langgraph-postgres",
        label="PostgresStore",
        open=OfPostgres,
        environment="peers",
        package="langgraph-checkpoint-postgres",
        imports="langgraph.store.postgres",
        note="keeps no versions, and the last writer wins",
        server="postgres",
    ),
    our_engine(
        name="shared-access-count",
        label="CoherentStore, access_count",
        open=lambda place=None: ours("langgraph").CoherentSide("access_count", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="reads ask nobody 100 times, unless they are told",
    ),
    our_engine(
        name="shared-broadcast",
        label="CoherentStore, broadcast",
        open=lambda place=None: ours("langgraph").CoherentSide("broadcast", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="reads ask nobody while the log was followed within a second",
    ),
    our_engine(
        name="shared-eager",
        label="CoherentStore, eager",
        open=lambda place=None: ours("langgraph").CoherentSide("eager", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="every read is confirmed; content is pushed",
    ),
    our_engine(
        name="shared-lazy",
        label="CoherentStore, lazy",
        open=lambda place=None: ours("langgraph").CoherentSide("lazy", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="the default: every read is confirmed",
    ),
    our_engine(
        name="shared-lease",
        label="CoherentStore, lease",
        open=lambda place=None: ours("langgraph").CoherentSide("lease", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="reads ask nobody for 300 s, unless they are told",
    ),
    our_engine(
        name="shared-postgres",
        label="CoherentStore, lazy, Postgres",
        open=lambda place=None: ours("langgraph").CoherentSide("lazy", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="durable; every read is confirmed",
        server="postgres",
    ),
    our_engine(
        name="shared-postgres-lease",
        label="CoherentStore, lease, Postgres",
        open=lambda place=None: ours("langgraph").CoherentSide("lease", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="durable; reads ask nobody for 300 s, unless they are told",
        server="postgres",
    ),
    our_engine(
        name="shared-redis",
        label="CoherentStore, lazy, Redis",
        open=lambda place=None: ours("langgraph").CoherentSide("lazy", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="durable; every read is confirmed",
        server="redis",
    ),
    our_engine(
        name="shared-redis-lease",
        label="CoherentStore, lease, Redis",
        open=lambda place=None: ours("langgraph").CoherentSide("lease", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="durable; reads ask nobody for 300 s, unless they are told",
        server="redis",
    ),
    our_engine(
        name="shared-sqlite",
        label="CoherentStore, lazy, SQLite",
        open=lambda place=None: ours("langgraph").CoherentSide("lazy", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="durable; every read is confirmed",
        server="sqlite",
    ),
    our_engine(
        name="shared-sqlite-lease",
        label="CoherentStore, lease, SQLite",
        open=lambda place=None: ours("langgraph").CoherentSide("lease", place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="durable; reads ask nobody for 300 s, unless they are told",
        server="sqlite",
    ),
    our_engine(
        name="told-here",
        label="in process",
        open=lambda place: ours().in_process(place),
        imports="ropewalk.coherence",
        note="two clients of one process, on a MemoryStore",
    ),
    our_engine(
        name="told-nats",
        label="NATS",
        open=lambda place: ours().over_nats(place),
        imports="ropewalk.coherence",
        note="beside an embedded store",
        server="nats",
    ),
    our_engine(
        name="told-postgres",
        label="Postgres",
        open=lambda place: ours().over_postgres(place),
        imports="ropewalk.coherence",
        note="LISTEN and NOTIFY, in the database of the store",
        server="postgres",
    ),
    our_engine(
        name="told-redis",
        label="Redis",
        open=lambda place: ours().over_redis(place),
        imports="ropewalk.coherence",
        note="publish and subscribe, on the server of the store",
        server="redis",
    ),
    our_engine(
        name="told-sqlite",
        label="SQLite",
        open=lambda place: ours().over_log(place),
        imports="ropewalk.coherence",
        note="no bus: the log of the embedded store is followed",
        server="sqlite",
    ),
)
