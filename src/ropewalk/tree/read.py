"""Reading values back, whole."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

from ropewalk.codec import Codec, default_codec
from ropewalk.codec.msgpack import NO_ROOM, Code, extension
from ropewalk.errors import FormatError, NotStorable, RopewalkError
from ropewalk.tree.nodes import (
    CHUNKS,
    ITEMS,
    PAIRS,
    Entry,
    Layout,
    Root,
    layout_of,
    links_in,
    may_hold_links,
)
from ropewalk.tree.objects import Kind, Object, ObjectId, Reader

P = ParamSpec("P")
R = TypeVar("R")


def _within(error: Callable[[str], RopewalkError]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except RecursionError as exc:
                raise error(NO_ROOM) from exc

        return run

    return decorate


def reading(function: Callable[P, R]) -> Callable[P, R]:
    """What reads raises FormatError where the stack ends."""
    return _within(FormatError)(function)


def writing(function: Callable[P, R]) -> Callable[P, R]:
    """What writes raises NotStorable where the stack ends."""
    return _within(NotStorable)(function)


def reading_on(found: Iterator[R]) -> Iterator[R]:
    """The same for what is found one by one."""
    try:
        yield from found
    except RecursionError as exc:
        raise FormatError(NO_ROOM) from exc


def expect_room(refusal: NotStorable) -> None:
    """Raise a refusal that only says that the stack ended; it tells nothing of a value."""
    if isinstance(refusal.__cause__ or refusal.__context__, RecursionError):
        raise NotStorable(NO_ROOM) from refusal


# Somewhat more than a writer allows, and less than the stack of Python does.
_MAX_DEPTH = 104
_AHEAD = 512  # Objects that leaves point to, fetched together where one leaf has no more.
_BATCH = 128  # Leaves that are fetched together: what they hold fits a processor's cache.

_Leaf: TypeAlias = tuple[Entry, Object]


@reading
def load(root: ObjectId, read: Reader, codec: Codec | None = None) -> Any:
    """The value of a root.

    Raises MissingObjects, FormatError, or UndeclaredClass; never gives a part of it.
    """
    return Loader(read, default_codec if codec is None else codec).root(root)


class Loader:
    """Reads values; objects on one level are fetched together."""

    def __init__(self, read: Reader, codec: Codec) -> None:
        self._read = read
        self._codec = codec
        self._plain = codec.decoder()
        self._depth = 0
        self._ahead: dict[ObjectId, Object] = {}
        """What the leaves point to that are being decoded."""

    def root(self, id: ObjectId) -> Any:
        """The value of a root object."""
        (found,) = self._read([id])
        return self._decode(found.payload) if found.kind == Kind.VALUE else self._object(found)

    def part(self, part: bytes) -> Any:
        """The value of a part."""
        self._depth, self._ahead = 0, {}  # also after a value that was refused
        return self._decode(part)

    def _object(self, found: Object) -> Any:
        if found.kind != Kind.ROOT:
            raise FormatError(f"object {found.id.hex()[:12]} is not the root of a value")
        if self._depth >= _MAX_DEPTH:
            raise FormatError("the value is nested too deeply")
        self._depth += 1
        root = self._opened(found)
        value = self._container(root)
        self._loaded(found.id, root, value)
        self._depth -= 1
        return value

    def _opened(self, found: Object) -> Root:
        """The root that an object is."""
        return Root.decode(found.payload)

    def _loaded(self, id: ObjectId, root: Root, value: Any) -> None:
        """Called with every large part that was read."""

    def _decode(self, data: bytes) -> Any:
        """Decode an encoding, with what its links stand for in place."""
        ids = links_in(data) if may_hold_links(data) else []
        if not ids:
            return self._plain.decode(data)
        values = iter(zip(ids, self._objects(ids), strict=True))

        def take(id: ObjectId) -> Any:
            expected, value = next(values, (None, None))
            if id != expected:
                raise FormatError("a link stands where none can be")
            return value

        return self._codec.decoder(take).decode(data)

    def _objects(self, ids: list[ObjectId]) -> list[Any]:
        ahead = self._ahead
        there = ahead.keys() >= set(ids)
        found = [ahead[id] for id in ids] if there else self._read(ids)
        # Every link gets a value of its own, also where two point to one object.
        return [self._object(one) for one in found]

    def _container(self, root: Root) -> Any:
        layout = layout_of(root.code)
        if layout is CHUNKS:
            parts: Any = self._bytes(root)
        elif layout is ITEMS:
            parts = self._items(root)
        else:
            parts = self._mapping(root)
        if root.code == Code.ENUM:
            return self._plain.decode(extension(Code.ENUM, parts))
        return self._plain.close(root.code, list(root.head), parts)

    def _bytes(self, root: Root) -> bytes:
        if root.data is not None:
            return root.data
        entries = self._lowest(CHUNKS, root)
        chunks = self._read([entry.body for entry in entries])
        for entry, chunk in zip(entries, chunks, strict=True):
            if chunk.kind != Kind.CHUNK or len(chunk.payload) != entry.weight:
                raise _misplaced(chunk, "chunk")
        return b"".join([chunk.payload for chunk in chunks])

    def _items(self, root: Root) -> list[Any]:
        if root.height == 0:
            return self._list(ITEMS.encode(0, root.entries))
        return self._run(ITEMS, root)

    def _run(self, layout: Layout, root: Root) -> list[Any]:
        """The elements of all leaves, from left to right."""
        elements: list[Any] = []
        entries = self._lowest(layout, root)
        for start in range(0, len(entries), _BATCH):
            batch = entries[start : start + _BATCH]
            found = self._read([entry.body for entry in batch])
            pairs = list(zip(batch, found, strict=True))
            with uncollected():
                for some in self._with_links(pairs):
                    for entry, leaf in some:
                        elements += self._leaf(layout, entry, leaf)
        return elements

    def _with_links(self, leaves: list[_Leaf]) -> Iterator[list[_Leaf]]:
        """Leaves in runs; what a run points to is fetched together, and then there."""
        outside = self._ahead
        run: list[_Leaf] = []
        wanted: dict[ObjectId, None] = {}
        for leaf in leaves:
            payload = leaf[1].payload
            more = links_in(payload) if may_hold_links(payload) else []
            if wanted and len(wanted) + len(more) > _AHEAD:
                self._ahead = self._linked_from(wanted)
                yield run
                run, wanted = [], {}
            run.append(leaf)
            wanted.update(dict.fromkeys(more))
        self._ahead = self._linked_from(wanted)
        yield run
        self._ahead = outside

    def _linked_from(self, wanted: dict[ObjectId, None]) -> dict[ObjectId, Object]:
        ids = list(wanted)
        return dict(zip(ids, self._read(ids), strict=True)) if ids else {}

    def _leaf(self, layout: Layout, entry: Entry, leaf: Object) -> list[Any]:
        """The elements of a leaf."""
        payload = leaf.payload
        plain = not may_hold_links(payload)
        content = self._plain.decode(payload) if plain else self._decode(payload)
        sound = type(content) is list and len(content) == layout.leaf_width * entry.weight
        if not sound or leaf.kind != layout.leaf:
            raise _misplaced(leaf, "leaf")
        elements: list[Any] = content
        return elements

    def _mapping(self, root: Root) -> dict[Any, Any]:
        if root.height == 0:
            flat = self._list(PAIRS.encode(0, root.entries))
        else:
            flat = self._run(PAIRS, root)
        mapping = self._plain.pairs_to_dict(flat[::2], flat[1::2])
        return mapping if root.order is None else self._ordered(mapping, root.order)

    def _ordered(self, mapping: dict[Any, Any], order: bytes) -> dict[Any, Any]:
        keys = self._list(order)
        encode = self._codec.encode
        try:
            if set(map(type, keys)) <= {str}:
                ordered = {key: mapping[key] for key in keys}
            else:
                # By their bytes: nan is not equal to itself, and 1 is equal to True.
                pairs = {encode(key): (key, value) for key, value in mapping.items()}
                ordered = dict([pairs[encode(key)] for key in keys])
        except KeyError as exc:
            raise FormatError("the order of a dict names a key that it does not have") from exc
        if not len(ordered) == len(mapping) == len(keys):
            raise FormatError("the order of a dict does not name each key once")
        return ordered

    def _lowest(self, layout: Layout, root: Root) -> list[Entry]:
        """The entries that point to leaves or chunks."""
        entries = root.entries
        for level in range(root.height - 1, layout.first_index - 1, -1):
            found: Sequence[Object] = self._read([entry.body for entry in entries])
            below: list[Entry] = []
            for entry, node in zip(entries, found, strict=True):
                children = layout.read(level, node)
                if entry.weight != sum([child.weight for child in children]):
                    raise FormatError(
                        f"node {node.id.hex()[:12]} does not hold what its index says"
                    )
                below += children
            entries = below
        return entries

    def _list(self, payload: bytes) -> list[Any]:
        content = self._decode(payload)
        if type(content) is not list:
            raise FormatError("a node is not a list")
        return content


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector of Python out of a block that makes many containers.

    None of them is garbage yet, and looking at them all again and again takes longer than
    making them. Only for what is done soon.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _misplaced(found: Object, expected: str) -> FormatError:
    return FormatError(f"object {found.id.hex()[:12]} is not the {expected} it should be")
