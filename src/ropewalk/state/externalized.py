"""The content of an externalized field: a reference, and the value once it is loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from ropewalk.codec import Codec
from ropewalk.codec.msgpack import Code
from ropewalk.errors import InvalidInput, MissingContent, MissingObjects
from ropewalk.state.content_ref import ContentRef, keep
from ropewalk.state.fields import Reduce
from ropewalk.state.runtime import IMMUTABLE, Runtime
from ropewalk.state.value_cache import Copy, ValueCache, copied
from ropewalk.tree import Edited, Object, ObjectId, Reader, TreeWriter, Written, insert, links, put
from ropewalk.tree.read import open_part, part_of

NOTHING: Final = object()
"""Marks a value that is not loaded."""

_RUN = 64  # Parts of a container that are encoded together: small buffers are faster.
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
_FEW: Final = 256
"""Up to this many parts are edited in stored content one by one; beyond that, loading is cheaper.
"""


def _append(root: ObjectId, items: Sequence[Any], read: Reader, codec: Codec) -> Edited:
    """Append items to a stored list; only the nodes on the path are read."""
    opened = open_part(part_of(root, read), read)
    if opened is None or opened.title.code != Code.LIST:
        raise InvalidInput("items can be appended to a list only, and this is another value")
    pairs = enumerate(items, opened.view.total)
    edits = [partial(insert, path=(at,), value=item, codec=codec) for at, item in pairs]
    return _edited(root, edits, read)


def _update(root: ObjectId, pairs: Mapping[Any, Any], read: Reader, codec: Codec) -> Edited:
    """Set keys of a stored dict; only the nodes on the path are read."""
    opened = open_part(part_of(root, read), read)
    if opened is None or opened.title.code != Code.DICT:
        raise InvalidInput("keys can be merged into a dict only, and this is another value")
    edits = [partial(put, path=(key,), value=one, codec=codec) for key, one in pairs.items()]
    return _edited(root, edits, read)


def _edited(root: ObjectId, edits: Iterable[Callable[..., Edited]], stored: Reader) -> Edited:
    """Apply a sequence of edits, leaving out nodes that a later edit replaced."""
    made: dict[ObjectId, Object] = {}

    def read(ids: Sequence[ObjectId]) -> Sequence[Object]:
        rest = [id for id in ids if id not in made]
        found = dict(zip(rest, stored(rest), strict=True)) if rest else {}
        return [made.get(id) or found[id] for id in ids]

    for edit in edits:
        edited = edit(root, read=read)
        made.update((one.id, one) for one in edited.objects)
        root = edited.root
    reached: dict[ObjectId, Object] = {}
    needs: dict[ObjectId, None] = {}
    pending = [root]
    while pending:
        id = pending.pop()
        if id not in made:
            needs[id] = None
        elif id not in reached:
            reached[id] = made[id]
            pending += links(made[id])
    # Children first, so that storing in this order never leaves a dangling link.
    return Edited(root, list(reversed(reached.values())), list(needs))


@dataclass(slots=True, eq=False)
class Change:
    """The new content of a field: encoded, but not stored yet."""

    content: Content
    edited: Edited | Written
    value: Any = NOTHING
    writer: TreeWriter | None = None
    ref: ContentRef | None = None
    copy: Copy | None = None
    """The value as it was written, if nobody else holds it."""

    def again(self) -> None:
        """The same change with the whole value, for when parts of the previous version are gone."""
        if self.writer is None:
            raise MissingContent(self.edited.root.hex(), [self.edited.root])
        self.writer.forget()
        self.edited = self.writer.write(self.value)


class Content:
    """The content of one field of one state. Its value is never shared.

    With a `cache` it is the content of one node's view, used briefly: it needs no memory beside
    the value, and what it stores or loads is cached for the next view.
    """

    __slots__ = ("_cache", "_is_shared", "_runtime", "_value", "_writer", "ref")

    def __init__(
        self, runtime: Runtime, ref: ContentRef | None = None, cache: ValueCache | None = None
    ) -> None:
        self._runtime, self._cache = runtime, cache
        self.ref = ref
        self._value: Any = NOTHING
        self._writer: TreeWriter | None = None
        self._is_shared = False
        """Whether others hold the writer too, so that it is copied before it writes."""

    @property
    def is_hydrated(self) -> bool:
        return self._value is not NOTHING

    def value(self) -> Any:
        """The value, loaded once."""
        if self._value is NOTHING:
            assert self.ref is not None
            self.ref.expect_answer(self._runtime.backend)
            if not self._take_cached(self.ref):
                self._load(self.ref)
        return self._value

    def _take_cached(self, ref: ContentRef) -> bool:
        found = None if self._cache is None else self._cache.get(ref)
        copy = None if found is None else copied(found.value)
        if found is None or copy is None:
            return False
        self._value, self._writer, self._is_shared = copy.value, found.writer, True
        return True

    def _load(self, ref: ContentRef) -> None:
        writer = self._fresh()
        try:
            value = writer.resume(ref.id)
        except MissingObjects as error:
            raise MissingContent(ref.hash, error.ids) from error
        self._value, self._writer = value, _worth_it(value, writer)
        self._share(copied(value) if self._cache is not None else None)

    def copy(self) -> Any:
        """A copy of the value."""
        coding = self._runtime.coding
        if self._value is NOTHING:
            assert self.ref is not None
            return self.ref.resolve(self._runtime.backend, codec=coding)
        return coding.decode(self._runtime.encode(self._value))

    def forget(self) -> None:
        self._value, self._writer = NOTHING, None

    def next(self) -> Content:
        """A content derived from this one, which stays as it is."""
        following = Content(self._runtime, self.ref, self._cache)
        following._writer = self._writer
        following._is_shared = self._is_shared = True
        return following

    def root(self) -> ObjectId:
        """The root of the current value; nothing is stored."""
        change = self.changed()
        assert self.ref is not None
        return self.ref.id if change is None else change.edited.root

    def changed(self) -> Change | None:
        """The change, if the value was modified in place since it was loaded or stored."""
        if self._value is NOTHING or self._writer is None:
            return None
        change = self._written(self._value)
        return None if self.ref is not None and change.edited.root == self.ref.id else change

    def assigned(self, value: Any) -> Change:
        """The change that assigns a value; raises `NotStorable`."""
        if isinstance(value, ContentRef):
            value.expect_answer(self._runtime.backend)
            return Change(self, _present(value.id), ref=value)
        if value is self._value:
            assert self.ref is not None
            # Nothing changed, but its pin may have to be extended.
            return self.changed() or Change(self, _present(self.ref.id))
        return self._written(value)

    def accept(self, change: Change) -> None:
        """Adopt a change that was stored."""
        if change.ref is not None:
            self.ref = change.ref
            self.forget()
        elif change.writer is not None and isinstance(change.edited, Written):
            change.writer.accept(change.edited)
            if change.value is not self._value:
                self._value = NOTHING
            self._writer = _worth_it(change.value, change.writer)
            if self.ref is None or self.ref.id != change.edited.root:
                self.ref = self._reference(change.edited.root, change.value, change.writer)
            self._share(change.copy)

    def _share(self, copy: Copy | None) -> None:
        """Cache a copy of the value, with the writer."""
        if self._cache is not None and self.ref is not None and copy is not None:
            self._cache.put(self.ref, copy.value, copy.items, self._writer)
            self._is_shared = True

    def _written(self, value: Any) -> Change:
        writer = self._writer or self._fresh()
        if self._is_shared and writer is self._writer:
            writer = writer.copy()
        # What is cached must be what was written, though other threads may change the value.
        copy = copied(value) if self._cache is not None else None
        written = value if copy is None else copy.value
        return Change(self, writer.write(written), written, writer, copy=copy)

    def _fresh(self) -> TreeWriter:
        read = self._runtime.backend.read
        return TreeWriter(self._runtime.coding, read, lean=self._cache is not None)

    def _reference(self, root: ObjectId, value: Any, writer: TreeWriter) -> ContentRef:
        size = writer.size
        if size is None:
            size = size_of(self._runtime, value)
        backend_id = self._runtime.backend.backend_id
        return ContentRef(root.hex(), backend_id, type(value).__qualname__, size)


def store_changes(runtime: Runtime, changes: Sequence[Change]) -> None:
    """Store and pin the values of several fields: all of them, or none."""
    if not changes:
        return
    expires_at = runtime.expires_at()
    try:
        keep(runtime.backend, [one.edited for one in changes], expires_at)
    except MissingObjects:
        for one in changes:
            one.again()
        keep(runtime.backend, [one.edited for one in changes], expires_at)
    for one in changes:
        one.content.accept(one)


def renew(runtime: Runtime, refs: Iterable[ContentRef]) -> None:
    """Renew expiring references that have less than half of their lifetime left.

    References to missing content or another backend stay as they are.
    """
    expires_at = runtime.expires_at()
    if expires_at is None:
        return
    slack = (expires_at - time.time_ns() // 1000) // 2
    for ref in refs:
        if runtime.backend.answers_to(ref.backend_id):
            with suppress(MissingObjects):
                keep(runtime.backend, [_present(ref.id)], expires_at, slack)


def size_of(runtime: Runtime, value: Any) -> int:
    """The approximate encoded size of a value."""
    if type(value) is bytes:
        return len(value)
    if type(value) is str:
        return len(value) if value.isascii() else len(value.encode())
    return sum(len(runtime.encode(run)) for run in _runs(value))


def _runs(value: Any) -> Iterator[Any]:
    """Split a value into runs that are encoded one by one."""
    parts = value
    if type(value) is dict:
        # In one list: encoding a list of pairs takes longer.
        parts = [one for pair in value.items() for one in pair]
    elif type(value) is not list:
        yield value
        return
    for start in range(0, len(parts), _RUN):
        yield parts[start : start + _RUN]


def _worth_it(value: Any, writer: TreeWriter) -> TreeWriter | None:
    return None if type(value) in IMMUTABLE else writer


def _present(root: ObjectId) -> Edited:
    return Edited(root, [], [])


def replace_value(left: T, right: T) -> T:
    return right


def append_items(left: list[T], right: list[T]) -> list[T]:
    """Concatenate both lists in the order of the updates, keeping duplicates."""
    if not isinstance(left, list) or not isinstance(right, list):
        raise InvalidInput(f"append_items joins two lists, not {_types(left, right)}")
    return [*left, *right]


def merge_keys(left: dict[K, V], right: dict[K, V]) -> dict[K, V]:
    """Merge both dicts; the later value wins."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        raise InvalidInput(f"merge_keys joins two dicts, not {_types(left, right)}")
    return {**left, **right}


