"""Looking at a state in a store: its keys, its namespaces, and what changed in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

from ropewalk.codec import Codec, Path, Registry, spell_path
from ropewalk.errors import PathNotFound
from ropewalk.history import Commit, History
from ropewalk.history.merging import reading_too
from ropewalk.state._versioned._shelves import NAMESPACES, Place
from ropewalk.state._views._nodes import Node, counted, plain_text, with_namespaces
from ropewalk.state._views._parts import Looker
from ropewalk.tree import Change, Map, ObjectId, Reader
from ropewalk.tree.changes import Differ
from ropewalk.tree.nodes import Entry, link
from ropewalk.tree.read import Container, find_part, nowhere, open_part

_MOST_CHANGES: Final = 1_000
_COMMITS: Final = 5
_LOOKED_AT: Final = 50
"""Among how many commits those are sought that changed something in a namespace."""
_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "reordered": "~"}


class Version(NamedTuple):
    """One version of a state."""

    root: ObjectId
    read: Reader


def parent_version(history: History, commit: Commit) -> Version | None:
    """What a commit went on from, if anything."""
    steps = list(history.steps(commit, 2))
    return Version(steps[1].root, history.read) if len(steps) > 1 else None


class Stored:
    """A `Versioned` state, a checkout, or a namespace of one."""

    def __init__(
        self,
        title: str,
        history: History,
        place: Place,
        now: Version,
        before: Version | None,
        commit: Commit | None,
    ) -> None:
        self._title, self._history, self._place = title, history, place
        self._now, self._before, self._commit = now, before, commit
        self._codec = _showing(history.codec)

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        where = f", namespace {'/'.join(self._place)!r:.80}" if self._place else ""
        return f"{self._title}{where}, with {counted(self._level.count, 'key')}"

    def full(self) -> Node:
        """All of it, its namespaces last."""
        return self._level.node()

    def at(self, path: Path) -> Node:
        """A part of it."""
        if path[0] == NAMESPACES:
            raise nowhere(path, 0)
        return Looker(self._now.read, self._codec).at(self._part(self._now), path)

    def changes(self) -> Node:
        """What is not committed yet; of a checkout, what its commit changed."""
        return self._difference(self._before, self._now)

    def recent(self) -> Node:
        """What the last commits changed; of a namespace, those that changed something in it."""
        lines = list(islice(self._steps(), _COMMITS))
        if not lines:
            return plain_text("(nothing is committed yet)")
        return Node("", "lines", len(lines), lambda start, stop: lines[start:stop])

    def _steps(self) -> Iterator[tuple[str, Node]]:
        read = self._history.read
        commits = self._history.steps(self._commit, _LOOKED_AT) if self._commit else ()
        for commit in commits:
            before = parent_version(self._history, commit)
            changes = self._difference(before, Version(commit.root, read))
            if changes.count or not self._place:
                yield _told(commit), changes

    @cached_property
    def _level(self) -> _Level:
        read = reading_too(self._now.read, Map.empty().objects)
        return _Level(self._part(self._now), read, self._codec)

    def _part(self, version: Version) -> bytes:
        """The map of this place in a version; an empty one if it is not there."""
        path = tuple(step for name in self._place for step in (NAMESPACES, name))
        try:
            return find_part(link(version.root), path, version.read, self._codec)
        except PathNotFound:
            return link(Map.empty().root)

    def _difference(self, old: Version | None, new: Version) -> Node:
        empty = Map.empty()
        before = link(empty.root) if old is None else self._part(old)
        read = reading_too(new.read, empty.objects)
        found = _Looking(read, self._codec).parts((), before, self._part(new))
        changes = list(islice(found, _MOST_CHANGES))
        lines = [_line(change) for change in changes]
        if not lines:
            return plain_text("(nothing)")
        more = "" if len(changes) < _MOST_CHANGES else " or more"
        label = counted(len(lines), "change") + more
        return Node(label, "lines", len(lines), lambda start, stop: lines[start:stop])


class _Level:
    """The keys of a state or of a namespace, and the namespaces in it."""

    def __init__(self, part: bytes, read: Reader, codec: Codec) -> None:
        self._read, self._codec = read, codec
        self._looker = Looker(read, codec)
        opened = open_part(part, read)
        assert opened is not None, "a state is a map"
        self._opened: Container = opened
        at, entry = opened.view.locate(codec.encode(NAMESPACES))
        self._reserved = None if entry is None else at
        self._inner = None if entry is None else entry.body

    @property
    def count(self) -> int:
        """How many keys there are."""
        return self._opened.view.total - (self._reserved is not None)

    def node(self) -> Node:
        """The keys with their values, and then the namespaces."""
        label = counted(self.count, "key")
        own = Node(label, "lines", self.count, self._parts)
        inner = self._inner
        return with_namespaces(
            own, [] if inner is None else _namespaces(inner, self._read, self._codec)
        )

    def _parts(self, start: int, stop: int) -> list[tuple[str, Node]]:
        return [self._looker.pair(self._opened, entry) for entry in self._entries(start, stop)]

    def _entries(self, start: int, stop: int) -> list[Entry]:
        """The entries in a range, as if the reserved one were not there."""
        view, reserved = self._opened.view, self._reserved
        if reserved is None or stop <= reserved:
            return view.entries(start, stop)
        if start >= reserved:
            return view.entries(start + 1, stop + 1)
        return view.entries(start, reserved) + view.entries(reserved + 1, stop + 1)


def _namespaces(part: bytes, read: Reader, codec: Codec) -> list[tuple[str, Node]]:
    """The namespaces in a map of them, those that hold something."""
    opened = open_part(part, read)
    if opened is None:
        return []
    levels = [
        (codec.decode(entry.key), _Level(entry.body, read, codec).node())
        for entry in opened.view.entries(0, opened.view.total)
    ]
    return [(f"namespace {name!r:.60}", node) for name, node in levels if node.count]


def _nothing() -> None:
    return None


class _Looking(Differ):
    """Finds differences whose values are looked at, and not loaded."""

    def __init__(self, read: Reader, codec: Codec) -> None:
        super().__init__(read, codec)
        self._looker = Looker(read, codec)

    def _lazy(self, part: bytes) -> Callable[[], Any]:
        return lambda: self._looker.part(part)

    def _added(self, path: Path, part: bytes) -> Change:
        return Change(path, "added", _nothing, lambda: self._look(path, part))

    def _removed(self, path: Path, part: bytes) -> Change:
        return Change(path, "removed", lambda: self._look(path, part), _nothing)

    def _look(self, path: Path, part: bytes) -> Node:
        if path[-1:] == (NAMESPACES,):
            inner = _namespaces(part, self._read, self._codec)
            return Node(
                counted(len(inner), "namespace"),
                "lines",
                len(inner),
                lambda start, stop: inner[start:stop],
            )
        if path[-2:-1] == (NAMESPACES,):
            return _Level(part, self._read, self._codec).node()
        return self._looker.part(part)


def _line(change: Change) -> tuple[str, Node]:
    name = f"{_SIGNS[change.kind]} {_spelled(change.path)}"
    if change.kind == "reordered":
        return name, plain_text("(its keys are in another order)")
    if change.kind == "added":
        return name, change.new
    if change.kind == "removed":
        return name, plain_text(change.old.label)
    sides = [("old", change.old), ("new", change.new)]
    label = f"{sides[0][1].label} -> {sides[1][1].label}"
    return name, Node(label, "change", 2, lambda start, stop: sides[start:stop])


def _spelled(path: Path) -> str:
    """A path for people: `sub/docs[3]` is `docs[3]` in the namespace `sub`."""
    names: list[str] = []
    while len(path) > 1 and path[0] == NAMESPACES:
        names, path = [*names, str(path[1])], path[2:]
    if path == (NAMESPACES,):
        path = ("namespaces",)
    where = "".join(f"{name}/" for name in names)
    return where + (spell_path(path) if path else "")


def _told(commit: Commit) -> str:
    """What is known about a commit, in short."""
    moment = datetime.fromtimestamp(commit.time / 1_000_000, UTC)
    said = " ".join(piece for piece in (commit.status, commit.description) if piece)
    return f"{commit.short[:7]} {moment:%Y-%m-%d %H:%M:%S} {said[:80]}".rstrip()


def _showing(codec: Codec) -> Codec:
    """A codec that shows objects by their fields, unless the program declared their class."""
    shown = codec.showing()
    shown.registry = Registry(parent=codec.registry)
    return shown
