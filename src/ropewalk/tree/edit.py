"""Reading and changing one place of a stored value; cost follows the path."""

from __future__ import annotations

from collections.abc import Callable, Collection
from hashlib import sha256
from typing import Any

from ropewalk.codec import Codec, Path, default_codec, format_path
from ropewalk.codec.decoder import check_canonical
from ropewalk.codec.msgpack import (
    Code,
)
from ropewalk.errors import ChangedMeanwhile, InvalidInput, NotStorable, RopewalkError
from ropewalk.tree.build import Builder, Edited, Title, finish
from ropewalk.tree.changes import differing
from ropewalk.tree.embed import Embedder, retry_if_changed
from ropewalk.tree.levels import Span
from ropewalk.tree.limits import explain, refuse_deep
from ropewalk.tree.nodes import KEY_MAX, KEYED, Entry, linked, may_hold_links
from ropewalk.tree.objects import ObjectId, Reader
from ropewalk.tree.read import (
    Container,
    Loader,
    Sorted,
    as_key,
    checked,
    expect_room,
    find_part,
    is_marked,
    marks_of,
    nowhere,
    open_order,
    open_part,
    part_of,
    reading,
    with_marks,
    writing,
)


def edited_order(
    builder: Builder, opened: Container, gone: Collection[bytes], added: list[bytes]
) -> bytes | None:
    """The order of a mapping without some keys, and with new ones at its end."""
    if opened.title.code == Code.MAP or not (gone or added):
        return opened.order
    if opened.order is not None:
        return _edited_list(builder, opened.order, gone, added)
    if not added or _stays_sorted(opened, added):
        return None
    keys = [key for key in opened.keys(builder.read) if key not in gone] + added
    if keys == sorted(keys):
        return None
    return builder.sequence(Title(Code.LIST), keys).part


def _stays_sorted(opened: Container, added: list[bytes]) -> bool:
    """Whether new keys come after all old ones by themselves."""
    total = opened.view.total
    last = opened.view.node_at(0, total - 1).entries[-1].key if total else b""
    return last < added[0] and added == sorted(added)


def _edited_list(
    builder: Builder, order: bytes, gone: Collection[bytes], added: list[bytes]
) -> bytes | None:
    listed = open_order(order, builder.read)
    total = listed.view.total
    spans: list[Span] = []
    if gone:
        keys = [entry.body for place in listed.view.leaves() for entry in place.entries]
        left = [key for key in keys if key not in gone] + added
        if left == sorted(left):
            return None
        spans = [Span(at, at + 1, []) for at, key in enumerate(keys) if key in gone]
    if added:
        spans.append(Span(total, total, [Entry(b"", key) for key in added]))
    return listed.edited(builder, spans)


def merged_order(
    builder: Builder,
    containers: tuple[Container, Container, Container],
    gone: set[bytes],
    added: set[bytes],
) -> bytes | None:
    """The order of base, ours and theirs merged; keys `gone` and `added` are as to ours.

    It is that of ours, and what theirs added comes last. But where ours has the keys
    and the order of base, it is that of theirs.
    """
    base, ours, theirs = containers
    read = builder.read
    if not gone and not added and theirs.order == base.order:
        return ours.order
    if not _same_keys(base, ours, read):
        return edited_order(builder, ours, gone, _sort_like(theirs, added, read))
    before, after = differing(base.view, theirs.view, read)
    old, new = {entry.key for entry in before}, {entry.key for entry in after}
    kept = _sort_like(ours, (old - new) - gone, read)
    return edited_order(builder, theirs, (new - old) - added, kept)


def _same_keys(one: Container, other: Container, read: Reader) -> bool:
    if one.order != other.order:
        return False
    if one.order is not None:
        return True
    left, right = differing(one.view, other.view, read)
    return {entry.key for entry in left} == {entry.key for entry in right}


def _sort_like(opened: Container, keys: set[bytes], read: Reader) -> list[bytes]:
    """Keys in the order in which a mapping has them."""
    if opened.order is None or len(keys) < 2:
        return sorted(keys)
    return [key for key in opened.keys(read) if key in keys]


