"""The operations of a batch, validated before any is executed, and the execution of its reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Any, Final, TypeAlias

from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, PutOp, SearchOp

from ropewalk.adapters.langgraph.store.filters import Test, compiled
from ropewalk.adapters.langgraph.store.items import (
    ITEM,
    Entry,
    Name,
    Record,
    Stored,
    order,
    to_key,
    to_name,
)
from ropewalk.adapters.langgraph.store.snapshot import Expiry, Snapshot, check_ttl
from ropewalk.adapters.langgraph.store.vectors import Indexing, Partitions, Ranked, distinct
from ropewalk.adapters.langgraph.store.writing import Put
from ropewalk.errors import InvalidInput

Found: TypeAlias = tuple[Entry, float | None]
"""A search result, and its score."""

_FIRST: Final = 32
"""The first batch size when reading ranked items; it doubles each time."""


@dataclass(slots=True)
class Search:
    """A validated search."""

    op: Any
    test: Test
    query: str | None


@dataclass(slots=True)
class Plan:
    """The plan of a batch: reads by position, and the last put of each key."""

    size: int = 0
    gets: dict[int, Any] = field(default_factory=dict)
    searches: dict[int, Search] = field(default_factory=dict)
    lists: dict[int, Any] = field(default_factory=dict)
    puts: dict[Name, Put] = field(default_factory=dict)
    texts: dict[Name, dict[str, str]] = field(default_factory=dict)
    """The texts to embed for puts, by path."""

    @property
    def documents(self) -> list[str]:
        """The distinct texts of all puts."""
        return distinct(text for texts in self.texts.values() for text in texts.values())

    @property
    def queries(self) -> list[str]:
        """The distinct queries of all searches."""
        return distinct(one.query for one in self.searches.values() if one.query)


def planned(ops: Iterable[Any], indexing: Indexing | None) -> Plan:
    """Plan operations; raises `InvalidInput`, or LangGraph's own error for a namespace."""
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
    """Add a put, replacing an earlier one of the same name."""
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
    """Raise LangGraph's own error unless the labels of a namespace are valid."""
    if isinstance(namespace, str):  # A string would be taken for a tuple of its letters.
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
    """Validate the value of an item, or None; raises `InvalidInput`."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"the value of an item is a dict, not a {type(given).__name__}. Put it into one, as "
            'in {"value": ...}.'
        )
    return given if type(given) is dict else dict(given)


def expected_version(if_version: Any) -> int:
    """The version that a put must find; 0 for none. Raises `InvalidInput`."""
    expected = 0 if if_version is None else if_version
    _expect_whole(expected, "if_version")
    return int(expected)


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


class Reading:
    """Executes the reads of one batch on one snapshot."""

    def __init__(
        self, snapshot: Snapshot, expiry: Expiry, partitions: Partitions, moment: int
    ) -> None:
        self._snapshot, self._expiry, self._moment = snapshot, expiry, moment
        self._partitions = partitions
        self.renewed: dict[str, Stored] = {}
        """What was read, and whose time begins again with that."""

    def results(self, plan: Plan, queries: Mapping[str, bytes]) -> list[Any]:
        """The results of all operations, in order; None for a put."""
        results: list[Any] = [None] * plan.size
        for number, item in self._gets(plan):
            results[number] = item
        for number, search in plan.searches.items():
            results[number] = self._search(search, queries)
        for number, op in plan.lists.items():
            results[number] = self._namespaces(op)
        return results

    def _gets(self, plan: Plan) -> Iterator[tuple[int, Any]]:
        names = {number: Name(tuple(op.namespace), op.key) for number, op in plan.gets.items()}
        found = dict(self._living(self._snapshot.items(set(names.values())).items()))
        given: set[str] = set()
        for number, name in names.items():
            key = to_key(ITEM, name)
            if key not in found:
                continue
            if key in given:  # Each gets a copy of its own.
                found.update(self._snapshot.items([name]))
            given.add(key)
            if plan.gets[number].refresh_ttl:
                self.renewed[key] = found[key]
            yield number, Record.from_stored(found[key]).item(name)

    def _search(self, search: Search, queries: Mapping[str, bytes]) -> list[Any]:
        op = search.op
        prefix = tuple(op.namespace_prefix)
        page: list[Found]
        if search.query is None or op.limit == 0:
            page = [(one, None) for one in self._newest(prefix, search.test, op.limit, op.offset)]
        else:
            page = self._similar(prefix, search.test, queries[search.query], op)
        if op.refresh_ttl:
            self.renewed.update(one for one, _ in page)
        return [
            Record.from_stored(stored).found(to_name(key), score) for (key, stored), score in page
        ]

    def _newest(
        self,
        prefix: tuple[str, ...],
        test: Test,
        limit: int,
        offset: int,
        without: AbstractSet[Name] = frozenset(),
    ) -> list[Entry]:
        """The matching items, most recently put first; then by namespace and key."""
        passing = (
            one
            for one in self._living(self._snapshot.below(prefix))
            if test(one[1]["value"]) and not (without and to_name(one[0]) in without)
        )
        return nsmallest(offset + limit, passing, key=_age)[offset:]

    def _similar(self, prefix: tuple[str, ...], test: Test, query: bytes, op: Any) -> list[Found]:
        """The matching items, most similar first, followed by those without vectors."""
        ranking = self._partitions.ranked(self._snapshot, prefix, query)
        wanted = op.offset + op.limit
        found = list(islice(self._passing(iter(ranking), test), wanted))
        page = found[op.offset :]
        if len(found) < wanted:
            start = max(op.offset - len(found), 0)
            more = self._newest(prefix, test, op.limit - len(page), start, ranking.names)
            page += [(one, None) for one in more]
        return page

    def _passing(self, ranked: Iterator[Ranked], test: Test) -> Iterator[Found]:
        """Those of ranked items that are living and match, in order."""
        together = _FIRST
        while some := list(islice(ranked, together)):
            items = self._snapshot.items([one.name for one in some])
            found = dict(self._living(items.items()))
            for name, score in some:
                key = to_key(ITEM, name)
                if key in found and test(found[key]["value"]):
                    yield (key, found[key]), score
            together *= 2

    def _living(self, found: Iterable[Entry]) -> Iterator[Entry]:
        return self._expiry.living(found, self._moment)

    # Namespaces.

    def _namespaces(self, op: Any) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        matching = (
            namespace
            for namespace, counted in self._snapshot.namespaces(known_prefix(conditions))
            if all(matches(one, namespace) for one in conditions)
            and (counted.lasting or self._has_living(namespace))
        )
        return page_of_namespaces(matching, op)

    def _has_living(self, namespace: tuple[str, ...]) -> bool:
        return any(self._living(self._snapshot.within(namespace)))


def _age(one: Entry) -> tuple[int, tuple[str, str]]:
    key, stored = one
    return -stored["updated_at"], order(key)


def page_of_namespaces(matching: Iterable[tuple[str, ...]], op: Any) -> list[tuple[str, ...]]:
    """A page of the distinct namespaces, cut to the requested depth and sorted."""
    depth = op.max_depth
    cut = {namespace if depth is None else namespace[:depth] for namespace in matching}
    return sorted(cut)[op.offset : op.offset + op.limit]


def known_prefix(conditions: Iterable[Any]) -> tuple[str, ...]:
    """The common prefix of all matching namespaces, as far as known."""
    longest: tuple[str, ...] = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            known = path[: path.index("*")] if "*" in path else path
            longest = max(longest, known, key=len)
    return longest


def matches(condition: Any, namespace: tuple[str, ...]) -> bool:
    """Whether a namespace meets a condition; `*` stands for any label."""
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=False))
