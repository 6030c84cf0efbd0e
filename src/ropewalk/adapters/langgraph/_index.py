"""The index of a LangGraph thread: its checkpoints, in the order of their ids."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph._entries import PUT, WRITTEN, Address, Entry, Record, prefix_of
from ropewalk.codec import Codec, default_codec
from ropewalk.codec._codes import Code
from ropewalk.codec._msgpack import pack, unpack
from ropewalk.errors import FormatError
from ropewalk.tree import Edited, ObjectId, Reader
from ropewalk.tree._builder import Builder, Title
from ropewalk.tree._container import Container, finish, open_part
from ropewalk.tree._layout import PAIRS
from ropewalk.tree._layout import Entry as Pair
from ropewalk.tree._levels import Span, View, in_turn
from ropewalk.tree._load import Loader
from ropewalk.tree._parts import link, links_in

_TITLE: Final = Title(Code.MAP)
NOTES: Final = 0
"""The key under which things stand that concern the whole thread. It sorts before all texts."""
PINS: Final = "pins"
"""In the notes: checkpoints that `prune` does not drop, by name."""
THREAD: Final = "thread"
"""In the notes: the id of the thread, where the name of its space does not say it."""
ROOT: Final = ""
"""The namespace of the graph itself; others are those of its subgraphs."""


class Listed(NamedTuple):
    """A checkpoint where it stands."""

    address: Address
    entry: Entry
    writes: bytes | None
    """The part of its pending writes, by task."""

    @property
    def roots(self) -> list[ObjectId]:
        """What is read with it."""
        return [*links_in(self.entry.values), *links_in(self.writes or b"")]


class Index:
    """The checkpoints of a thread at one moment. It never changes, and reads what is asked for."""

    def __init__(
        self, root: ObjectId | None, read: Reader, opened: Container | None = None
    ) -> None:
        self.root, self._read = root, read
        self._opened = opened

    @property
    def _view(self) -> View:
        if self._opened is None:
            self._opened = _open(self.root, self._read)
        return self._opened.view

    def get(self, address: Address) -> Entry | None:
        """The entry of a checkpoint."""
        _, found = self._view.locate(pack(address.key))
        return None if found is None else Entry.read(found.body, self._read)

    def writes(self, address: Address) -> bytes | None:
        """The part of a checkpoint's pending writes; it may not be put yet."""
        _, found = self._view.locate(pack(address.writes_key))
        return None if found is None else found.body

    def later(self, address: Address) -> Iterator[Address]:
        """The checkpoints of the same namespace with greater ids of the same length, in order."""
        view, prefix = self._view, prefix_of(address.namespace)
        at = view.locate(pack(address.writes_key))[0]
        length = len(address.key)
        while at < view.total:
            (pair,) = view.entries(at, at + 1)
            key = unpack(pair.key)
            if type(key) is not str or not key.startswith(prefix) or len(key) != length:
                return
            if key.endswith(PUT):
                yield Address.of(key)
            at += 1

    def notes(self, codec: Codec) -> dict[str, Any]:
        """What concerns the whole thread."""
        _, found = self._view.locate(pack(NOTES))
        return {} if found is None else dict(Loader(self._read, codec).part(found.body))

    # In order.

    def newest_first(
        self, namespace: str | None = None, before: str | None = None
    ) -> Iterator[Listed]:
        """Checkpoints by id, the greatest first; of one namespace, or of all.

        With `before`, those with a smaller id.
        """
        wanted = self._classes() if namespace is None else self._classes_of(namespace)
        runs = [self._descending(low, high, before) for low, high in wanted]
        merged = heapq.merge(*runs, key=lambda found: found.address.id, reverse=True)
        return iter(runs[0]) if len(runs) == 1 else merged

    def newest(self, namespace: str, loader: Loader) -> Listed | None:
        """The newest checkpoint of a namespace that is not aside."""
        for found in self.newest_first(namespace):
            if not Record.read(found.entry, loader).aside:
                return found
        return None

    def namespaces(self) -> list[str]:
        """The namespaces that have checkpoints."""
        found: dict[str, None] = {}
        for key in self.keys():
            found[Address.of(key).namespace] = None
        return list(found)

    def keys(self) -> Iterator[str]:
        """All keys of checkpoints and of their writes."""
        for place in self._view.leaves():
            for pair in place.entries:
                if pair.key != pack(NOTES):
                    yield unpack(pair.key)

    def _classes(self) -> list[tuple[int, int]]:
        """The ranges of keys in which ids ascend, of all namespaces."""
        return [found for name in self.namespaces() for found in self._classes_of(name)]

    def _classes_of(self, namespace: str) -> list[tuple[int, int]]:
        """The ranges of keys of a namespace: one for each length of an id.

        Keys sort by their length first, because their encoding begins with it.
        """
        view, prefix = self._view, prefix_of(namespace)
        found: list[tuple[int, int]] = []
        length = len(prefix.encode())
        while True:
            start = view.locate(_header(length) + prefix.encode())[0]
            if start >= view.total:
                return found
            (pair,) = view.entries(start, start + 1)
            there = len(unpack(pair.key).encode())
            if there == length:
                stop = view.locate(_header(length) + _after(prefix))[0]
                if stop > start:
                    found.append((start, stop))
            length = there if there > length else length + 1

    def _descending(self, low: int, high: int, before: str | None) -> Iterator[Listed]:
        view, writes = self._view, None
        if before is not None and high > low:
            high = self._first_not_before(low, high, before)
        while high > low:
            start = max(view.node_at(0, high - 1).start, low)
            for pair in reversed(view.entries(start, high)):
                key = unpack(pair.key)
                if key.endswith(WRITTEN):
                    writes = pair
                    continue
                address = Address.of(key)
                mine = writes is not None and unpack(writes.key) == address.writes_key
                part = writes.body if mine and writes is not None else None
                yield Listed(address, Entry.read(pair.body, self._read), part)
            high = start

    def _first_not_before(self, low: int, high: int, before: str) -> int:
        """Where the ids of a range stop being smaller."""
        view = self._view
        while low < high:
            middle = (low + high) // 2
            (pair,) = view.entries(middle, middle + 1)
            if _address(pair).id < before:
                low = middle + 1
            else:
                high = middle
        return low

    # Changing.

    def edit(
        self, changes: Mapping[str | int, bytes | None], builder: Builder
    ) -> tuple[Index, Edited]:
        """The index with parts put under keys, or removed where there is None."""
        before = self._view
        parts = [(pack(key), part) for key, part in changes.items()]
        spans = [span for key, part in parts if (span := _span(before, key, part)) is not None]
        built = builder.edit_mapping(_TITLE, before, in_turn(spans), None, self.root)
        assert built.view is not None and built.id is not None
        built.view.inherit(before)
        edited = finish(builder, built.part, self.root)
        if None in changes.values():
            # What is stored as a difference keeps what it differs from, and all below that: no
            # byte of what is dropped here could be given back.
            edited = edited._replace(objects=[one._replace(base=None) for one in edited.objects])
        return Index(built.id, self._read, Container(_TITLE, built.view, None, built.id)), edited


def noted_name(root: ObjectId, read: Reader) -> str:
    """The id of a thread, as it is noted in its index."""
    return str(Index(root, read).notes(default_codec).get(THREAD, ""))


def _span(view: View, key: bytes, part: bytes | None) -> Span | None:
    at, there = view.locate(key)
    if part is None:
        return None if there is None else Span(at, at + 1, [])
    return Span(at, at if there is None else at + 1, [Pair(key, part)])


def _open(root: ObjectId | None, read: Reader) -> Container:
    if root is None:
        return Container(_TITLE, View(PAIRS, 0, [], read), None, None)
    opened = open_part(link(root), read)
    if opened is None or opened.title != _TITLE:
        raise FormatError("what stands in the place of a LangGraph thread's index is none")
    return opened


def _address(pair: Pair) -> Address:
    return Address.of(unpack(pair.key))


def _header(length: int) -> bytes:
    """What the encoding of a text of so many bytes begins with."""
    return pack("x" * length)[:-length] if length else pack("")


def _after(prefix: str) -> bytes:
    """What sorts after all texts that begin with a prefix."""
    encoded = prefix.encode()
    return encoded[:-1] + bytes([encoded[-1] + 1])
