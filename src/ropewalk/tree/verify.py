"""Checks whether stored values can be read; each node is visited once.

That each node is canonical is checked elsewhere. Here are the invariants between nodes:
keys ascend through a tree, counts are right, the order of a dict names each key once, bytes
are what their title says, and links lead to the root of a value. A summary of each node is
cached, so a version that shares most nodes with the one before costs only its new nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ropewalk.codec import inspection_codec
from ropewalk.codec.frames import element_size
from ropewalk.codec.msgpack import Code
from ropewalk.errors import FormatError, RopewalkError
from ropewalk.tree.build import is_text_key
from ropewalk.tree.nodes import (
    CHUNKS,
    ITEMS,
    PAIRS,
    SETS,
    Entry,
    Layout,
    Root,
    layout_of,
    links,
    links_in,
    may_hold_links,
)
from ropewalk.tree.objects import Kind, Object, ObjectId, Reader, check_commit
from ropewalk.tree.read import open_order

_CACHED: Final = 1 << 20
"""How many summaries of nodes are cached."""
_MODULUS: Final = 1 << 128
_BATCH: Final = 128


class _Summary(NamedTuple):
    """What the parent of a node needs to know of it."""

    parts: int
    """The number of parts; of chunks, the number of bytes."""
    first: bytes
    last: bytes
    """The first and the last key."""
    digest: int
    """The sum of the digests of all keys, or of the items of a sequence: it does not depend on
    their order, and differs if one is missing or there twice."""
    texts: bool
    """Whether all keys are strings."""
    ascends: tuple[bytes, bytes] | None
    """The first and the last item, if the items ascend, as those of a set do."""


_NOTHING: Final = _Summary(0, b"", b"", 0, True, None)


class Verifier:
    """Checks roots of values, and all nodes under them."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._nodes: dict[ObjectId, _Summary] = {}
        self._tops: set[ObjectId] = set()
        self._ends: dict[ObjectId, tuple[bytes, bytes] | None] = {}

    def verify(self, found: Object) -> None:
        """Raise FormatError if an object is the root of a value that cannot be read.

        Raises MissingObjects, too. Of other objects only the form and the links are checked.
        """
        if found.kind == Kind.COMMIT:
            check_commit(found)
        elif found.kind in (Kind.VALUE, Kind.ITEMS, Kind.PAIRS):
            self._expect_tops(links(found))
        elif found.kind == Kind.ROOT:
            self._tops.add(found.id)
            self._verify_root(Root.decode(found.payload))

    def _verify_root(self, root: Root) -> None:
        layout = layout_of(root.code)
        if layout is CHUNKS:
            self._verify_bytes(root)
            return
        if root.height == 0:
            bodies = [one.body for one in root.entries if may_hold_links(one.body)]
            self._expect_tops([id for body in bodies for id in links_in(body)])
        summary = self._summed(layout, root.height, root.entries)
        if root.code in SETS:
            apart = summary.ascends is not None or self._holds_links(layout, root)
            _expect(apart, "a set is not in its order, or has the same member twice")
        if root.code == Code.CUSTOM:
            _expect(summary.parts == 1, "a custom value has not one part")
        if layout is PAIRS:
            self._verify_keys(root, summary)

    def _holds_links(self, layout: Layout, root: Root) -> bool:
        """Whether members of a set are links, whose encodings are not here to be compared."""
        entries = self._lowest(layout, root.height, root.entries)
        return any(may_hold_links(entry.body) for entry in entries)

    def _verify_keys(self, root: Root, summary: _Summary) -> None:
        if root.order is not None:
            _expect(root.code != Code.MAP, "a map has no order")
            order = open_order(root.order, self._read)
            named = self._summed(ITEMS, order.view.height, order.view.top.entries)
            same = (named.parts, named.digest) == (summary.parts, summary.digest)
            _expect(same, "the order of a dict does not name each of its keys once")
        if root.code == Code.RECORD:
            _expect(summary.texts, "the fields of a record have names")
        elif not summary.texts:
            lowest = self._lowest(PAIRS, root.height, root.entries)
            _expect_different([one.key for one in lowest if not is_text_key(one.key)])

    def _verify_bytes(self, root: Root) -> None:
        if root.data is None:
            size = self._summed(CHUNKS, root.height, root.entries).parts
        else:
            size = len(root.data)
        if root.code == Code.ARRAY:
            _expect(len(root.head) == 3, "an array lacks its element type, shape or order")
            dtype, shape, _ = root.head
            sound = type(shape) is list and all(type(side) is int and side >= 0 for side in shape)
            sound = sound and math.prod(shape) * element_size(dtype) == size
            _expect(sound, "an array has other elements than its shape says")
        elif root.code == Code.STR and root.data is not None:
            _expect(_ends(root.data) == (b"", b""), "a text is not UTF-8")
        elif root.code == Code.STR:
            self._verify_text(self._lowest(CHUNKS, root.height, root.entries))

    def _verify_text(self, chunks: Sequence[Entry]) -> None:
        """Raise unless chunks are UTF-8 together; a character may be split between two."""
        absent = [one.body for one in chunks if one.body not in self._ends]
        for start in range(0, len(absent), _BATCH):
            some = list(dict.fromkeys(absent[start : start + _BATCH]))
            for found in self._read(some):
                self._ends[found.id] = _ends(found.payload)
        pending = b""
        for chunk in chunks:
            ends = self._ends[chunk.body]
            _expect(ends is not None, "a text is not UTF-8")
            assert ends is not None
            if chunk.weight == len(ends[0]):
                pending += ends[0]
                continue
            _expect(_is_text(pending + ends[0]), "a text is not UTF-8")
            pending = ends[1]
        _expect(_is_text(pending), "a text is not UTF-8")

    # Nodes.

    def _summed(self, layout: Layout, level: int, entries: Sequence[Entry]) -> _Summary:
        """The summary of entries at a level, and of everything below them."""
        if level < layout.first_index:
            return _leaf_summary(layout, entries)
        ids = [entry.body for entry in entries]
        below: list[_Summary] = []
        for start in range(0, len(ids), _BATCH):
            below += self._summaries(layout, level - 1, ids[start : start + _BATCH])
        for entry, summary in zip(entries, below, strict=True):
            _expect(entry.weight == summary.parts, "an index counts other parts than there are")
            _expect(entry.key == summary.first, "an index names another first key")
        if layout.keyed:
            ascend = all(one.last < other.first for one, other in pairwise(below))
            _expect(ascend, "the keys of a dict do not ascend")
        return _joined(below)

    def _summaries(self, layout: Layout, level: int, ids: list[ObjectId]) -> list[_Summary]:
        """The summaries of nodes, or of chunks."""
        absent = [id for id in dict.fromkeys(ids) if id not in self._nodes]
        fresh: dict[ObjectId, _Summary] = {}
        for found in self._read(absent) if absent else ():
            if level < 0:
                _expect(found.kind == Kind.CHUNK, "an index leads to what is no chunk")
                fresh[found.id] = _NOTHING._replace(parts=len(found.payload))
            else:
                fresh[found.id] = self._summed(layout, level, layout.read(level, found))
        if len(self._nodes) > _CACHED:
            self._nodes.clear()  # What is needed again is read again.
            return self._summaries(layout, level, ids)
        self._nodes.update(fresh)
        return [self._nodes[id] for id in ids]

    def _lowest(self, layout: Layout, level: int, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries of all leaves, or those that lead to chunks."""
        for below in range(level - 1, -1, -1):
            found = self._read([entry.body for entry in entries])
            entries = [one for node in found for one in layout.read(below, node)]
        return entries

    def _expect_tops(self, ids: Sequence[ObjectId]) -> None:
        absent = [id for id in dict.fromkeys(ids) if id not in self._tops]
        for found in self._read(absent) if absent else ():
            _expect(found.kind == Kind.ROOT, "a link leads to what is not the top of a value")
            self._tops.add(found.id)


def _leaf_summary(layout: Layout, entries: Sequence[Entry]) -> _Summary:
    said = [entry.key if layout.keyed else entry.body for entry in entries]
    digest = sum([int.from_bytes(blake2b(one, digest_size=16).digest()) for one in said])
    ascends = all(one < other for one, other in pairwise(said))
    if layout.keyed:
        _expect(ascends, "the keys of a dict do not ascend")
        texts = all(map(is_text_key, said))
        first, last = (said[0], said[-1]) if said else (b"", b"")
        return _Summary(len(said), first, last, digest % _MODULUS, texts, None)
    ends = (said[0], said[-1]) if said and ascends else None
    return _Summary(len(said), b"", b"", digest % _MODULUS, True, ends)


def _joined(below: Sequence[_Summary]) -> _Summary:
    """The summary of several nodes in a row."""
    if not below:
        return _NOTHING
    ends = [one.ascends for one in below if one.ascends is not None]
    ascend = len(ends) == len(below) and all(one[1] < other[0] for one, other in pairwise(ends))
    return _Summary(
        sum([one.parts for one in below]),
        below[0].first,
        below[-1].last,
        sum([one.digest for one in below]) % _MODULUS,
        all(one.texts for one in below),
        (ends[0][0], ends[-1][1]) if ascend else None,
    )


def _expect_different(keys: Sequence[bytes]) -> None:
    """Keys that are stored in different ways may be equal: 1 and True."""
    decoded: list[Any] = []
    for key in keys:
        try:
            decoded.append(inspection_codec.decode(key))
        except RopewalkError:
            continue  # It needs what is not here, such as numpy; its form was checked.
    _expect(len(dict.fromkeys(decoded)) == len(decoded), "a dict has the same key twice")


def _ends(data: bytes) -> tuple[bytes, bytes] | None:
    """The bytes of split characters at both ends of a chunk; None if it is not UTF-8."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    try:
        data[start:].decode()
    except UnicodeDecodeError as error:
        end = start + error.start
        if error.reason != "unexpected end of data" or len(data) - end > 3:
            return None
        return data[:start], data[end:]
    return data[:start], b""


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _expect(sound: bool, problem: str) -> None:
    if not sound:
        raise FormatError(problem)
