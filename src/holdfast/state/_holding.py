"""What one externalized field holds: a reference, and the value once it was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

from holdfast.codec import Codec
from holdfast.errors import MissingContent, MissingObjects, NotFound, NotStorable
from holdfast.state._content import ContentRef
from holdfast.state._pins import keep
from holdfast.state._runtime import IMMUTABLE, Runtime
from holdfast.tree import Object, ObjectId, TreeWriter, Written

NOTHING: Final = object()
"""Stands where no value was loaded."""

_RUN = 64  # Parts of a container that are encoded together: a small buffer is a fast one.


class Look(NamedTuple):
    """How a value looked: equal values look equal."""

    digest: bytes
    size: int


class Present(NamedTuple):
    """A value that is in the store as it is."""

    root: ObjectId
    objects: list[Object]
    needs: list[ObjectId]


@dataclass(slots=True, eq=False)
class Change:
    """What a field is to hold, written but not stored."""

    content: Content
    kept: Written | Present
    value: Any = NOTHING
    writer: TreeWriter | None = None
    ref: ContentRef | None = None

    def again(self) -> None:
        """Write it whole: something of the version before is gone."""
        if self.writer is None:
            raise MissingContent(self.kept.root.hex(), [self.kept.root])
        self.writer.forget()
        self.kept = self.writer.write(self.value)


class Content:
    """The content of one field of one state. Its value is never shared with another."""

    __slots__ = ("_look", "_runtime", "_value", "_writer", "ref")

    def __init__(self, runtime: Runtime, ref: ContentRef | None = None) -> None:
        self._runtime = runtime
        self.ref = ref
        self._value: Any = NOTHING
        self._look: Look | None = None
        self._writer: TreeWriter | None = None

    @property
    def is_hydrated(self) -> bool:
        """Whether the value is in memory."""
        return self._value is not NOTHING

    def value(self) -> Any:
        """The value, loaded once."""
        if self._value is NOTHING:
            value = self._load()
            if type(value) not in IMMUTABLE and self._writer is None:
                self._look = look_at(self._runtime.coding, value)
            self._value = value
        return self._value

    def copy(self) -> Any:
        """A value like this field's, for somebody else."""
        if self._value is NOTHING:
            return self._load()
        coding = self._runtime.coding
        return coding.decode(coding.encode(self._value))

    def forget(self) -> None:
        """Let go of the value; what changed in it must have been stored."""
        self._value, self._look, self._writer = NOTHING, None, None

    def next(self) -> Content:
        """A content that goes on from this one, which stays as it is."""
        following = Content(self._runtime, self.ref)
        following._look = self._look
        return following

    def root(self) -> ObjectId:
        """The root of the value as it is now; nothing is stored."""
        change = self.changed()
        assert self.ref is not None
        return self.ref.id if change is None else change.kept.root

    def changed(self) -> Change | None:
        """The value, if it was changed in place since it was loaded or stored."""
        value = self._value
        if value is NOTHING or type(value) in IMMUTABLE:
            return None
        if self._writer is None and self._look == look_at(self._runtime.coding, value):
            return None
        change = self._written(value)
        return None if self.ref is not None and change.kept.root == self.ref.id else change

    def assigned(self, value: Any) -> Change:
        """A value that is to be this field's from now on; raises `NotStorable`."""
        if isinstance(value, ContentRef):
            value.expect_answer(self._runtime.backend)
            return Change(self, Present(value.id, [], []), ref=value)
        if value is not self._value:
            return self._written(value)
        return self.changed() or self._renewed()

    def accept(self, change: Change) -> None:
        """Take a change that was stored as what the field holds."""
        if change.ref is not None:
            self.ref = change.ref
            self.forget()
            return
        if change.writer is None:
            return
        if self.ref is None or self.ref.id != change.kept.root:
            self.ref = self._reference(change)
        if change.value is not self._value:
            self.forget()
        if type(change.value) not in IMMUTABLE:
            assert isinstance(change.kept, Written)
            change.writer.accept(change.kept)
            self._writer = change.writer

    def _written(self, value: Any) -> Change:
        writer = self._writer or self._resumed()
        return Change(self, writer.write(value), value, writer)

    def _renewed(self) -> Change:
        assert self.ref is not None
        return Change(self, Present(self.ref.id, [], []), self._value)

    def _reference(self, change: Change) -> ContentRef:
        hash, value = change.kept.root.hex(), change.value
        size = size_of(self._runtime.coding, value)
        return ContentRef(hash, self._runtime.backend.backend_id, type(value).__qualname__, size)

    def _load(self) -> Any:
        assert self.ref is not None
        return self.ref.resolve(self._runtime.backend, codec=self._runtime.coding)

    def _resumed(self) -> TreeWriter:
        """A writer that goes on from what was loaded, so that little is new."""
        writer = TreeWriter(self._runtime.coding)
        if self.ref is not None and self._look is not None:
            with suppress(NotFound):  # It is gone: then everything is new.
                writer.resume(self.ref.id, self._runtime.backend.read)
        return writer


def store_changes(runtime: Runtime, changes: Sequence[Change]) -> None:
    """Store and pin the values of several fields: all of them, or none."""
    if not changes:
        return
    expires_at = runtime.expires_at()
    try:
        keep(runtime.backend, [one.kept for one in changes], expires_at)
    except MissingObjects:
        for one in changes:
            one.again()
        keep(runtime.backend, [one.kept for one in changes], expires_at)
    for one in changes:
        one.content.accept(one)


def look_at(codec: Codec, value: Any) -> Look:
    """How a value looks now, whatever was changed deep inside it."""
    digest, size = sha256(), 0
    try:
        for run in _runs(value):
            data = codec.encode(run)
            digest.update(data)
            size += len(data)
    except NotStorable:
        return Look(b"", 0)  # Whoever writes it says why, and where.
    return Look(digest.digest(), size)


def size_of(codec: Codec, value: Any) -> int:
    """How many bytes a value takes when it is encoded, about."""
    if type(value) is bytes:
        return len(value)
    if type(value) is str:
        return len(value) if value.isascii() else len(value.encode())
    return look_at(codec, value).size


def _runs(value: Any) -> Iterator[Any]:
    """A value in runs that are encoded one by one."""
    parts = value
    if type(value) is dict:
        # In one list: a list of pairs would take longer to encode.
        parts = [one for pair in value.items() for one in pair]
    elif type(value) is not list:
        yield value
        return
    yield type(value).__name__
    for start in range(0, len(parts), _RUN):
        yield parts[start : start + _RUN]
