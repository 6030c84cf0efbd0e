"""Reading and changing one place of a stored value; cost follows the path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.codec import Codec, Path, default_codec
from holdfast.codec._codes import Code
from holdfast.errors import InvalidInput
from holdfast.tree._builder import Builder, Title
from holdfast.tree._container import (
    Container,
    Edited,
    edit_mapping,
    edit_sequence,
    find_part,
    finish,
    nowhere,
    open_part,
    order_part,
    part_of,
)
from holdfast.tree._embed import Embedder
from holdfast.tree._layout import Entry
from holdfast.tree._levels import Span
from holdfast.tree._load import Loader
from holdfast.tree._objects import ObjectId, Reader
from holdfast.tree._parts import linked


def get(root: ObjectId, path: Path, read: Reader, codec: Codec | None = None) -> Any:
    """The value at a path; only the nodes on the way are read. Raises PathNotFound."""
    known = default_codec if codec is None else codec
    part = find_part(part_of(root, read), path, read, known)
    return Loader(read, known).part(part)


def put(root: ObjectId, path: Path, value: Any, read: Reader, codec: Codec | None = None) -> Edited:
    """Replace the value at a path, or add a key to a dict."""
    return _Edit(root, path, read, codec).apply(lambda edit, old: edit.embed(value, old))


def remove(root: ObjectId, path: Path, read: Reader, codec: Codec | None = None) -> Edited:
    """Take a key out of a dict, or an item out of a list."""
    return _Edit(root, path, read, codec).apply(lambda edit, old: None)


def insert(
    root: ObjectId, path: Path, value: Any, read: Reader, codec: Codec | None = None
) -> Edited:
    """Insert an item into a list before the index that ends the path."""
    if not path:
        raise InvalidInput("insert needs a path that ends with the index of a list")
    edit = _Edit(root, path[:-1], read, codec)
    return edit.apply(lambda edit, old: edit.inserted(old, path[-1], value))


class _Edit:
    """One edit of one place."""

    def __init__(self, root: ObjectId, path: Path, read: Reader, codec: Codec | None) -> None:
        self._root = root
        self._path = path
        self._codec = default_codec if codec is None else codec
        self._builder = Builder(read)
        self._embedder = Embedder(self._codec, self._builder, {})

    def embed(self, value: Any, old: bytes | None) -> bytes:
        return self._embedder.embed(value, old)

    def apply(self, change: Callable[[_Edit, bytes | None], bytes | None]) -> Edited:
        part = self._descend(part_of(self._root, self._builder.read), 0, change)
        if part is None:
            raise InvalidInput("the top of a value cannot be removed")
        return finish(self._builder, part, self._root)

    def _descend(
        self, part: bytes | None, depth: int, change: Callable[[_Edit, bytes | None], bytes | None]
    ) -> bytes | None:
        if depth == len(self._path):
            return change(self, part)
        opened = None if part is None else open_part(part, self._builder.read)
        if opened is None:
            raise nowhere(self._path, depth)
        try:
            at, entry = opened.find(self._codec, self._path[depth])
        except LookupError:
            raise nowhere(self._path, depth) from None
        last = depth == len(self._path) - 1
        if entry is None and not (last and opened.is_mapping):
            raise nowhere(self._path, depth)
        new = self._descend(None if entry is None else entry.body, depth + 1, change)
        if new is None and entry is None:
            raise nowhere(self._path, depth)
        return self._replace(opened, depth, at, entry, new)

    def _replace(
        self, opened: Container, depth: int, at: int, entry: Entry | None, new: bytes | None
    ) -> bytes:
        if not opened.is_mapping:
            entries = [] if new is None else [Entry(b"", new)]
            return edit_sequence(self._builder, opened, [Span(at, at + 1, entries)])
        step = self._path[depth]
        key = self._codec.encode(str(step) if isinstance(step, str) else step)
        order = self._order(opened, key, added=entry is None, removed=new is None)
        stop = at if entry is None else at + 1
        span = Span(at, stop, [] if new is None else [Entry(key, new)])
        return edit_mapping(self._builder, opened, [span], order)

    def _order(self, opened: Container, key: bytes, added: bool, removed: bool) -> bytes | None:
        if not added and not removed:
            return opened.order
        if added and opened.order is not None and linked(opened.order) is not None:
            listed = open_part(opened.order, self._builder.read)
            assert listed is not None
            end = listed.view.total
            return edit_sequence(self._builder, listed, [Span(end, end, [Entry(b"", key)])])
        keys = opened.keys(self._builder.read)
        changed = [*keys, key] if added else [one for one in keys if one != key]
        return order_part(self._builder, opened.title, changed)

    def inserted(self, part: bytes | None, index: Any, value: Any) -> bytes:
        opened = None if part is None else open_part(part, self._builder.read)
        if opened is None or opened.title != Title(Code.LIST):
            raise InvalidInput("insert works on lists only")
        total = opened.view.total
        if type(index) is not int or not -total <= index <= total:
            raise InvalidInput(f"{index!r} is not an index of a list of {total} items")
        at = index + total if index < 0 else index
        span = Span(at, at, [Entry(b"", self.embed(value, None))])
        return edit_sequence(self._builder, opened, [span])
