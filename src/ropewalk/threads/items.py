"""The items of a transcript: how they are stored, and a cache of their encodings.

An item stands in the map of its thread under its position, as a message does, with the time at
which it was appended. The cache keeps encodings rather than objects. Decoding the encodings of a
window gives every caller items of its own, faster than any copy of objects; and one comparison of
bytes finds out, exactly, what a framework changed in items that it hands over again.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
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

    @property
    def total(self) -> int:
        """How many items there are at this root."""
        return self.first + self.size

    def last(self, limit: int | None) -> list[bytes]:
        """The last items."""
        start = 0 if limit is None else max(0, self.size - limit)
        return self.encoded[start : self.size]

    def with_more(
        self, root: ObjectId, positions: Iterable[int], encoded: Iterable[bytes]
    ) -> Items:
        """The items at a root that appended some."""
        places, parts = self.positions, self.encoded
        if len(places) != self.size:  # Another root appended to these lists already.
            places, parts = places[: self.size], parts[: self.size]
        places.extend(positions)
        parts.extend(encoded)
        return Items(root, self.first, places, parts, len(places))


NO_ITEMS: Final = Items(None, 0, [], [], 0)


class ItemCache:
    """The encoded items of a thread at the root that was seen last. Safe to share."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._lock = freed_after_fork(threading.Lock())
        self._known = NO_ITEMS._replace(positions=[], encoded=[])

    def at(self, contents: Contents, limit: int | None = None) -> Items:
        """The items of some contents: the last ones, at least as many as the limit says."""
        with self._lock:
            known = self._known
            if known.root != contents.root:
                known = self._moved(known, contents)
            wanted = known.total if limit is None else min(limit, known.total)
            if wanted > known.size:
                known = self._longer(known, contents, wanted)
            self._known = known
            return known

    def put(self, items: Items) -> None:
        """Keep what a commit made of the items."""
        with self._lock:
            self._known = items

    def _moved(self, known: Items, contents: Contents) -> Items:
        """The items of other contents; what did not change since is not read again."""
        total = contents.message_count
        changed = self._changed(known, contents)
        kept = 0 if changed is None else bisect_left(known.positions, changed, 0, known.size)
        if not kept or known.root is None:
            return Items(contents.root, total, [], [], 0)
        stem = known._replace(size=kept)
        entries = contents.entries(known.first + kept, total)
        return stem.with_more(contents.root or b"", *self._read(entries, contents))

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
        positions += known.positions[: known.size]
        encoded += known.encoded[: known.size]
        return Items(known.root, start, positions, encoded, len(positions))

    def _read(self, entries: Sequence[Entry], contents: Contents) -> tuple[list[int], list[bytes]]:
        positions = [position_in(entry) for entry in entries]
        return positions, [item_of(entry.body, contents, self._codec) for entry in entries]
