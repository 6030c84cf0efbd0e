"""Looking at what is in a store: no more of a value is read than is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ropewalk.codec import Codec, Path
from ropewalk.codec.atoms import CLASSES, MAPPINGS
from ropewalk.codec.msgpack import Code
from ropewalk.errors import RopewalkError
from ropewalk.state._views._nodes import (
    Node,
    Shape,
    Text,
    counted,
    look,
    plain_text,
    spell_key,
    undeclared,
    unreadable,
)
from ropewalk.tree import Kind, ObjectId, Reader
from ropewalk.tree.levels import View
from ropewalk.tree.nodes import CHUNKS, Entry, Root, layout_of, linked, may_hold_links
from ropewalk.tree.read import Container, Loader, find_part, open_part, open_root

_SHAPES: Final[dict[int, Shape]] = {
    Code.LIST: "list",
    Code.TUPLE: "tuple",
    Code.SET: "set",
    Code.FROZENSET: "set",
    Code.DICT: "mapping",
    Code.MAP: "mapping",
    Code.RECORD: "record",
    Code.DEQUE: "list",
    **dict.fromkeys(MAPPINGS, "mapping"),
}
_BYTES_PER_CHARACTER = 4  # The most that UTF-8 takes.


class Looker:
    """Looks at parts of stored values; the codec shows classes that are not declared."""

    def __init__(self, read: Reader, codec: Codec) -> None:
        self._read, self._codec = read, codec

    def at(self, part: bytes, path: Path) -> Node:
        """The part at a path inside a part; raises `PathNotFound`."""
        return self.part(find_part(part, path, self._read, self._codec))

    def part(self, part: bytes) -> Node:
        """Look at a part of a value."""
        try:
            return self._part(part)
        except RopewalkError as error:
            return unreadable(error)

    def _part(self, part: bytes) -> Node:
        id = linked(part)
        if id is not None:
            return self._large(id)
        if may_hold_links(part):
            opened = open_part(part, self._read)
            if opened is not None:
                return self._container(opened)
        return look(Loader(self._read, self._codec).part(part))

    def _large(self, id: ObjectId) -> Node:
        (found,) = self._read([id])
        opened = open_root(id, found, self._read) if found.kind == Kind.ROOT else None
        if opened is not None:
            return self._container(opened)
        root = Root.decode(found.payload)
        if layout_of(root.code) is CHUNKS:
            return _Chunks(root, self._read).node()
        return look(Loader(self._read, self._codec).root(id))

    def _container(self, opened: Container) -> Node:
        code, count = opened.title.code, opened.view.total
        shape = _SHAPES.get(code, "list")
        title = CLASSES[code].__name__ if code in CLASSES else ""
        if shape == "record":
            title = self._class(str(opened.title.head[0]))
        label = {
            "mapping": f"{title or 'dict'} of {counted(count, 'key')}",
            "record": title,
        }.get(shape, f"{title or shape} of {counted(count, 'item')}")

        def parts(start: int, stop: int) -> list[tuple[str, Node]]:
            if not opened.is_mapping:
                entries = opened.view.entries(start, stop)
                return [(f"[{at}]", self.part(e.body)) for at, e in enumerate(entries, start)]
            return [self.pair(opened, entry) for entry in self._pairs(opened, start, stop)]

        return Node(label, shape, count, parts, title=title)

    def _class(self, name: str) -> str:
        if self._codec.registry.named(name) is None:
            return undeclared(name)
        return name.rpartition(".")[2]

    def pair(self, opened: Container, entry: Entry) -> tuple[str, Node]:
        """The name and the value of an entry of a mapping."""
        try:
            name = spell_key(opened.step(self._codec, entry.key))
        except RopewalkError as error:
            name = f"(a key that cannot be read: {type(error).__qualname__})"
        return name, self.part(entry.body)

    def _pairs(self, opened: Container, start: int, stop: int) -> Iterable[Entry]:
        if opened.order is None:
            return opened.view.entries(start, stop)
        order = open_part(opened.order, self._read)
        if order is None:
            return []
        keys = [entry.body for entry in order.view.entries(start, stop)]
        found = (opened.view.locate(key)[1] for key in keys)
        return [entry for entry in found if entry is not None]


class _Chunks:
    """A large text, large bytes, or an array: the beginning and the end of it."""

    def __init__(self, root: Root, read: Reader) -> None:
        self._root, self._read = root, read
        self._view = View(CHUNKS, root.height, root.entries, read)
        self._size = self._view.total if root.data is None else len(root.data)

    def node(self) -> Node:
        """What is shown of it."""
        if self._root.code == Code.STR:
            label = f"text of about {self._size:,} characters"
            text = Text(self._size, self._text_head, self._text_tail, quoted=True)
            return Node(label, "text", text=text)
        kind = {Code.BYTES: "bytes", Code.BYTEARRAY: "bytearray"}.get(self._root.code)
        if kind is None:
            shown = f"{self._root.code.name.lower()} of {self._size:,} bytes"
            return plain_text(shown)
        text = Text(
            self._size,
            lambda n: repr(self._head(n)),
            lambda n: repr(self._tail(n)),
            unit="bytes",
        )
        return Node(f"{kind} of {self._size:,}", "text", text=text)

    def _text_head(self, count: int) -> str:
        return self._head(count * _BYTES_PER_CHARACTER).decode("utf-8", "ignore")[:count]

    def _text_tail(self, count: int) -> str:
        if not count:
            return ""
        return self._tail(count * _BYTES_PER_CHARACTER).decode("utf-8", "ignore")[-count:]

    def _head(self, size: int) -> bytes:
        return self._gather(0, min(size, self._size))

    def _tail(self, size: int) -> bytes:
        return self._gather(max(self._size - size, 0), self._size)

    def _gather(self, start: int, stop: int) -> bytes:
        """The bytes in a range, from the chunks over it."""
        if self._root.data is not None:
            return self._root.data[start:stop]
        pieces: list[bytes] = []
        at = start
        while at < stop:
            place = self._view.node_at(0, at)
            position = place.start
            for entry in place.entries:
                if position + entry.weight > at and position < stop:
                    (chunk,) = self._read([entry.body])
                    pieces.append(chunk.payload[max(start - position, 0) : stop - position])
                position += entry.weight
            at = position
        return b"".join(pieces)
