"""Looking into a part without loading it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from ormsgpack import Ext

from ropewalk.codec import Codec, Field, Path, format_path
from ropewalk.codec.atoms import CLASSES, check_head
from ropewalk.codec.msgpack import Code, close_sequence, pack
from ropewalk.codec.records import set_unless_marked
from ropewalk.errors import FormatError, InvalidInput, NotStorable, PathNotFound
from ropewalk.tree.build import Builder, Title
from ropewalk.tree.levels import Span, View
from ropewalk.tree.nodes import (
    CHUNKS,
    ITEMS,
    PAIRS,
    SETS,
    Entry,
    Layout,
    Root,
    layout_of,
    link,
    linked,
    links,
    links_in,
    may_hold_links,
    unpack_list,
    unpack_part,
)
from ropewalk.tree.objects import ID_SIZE, Kind, Object, ObjectId, Reader
from ropewalk.tree.read import Loader, expect_room

_UNMARKED = 2
"""The head of a record is its name and its version, and then such marks."""


def kind_of(title: Title) -> Title:
    """What a container is, whatever marks it has."""
    return Title(title.code, title.head[:_UNMARKED])


def is_marked(title: Title) -> bool:
    """Whether a title says which fields were set."""
    return len(title.head) > _UNMARKED


def marks_of(title: Title, keys: Iterable[bytes]) -> set[str]:
    """The fields that were set, of a record with these encoded keys."""
    return set(title.head[_UNMARKED]) if is_marked(title) else _unless_marked(keys)


def with_marks(title: Title, keys: Iterable[bytes], marks: set[str]) -> Title:
    """The title of a record with these encoded keys, of which `marks` were set."""
    head = title.head[:_UNMARKED]
    if marks == _unless_marked(keys):
        return Title(title.code, head)
    return Title(title.code, (*head, sorted(marks)))


def _unless_marked(keys: Iterable[bytes]) -> set[str]:
    return set_unless_marked({field_of(key): None for key in keys})


def field_of(key: bytes) -> str:
    """The name of a field from its encoded key; raises FormatError."""
    name = unpack_part(key)
    if type(name) is not str:
        raise FormatError("a field of a record has no name")
    return name


# Encodings that begin otherwise are texts, integers or bytes: each of them equals
# no other of its kind, and none of another of these kinds.
_ODD: Final = ((b"\xc0", b"\xc4"), (b"\xc7", b"\xcc"), (b"\xd4", b"\xd9"))


class Sorted:
    """Finds keys or members by their encodings, reading a few nodes."""

    def __init__(self, view: View, read: Reader, codec: Codec) -> None:
        self._view = view
        self._codec = codec
        self._loader = Loader(read, codec)

    def at(self, position: int) -> bytes:
        """The encoding of the key or member at a position."""
        place = self._view.node_at(0, position)
        entry = place.entries[position - place.start]
        if self._view.layout.keyed:
            return entry.key
        if may_hold_links(entry.body):
            return self._codec.encode(self._loader.part(entry.body))
        return entry.body

    def position(self, encoded: bytes) -> int:
        """Where a key or member is, or where it would be."""
        if self._view.layout.keyed:
            return self._view.locate(encoded)[0]
        low, high = 0, self._view.total
        while low < high:
            middle = (low + high) // 2
            if self.at(middle) < encoded:
                low = middle + 1
            else:
                high = middle
        return low

    def twin(self, encoded: bytes, without: Collection[bytes] = ()) -> Any:
        """Another key or member that Python takes for the same one, or None.

        1, 1.0 and True are three values, but a dict or a set can hold one of them only.
        """
        wanted = self._codec.decode(encoded)
        for position in self._suspects(encoded):
            other = self.at(position)
            if other == encoded or other in without:
                continue
            found = self._codec.decode(other)
            if _are_twins(wanted, found):
                return found
        return None

    def _suspects(self, encoded: bytes) -> Iterator[int]:
        if any(low <= encoded[:1] < high for low, high in _ODD):
            yield from range(self._view.total)
            return
        for low, high in _ODD:
            yield from range(self.position(low), self.position(high))


def _are_twins(one: Any, other: Any) -> bool:
    try:
        return len({one, other}) == 1
    except Exception as exc:
        raise FormatError(f"a stored key or member is malformed: {exc}") from exc


class Container(NamedTuple):
    """A part that has parts. Small ones look like large ones with one node."""

    title: Title
    view: View
    order: bytes | None
    id: ObjectId | None

    @property
    def is_mapping(self) -> bool:
        """Whether its parts have keys."""
        return self.view.layout is PAIRS

    @property
    def is_set(self) -> bool:
        """Whether its parts are members of a set."""
        return self.title.code in SETS

    @property
    def maxlen(self) -> int | None:
        """The `maxlen` of a deque; None for other containers."""
        maxlen: int | None = self.title.head[0] if self.title.code == Code.DEQUE else None
        return maxlen

    def step(self, codec: Codec, encoded: bytes) -> Any:
        """The step of a path that an encoded key is."""
        if self.title.code == Code.RECORD:
            return Field(field_of(encoded))
        return codec.decode(encoded)

    def keys(self, read: Reader) -> list[bytes]:
        """The encoded keys in their order."""
        if self.order is None:
            return [entry.key for place in self.view.leaves() for entry in place.entries]
        listed = open_order(self.order, read)
        return [entry.body for place in listed.view.leaves() for entry in place.entries]

    def find(self, step: Any, read: Reader, codec: Codec) -> tuple[int, Entry | None]:
        """The position of a step of a path, and what is there.

        Raises NotStorable for a step that cannot be a key.
        """
        if self.is_mapping:
            return self.view.locate(codec.encode(as_key(step)))
        if self.is_set:
            return self._find_member(codec.encode(step), Sorted(self.view, read, codec))
        if type(step) is not int:
            return 0, None
        at = step + self.view.total if step < 0 else step
        if not 0 <= at < self.view.total:
            return at, None
        place = self.view.node_at(0, at)
        return at, place.entries[at - place.start]

    def edited(self, builder: Builder, spans: list[Span], order: bytes | None = None) -> bytes:
        """The part of it with spans replaced, and a mapping's keys in a new order."""
        return builder.edit(self.title, self.view, spans, self.id, order).part

    def _find_member(self, encoded: bytes, members: Sorted) -> tuple[int, Entry | None]:
        at = members.position(encoded)
        if at == self.view.total or members.at(at) != encoded:
            return at, None
        place = self.view.node_at(0, at)
        return at, place.entries[at - place.start]


