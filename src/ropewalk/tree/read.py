"""Reading a value back whole, and looking into a part without loading it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NamedTuple, NoReturn, ParamSpec, TypeAlias, TypeVar

from ormsgpack import Ext

from ropewalk.codec import Codec, Field, Path, default_codec, format_path
from ropewalk.codec.atoms import CLASSES, check_head
from ropewalk.codec.msgpack import NO_ROOM, Code, close_sequence, extension, pack
from ropewalk.codec.records import set_unless_marked
from ropewalk.errors import FormatError, InvalidInput, NotStorable, PathNotFound, RopewalkError
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
