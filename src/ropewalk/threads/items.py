"""The items of a transcript: how they are stored, and a cache of their encodings.

An item stands in the map of its thread under its position, as a message does, with the time at
which it was appended. The cache keeps encodings rather than objects. Decoding the encodings of a
window gives every caller items of its own, faster than any copy of objects; and one comparison of
bytes finds out, exactly, what a framework changed in items that it hands over again.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.codec.msgpack import array_header
from ropewalk.errors import MissingObjects
from ropewalk.store.forking import freed_after_fork
from ropewalk.threads.contents import Contents, is_item, position_in
from ropewalk.threads.message import message_of
from ropewalk.tree import ObjectId
from ropewalk.tree.nodes import Entry, may_hold_links

# {"at": microseconds, "item": item}; such times take eight bytes.
_BEFORE: Final = b"\x82\xa2at\xcf"
_BETWEEN: Final = b"\xa4item"
_PLACE: Final = len(_BEFORE) + 8
_LENGTH: Final = _PLACE + len(_BETWEEN)


def part_of(item: bytes, time: int) -> bytes:
    """The part that stores an encoded item."""
    return b"".join((_BEFORE, time.to_bytes(8, "big"), _BETWEEN, item))


def item_of(part: bytes, contents: Contents, codec: Codec) -> bytes:
    """The encoding of the item in a part; a message is written as a dict of OpenAI."""
    if part.startswith(_BEFORE) and part.startswith(_BETWEEN, _PLACE) and not may_hold_links(part):
        return part[_LENGTH:]
    stored = contents.load(part)
    return codec.encode(stored["item"] if is_item(stored) else message_of(stored).to_openai())


def encode_list(items: Sequence[bytes]) -> bytes:
    """The encoding of a list of encoded items."""
    return array_header(len(items)) + b"".join(items)


class Items(NamedTuple):
    """Encoded items at one root, from a rank to the end. Immutable, though lists are shared."""

    root: ObjectId | None
    first: int
    """The rank of the first of them; there may be more before it."""
    positions: list[int]
    encoded: list[bytes]
    size: int
    """How many are of this root: a later root may have appended to the lists."""
    held: int
    """How many bytes they take."""

    @property
    def total(self) -> int:
        """How many items there are at this root."""
        return self.first + self.size

    def last(self, limit: int | None) -> list[bytes]:
        """The last items."""
        start = 0 if limit is None else max(0, self.size - limit)
        return self.encoded[start : self.size]

    def up_to(self, size: int) -> Items:
        """The first of these items."""
        dropped = sum(map(len, self.encoded[size : self.size]))
        return self._replace(size=size, held=self.held - dropped)

    def with_more(
        self, root: ObjectId | None, positions: Sequence[int], encoded: Sequence[bytes]
    ) -> Items:
        """The items at a root that appended some."""
        places, parts, size = self.positions, self.encoded, self.size
        with _extending:
            if len(places) != size:  # Another root appended to these lists already.
                places, parts = places[:size], parts[:size]
            places.extend(positions)
            parts.extend(encoded)
        held = self.held + sum(map(len, encoded))
        return Items(root, self.first, places, parts, size + len(encoded), held)


_extending: Final = freed_after_fork(threading.Lock())


def no_items(root: ObjectId | None, total: int) -> Items:
    """Nothing but how many items there are at a root."""
    return Items(root, total, [], [], 0, 0)


class CacheBudget:
    """How many bytes the caches of many threads hold together; the idle ones are emptied first."""

    def __init__(self, most: int = 64 << 20) -> None:
        self._most = most
        self._lock = freed_after_fork(threading.Lock())
        self._held: OrderedDict[ItemCache, int] = OrderedDict()
        self._total = 0

    @property
    def held(self) -> int:
        """How many bytes the caches hold now."""
        return self._total

    def charge(self, cache: ItemCache, held: int) -> None:
        """Note what a cache holds now; others are emptied if that is too much."""
        with self._lock:
            self._total += held - self._held.pop(cache, 0)
            self._held[cache] = held
            while self._total > self._most and len(self._held) > 1:
                idle, dropped = self._held.popitem(last=False)
                self._total -= dropped
                idle.empty()

    def forget(self, cache: ItemCache) -> None:
        """Stop counting a cache that is not used any more."""
        with self._lock:
            self._total -= self._held.pop(cache, 0)


class ItemCache:
    """The encoded items of a thread at the root that was seen last. Safe to share."""

    def __init__(self, codec: Codec, budget: CacheBudget | None = None) -> None:
        self._codec, self._budget = codec, budget
        self._lock = freed_after_fork(threading.Lock())
        self._known = no_items(None, 0)

    def at(self, contents: Contents, limit: int | None = None) -> Items:
        """The items of some contents: the last ones, at least as many as the limit says."""
        with self._lock:
            known = self._known
            if known.root != contents.root:
                known = self._moved(known, contents)
            wanted = known.total if limit is None else min(limit, known.total)
            if wanted > known.size:
                known = self._longer(known, contents, wanted)
            self._keep(known)
            return known

    def put(self, items: Items) -> None:
        """Keep what a commit made of the items."""
        with self._lock:
            self._keep(items)

    def empty(self) -> None:
        """Let go of the items; they are read again when they are asked for."""
        self._known = no_items(None, 0)

    def _keep(self, items: Items) -> None:
        grown = items.held != self._known.held
        self._known = items
        if grown and self._budget is not None:
            self._budget.charge(self, items.held)

    def _moved(self, known: Items, contents: Contents) -> Items:
        """The items of other contents; what did not change since is not read again."""
        total = contents.message_count
        changed = self._changed(known, contents)
        kept = 0 if changed is None else bisect_left(known.positions, changed, 0, known.size)
        if not kept or known.root is None:
            return no_items(contents.root, total)
        entries = contents.entries(known.first + kept, total)
        return known.up_to(kept).with_more(contents.root, *self._read(entries, contents))

    def _changed(self, known: Items, contents: Contents) -> int | None:
        """The first position that differs; None if nothing that is known can be used."""
        if known.root is None or contents.root is None or not known.size:
            return None
        try:
            differing = contents.differing(known.root)
        except MissingObjects:
            return None  # Only an older version held it, and that was collected.
        first = min(differing, default=known.positions[known.size - 1] + 1)
        return None if first < known.positions[0] else first

    def _longer(self, known: Items, contents: Contents, wanted: int) -> Items:
        start = known.total - wanted
        positions, encoded = self._read(contents.entries(start, known.first), contents)
        older = no_items(known.root, start).with_more(known.root, positions, encoded)
        return older.with_more(known.root, known.positions[: known.size], known.last(None))

    def _read(self, entries: Sequence[Entry], contents: Contents) -> tuple[list[int], list[bytes]]:
        positions = [position_in(entry) for entry in entries]
        return positions, [item_of(entry.body, contents, self._codec) for entry in entries]