@reading
def get(root: ObjectId, path: Path, read: Reader, codec: Codec | None = None) -> Any:
    """The value at a path; only the nodes on the way are read. Raises PathNotFound.

    A path names fields as they are stored, before any migration of their class.
    """
    known = default_codec if codec is None else codec
    part = find_part(part_of(root, read), checked(path), read, known)
    return Loader(read, known).part(part)


@reading
def fingerprint(root: ObjectId, path: Path, read: Reader, codec: Codec | None = None) -> bytes:
    """A short name for the value at a path: equal values have equal ones.

    Only the nodes on the way are read. Raises PathNotFound.
    """
    known = default_codec if codec is None else codec
    return sha256(find_part(part_of(root, read), checked(path), read, known)).digest()


@writing
def put(root: ObjectId, path: Path, value: Any, read: Reader, codec: Codec | None = None) -> Edited:
    """Replace the value at a path, or add a key at the end of a dict.

    What is around it keeps its type, also a tuple or an object. A path names fields as
    they are stored: an object of an older version of its class stays one, with the
    fields of that version. Raises PathNotFound where only the last step may be missing,
    and NotStorable.
    """
    return _Edit(root, path, read, codec).apply(lambda edit, old: edit.embed(value, old))


@writing
def remove(root: ObjectId, path: Path, read: Reader, codec: Codec | None = None) -> Edited:
    """Take a key out of a dict, an item out of a list or tuple, a member out of a set.

    Raises PathNotFound, and InvalidInput for a field of an object.
    """
    return _Edit(root, path, read, codec).apply(lambda edit, old: None)


@writing
def insert(
    root: ObjectId, path: Path, value: Any, read: Reader, codec: Codec | None = None
) -> Edited:
    """Insert an item into a list, tuple or deque before the index that ends the path.

    An index of -1 is that of the last item, and the length is that of the end.
    """
    if not checked(path):
        raise InvalidInput("insert needs a path that ends with the index of a list")
    edit = _Edit(root, path, read, codec, above=1)
    return edit.apply(lambda edit, old: edit.inserted(old, value))


