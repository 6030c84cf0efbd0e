"""Reading a memory at one moment: items, searches and namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from heapq import nsmallest
from itertools import islice
from typing import Any, Final, TypeAlias

from ropewalk.adapters.langgraph._filters import Test
from ropewalk.adapters.langgraph._store_expiry import Expiry
from ropewalk.adapters.langgraph._store_keys import ITEM, Name, order, to_key, to_name
from ropewalk.adapters.langgraph._store_ops import Plan, Search
from ropewalk.adapters.langgraph._store_records import Entry, Record, Stored
from ropewalk.adapters.langgraph._store_snapshot import Snapshot
from ropewalk.adapters.langgraph._vectors import Partitions, Ranked

Found: TypeAlias = tuple[Entry, float | None]
"""An item that a search found, and its score."""

_FIRST: Final = 32
"""How many ranked items are looked at together at first; each time after that, twice as many."""


class Reading:
    """Answers the reads of one batch, all from one snapshot."""

    def __init__(
        self, snapshot: Snapshot, expiry: Expiry, partitions: Partitions, moment: int
    ) -> None:
        self._snapshot, self._expiry, self._moment = snapshot, expiry, moment
        self._partitions = partitions
        self.renewed: dict[str, Stored] = {}
        """What was read, and whose time begins again with that."""

    def results(self, plan: Plan, queries: Mapping[str, bytes]) -> list[Any]:
        """What each operation gives, in their order; None for a put."""
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
            if key in given:  # Each has a value of their own.
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
        """The items that pass, the latest put first; then by namespace and key."""
        passing = (
            one
            for one in self._living(self._snapshot.below(prefix))
            if test(one[1]["value"]) and not (without and to_name(one[0]) in without)
        )
        return nsmallest(offset + limit, passing, key=_age)[offset:]

    def _similar(self, prefix: tuple[str, ...], test: Test, query: bytes, op: Any) -> list[Found]:
        """The items that pass, the most similar first; then those that have no vectors."""
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
        """Those of ranked items that are living and pass, in this order."""
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
    """Namespaces cut to the depth that is asked for, each once and sorted, and of these a page."""
    depth = op.max_depth
    cut = {namespace if depth is None else namespace[:depth] for namespace in matching}
    return sorted(cut)[op.offset : op.offset + op.limit]


def known_prefix(conditions: Iterable[Any]) -> tuple[str, ...]:
    """What all matching namespaces begin with, as far as that is known."""
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
