"""What changed between two values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

from ropewalk.codec import Codec, Path, default_codec, format_path
from ropewalk.tree._compare import differing, hunks
from ropewalk.tree._container import Container, open_part, part_of
from ropewalk.tree._load import Loader
from ropewalk.tree._marks import kind_of
from ropewalk.tree._objects import ObjectId, Reader
from ropewalk.tree._stack import reading, reading_on

ChangeKind: TypeAlias = Literal["added", "removed", "changed", "reordered"]


class Change:
    """One difference.

    `path` is where: in a list, the index after the change, but of a removed item the
    index before it; in a set, the member. `old` and `new` are loaded when they are
    asked for; of a reordered dict they are its lists of keys.
    """

    __slots__ = ("_new", "_old", "kind", "path")

    def __init__(
        self, path: Path, kind: ChangeKind, old: Callable[[], Any], new: Callable[[], Any]
    ) -> None:
        self.path = path
        self.kind: ChangeKind = kind
        self._old = old
        self._new = new

    @property
    @reading
    def old(self) -> Any:
        """The value before; None if it was added."""
        return self._old()

    @property
    @reading
    def new(self) -> Any:
        """The value after; None if it was removed."""
        return self._new()

    def __repr__(self) -> str:
        return f"<Change {self.kind} {format_path(self.path)}>"


def diff(
    old: ObjectId, new: ObjectId, read: Reader, codec: Codec | None = None
) -> Iterator[Change]:
    """The differences between two values; what they share is not read."""
    if old == new:
        return iter(())
    differ = _Differ(read, (default_codec if codec is None else codec).showing())
    return reading_on(differ.parts((), part_of(old, read), part_of(new, read)))


def _nothing() -> None:
    return None


def _any(found: Iterator[Change], otherwise: Change) -> Iterator[Change]:
    yield next(found, otherwise)
    yield from found


class _Differ:
    def __init__(self, read: Reader, codec: Codec) -> None:
        self._read = read
        self._codec = codec
        self._loader = Loader(read, codec)

    def _lazy(self, part: bytes) -> Callable[[], Any]:
        return lambda: self._loader.part(part)

    def _added(self, path: Path, part: bytes) -> Change:
        return Change(path, "added", _nothing, self._lazy(part))

    def _removed(self, path: Path, part: bytes) -> Change:
        return Change(path, "removed", self._lazy(part), _nothing)

    def parts(self, path: Path, old: bytes, new: bytes) -> Iterator[Change]:
        """The differences between two parts."""
        if old == new:
            return
        before, after = open_part(old, self._read), open_part(new, self._read)
        changed = Change(path, "changed", self._lazy(old), self._lazy(new))
        if before is None or after is None or kind_of(before.title) != kind_of(after.title):
            yield changed
        elif before.is_mapping:
            found = self._mappings(path, before, after)
            # Of two models only one may know that a field was set.
            yield from found if before.title == after.title else _any(found, changed)
        elif before.is_set:
            yield from self._sets(path, before, after)
        else:
            yield from self._sequences(path, before, after)

    def _mappings(self, path: Path, old: Container, new: Container) -> Iterator[Change]:
        left, right = differing(old.view, new.view, self._read)
        before = {entry.key: entry.body for entry in left}
        after = {entry.key: entry.body for entry in right}
        for key in sorted(before.keys() | after.keys()):
            inner = (*path, new.step(self._codec, key))
            if key not in after:
                yield self._removed(inner, before[key])
            elif key not in before:
                yield self._added(inner, after[key])
            else:
                yield from self.parts(inner, before[key], after[key])
        if old.order != new.order:
            yield from self._reordered(path, old, new)

    def _reordered(self, path: Path, old: Container, new: Container) -> Iterator[Change]:
        before, after = old.keys(self._read), new.keys(self._read)
        both = set(before) & set(after)
        if [key for key in before if key in both] != [key for key in after if key in both]:
            decode = self._codec.decode
            yield Change(
                path,
                "reordered",
                lambda: list(map(decode, before)),
                lambda: list(map(decode, after)),
            )

    def _sets(self, path: Path, old: Container, new: Container) -> Iterator[Change]:
        left, right = differing(old.view, new.view, self._read)
        for entry in left:
            yield self._removed((*path, self._loader.part(entry.body)), entry.body)
        for entry in right:
            yield self._added((*path, self._loader.part(entry.body)), entry.body)

    def _sequences(self, path: Path, old: Container, new: Container) -> Iterator[Change]:
        for hunk in hunks(old.view, new.view, self._read):
            paired = min(len(hunk.old), len(hunk.new))
            for at in range(paired):
                inner = (*path, hunk.new_start + at)
                yield from self.parts(inner, hunk.old[at].body, hunk.new[at].body)
            for at in range(paired, len(hunk.old)):
                yield self._removed((*path, hunk.start + at), hunk.old[at].body)
            for at in range(paired, len(hunk.new)):
                yield self._added((*path, hunk.new_start + at), hunk.new[at].body)