def as_key(step: Any) -> Any:
    """The key for which a step of a path stands."""
    return str(step) if type(step) is Field else step


def open_order(order: bytes, read: Reader) -> Container:
    """Look into the order of a dict."""
    opened = open_part(order, read)
    if opened is None or opened.title != Title(Code.LIST):
        raise FormatError("the order of a dict is malformed")
    return opened


def open_part(part: bytes, read: Reader) -> Container | None:
    """Look into a part; None if it has no parts of its own. Raises FormatError."""
    id = linked(part)
    if id is not None:
        (found,) = read([id])
        return open_root(id, found, read)
    raw = unpack_part(part)
    if type(raw) is list:
        return _inline(Title(Code.LIST), ITEMS, raw, read)
    if type(raw) is dict:
        return _inline(Title(Code.DICT), PAIRS, _flat(raw), read)
    return _open_extension(part, read) if type(raw) is Ext else None


def open_root(id: ObjectId, found: Object, read: Reader) -> Container | None:
    """Look into the root of a large part that was fetched. Raises FormatError."""
    if found.kind != Kind.ROOT:
        raise FormatError(
            f"object {id.hex()[:12]} is a {found.kind.name}, not the root of a large part or map"
        )
    root = Root.decode(found.payload)
    layout = layout_of(root.code)
    if layout is CHUNKS or root.code in (Code.CUSTOM, Code.FRAME):
        return None
    view = View(layout, root.height, root.entries, read)
    if view.total >= _MOST_PARTS or (root.height and not root.entries):
        raise FormatError("a root does not hold what its height says")
    return Container(_title(root.code, root.head), view, root.order, id)


def _open_extension(part: bytes, read: Reader) -> Container | None:
    code, content = unpack_part(part, lambda code, data: (code, data))
    if code in (Code.TUPLE, *SETS):
        return _inline(Title(Code(code)), ITEMS, unpack_list(content), read)
    if code in (Code.DICT, Code.ORDERED_DICT, Code.COUNTER):
        return _inline(Title(Code(code)), PAIRS, unpack_list(content), read)
    if code in (Code.DEQUE, Code.DEFAULT_DICT):
        *head, parts = unpack_list(content) or [None]
        if type(parts) is not list:
            raise FormatError("a stored container has no content")
        return _inline(_title(Code(code), tuple(head)), layout_of(code), parts, read)
    if code == Code.RECORD:
        *head, fields = unpack_list(content) or [None]
        if type(fields) is not dict:
            raise FormatError("a stored record has no fields")
        return _inline(_title(Code.RECORD, tuple(head)), PAIRS, _flat(fields), read)
    return None


_MOST_PARTS = 2**62
"""More than there can be, and so few that a sum of counts can be written."""


