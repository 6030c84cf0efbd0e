"""`view`: a state as text for a person or a prompt, within a budget of tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

from ropewalk.codec import Codec, Path, Registry, format_path, parse_path, spell_path
from ropewalk.errors import InvalidInput, NotStorable, PathNotFound
from ropewalk.history import Commit, History
from ropewalk.history.merge import reading_too
from ropewalk.state.entries import NAMESPACES, Place
from ropewalk.state.live import Live
from ropewalk.state.outline import (
    Node,
    StoredOutline,
    counted,
    estimate,
    listing,
    look,
    mapping,
    plain_text,
    render,
    with_namespaces,
)
from ropewalk.state.versioned import Checkout, Namespace, Versioned
from ropewalk.tree import Change, Map, ObjectId, Reader
from ropewalk.tree.changes import Differ
from ropewalk.tree.nodes import Entry, link
from ropewalk.tree.read import Container, find_part, nowhere, open_part

_MOST_CHANGES: Final = 1_000
_COMMITS: Final = 5
_LOOKED_AT: Final = 50
"""How many commits are searched for changes of a namespace."""
_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "reordered": "~"}

_NO_COMMITS: Final = "(it keeps no commits; focus='full' shows what it holds)"
_TRIES = 8
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FOCUSES = ("full", "recent", "changes")


class Version(NamedTuple):
    """One version of a state."""

    root: ObjectId
    read: Reader


def parent_version(history: History, commit: Commit) -> Version | None:
    """The parent of a commit, if any."""
    steps = list(history.steps(commit, 2))
    return Version(steps[1].root, history.read) if len(steps) > 1 else None


class _Stored:
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
        """A short title."""
        where = f", namespace {'/'.join(self._place)!r:.80}" if self._place else ""
        return f"{self._title}{where}, with {counted(self._level.count, 'key')}"

    def full(self) -> Node:
        return self._level.node()

    def at(self, path: Path) -> Node:
        """A part of it."""
        if path[0] == NAMESPACES:
            raise nowhere(path, 0)
        return StoredOutline(self._now.read, self._codec).at(self._part(self._now), path)

    def changes(self) -> Node:
        return self._difference(self._before, self._now)

    def recent(self) -> Node:
        """The changes of the last commits; of a namespace, of those that changed it."""
        lines = list(islice(self._steps(), _COMMITS))
        if not lines:
            return plain_text("(nothing is committed yet)")
        return listing("", lines)

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
        """The map of this place in a version; empty if it does not exist there."""
        path = tuple(step for name in self._place for step in (NAMESPACES, name))
        try:
            return find_part(link(version.root), path, version.read, self._codec)
        except PathNotFound:
            return link(Map.empty().root)

    def _difference(self, old: Version | None, new: Version) -> Node:
        empty = Map.empty()
        before = link(empty.root) if old is None else self._part(old)
        read = reading_too(new.read, empty.objects)
        found = _OutlineDiffer(read, self._codec).parts((), before, self._part(new))
        changes = list(islice(found, _MOST_CHANGES))
        lines = [_line(change) for change in changes]
        if not lines:
            return plain_text("(nothing)")
        more = "" if len(changes) < _MOST_CHANGES else " or more"
        return listing(counted(len(lines), "change") + more, lines)


class _Level:
    """The keys of a state or of a namespace, and the namespaces in it."""

    def __init__(self, part: bytes, read: Reader, codec: Codec) -> None:
        self._read, self._codec = read, codec
        self._looker = StoredOutline(read, codec)
        opened = open_part(part, read)
        assert opened is not None, "a state is a map"
        self._opened: Container = opened
        at, entry = opened.view.locate(codec.encode(NAMESPACES))
        self._reserved = None if entry is None else at
        self._inner = None if entry is None else entry.body

    @property
    def count(self) -> int:
        return self._opened.view.total - (self._reserved is not None)

    def node(self) -> Node:
        """The keys with their values, followed by the namespaces."""
        label = counted(self.count, "key")
        own = Node(label, "lines", self.count, self._parts)
        inner = self._inner
        return with_namespaces(
            own, [] if inner is None else _namespaces(inner, self._read, self._codec)
        )

    def _parts(self, start: int, stop: int) -> list[tuple[str, Node]]:
        return [self._looker.pair(self._opened, entry) for entry in self._entries(start, stop)]

    def _entries(self, start: int, stop: int) -> list[Entry]:
        """The entries in a range, skipping the reserved one."""
        view, reserved = self._opened.view, self._reserved
        if reserved is None or stop <= reserved:
            return view.entries(start, stop)
        if start >= reserved:
            return view.entries(start + 1, stop + 1)
        return view.entries(start, reserved) + view.entries(reserved + 1, stop + 1)


def _namespaces(part: bytes, read: Reader, codec: Codec) -> list[tuple[str, Node]]:
    """The non-empty namespaces in a map of them."""
    opened = open_part(part, read)
    if opened is None:
        return []
    levels = [
        (codec.decode(entry.key), _Level(entry.body, read, codec).node())
        for entry in opened.view.entries(0, opened.view.total)
    ]
    return [(f"namespace {name!r:.60}", node) for name, node in levels if node.count]


class _OutlineDiffer(Differ):
    """Computes differences whose values are shown without loading them."""

    def __init__(self, read: Reader, codec: Codec) -> None:
        super().__init__(read, codec)
        self._looker = StoredOutline(read, codec)

    def _lazy(self, part: bytes) -> Callable[[], Any]:
        return lambda: self._looker.part(part)

    def _added(self, path: Path, part: bytes) -> Change:
        return Change(path, "added", lambda: None, lambda: self._look(path, part))

    def _removed(self, path: Path, part: bytes) -> Change:
        return Change(path, "removed", lambda: self._look(path, part), lambda: None)

    def _look(self, path: Path, part: bytes) -> Node:
        if path[-1:] == (NAMESPACES,):
            inner = _namespaces(part, self._read, self._codec)
            return listing(counted(len(inner), "namespace"), inner)
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
    """A short description of a commit."""
    moment = datetime.fromtimestamp(commit.time / 1_000_000, UTC)
    said = " ".join(piece for piece in (commit.status, commit.description) if piece)
    return f"{commit.short[:7]} {moment:%Y-%m-%d %H:%M:%S} {said[:80]}".rstrip()


def _showing(codec: Codec) -> Codec:
    """A codec that shows objects by their fields, unless their class is declared."""
    shown = codec.showing()
    shown.registry = Registry(parent=codec.registry)
    return shown


def source_of(state: Any) -> _Stored | _InMemory:
    """The source of a state's outline; raises `InvalidInput`."""
    if isinstance(state, Versioned | Namespace):
        return _handle(state)
    if isinstance(state, Checkout):
        history, commit = state._history, state.commit
        before, now = parent_version(history, commit), Version(commit.root, history.read)
        return _Stored(f"Checkout of {commit.short}", history, state.place, now, before, commit)
    if isinstance(state, Mapping):
        return _InMemory(state)
    raise InvalidInput(f"view() shows a state, a checkout or a mapping, not {type(state).__name__}")


