"""What one externalized field holds: a reference, and the value once it was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ropewalk.errors import MissingContent, MissingObjects
from ropewalk.state._typed._content import ContentRef
from ropewalk.state._typed._pins import keep
from ropewalk.state._typed._runtime import IMMUTABLE, Runtime
from ropewalk.tree import Edited, ObjectId, TreeWriter, Written

NOTHING: Final = object()
"""Stands where no value was loaded."""

_RUN = 64  # Parts of a container that are encoded together: a small buffer is a fast one.


@dataclass(slots=True, eq=False)
class Change:
    """What a field is to hold, written but not stored."""

    content: Content
    edited: Edited
    value: Any = NOTHING
    writer: TreeWriter | None = None
    written: Written | None = None
    ref: ContentRef | None = None

    def again(self) -> None:
        """Write it whole: something of the version before is gone."""
        if self.writer is None:
            raise MissingContent(self.edited.root.hex(), [self.edited.root])
        self.writer.forget()
        self.written = self.writer.write(self.value)
        self.edited = _edited(self.written)


class Content:
    """The content of one field of one state. Its value is never shared with another.

    One that is `passing` is held for a moment, by who alone has the value: it takes no
    memory beside it, and nothing is copied before it is stored.
    """

    __slots__ = ("_passing", "_runtime", "_value", "_writer", "ref")

    def __init__(
        self, runtime: Runtime, ref: ContentRef | None = None, passing: bool = False
    ) -> None:
        self._runtime, self._passing = runtime, passing
        self.ref = ref
        self._value: Any = NOTHING
        self._writer: TreeWriter | None = None

    @property
    def is_hydrated(self) -> bool:
        """Whether the value is in memory."""
        return self._value is not NOTHING

    def value(self) -> Any:
        """The value, loaded once."""
        if self._value is NOTHING:
            assert self.ref is not None
            self.ref.expect_answer(self._runtime.backend)
            writer = self._fresh()
            try:
                value = writer.resume(self.ref.id)
            except MissingObjects as error:
                raise MissingContent(self.ref.hash, error.ids) from error
            self._value, self._writer = value, _worth_it(value, writer)
        return self._value

    def copy(self) -> Any:
        """A value like this field's, for somebody else."""
        coding = self._runtime.coding
        if self._value is NOTHING:
            assert self.ref is not None
            return self.ref.resolve(self._runtime.backend, codec=coding)
        return coding.decode(self._runtime.encode(self._value))

    def forget(self) -> None:
        """Let go of the value; what changed in it must have been stored."""
        self._value, self._writer = NOTHING, None

    def next(self) -> Content:
        """A content that goes on from this one, which stays as it is."""
        following = Content(self._runtime, self.ref, self._passing)
        following._writer = None if self._writer is None else self._writer.copy()
        return following

    def root(self) -> ObjectId:
        """The root of the value as it is now; nothing is stored."""
        change = self.changed()
        assert self.ref is not None
        return self.ref.id if change is None else change.edited.root

    def changed(self) -> Change | None:
        """The value, if it was changed in place since it was loaded or stored."""
        if self._value is NOTHING or self._writer is None:
            return None
        change = self._written(self._value)
        return None if self.ref is not None and change.edited.root == self.ref.id else change

    def assigned(self, value: Any) -> Change:
        """A value that is to be this field's from now on; raises `NotStorable`."""
        if isinstance(value, ContentRef):
            value.expect_answer(self._runtime.backend)
            return Change(self, _present(value.id), ref=value)
        if value is self._value:
            return self.changed() or self._renewed()
        return self._written(value)

    def accept(self, change: Change) -> None:
        """Take a change that was stored as what the field holds."""
        if change.ref is not None:
            self.ref = change.ref
            self.forget()
        elif change.writer is not None and change.written is not None:
            change.writer.accept(change.written)
            if change.value is not self._value:
                self._value = NOTHING
            self._writer = _worth_it(change.value, change.writer)
            if self.ref is None or self.ref.id != change.edited.root:
                self.ref = self._reference(change.edited.root, change.value, change.writer)

    def _written(self, value: Any) -> Change:
        writer = self._writer or self._fresh()
        written = writer.write(value)
        return Change(self, _edited(written), value, writer, written)

    def _renewed(self) -> Change:
        """No change, but its pin may have to last longer."""
        assert self.ref is not None
        return Change(self, _present(self.ref.id))

    def _fresh(self) -> TreeWriter:
        read = self._runtime.backend.read
        return TreeWriter(self._runtime.coding, read, lean=self._passing)

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
    """Give references more time that have less than half of it left, where there is a limit.

    What is gone, or is of another backend, stays as it is.
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
    """About how many bytes a value takes when it is encoded."""
    if type(value) is bytes:
        return len(value)
    if type(value) is str:
        return len(value) if value.isascii() else len(value.encode())
    return sum(len(runtime.encode(run)) for run in _runs(value))


def _runs(value: Any) -> Iterator[Any]:
    """A value in runs that are encoded one by one."""
    parts = value
    if type(value) is dict:
        # In one list: a list of pairs would take longer to encode.
        parts = [one for pair in value.items() for one in pair]
    elif type(value) is not list:
        yield value
        return
    for start in range(0, len(parts), _RUN):
        yield parts[start : start + _RUN]


def _worth_it(value: Any, writer: TreeWriter) -> TreeWriter | None:
    """What tracks a value, unless nobody can change it."""
    return None if type(value) in IMMUTABLE else writer


def _present(root: ObjectId) -> Edited:
    """A value that is in the store as it is."""
    return Edited(root, [], [])


def _edited(written: Written) -> Edited:
    return Edited(written.root, written.objects, written.needs)