class _Edit:
    """One edit of one place, or of the container some steps above it."""

    def __init__(
        self, root: ObjectId, path: Path, read: Reader, codec: Codec | None, above: int = 0
    ) -> None:
        self._root = root
        self._path = checked(path)
        self._stop = len(path) - above
        self._codec = default_codec if codec is None else codec
        self._builder = Builder(read)
        self._embedder = Embedder(self._codec, self._builder, {})

    def embed(self, value: Any, old: bytes | None) -> bytes:
        return retry_if_changed(
            lambda: embed_at(self._embedder, self._codec, self._path, value, old)
        )

    def apply(self, change: Callable[[_Edit, bytes | None], bytes | None]) -> Edited:
        part = self._descend(part_of(self._root, self._builder.read), 0, change)
        if part is None:
            raise InvalidInput("the top of a value cannot be removed")
        return refuse_deep(finish(self._builder, part, self._root))

    def _descend(
        self, part: bytes | None, depth: int, change: Callable[[_Edit, bytes | None], bytes | None]
    ) -> bytes | None:
        if depth == self._stop:
            return change(self, part)
        opened = None if part is None else open_part(part, self._builder.read)
        if opened is None:
            raise nowhere(self._path, depth)
        at, entry = self._find(opened, self._path[depth])
        last = depth == self._stop - 1
        if entry is None and not (last and opened.title.code in (*KEYED, Code.MAP)):
            raise nowhere(self._path, depth)
        new = self._descend(None if entry is None else entry.body, depth + 1, change)
        if new is None and entry is None:
            raise nowhere(self._path, depth)
        if not opened.is_mapping:
            return self._replace_item(opened, depth, at, new)
        return self._replace_value(opened, depth, at, entry, new)

    def _find(self, opened: Container, step: Any) -> tuple[int, Entry | None]:
        try:
            return opened.find(step, self._builder.read, self._codec)
        except NotStorable as exc:
            expect_room(exc)
            return 0, None

    def _replace_item(self, opened: Container, depth: int, at: int, new: bytes | None) -> bytes:
        if opened.is_set and new is not None:
            place = format_path(self._path[: depth + 1])
            raise InvalidInput(f"{place} is a member of a set, which can only be removed")
        entries = [] if new is None else [Entry(b"", new)]
        return opened.edited(self._builder, [Span(at, at + 1, entries)])

    def _replace_value(
        self, opened: Container, depth: int, at: int, entry: Entry | None, new: bytes | None
    ) -> bytes:
        if entry is None:
            key = self._new_key(opened)
            at, _ = opened.view.locate(key)
        else:
            key = entry.key
        if opened.title.code == Code.RECORD:
            opened = self._marked(opened, depth, key, new)
        order = edited_order(
            self._builder, opened, [key] if new is None else [], [key] if entry is None else []
        )
        span = Span(at, at if entry is None else at + 1, [] if new is None else [Entry(key, new)])
        return opened.edited(self._builder, [span], order)

    def _new_key(self, opened: Container) -> bytes:
        """The encoding of the last step as a key that the mapping does not have."""
        key, place = as_key(self._path[-1]), format_path(self._path)
        try:
            hash(key)
            encoded = self._codec.encode(key)
        except NotStorable as exc:
            raise NotStorable(exc.reason, place) from exc
        except TypeError as exc:
            raise NotStorable(f"a key must be hashable: {exc}", place) from exc
        if len(encoded) > KEY_MAX:
            raise NotStorable(f"a key takes {len(encoded)} bytes; the most is {KEY_MAX}", place)
        if opened.title.code == Code.DICT:
            twin = Sorted(opened.view, self._builder.read, self._codec).twin(encoded)
            if twin is not None:
                raise NotStorable(f"the dict has the key {twin!r}, which equals {key!r}", place)
        return encoded

    def _marked(self, opened: Container, depth: int, key: bytes, new: bytes | None) -> Container:
        """A record of which a field is set."""
        name = str(self._path[depth])
        if new is None:
            raise InvalidInput(f"{format_path(self._path)} is a field, which cannot be removed")
        inside = depth < len(self._path) - 1
        if inside or not is_marked(opened.title) or name.startswith("_"):
            return opened
        keys = opened.keys(self._builder.read)
        marks = marks_of(opened.title, keys) | {name.removeprefix("+")}
        return opened._replace(title=with_marks(opened.title, keys, marks))

    def inserted(self, part: bytes | None, value: Any) -> bytes:
        if part is None:
            raise nowhere(self._path, self._stop - 1)
        opened = open_part(part, self._builder.read)
        if opened is None or opened.title.code not in (Code.LIST, Code.TUPLE, Code.DEQUE):
            raise InvalidInput("insert works on lists, tuples and deques only")
        total, index = opened.view.total, self._path[-1]
        if type(index) is not int or not -total <= index <= total:
            raise InvalidInput(f"{index!r} is not an index of a list of {total} items")
        if total == opened.maxlen:
            raise InvalidInput(f"the deque is full: its maxlen is {total}")
        at = index + total if index < 0 else index
        entry = Entry(b"", self.embed(value, None))
        return opened.edited(self._builder, [Span(at, at, [entry])])


def embed_at(embedder: Embedder, codec: Codec, path: Path, value: Any, old: bytes | None) -> bytes:
    """The part of a value that will stand at a path; raises NotStorable, ChangedMeanwhile."""
    try:
        return embedder.embed(value, old if old is not None and _helps(old) else None)
    except (NotStorable, ChangedMeanwhile, RecursionError) as exc:
        refusal = explain(codec, value, exc)
        place = format_path(path) + refusal.path.removeprefix("value")
        if isinstance(refusal, ChangedMeanwhile):
            raise ChangedMeanwhile(place) from exc
        raise NotStorable(refusal.reason, place) from exc


def _helps(old: bytes) -> bool:
    """Whether an old part, which is from anywhere, can save work: only for its links."""
    if linked(old) is not None:
        return True
    if not may_hold_links(old):
        return False
    try:
        check_canonical(old)
    except RopewalkError:
        return False
    return True
