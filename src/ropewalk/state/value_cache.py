"""The values that an adapter stored or loaded last, so that the next node need not load them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import chain
from typing import Any, Final, NamedTuple

from ropewalk.state.content_ref import ContentRef
from ropewalk.state.runtime import IMMUTABLE
from ropewalk.store import Store
from ropewalk.store.forking import freed_after_fork
from ropewalk.tree import ObjectId, TreeWriter

LIMIT: Final = 64 << 20
"""About how many bytes of values one cache holds."""

_ITEM: Final = 64
"""About how many bytes an item of a container takes, beside its encoding."""


class Cached(NamedTuple):
    """A value that nobody changes, with the writer that stored or loaded it.

    Whoever writes a later version copies the writer first.
    """

    value: Any
    writer: TreeWriter | None
    weight: int


class ValueCache:
    """Plain values by their hash; the least recently used ones are evicted.

    Plain is what `copied` copies: the copies of one value share its texts, which are most of its
    memory, so that a value takes that once however many nodes read it.
    """

    def __init__(self, store: Store, limit: int = LIMIT) -> None:
        self._store, self._limit = store, limit
        self._lock = freed_after_fork(threading.Lock())
        self._entries: OrderedDict[ObjectId, Cached] = OrderedDict()
        self._weight = 0

    def get(self, ref: ContentRef) -> Cached | None:
        """The value of a reference, unless its content was deleted meanwhile."""
        with self._lock:
            found = self._entries.get(ref.id)
            if found is not None:
                self._entries.move_to_end(ref.id)
        if found is None or not self._store.missing([ref.id]):
            return found
        with self._lock:
            self._drop(ref.id)
        return None

    def put(self, ref: ContentRef, value: Any, items: int, writer: TreeWriter | None) -> None:
        """Keep a value that nobody else holds."""
        weight = ref.size_bytes + _ITEM * items
        if weight > self._limit:
            return
        with self._lock:
            self._drop(ref.id)
            self._entries[ref.id] = Cached(value, writer, weight)
            self._weight += weight
            while self._weight > self._limit:
                self._drop(next(iter(self._entries)))

    def _drop(self, id: ObjectId) -> None:
        found = self._entries.pop(id, None)
        if found is not None:
            self._weight -= found.weight


class Copy(NamedTuple):
    """A copy of a plain value, and how many items its containers have."""

    value: Any
    items: int


def copied(value: Any) -> Copy | None:
    """A copy of a value of lists, dicts and tuples, which shares what is immutable in it.

    None for a value with anything else in it. Other threads may change the value meanwhile: each
    container is copied as it is at one moment.
    """
    count = [0]
    try:
        return Copy(_copied(value, count), count[0])
    except (_NotPlain, RecursionError):
        return None


class _NotPlain(Exception):
    """Something that `copied` does not copy."""


def _copied(value: Any, count: list[int]) -> Any:
    kind = type(value)
    if kind is dict:
        made = value.copy()
        count[0] += len(made)
        if not IMMUTABLE.issuperset(map(type, made)):
            raise _NotPlain
        if not IMMUTABLE.issuperset(map(type, made.values())):
            for key, part in made.items():
                if type(part) not in IMMUTABLE:
                    made[key] = _copied(part, count)
        return made
    if kind is list or kind is tuple:
        items = list(value)
        count[0] += len(items)
        records = _records(items) if kind is list else None
        if records is not None:
            count[0] += sum(map(len, records))
            return records
        if not IMMUTABLE.issuperset(map(type, items)):
            items = [part if type(part) in IMMUTABLE else _copied(part, count) for part in items]
        return items if kind is list else tuple(items)
    if kind in IMMUTABLE:
        return value
    raise _NotPlain


def _records(items: list[Any]) -> list[Any] | None:
    """Copies of dicts without containers in them, the most common large value; else None."""
    if set(map(type, items)) != {dict}:
        return None
    made = [one.copy() for one in items]
    parts = chain(chain.from_iterable(made), chain.from_iterable(map(dict.values, made)))
    return made if IMMUTABLE.issuperset(map(type, parts)) else None
