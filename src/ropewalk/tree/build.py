"""Containers from their parts: inline where they are small, else as a tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from ropewalk.codec.msgpack import Code, close_mapping, close_sequence
from ropewalk.errors import FormatError, NotStorable
from ropewalk.tree.levels import Node, Span, View, rebuild
from ropewalk.tree.nodes import (
    CHUNKS,
    INLINE_MAX,
    ITEMS,
    KEY_MAX,
    NODE_MIN,
    PAIRS,
    Entry,
    Layout,
    Root,
    link,
    linked,
    links,
    links_in,
    may_hold_links,
    pack_parts,
)
from ropewalk.tree.objects import Kind, Object, ObjectId, Reader, make_object

_MOST_KEPT: Final = 32
"""Of how many new nodes the entries are kept."""


_body_of = itemgetter(1)


class Title(NamedTuple):
    """What a container is: its type code, and what else its type needs."""

    code: Code
    head: tuple[Any, ...] = ()


class Built(NamedTuple):
    """A container's part, and its tree where it is large."""

    part: bytes
    id: ObjectId | None = None
    view: View | None = None


def is_text_key(key: bytes) -> bool:
    """Whether an encoded key is a text."""
    return 0xA0 <= key[0] <= 0xBF or 0xD9 <= key[0] <= 0xDB


class Builder:
    """Makes objects; `read` fetches old ones, and those just made."""

    def __init__(self, read: Reader) -> None:
        self.objects: dict[ObjectId, Object] = {}
        self._below: dict[ObjectId, list[ObjectId]] = {}
        self._read_old = read

    def read(self, ids: Sequence[ObjectId]) -> list[Object]:
        """Objects by id, also those made here."""
        made = self.objects
        missing = [id for id in ids if id not in made]
        if not missing:
            return [made[id] for id in ids]
        found = dict(zip(missing, self._read_old(missing), strict=True))
        return [made[id] if id in made else found[id] for id in ids]

    def forget(self) -> None:
        """Let go of the objects made here: they can be fetched like old ones."""
        self.objects = {}
        self._below = {}

    def add(self, made: Object, old: ObjectId | None = None) -> ObjectId:
        """Note a new object, unless it is the old one in whose place it stands."""
        if made.id != old:
            self.objects[made.id] = made
        return made.id

    def links(self, made: Object) -> list[ObjectId]:
        """The objects that an object points to, which of an index need not be read."""
        below = self._below.get(made.id)
        return links(made) if below is None else below

    def sequence(self, title: Title, parts: list[bytes], old: ObjectId | None = None) -> Built:
        """A sequence of parts."""
        if sum(map(len, parts)) <= INLINE_MAX:
            inline = close_sequence(title.code, title.head, parts)
            if len(inline) <= INLINE_MAX:
                return Built(inline)
        empty = View(ITEMS, 0, [], self.read)
        return self.edit(title, empty, [Span(0, 0, [Entry(b"", part) for part in parts])], old)

    def mapping(
        self,
        title: Title,
        keys: list[bytes],
        parts: list[bytes],
        order: bytes | None,
        old: ObjectId | None = None,
    ) -> Built:
        """A mapping of encoded keys in their order; `order` is the part of that order."""
        inline = self._inline_mapping(title, keys, parts)
        if inline is not None:
            return Built(inline)
        pairs = sorted(map(Entry, keys, parts))
        empty = View(PAIRS, 0, [], self.read)
        return self.edit(title, empty, [Span(0, 0, pairs)], old, order)

    def _inline_mapping(self, title: Title, keys: list[bytes], parts: list[bytes]) -> bytes | None:
        if title.code == Code.MAP or sum(map(len, keys)) + sum(map(len, parts)) > INLINE_MAX:
            return None
        inline = close_mapping(title.code, title.head, keys, parts, all(map(is_text_key, keys)))
        return inline if len(inline) <= INLINE_MAX else None

    def edit(
        self,
        title: Title,
        view: View,
        spans: Sequence[Span],
        old: ObjectId | None,
        order: bytes | None = None,
    ) -> Built:
        """A container that is a tree, with spans replaced; `order` is that of a mapping's keys."""
        if view.layout is PAIRS:
            _check_keys(spans)
        rebuilt = rebuild(view, spans)
        self.objects.update(rebuilt.objects)
        # An edit is often followed by one nearby. After a build that would be too much to keep.
        made = rebuilt.nodes if len(rebuilt.nodes) <= _MOST_KEPT else None
        view = View(view.layout, rebuilt.height, rebuilt.entries, self.read, made, rebuilt.top)
        inline = self._shrunk(title, view, order)
        if inline is not None:
            return Built(inline)
        root = Root(title.code, title.head, rebuilt.height, rebuilt.entries, order)
        encoded = None if rebuilt.top is None else rebuilt.top.body
        id = self.add(make_object(Kind.ROOT, root.encode(encoded)), old)
        self._note_links(view.layout, id, root, rebuilt.nodes)
        return Built(link(id), id, view)

    def _note_links(
        self, layout: Layout, id: ObjectId, root: Root, nodes: dict[ObjectId, Node]
    ) -> None:
        for made, node in nodes.items():
            if self.objects[made].kind == layout.index:
                self._below[made] = list(map(_body_of, node.entries))
        below = list(map(_body_of, root.entries))
        if root.height < layout.first_index:
            below = [id for body in below if may_hold_links(body) for id in links_in(body)]
        order = [] if root.order is None else links_in(root.order)
        self._below[id] = below + order

    def _shrunk(self, title: Title, view: View, order: bytes | None) -> bytes | None:
        """The inline form of what became small."""
        if view.layout is CHUNKS or title.code == Code.MAP:
            return None
        entries = _few_entries(view)
        if entries is None:
            return None
        if view.layout is ITEMS:
            inline = close_sequence(title.code, title.head, [entry.body for entry in entries])
            return inline if len(inline) <= INLINE_MAX else None
        ordered = entries if order is None else in_order(entries, order)
        return self._inline_mapping(
            title, [entry.key for entry in ordered], [entry.body for entry in ordered]
        )

    def chunked(
        self, title: Title, data: bytes, old: ObjectId | None = None
    ) -> tuple[Built, list[Entry]]:
        """Bytes too large for their parent, and their chunks."""
        pieces = cut_bytes(data)
        if len(pieces) == 1:
            return self.one_chunk(title, data, old), []
        entries, objects = chunk_objects(pieces)
        for made in objects:
            self.add(made)
        empty = View(CHUNKS, 0, [], self.read)
        return self.edit(title, empty, [Span(0, 0, entries)], old), entries

    def one_chunk(self, title: Title, data: bytes, old: ObjectId | None) -> Built:
        """Bytes that fit into their root."""
        root = Root(title.code, title.head, 0, [], None, data)
        id = self.add(make_object(Kind.ROOT, root.encode()), old)
        return Built(link(id), id)