def _title(code: Code, head: tuple[Any, ...]) -> Title:
    """The title of a container; raises FormatError."""
    if code in CLASSES:
        check_head(code, head)
    elif not (_is_record_head(head) if code == Code.RECORD else not head):
        raise FormatError("the title of a stored container is malformed")
    return Title(code, head)


def _is_record_head(head: tuple[Any, ...]) -> bool:
    match head:
        case [str(), int()]:
            return True
        case [str(), int(), list(marks)]:
            return all(type(mark) is str for mark in marks)
    return False


def _flat(mapping: dict[Any, Any]) -> list[Any]:
    return [piece for pair in mapping.items() for piece in pair]


def _inline(title: Title, layout: Layout, content: list[Any], read: Reader) -> Container:
    entries = layout.entries(0, content)
    if layout is ITEMS:
        return Container(title, View(layout, 0, entries, read), None, None)
    keys = [entry.key for entry in entries]
    order = None if keys == sorted(keys) else close_sequence(Code.LIST, (), keys)
    return Container(title, View(layout, 0, sorted(entries), read), order, None)


def part_of(root: ObjectId, read: Reader) -> bytes:
    """The part of a whole value."""
    check_root(root)
    (found,) = read([root])
    if found.kind == Kind.VALUE:
        return found.payload
    if found.kind != Kind.ROOT:
        raise FormatError(f"object {root.hex()[:12]} is not the root of a value")
    return link(root)


def check_root(root: ObjectId) -> ObjectId:
    """Refuse what is not the id of an object."""
    if type(root) is not bytes or len(root) != ID_SIZE:
        raise InvalidInput(f"a root is an object id of {ID_SIZE} bytes, not {root!r:.80}")
    return root


def checked(path: Path) -> Path:
    """Refuse what is not a path."""
    if not isinstance(path, tuple):
        raise InvalidInput(f"a path is a tuple of keys, indexes and fields, not {path!r}")
    return path


def find_part(part: bytes, path: Path, read: Reader, codec: Codec) -> bytes:
    """The part at a path; raises PathNotFound."""
    for depth, step in enumerate(path):
        opened = open_part(part, read)
        try:
            found = None if opened is None else opened.find(step, read, codec)[1]
        except NotStorable as exc:
            expect_room(exc)
            found = None
        if found is None:
            raise nowhere(path, depth)
        part = found.body
    return part


def nowhere(path: Path, depth: int) -> PathNotFound:
    """The error for a path whose step at `depth` leads nowhere."""
    whole, reached = format_path(path), format_path(path[:depth])
    return PathNotFound(f"{whole} does not exist: {reached} has no {path[depth]!r}")


class Share(NamedTuple):
    """What one key, or none of them, has of a node."""

    key: bytes | None
    """The encoded key; None for what belongs to no single one."""
    size: int
    """Bytes of its encoded parts in this node."""
    links: list[ObjectId]
    """Where they go on."""


class Division(NamedTuple):
    """A node at the top of a value."""

    keyed: bool
    """Whether the value has keys: it is a dict, a map or a record."""
    shares: list[Share]
    below: list[ObjectId]
    """Further nodes of the same container, to be divided in their turn."""


def divide(found: Object) -> Division:
    """Divide a value's root, or a node of its top container, by key; raises FormatError."""
    if found.kind == Kind.VALUE:
        raw = unpack_part(found.payload)
        if type(raw) is dict:  # What most small values are.
            return _leaf(found, [Entry(pack(key), pack(body)) for key, body in raw.items()])
        opened = open_part(found.payload, _unread)
        if opened is not None and opened.is_mapping:
            entries = [entry for place in opened.view.leaves() for entry in place.entries]
            return _leaf(found, entries)
    elif found.kind == Kind.ROOT:
        root = Root.decode(found.payload)
        if layout_of(root.code) is PAIRS and root.height == 0:
            return _leaf(found, root.entries, root.order)
        if layout_of(root.code) is PAIRS:
            order = [] if root.order is None else links_in(root.order)
            below = [entry.body for entry in root.entries]
            return Division(True, [Share(None, 1, order)], below)
    elif found.kind == Kind.PAIRS:
        return _leaf(found, PAIRS.decode(0, found.payload))
    elif found.kind == Kind.PAIRS_INDEX:
        return Division(True, [Share(None, 1, [])], links(found))
    return Division(False, [Share(None, 1, links(found))], [])


def _leaf(found: Object, entries: Iterable[Entry], order: bytes | None = None) -> Division:
    shares = [Share(key, len(key) + len(body), links_in(body)) for key, body, _ in entries]
    if order is not None:
        shares.append(Share(None, len(order), links_in(order)))
    return Division(True, shares or [Share(None, 1, links(found))], [])


def _unread(ids: Sequence[ObjectId]) -> NoReturn:
    raise FormatError("a small value has no further nodes")
