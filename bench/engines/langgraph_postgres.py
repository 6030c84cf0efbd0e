"""LangGraph's PostgresSaver, driven directly: each key of the state is a channel."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench._model import EngineInfo, Place
from bench.engines._client import Client


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


ENGINE = EngineInfo(
    name="langgraph-postgres",
    label="LangGraph PostgresSaver",
    open=LangGraphPostgres,
    environment="peers",
    package="langgraph-checkpoint-postgres",
    imports="langgraph.checkpoint.postgres",
    note="only `put` is called, the least that keeps a state; each key of the state is a channel, "
    "and only the changed one gets a new version; a saver and a connection for each client, "
    "because a saver works one call at a time",
    server="postgres",
)