def _few_entries(view: View) -> list[Entry] | None:
    """The entries of all leaves, unless they are too long for their parent."""
    # Every leaf but the last one is at least this long, and that one is not empty.
    if view.height and (len(view.top.entries) - 1) * NODE_MIN >= INLINE_MAX:
        return None
    entries: list[Entry] = []
    size = 0
    for place in view.leaves():
        size += sum([len(entry.key) + len(entry.body) for entry in place.entries])
        if size > INLINE_MAX:
            return None
        entries += place.entries
    return entries


def _check_keys(spans: Sequence[Span]) -> None:
    longest = max([len(entry.key) for span in spans for entry in span.entries], default=0)
    if longest > KEY_MAX:
        raise NotStorable(f"a key takes {longest} bytes; the most is {KEY_MAX}")


def in_order(entries: list[Entry], order: bytes) -> list[Entry]:
    """Entries of a mapping in the order of its keys."""
    by_key = {entry.key: entry for entry in entries}
    keys = pack_parts(order)
    if len(keys) != len(by_key) or by_key.keys() != set(keys):
        raise FormatError("the order of a dict does not name each key once")
    return [by_key[key] for key in keys]


def reachable(
    root: ObjectId,
    made: Mapping[ObjectId, Object],
    links_of: Callable[[Object], Sequence[ObjectId]] = links,
) -> tuple[list[Object], list[ObjectId]]:
    """Of the objects just made, those that a root reaches; and what else these point to."""
    if root not in made:
        return [], [root]
    # Children first, so that every prefix of the list is closed under links.
    objects: dict[ObjectId, Object] = {}
    needs: dict[ObjectId, None] = {}
    pending, entered = [root], set[ObjectId]()
    while pending:
        id = pending[-1]
        if id in entered:
            objects[id] = made[pending.pop()]
            continue
        entered.add(id)
        below = dict.fromkeys(links_of(made[id]))
        needs.update(below)
        mine = list(filter(made.__contains__, below))
        pending += [one for one in reversed(mine) if one not in entered]
    for id in objects:
        needs.pop(id, None)
    return list(objects.values()), list(needs)


# The algorithm (FastCDC 2020, normalization 1, seed 0) and these sizes are format.
CHUNK_MIN: Final = 2048
CHUNK_TARGET: Final = 8192
CHUNK_MAX: Final = 32768


@cache
def _cutter() -> Any:
    import pyfastcdc

    if not pyfastcdc.FastCDC.__module__.startswith("pyfastcdc.cy"):
        raise ImportError(
            "pyfastcdc runs without its compiled part, which is 500 times slower; "
            "install a wheel of pyfastcdc for this Python"
        )
    return pyfastcdc.FastCDC(
        CHUNK_TARGET, min_size=CHUNK_MIN, max_size=CHUNK_MAX, normalized_chunking=1, seed=0
    )


def cut_bytes(data: bytes | memoryview) -> list[bytes]:
    """Cut bytes into chunks; the last one ends where the data does."""
    if len(data) <= CHUNK_MIN:
        return [bytes(data)]
    return [bytes(chunk.data) for chunk in _cutter().cut_buf(data)]


def chunk_objects(pieces: list[bytes]) -> tuple[list[Entry], list[Object]]:
    """The entries and objects of chunks."""
    objects = [make_object(Kind.CHUNK, piece) for piece in pieces]
    return [Entry(b"", made.id, len(made.payload)) for made in objects], objects


class Edited(NamedTuple):
    """A new value made from an old one: its root, the new objects, and what they need."""

    root: ObjectId
    objects: list[Object]
    needs: list[ObjectId]


def finish(builder: Builder, part: bytes, old: ObjectId | None) -> Edited:
    """Give a part a root, which takes the place of an old one."""
    root = linked(part)
    if root is None:
        root = builder.add(make_object(Kind.VALUE, part), old)
    objects, needs = reachable(root, builder.objects, builder.links)
    return Edited(root, objects, needs)
