"""What a thread holds at one commit: its messages, its state and its record.

A thread is one map. Messages are stored under their positions: integers that only grow and are
never reused. The state, the record and the marks are stored under names. An append therefore
changes only the last node and the root.

An item of a transcript is stored as its framework handed it over, with the time at which it was
appended. Here it is read as a message, whose id is its position.

A second map, nested in the first, finds a position by message id. It lags behind: the ids of the
latest messages are only in the messages themselves, so that an append need not change it. A lookup
by id checks both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from ropewalk.codec import Codec, default_codec
from ropewalk.errors import FormatError
from ropewalk.threads.fields import from_microseconds
from ropewalk.threads.shapes import read_item
from ropewalk.tree import Map, ObjectId, Reader
from ropewalk.tree.levels import View
from ropewalk.tree.map import MapWriter
from ropewalk.tree.nodes import Entry
from ropewalk.tree.read import Loader, reading

STATE: Final = "state"
RECORD: Final = "thread"
MARKS: Final = "marks"
IDS: Final = "ids"
SHAPE: Final = "shape"
"""What the items of a transcript are: the name of a reader in `shapes`."""
NAMES: Final = (STATE, IDS, RECORD, SHAPE)
"""What `clean_thread` removes beside the messages."""

ITEM: Final = "item"
_ITEM_KEYS: Final = {"at", ITEM}

STATE_KEY: Final = default_codec.encode(STATE)
IDS_KEY: Final = default_codec.encode(IDS)

LAG: Final = 128
"""How many of the latest positions may be missing from the map of ids."""

# Key order: the numbers from 0 to 127, then names, then larger numbers.
_NAMES: Final = b"\x80"
_LARGER: Final = b"\xcc"

_FIRST: Final = 16
_MOST: Final = 512


class Marks(NamedTuple):
    """Bookkeeping of a thread that survives `clean_thread`."""

    saved: bytes = b""
    """Replaced whenever a state is put or cleared, to tell one put from another."""
    past: int = 0
    """Positions below this one are never given out again."""
    listed: int = 0
    """Messages below this position are in the map of ids."""

    def to_stored(self) -> dict[str, Any]:
        """Plain values for storage."""
        return self._asdict()


class Row(NamedTuple):
    """A message and its position."""

    position: int
    stored: dict[str, Any]


def is_item(stored: Any) -> bool:
    """Whether this is an item of a transcript, rather than a message."""
    return isinstance(stored, dict) and stored.keys() == _ITEM_KEYS


class Contents:
    """A thread at one root: immutable, and read lazily."""

    def __init__(self, root: ObjectId | None, maps: MapWriter, read: Reader, codec: Codec) -> None:
        self.root = root
        self._maps, self._read, self._codec = maps, read, codec

    @classmethod
    def at(cls, root: ObjectId | None, read: Reader, codec: Codec) -> Contents:
        """The contents of a root, for reading only."""
        return cls(root, MapWriter(codec, read), read, codec)

    def version(self, root: ObjectId) -> Contents:
        """The contents of another root, through the same reader."""
        return Contents.at(root, self._read, self._codec)

    # Parts stored under names.

    @property
    def is_empty(self) -> bool:
        """Whether there are only marks: before the first write, or after `clean_thread`."""
        return self._top.total == (self.part(MARKS) is not None)

    def part(self, key: Any) -> bytes | None:
        """The stored part under a name or at a position."""
        return _body(self._top, self._codec.encode(key))

    def value(self, key: str, default: Any = None) -> Any:
        """The value under a name."""
        part = self.part(key)
        return default if part is None else self.load(part)

    @cached_property
    def marks(self) -> Marks:
        """The bookkeeping marks."""
        return Marks(**self.value(MARKS, {}))

    # Messages.

    @property
    def message_count(self) -> int:
        """The number of messages."""
        return self._top.total - self._names.number

    @cached_property
    def next(self) -> int:
        """The position of the next message."""
        last = self.last_position
        return max(self.marks.past, 0 if last is None else last + 1)

    @property
    def last_position(self) -> int | None:
        """The position of the latest message."""
        count = self.message_count
        if not count:
            return None
        (entry,) = self._entries(count - 1, count)
        return position_in(entry)

    def position_of(self, id: Any) -> int | None:
        """The position of the message with an id."""
        return self.position_under(self._codec.encode(id))

    def position_under(self, key: bytes) -> int | None:
        """The position of the message with an encoded id."""
        found = self.latest.get(key)
        if found is not None or not self.is_listed:
            return found
        part = _body(self._ids, key)
        if part is None:
            return None
        position = int(self.load(part))
        # A merge that took one side may have put another message there.
        standing = self.part(position)
        if standing is None or self._codec.encode(self.load(standing)["id"]) != key:
            return None
        return position

    @cached_property
    def latest(self) -> dict[bytes, int]:
        """The positions missing from the map of ids, by encoded id; all, if it is wrong."""
        start = self.rank_of(self.marks.listed) if self.is_listed else 0
        rows = self.row_list(start, self.message_count)
        return {self._codec.encode(row.stored["id"]): row.position for row in rows}

    @cached_property
    def is_listed(self) -> bool:
        """Whether the map of ids is complete up to its mark.

        A merge of branches may leave ids of deleted messages in it, or miss some: one side updated
        the map while the other deleted or appended.
        """
        return self._ids.total == self.rank_of(self.marks.listed)

    @property
    def listed_ids(self) -> Sequence[Entry]:
        """The entries of the map of ids."""
        return self._ids.entries(0, self._ids.total)

    def rank_of(self, position: int) -> int:
        """How many messages precede a position."""
        key = self._codec.encode(position)
        place = self._top.locate(key)[0]
        return place - self._names.number if key >= _LARGER else place

    def rows(
        self, start: int = 0, stop: int | None = None, *, newest_first: bool = False
    ) -> Iterator[Row]:
        """The messages of the ranks [start, stop), read in batches that grow."""
        stop = self.message_count if stop is None else min(stop, self.message_count)
        size = _FIRST
        while start < stop:
            size = min(size * 2, _MOST, stop - start)
            at = stop - size if newest_first else start
            rows = self.row_list(at, at + size)
            yield from reversed(rows) if newest_first else rows
            start, stop = (start, at) if newest_first else (at + size, stop)

    @reading
    def row_list(self, start: int, stop: int) -> list[Row]:
        """The messages of the ranks [start, stop), read at once."""
        loader = Loader(self._read, self._codec)
        return [
            self._row(position_in(entry), loader.part(entry.body))
            for entry in self.entries(start, stop)
        ]

    def entries(self, start: int, stop: int) -> Sequence[Entry]:
        """The entries of the messages of the ranks [start, stop): positions and parts."""
        return self._entries(start, min(stop, self.message_count))

    @cached_property
    def shape(self) -> str:
        """What the items are; empty if nothing was said."""
        return str(self.value(SHAPE, ""))

    def _row(self, position: int, stored: dict[str, Any]) -> Row:
        if is_item(stored):
            made = read_item(stored[ITEM], self.shape)
            made = made.replace(id=position, created_at=from_microseconds(stored["at"]))
            stored = made.to_stored()
        return Row(position, stored)

    def rows_at(self, positions: Iterable[int]) -> list[Row]:
        """The messages at those positions that exist, sorted, fetched together."""
        if self.root is None:
            return []
        return [self._row(*found) for found in self._map(self.root).pick(positions)]

    def differing(self, before: ObjectId) -> list[int]:
        """The positions that differ from those at another root."""
        if self.root is None:
            return []
        keys = self._map(self.root).differing(self._map(before))
        return [key for key in keys if type(key) is int]

    @reading
    def load(self, part: bytes) -> Any:
        """Decode a part."""
        return Loader(self._read, self._codec).part(part)

    def _map(self, root: ObjectId) -> Map:
        return Map(root, self._read, self._codec)

    @property
    def _top(self) -> View:
        try:
            return self._maps.open(self.root).view
        except FormatError as error:
            raise FormatError(
                f"what is stored there is no conversation, but something else that was imported "
                f"or saved under this name: {error}"
            ) from error

    @property
    def _ids(self) -> View:
        return self._maps.open(self.root, (IDS_KEY,)).view

    @cached_property
    def _names(self) -> _Names:
        start = self._top.locate(_NAMES)[0]
        return _Names(start, self._top.locate(_LARGER)[0] - start)

    def _entries(self, start: int, stop: int) -> Sequence[Entry]:
        """The entries of the messages with the ranks [start, stop)."""
        names = self._names
        small = self._top.entries(start, min(stop, names.start))
        shifted = max(start, names.start) + names.number
        return [*small, *self._top.entries(shifted, stop + names.number)]


class _Names(NamedTuple):
    """Where names sort among the keys."""

    start: int
    number: int


def position_in(entry: Entry) -> int:
    """The position of the message in an entry."""
    # One byte, or a length byte followed by the number.
    key = entry.key
    return key[0] if len(key) == 1 else int.from_bytes(key[1:], "big")


def _body(view: View, key: bytes) -> bytes | None:
    _, entry = view.locate(key)
    return None if entry is None else entry.body
