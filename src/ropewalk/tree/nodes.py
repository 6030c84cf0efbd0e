"""Nodes: where runs of entries are cut, how they are written, and what they point to.

The numbers and rules of cuts are format. A cut depends on the entry it follows and on how full
the node is, never on history. The chance of a cut grows with the entry's size, so nodes have
about the same size whatever the size of their entries.

A part is the encoding of a value in which every large part is a link. One value has one part,
so parts are equal exactly where values are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from zlib import crc32

from ormsgpack import Ext

from ropewalk.codec.msgpack import (
    DEEP_NESTING,
    FREE_NESTED,
    MAX_NESTED,
    NESTED,
    Code,
    array_header,
    hidden_failure,
    nesting_exceeds,
    pack,
    unpack,
)
from ropewalk.errors import FormatError
from ropewalk.tree.objects import ID_SIZE, Kind, Object, ObjectId, check_commit, commit_links

INLINE_MAX: Final = 2048
"""A part whose encoding is longer than this leaves its parent."""

KEY_MAX: Final = 65536
"""The longest encoding of a dict's key."""

NODE_MIN: Final = 2048
NODE_TARGET: Final = 6144
NODE_MAX: Final = 16384

_SPAN = NODE_TARGET - NODE_MIN


def mark(data: bytes) -> int:
    """32 bits that decide about a cut."""
    # A multiplication spreads what crc32 leaves alike in similar texts.
    return (crc32(data) * 0x9E3779B1) & 0xFFFFFFFF


def cuts_after(filled: int, size: int, marked: int) -> bool:
    """Whether a node of `filled` bytes ends after its last entry, of `size` bytes."""
    if filled < NODE_MIN:
        return False
    return filled >= NODE_MAX or marked * _SPAN < size << 32


MAX_HEIGHT: Final = 32

INDEXED_SIZE: Final = ID_SIZE + 4
"""What an entry of an index adds to its node beside the key, as cuts count it."""


_SMALL: Final = [pack(number) for number in range(128)]


class Entry(NamedTuple):
    """One entry of a node.

    In a leaf: `body` is an encoded part and `key` its encoded key (empty in a
    sequence). In an index: `body` is the id of a node or chunk, `key` its first key,
    and `weight` how many parts (of chunks: bytes) lie beneath.
    """

    key: bytes
    body: bytes
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """How the nodes of one kind of container are written."""

    leaf: Kind
    index: Kind
    leaf_width: int
    index_width: int
    keyed: bool
    first_index: int = 1
    """The lowest level whose nodes are indexes."""

    def kind(self, level: int) -> Kind:
        """The kind of nodes at a level; leaves are level 0."""
        return self.index if level >= self.first_index else self.leaf

    def mark(self, level: int, entry: Entry) -> int:
        """What decides about a cut after an entry: in a map only the key does."""
        if self.keyed:
            return mark(entry.key)
        if level >= self.first_index:
            return int.from_bytes(entry.body[:4], "big")
        return mark(entry.body)

    def encode(self, level: int, entries: Sequence[Entry]) -> bytes:
        """The payload of a node."""
        return self.payload(level, len(entries), self.body(level, entries))

    def body(self, level: int, entries: Sequence[Entry]) -> bytes:
        """Entries as bytes, one after another."""
        if level < self.first_index:
            return b"".join([key + body for key, body, _ in entries])
        return b"".join(
            [
                key + b"\xc4\x20" + body + (_SMALL[weight] if weight < 128 else pack(weight))
                for key, body, weight in entries
            ]
        )

    def payload(self, level: int, count: int, body: bytes) -> bytes:
        """The payload of a node with so many entries."""
        width = self.leaf_width if level < self.first_index else self.index_width
        return array_header(count * width) + body

    def size(self, level: int, entry: Entry) -> int:
        """What an entry adds to its node, as cuts count it."""
        return len(entry.key) + (INDEXED_SIZE if level >= self.first_index else len(entry.body))

    def decode(self, level: int, payload: bytes) -> list[Entry]:
        """The entries of a node; raises FormatError."""
        return self.entries(level, unpack_list(payload))

    def entries(self, level: int, content: list[Any]) -> list[Entry]:
        """The entries of a node whose payload was unpacked; raises FormatError."""
        try:
            return self._entries(level, content)
        except TypeError as exc:
            raise FormatError(f"a node is malformed: {exc}") from exc

    def _entries(self, level: int, content: list[Any]) -> list[Entry]:
        leaf = level < self.first_index
        if leaf and not self.keyed:
            return [Entry(b"", pack(part)) for part in content]
        width = self.leaf_width if leaf else self.index_width
        if len(content) % width:
            raise FormatError("a node has an odd number of elements")
        keys = [pack(key) for key in content[::width]] if self.keyed else None
        if leaf:
            assert keys is not None
            return list(map(Entry, keys, [pack(part) for part in content[1::2]]))
        ids, counts = content[width - 2 :: width], content[width - 1 :: width]
        if not (_are_ids(ids) and set(map(type, counts)) <= {int} and min(counts, default=1) > 0):
            raise FormatError("an index node is malformed")
        return list(map(Entry, [b""] * len(ids) if keys is None else keys, ids, counts))

    def read(self, level: int, found: Object) -> list[Entry]:
        """The entries of a node that was fetched; raises FormatError."""
        if found.kind != self.kind(level):
            raise FormatError(
                f"object {found.id.hex()[:12]} is of kind {found.kind}, not {self.kind(level)}"
            )
        return self.decode(level, found.payload)


