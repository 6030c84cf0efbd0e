"""Sides that are stores of what agents share, with LangGraph's interface for stores."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench._model import Engine, Place

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