_EDITS: Final[dict[Reduce, tuple[type[Sized], Callable[..., Edited]]]] = {
    append_items: (list, _append),
    merge_keys: (dict, _update),
}
"""Reducers that can run without loading the left operand."""


def combine(runtime: Runtime, reduce: Reduce, left: Any, right: Any) -> ContentRef:
    """Reduce two updates of an externalized field, values or references, to one reference."""
    if reduce is replace_value:
        return _reference(runtime, right)
    if isinstance(left, ContentRef) and reduce in _EDITS:
        kind, edit = _EDITS[reduce]
        value = _value(runtime, right)
        if isinstance(value, kind) and len(value) <= _FEW:
            return _edit_stored(runtime, left, value, edit)
        right = value
    content = Content(runtime, left if isinstance(left, ContentRef) else None)
    held = content.value() if isinstance(left, ContentRef) else left
    store_changes(runtime, [content.assigned(reduce(held, _value(runtime, right)))])
    return _of(content)


def _edit_stored(
    runtime: Runtime, left: ContentRef, value: Any, edit: Callable[..., Edited]
) -> ContentRef:
    left.expect_answer(runtime.backend)
    try:
        kept = edit(left.id, value, runtime.backend.read, runtime.coding)
        keep(runtime.backend, [kept], runtime.expires_at())
    except MissingObjects as error:
        raise MissingContent(left.hash, error.ids) from error
    size = left.size_bytes + size_of(runtime, value)
    return ContentRef(kept.root.hex(), runtime.backend.backend_id, left.type_name, size)


def _value(runtime: Runtime, given: Any) -> Any:
    if not isinstance(given, ContentRef):
        return given
    return given.resolve(runtime.backend, codec=runtime.coding)


def _reference(runtime: Runtime, given: Any) -> ContentRef:
    content = Content(runtime)
    store_changes(runtime, [content.assigned(given)])
    return _of(content)


def _of(content: Content) -> ContentRef:
    assert content.ref is not None
    return content.ref


def _types(left: object, right: object) -> str:
    return f"a {type(left).__name__} and a {type(right).__name__}"
