"""Where the values of shared items are kept: what `CoherentStore` asks of either place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ropewalk.adapters.langgraph._coherent_names import Scope
from ropewalk.adapters.langgraph.store.items import StoreItem, StoreSearchItem
from ropewalk.adapters.langgraph.store.operations import Search
from ropewalk.coherence.write_path import EDIT_SECONDS


class Asked(NamedTuple):
    """An item that an agent asks for: which artifact it is, and what the agent calls it."""

    agent: str
    artifact: str
    namespace: Scope
    key: str


class Put(NamedTuple):
    """What is to be put."""

    asked: Asked
    value: dict[str, Any] | None
    """None deletes the item."""
    if_version: int | None = None
    """Only if this is the version now, 0 if there is no item."""
    index: Any = None
    ttl: float | None = None


class Contents(Protocol):
    """Reads and writes items. Safe to share between threads."""

    is_local: bool
    """Whether nothing here waits for a disk or a server."""

    def get(
        self, agent: str, artifact: str, namespace: Scope, key: str, refresh: bool | None
    ) -> StoreItem | None:
        """An item as an agent may see it; None if there is none."""

    def cached(self, agent: str, artifact: str, namespace: Scope, key: str) -> StoreItem | None:
        """An item that may be served without asking anybody; None if one has to ask."""

    def get_all(self, asked: Sequence[Asked], refresh: bool | None) -> list[StoreItem | None]:
        """Several items of one agent, as they were at one moment if that can be."""

    def put(self, put: Put) -> None:
        """Write or delete one item."""

    def put_all(self, agent: str, puts: Sequence[Put]) -> None:
        """Write and delete several items of one agent, all or none if that can be."""

    def search(self, asked: Scope, search: Search) -> list[StoreSearchItem]:
        """The items below a prefix that pass."""

    def namespaces(self, op: Any) -> list[Scope]:
        """Which namespaces there are."""

    def edit(
        self,
        asked: Asked,
        change: Callable[[Any], Any],
        default: Any,
        timeout: float = EDIT_SECONDS,
    ) -> StoreItem:
        """Change an item by a function of its value, without losing what others do."""

    def forget(self, agent: str) -> None:
        """Serve nothing to an agent any more that it has seen so far."""


def by_agent(puts: Iterable[Put]) -> dict[str, list[Put]]:
    """Puts by the agents that make them; of several puts of one artifact the last."""
    last: dict[str, Put] = {}
    for put in puts:
        last.pop(put.asked.artifact, None)
        last[put.asked.artifact] = put
    grouped: dict[str, list[Put]] = {}
    for put in last.values():
        grouped.setdefault(put.asked.agent, []).append(put)
    return grouped
