"""A memory as it is at one commit: read as it is needed, and never changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from ropewalk.adapters.langgraph._store_keys import (
    GONE,
    ITEM,
    NAMESPACE,
    SIZES,
    Name,
    beginning,
    bounds,
    exactly,
    to_key,
    to_name,
)
from ropewalk.adapters.langgraph._store_records import (
    Counted,
    Entry,
    Record,
    Stored,
    Tombstone,
)
from ropewalk.codec import Codec
from ropewalk.tree import Map, ObjectId, Reader

_TOGETHER: Final = 512
"""How many entries are read at a time where it is not known how many are needed."""

_FEW: Final = 4
"""So many are sooner found one by one, by nodes that are known already."""
_LOW: Final = "\0"
"""Comes before every kind of key."""


class Snapshot:
    """The entries of a map with a root; None before the first commit. For several threads."""

    def __init__(self, root: ObjectId | None, read: Reader, codec: Codec) -> None:
        self.root, self._read, self._codec = root, read, codec
        self._map = None if root is None else Map(root, read, codec)

    def version(self, root: ObjectId | None) -> Snapshot:
        """An earlier or later one, with the same reader and codec."""
        made = Snapshot(root, self._read, self._codec)
        if self._map is not None and root is not None:
            made._map = self._map.version(root)
        return made

    def entries(self, keys: Iterable[str]) -> dict[str, Any]:
        """Those of the entries that are there."""
        found, asked = self._map, list(keys)
        if found is None:
            return {}
        if len(asked) > _FEW:
            return dict(found.pick(asked))
        return {key: found[key] for key in asked if key in found}

    def items(self, names: Iterable[Name]) -> dict[str, Stored]:
        """Those of the items that are there, whether their time is over or not."""
        return self.entries([to_key(ITEM, name) for name in names])

    def item(self, name: Name) -> Record | None:
        """One item."""
        return next(map(Record.from_stored, self.items([name]).values()), None)

    def tombstone(self, name: Name) -> Tombstone | None:
        """What is left of a deleted item."""
        found = self.entries([to_key(GONE, name)])
        return next((Tombstone(**stored) for stored in found.values()), None)

    def below(self, prefix: tuple[str, ...]) -> Iterator[Entry]:
        """All items of a namespace and of those below it."""
        return self.under(beginning(ITEM, prefix))

    def within(self, namespace: tuple[str, ...]) -> Iterator[Entry]:
        """All items of a namespace, without those below it."""
        return self.under(exactly(ITEM, namespace))

    def namespaces(self, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Counted]]:
        """The namespaces that begin so, and how many items each has."""
        for key, stored in self.under(beginning(NAMESPACE, prefix)):
            yield to_name(key).namespace, Counted(**stored)

    def under(self, text: str) -> Iterator[tuple[str, Any]]:
        """All entries whose keys begin so; other keys are not read."""
        if self._map is None:
            return
        for bound in bounds(text):
            if len(bound.start.encode()) not in self._sizes:
                continue
            places = self._map.places(bound.start, bound.stop)
            for low in range(places.start, places.stop, _TOGETHER):
                yield from self._map.slice(low, min(low + _TOGETHER, places.stop))

    def differing(self, other: Snapshot) -> list[str] | None:
        """The keys under which two have different entries; None if one has no map."""
        if self._map is None or other._map is None:
            return None
        return self._map.differing(other._map)

    @cached_property
    def _sizes(self) -> set[int]:
        """The lengths that keys have here; the others need not be looked for."""
        if self._map is None:
            return set()
        found: set[int] = set()
        begin, total = 0, len(self._map)
        for size, longer in pairwise((*SIZES, SIZES[-1] + 1)):
            if begin < total:
                end = len(self._map.places(None, _LOW * longer))
                found.update([size] * (end > begin))
                begin = end
        return found