def _are_ids(ids: list[Any]) -> bool:
    return set(map(type, ids)) <= {bytes} and set(map(len, ids)) <= {ID_SIZE}


ITEMS = Layout(Kind.ITEMS, Kind.ITEMS_INDEX, 1, 2, keyed=False)
PAIRS = Layout(Kind.PAIRS, Kind.PAIRS_INDEX, 2, 3, keyed=True)
CHUNKS = Layout(Kind.CHUNKS_INDEX, Kind.CHUNKS_INDEX, 2, 2, keyed=False, first_index=0)

_SEQUENCES = frozenset(
    {Code.LIST, Code.TUPLE, Code.SET, Code.FROZENSET, Code.CUSTOM, Code.DEQUE, Code.FRAME}
)
KEYED = frozenset({Code.DICT, Code.ORDERED_DICT, Code.COUNTER, Code.DEFAULT_DICT})
"""Mappings whose keys are values, and may be added and removed."""
_MAPPINGS = KEYED | {Code.MAP, Code.RECORD}
SETS = frozenset({Code.SET, Code.FROZENSET})


def layout_of(code: int) -> Layout:
    """The layout of containers with a type code."""
    if code in _SEQUENCES:
        return ITEMS
    return PAIRS if code in _MAPPINGS else CHUNKS


class Root(NamedTuple):
    """The top of a large value.

    `entries` are those of its highest node, which is `height` levels above the
    leaves. `order` is the encoded sequence of a dict's keys where that is not the
    sorted one. Bytes that fit one chunk are `data`.
    """

    code: Code
    head: tuple[Any, ...]
    height: int
    entries: list[Entry]
    order: bytes | None = None
    data: bytes | None = None

    def encode(self, encoded: bytes | None = None) -> bytes:
        """The payload of the root; `encoded` are its entries as bytes, if they are known."""
        title = pack([int(self.code), *self.head] if self.head else int(self.code))
        layout = layout_of(self.code)
        if self.data is not None:
            body = pack(self.data)
        elif encoded is not None:
            body = layout.payload(self.height, len(self.entries), encoded)
        else:
            body = layout.encode(self.height, self.entries)
        pieces = [title, pack(self.height), body]
        if layout is PAIRS:
            pieces.append(pack(None) if self.order is None else self.order)
        return array_header(len(pieces)) + b"".join(pieces)

    @classmethod
    def decode(cls, payload: bytes) -> Root:
        """Read a payload; raises FormatError."""
        content = unpack_list(payload)
        if len(content) not in (3, 4):
            raise FormatError("a root is malformed")
        code, head = _title(content[0])
        layout, height = layout_of(code), content[1]
        if type(height) is not int or not 0 <= height <= MAX_HEIGHT:
            raise FormatError("a root has a malformed height")
        if (len(content) == 4) != (layout is PAIRS):
            raise FormatError("a root is malformed")
        try:
            order = None if len(content) == 3 or content[3] is None else pack(content[3])
        except TypeError as exc:
            raise FormatError(f"the order of a dict is malformed: {exc}") from exc
        if layout is CHUNKS and height == 0 and type(content[2]) is bytes:
            return cls(code, head, 0, [], None, content[2])
        if type(content[2]) is not list:
            raise FormatError("a root has a malformed body")
        return cls(code, head, height, layout.entries(height, content[2]), order)


def _title(stored: Any) -> tuple[Code, tuple[Any, ...]]:
    parts = stored if type(stored) is list else [stored]
    # A title is in one form only: a list where there is a head, and no 2.0 for 2.
    if not parts or type(parts[0]) is not int or (len(parts) == 1) != (parts is not stored):
        raise FormatError("a root has a malformed title")
    try:
        return Code(parts[0]), tuple(parts[1:])
    except ValueError as exc:
        raise FormatError(
            f"type code {parts[0]} is not known; a newer Ropewalk may have written it"
        ) from exc


def index_entry(layout: Layout, id: ObjectId, entries: Sequence[Entry]) -> Entry:
    """The entry under which a node stands in the index above it."""
    key = entries[0].key if layout.keyed else b""
    return Entry(key, id, sum([entry.weight for entry in entries]))


_LINK: Final = b"\xc7\x20" + bytes([Code.LINK])
_LINK_LENGTH: Final = len(_LINK) + ID_SIZE


def link(id: ObjectId) -> bytes:
    """The part that points to a root."""
    return _LINK + id