def _handle(state: Versioned | Namespace) -> _Stored | _InMemory:
    whole = state if isinstance(state, Versioned) else state.state
    with whole._lock:
        try:
            draft = whole._working_copy.draft()
        except NotStorable as error:
            # A value that cannot be stored can still be shown.
            return _InMemory(state, f"(there can be no commit now: {error})")
        read = whole._working_copy.reader_of(draft)
        committed = whole._commit
    at = "nothing yet" if committed is None else committed.short
    title = f"{whole.name} on {whole.branch_name} at {at}"
    now = Version(draft.edited.root, read)
    before = None if committed is None else Version(committed.root, read)
    return _Stored(title, whole._history, state.place, now, before, committed)


class _InMemory:
    """A `Live` state, or any mapping."""

    def __init__(self, state: Mapping[Any, Any], why: str = _NO_COMMITS) -> None:
        self._state, self._why = state, why

    @property
    def title(self) -> str:
        """A short title."""
        where = "/".join(self._state.place) if isinstance(self._state, Live) else ""
        kind = type(self._state).__name__ + (f" of {where!r:.80}" if where else "")
        return f"{kind} with {counted(len(self._state), 'key')}"

    def full(self) -> Node:
        return with_namespaces(mapping(self._state, self.title), _live_namespaces(self._state))

    def recent(self) -> Node:
        return self.changes()

    def changes(self) -> Node:
        return plain_text(self._why)

    def at(self, path: Path) -> Node:
        return look(value_at(self._state, path))


