"""The operations of a batch, checked before any of them is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    PutOp,
    SearchOp,
)

from ropewalk.adapters.langgraph._filters import Test, compiled
from ropewalk.adapters.langgraph._store_expiry import check_ttl
from ropewalk.adapters.langgraph._store_keys import ITEM, Name, to_key
from ropewalk.adapters.langgraph._store_writing import Put
from ropewalk.adapters.langgraph._vectors import Indexing, distinct
from ropewalk.errors import InvalidInput


@dataclass(slots=True)
class Search:
    """A search that is understood."""

    op: Any
    test: Test
    query: str | None


@dataclass(slots=True)
class Plan:
    """What a batch wants: reads by their places in it, and of each key the last put."""

    size: int = 0
    gets: dict[int, Any] = field(default_factory=dict)
    searches: dict[int, Search] = field(default_factory=dict)
    lists: dict[int, Any] = field(default_factory=dict)
    puts: dict[Name, Put] = field(default_factory=dict)
    texts: dict[Name, dict[str, str]] = field(default_factory=dict)
    """What is to be embedded for puts, by path."""

    @property
    def documents(self) -> list[str]:
        """The texts of all puts, each once."""
        return distinct(text for texts in self.texts.values() for text in texts.values())

    @property
    def queries(self) -> list[str]:
        """The questions of all searches, each once."""
        return distinct(one.query for one in self.searches.values() if one.query)


def planned(ops: Iterable[Any], indexing: Indexing | None) -> Plan:
    """A plan for operations; raises `InvalidInput`, or LangGraph's own error for a namespace."""
    plan = Plan()
    for number, op in enumerate(ops):
        plan.size = number + 1
        if not isinstance(op, GetOp | PutOp | SearchOp | ListNamespacesOp):
            raise InvalidInput(f"a batch has operations of LangGraph, not a {type(op).__name__}")
        if isinstance(op, GetOp):
            check_labels(op.namespace)
            to_key(ITEM, Name(tuple(op.namespace), _text(op.key)))
            plan.gets[number] = op
        elif isinstance(op, SearchOp):
            check_labels(op.namespace_prefix)
            plan.searches[number] = _search(op, indexing)
        elif isinstance(op, ListNamespacesOp):
            plan.lists[number] = _listing(op)
        else:
            add_put(plan, op, indexing)
    return plan


def add_put(plan: Plan, op: Any, indexing: Indexing | None, if_version: int | None = None) -> None:
    """Add one put; what was to be put under its name before is forgotten."""
    check_labels(op.namespace)
    namespace = tuple(op.namespace)
    if op.value is not None:
        check_root(namespace)
    name = Name(namespace, _text(op.key))
    to_key(ITEM, name)
    value = as_value(op.value)
    ttl = None if value is None else check_ttl(op.ttl)
    plan.puts.pop(name, None)
    plan.texts.pop(name, None)
    plan.puts[name] = Put(name, value, ttl, if_version=if_version)
    if value is not None and indexing is not None:
        plan.texts[name] = indexing.texts(value, op.index)


def check_labels(namespace: Any) -> None:
    """Raise LangGraph's own error unless the labels of a namespace are as it wants them."""
    if isinstance(namespace, str):  # Its letters would be taken for labels.
        raise InvalidNamespaceError(f"a namespace is a tuple of labels, not {namespace!r:.80}")
    # Older releases check less, and none checks the operations of a batch.
    for label in namespace:
        if not isinstance(label, str) or not label or "." in label or "\0" in label:
            raise InvalidNamespaceError(
                f"a label is text without dots and NULs, and not empty: {label!r:.80}"
            )


def check_root(namespace: tuple[str, ...]) -> None:
    """Raise LangGraph's own error unless items may be put into a namespace."""
    if not namespace or namespace[0] == "langgraph":
        raise InvalidNamespaceError(
            f"a namespace has a label, and the first is not 'langgraph': {namespace!r:.80}"
        )


def as_value(given: Any) -> dict[str, Any] | None:
    """A value that an item may have, or None; raises `InvalidInput`."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"the value of an item is a dict, not a {type(given).__name__}. Put it into one, as "
            'in {"value": ...}.'
        )
    return given if type(given) is dict else dict(given)


def _search(op: Any, indexing: Indexing | None) -> Search:
    _expect_window(op)
    query = op.query or None
    if query is not None and not isinstance(query, str):
        raise InvalidInput(f"a query is text, not a {type(query).__name__}")
    return Search(op, compiled(op.filter), query if indexing is not None else None)


def _listing(op: Any) -> Any:
    _expect_window(op)
    if op.max_depth is not None:
        _expect_whole(op.max_depth, "max_depth")
    for condition in op.match_conditions or ():
        check_labels(condition.path)
        if condition.match_type not in ("prefix", "suffix"):
            raise InvalidInput(
                f"namespaces are matched by prefix or suffix, not by {condition.match_type!r:.80}"
            )
    return op


def _expect_window(op: Any) -> None:
    _expect_whole(op.limit, "limit")
    _expect_whole(op.offset, "offset")


def _expect_whole(value: Any, what: str) -> None:
    if type(value) is not int or value < 0:
        raise InvalidInput(f"{what} is a whole number from 0 on, not {value!r:.80}")


def _text(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidInput(f"the key of an item is text, not a {type(key).__name__}")
    return key