def linked(part: bytes) -> ObjectId | None:
    """What a part points to, if it is a link."""
    if len(part) == _LINK_LENGTH and part.startswith(_LINK):
        return part[len(_LINK) :]
    return None


def may_hold_links(data: bytes) -> bool:
    """Whether an encoding may hold links; never wrong when it says no."""
    # One byte is found ten times faster than three, and it is rare.
    return 0xC7 in data and _LINK in data


def unpack_part(data: bytes, hook: Callable[[int, bytes], Any] = Ext) -> Any:
    """Unpack bytes from anywhere, one level of extensions deep; raises FormatError.

    The hook raises nothing.
    """
    try:
        return unpack(data, hook)
    except (ValueError, TypeError) as exc:
        hidden = hidden_failure(exc)
        if hidden is not None:
            raise hidden from exc
        raise FormatError(f"a node is malformed: {exc}") from exc


def unpack_list(data: bytes) -> list[Any]:
    """Unpack bytes that are a list; raises FormatError."""
    content = unpack_part(data)
    if type(content) is not list:
        raise FormatError("a part that must be a list is none")
    return content


_LINKING: Final = NESTED - {Code.ARRAY, Code.ENUM}


def links_in(data: bytes) -> list[ObjectId]:
    """The links in an encoding, in the order in which they stand; raises FormatError."""
    found: list[ObjectId] = []
    _gather(data, 0, found)
    return found


def _gather(data: bytes, depth: int, found: list[ObjectId]) -> None:
    if not may_hold_links(data):
        return
    if depth > MAX_NESTED or (depth > FREE_NESTED and nesting_exceeds(data, DEEP_NESTING)):
        raise FormatError("the bytes are nested too deeply")

    extensions: list[tuple[int, bytes]] = []
    unpack_part(data, lambda code, content: extensions.append((code, content)))
    for code, content in extensions:
        if code in _LINKING:
            _gather(content, depth + 1, found)
        elif code == Code.LINK:
            if len(content) != ID_SIZE:
                raise FormatError("a link is malformed")
            found.append(content)


def is_text(source: Object) -> bool:
    """Whether a root is that of a large string or of large bytes; raises FormatError."""
    return layout_of(Root.decode(source.payload).code) is CHUNKS


def links(source: Object) -> list[ObjectId]:
    """The objects that an object points to, in the order in which they stand in it.

    Looks at no more than it must: `check_links` is for objects from anywhere. Raises
    FormatError where there is something else in the place of a link.
    """
    kind, payload = source.kind, source.payload
    if kind in _HOLDS_PARTS:
        return links_in(payload) if 0xC7 in payload and _LINK in payload else []
    if kind == Kind.CHUNK:
        return []
    if kind == Kind.COMMIT:
        return commit_links(source)
    content = unpack_list(payload)
    if kind in _WIDTHS:
        return _indexed(content, _WIDTHS[kind])
    if kind != Kind.ROOT:
        raise FormatError(f"object {source.id.hex()[:12]} is not part of a value")
    try:
        title, height, body, *order = content
        layout = layout_of(title[0] if type(title) is list else title)
        if type(body) is bytes or height < layout.first_index:
            return links_in(payload)
        last = pack(order) if may_hold_links(payload) else b""
    except (TypeError, ValueError, IndexError) as exc:
        raise FormatError("a root is malformed") from exc
    return _indexed(body, layout.index_width) + links_in(last)


def check_links(source: Object) -> list[ObjectId]:
    """The same for an object from anywhere, of which the form is checked as well."""
    if source.kind == Kind.COMMIT:
        check_commit(source)
    elif source.kind == Kind.ROOT:
        Root.decode(source.payload)
    return links(source)


_HOLDS_PARTS: Final = frozenset({Kind.VALUE, Kind.ITEMS, Kind.PAIRS})
_WIDTHS: Final = {Kind.ITEMS_INDEX: 2, Kind.PAIRS_INDEX: 3, Kind.CHUNKS_INDEX: 2}


def _indexed(entries: Any, width: int) -> list[ObjectId]:
    """The ids in the entries of an index."""
    if type(entries) is not list or len(entries) % width:
        raise FormatError("an index node is malformed")
    ids = entries[width - 2 :: width]
    if not _are_ids(ids):
        raise FormatError("a link is malformed")
    return ids


def root_links(root: Root, payload: bytes) -> list[ObjectId]:
    """The objects that a root points to, which is read already; raises FormatError."""
    if root.data is not None or root.height < layout_of(root.code).first_index:
        return links_in(payload)
    order = [] if root.order is None else links_in(root.order)
    return [entry.body for entry in root.entries] + order


def pack_parts(part: bytes) -> list[bytes]:
    """The parts of an encoded list; raises FormatError."""
    try:
        return [pack(one) for one in unpack_list(part)]
    except TypeError as exc:
        raise FormatError(f"a list is malformed: {exc}") from exc
