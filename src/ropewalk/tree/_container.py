"""Looking into a part without loading it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ormsgpack import Ext

from ropewalk.codec import Codec, Field, Path, format_path
from ropewalk.codec._codes import Code
from ropewalk.codec._collections import CLASSES, check_head
from ropewalk.codec._opened import close_sequence
from ropewalk.errors import FormatError, InvalidInput, NotStorable, PathNotFound
from ropewalk.tree._builder import Builder, Title, reachable
from ropewalk.tree._layout import CHUNKS, ITEMS, PAIRS, SETS, Entry, Layout, Root, layout_of
from ropewalk.tree._levels import Span, View
from ropewalk.tree._marks import field_of
from ropewalk.tree._objects import ID_SIZE, Kind, Object, ObjectId, Reader, make_object
from ropewalk.tree._parts import link, linked, unpack_list, unpack_part
from ropewalk.tree._sorted import Sorted
from ropewalk.tree._stack import expect_room


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


def edit_sequence(builder: Builder, opened: Container, spans: list[Span]) -> bytes:
    """The part of a sequence with spans replaced."""
    return builder.edit_sequence(opened.title, opened.view, spans, opened.id).part


def edit_mapping(
    builder: Builder, opened: Container, spans: list[Span], order: bytes | None
) -> bytes:
    """The part of a mapping with spans replaced and a new order."""
    return builder.edit_mapping(opened.title, opened.view, spans, order, opened.id).part


class Edited(NamedTuple):
    """A new value made from an old one: its root, the new objects, and what they need."""

    root: ObjectId
    objects: list[Object]
    needs: list[ObjectId]


def finish(builder: Builder, part: bytes, base: ObjectId | None) -> Edited:
    """Give a part a root."""
    root = linked(part)
    if root is None:
        root = builder.add(make_object(Kind.VALUE, part, base))
    # What came out as its own predecessor is not new.
    made = {id: one for id, one in builder.objects.items() if one.base != id}
    objects, needs = reachable(root, made, builder.links)
    return Edited(root, objects, needs)