def value_at(value: Any, path: Path, done: int = 0) -> Any:
    """The value at a path in memory; raises `PathNotFound`."""
    for depth in range(done, len(path)):
        step = path[depth]
        try:
            value = _inside(value, step)
        except (LookupError, TypeError, AttributeError) as error:
            raise nowhere(path, depth) from error
    return value


def _inside(value: Any, step: Any) -> Any:
    if isinstance(value, Mapping):
        return value[step]
    if isinstance(value, (set, frozenset)):
        if step in value:
            return step
        raise KeyError(step)
    if isinstance(step, str):
        # A field of an object, as errors and diffs name it.
        if not hasattr(type(value), "__dict__") or str(step).startswith("_"):
            raise KeyError(step)
        return getattr(value, str(step))
    return value[step]


def _live_namespaces(state: Mapping[Any, Any]) -> list[tuple[str, Node]]:
    if not isinstance(state, Live):
        return []
    found = []
    for name in state.namespaces():
        inner = _InMemory(state.namespace(name)).full()
        found.append((f"namespace {name!r:.60}", inner))
    return found


def view(
    state: Mapping[Any, Any],
    focus: str | Path = "full",
    *,
    max_tokens: int = 4096,
    count: Callable[[str], int] | None = None,
) -> str:
    """A state as text, of at most `max_tokens` tokens.

    `focus` is `"full"` (all keys), `"recent"` (the changes of the last commits), `"changes"` (the
    uncommitted changes, or those of a checkout's commit), or a path: a tuple, or a text such as
    `docs[3].title`. Use a tuple for a key named like one of these words: `("full",)`.

    The budget is shared fairly: every key gets a line before any gets more, long texts lose their
    middle, and large collections show their beginning, their end and a count. Little more is read
    from a store than is shown. Tokens are estimated (about four characters each, fewer for
    non-Latin scripts); `count`, a function from a text to its number of tokens, makes them exact.
    Nothing is downloaded.

    Raises `InvalidInput`, and `PathNotFound` for a path that does not exist.
    """
    if type(max_tokens) is not int or max_tokens < 1:
        raise InvalidInput(f"max_tokens is a whole number from 1 on, not {max_tokens!r:.80}")
    title, node = _focused(source_of(state), focus)
    return _fitting(title, node, max_tokens, count or _whole_estimate)


def _focused(source: _Stored | _InMemory, focus: str | Path) -> tuple[str, Node]:
    if not isinstance(focus, (str, tuple)):
        raise InvalidInput(
            f"focus is one of {', '.join(map(repr, _FOCUSES))}, or a path, not {focus!r:.80}"
        )
    if focus in ("full", "state", ()):
        return source.title, source.full()
    if focus == "recent":
        return f"{source.title}, what its last commits changed", source.recent()
    if focus == "changes":
        return f"{source.title}, what changed", source.changes()
    path = parse_path(focus) if isinstance(focus, str) else focus
    return f"{source.title}, {format_path(path, 'state')}", source.at(path)


def _whole_estimate(text: str) -> int:
    return -int(-estimate(text) // 1)


def _printable(text: str) -> str:
    """A text without control characters, safe for any terminal."""
    text = _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text.encode("utf-8", "backslashreplace").decode()


def _fitting(title: str, node: Node, most: int, count: Callable[[str], int]) -> str:
    """The text of a node that fits into this many tokens."""
    budget = float(most)
    text = ""
    for _ in range(_TRIES):
        text = _printable("\n".join(_lines(title, node, budget)))
        tokens = count(text)
        if tokens <= most:
            return text
        # The exact count may exceed the estimate.
        budget *= 0.95 * most / tokens
    while text and count(text) > most:
        text = text[: len(text) * 9 // 10]
    return text


def _lines(title: str, node: Node, budget: float) -> list[str]:
    lines = [title]
    room = budget - estimate(title) - 1
    if room < 1:
        lines, room = [], budget - 1
    if node.shape == "lines" and not node.count:
        node = plain_text("(empty)")
    if node.text is not None or not node.count:
        return [*lines, *_alone(node, room)]
    return [*lines, *render(node, room)]


def _alone(node: Node, room: float) -> list[str]:
    """The lines of a value without parts, or of an empty container."""
    single = Node("", "lines", 1, lambda start, stop: [("value", node)][start:stop])
    lines = render(single, room)
    if lines[:1] == ["value:"]:
        return [line.removeprefix("  ") for line in lines[1:]]
    return [line.removeprefix("value: ") for line in lines]
