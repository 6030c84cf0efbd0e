"""Substring search over messages: by reading them or, in long threads, with an index.

`Query.matches` alone defines a match. A short thread is scanned. For a long one, a trigram index
beside the store supplies candidates. The index is built in the background; until it exists, long
threads are scanned too. Every engine therefore finds the same messages.

An index has a state: the root of the messages it was built from. The difference between that root
and the searched one is found by a tree diff. A small difference is scanned in addition to the
index; a large one brings the index up to date. Every candidate is checked against its message, so
results are exact whatever the index returns.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from ropewalk.errors import MissingObjects, RopewalkError
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.search_index import TextIndex, Within
from ropewalk.threads.contents import Contents, Row
from ropewalk.threads.message import Message
from ropewalk.threads.thread import Thread
from ropewalk.tree import ID_SIZE, ObjectId

_GRAM: Final = 3
"""The length of the character runs an index stores."""

_SPELLED: Final = {
    code: 0xE000 + code
    for code in range(0x80)
    if not chr(code).isalnum() and not chr(code).isspace()
} | dict.fromkeys(range(0xD800, 0xE000), 0xE080)
"""Stands in an index for characters that an engine may treat as a word boundary or cannot encode.
"""

_ASKED: Final = 8  # How many runs of a long query are looked up; candidates are checked anyway.

# Invisible characters: soft hyphens, joiners, direction marks, variation selectors.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]+"
)


def normalise(text: str) -> str:
    """Fold the differences that a search ignores.

    Those are case (including German sharp s, and the four Turkish letters i, which become one),
    width and ligatures, and the encoding of accents. Accents themselves remain.
    """
    if text.isascii():
        return text.lower()
    text = _UNSEEN.sub("", text)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
    folded = folded.replace("i\u0307", "i").replace("\u0131", "i")
    return _UNSEEN.sub("", unicodedata.normalize("NFKC", folded.casefold()))


def grams(text: str) -> set[str]:
    """The terms an index stores for a text: its trigrams, within words."""
    normal = " ".join(normalise(text).split()).translate(_SPELLED)
    runs = {normal[at : at + _GRAM] for at in range(len(normal))}
    return {run.partition(" ")[0] for run in runs} - {""}


@dataclass(frozen=True, slots=True)
class Query:
    """A case-insensitive substring search. A blank query matches every text."""

    literal: str
    """Normalised."""

    @classmethod
    def parse(cls, text: str) -> Query:
        """Parse a query; every text is valid."""
        normal = normalise(text)
        return cls(normal if normal.strip() else "")

    @property
    def is_empty(self) -> bool:
        """Whether it matches everything."""
        return not self.literal

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Prefixes of index terms that every matching text contains."""
        words = self.literal.translate(_SPELLED).split()
        found = {
            word[at : at + _GRAM]
            for word in words
            for at in (*range(0, len(word) - _GRAM, _GRAM), max(len(word) - _GRAM, 0))
        }
        longest = sorted(found, key=lambda one: (-len(one), one.isalpha(), one))
        # Short terms occur in almost every text.
        full = [one for one in longest if len(one) == _GRAM]
        return tuple((full or longest)[:_ASKED])

    def matches(self, text: str) -> bool:
        """Whether a text matches."""
        return self.literal in normalise(text)


def matches(text: str, query: str) -> bool:
    """Whether a text matches a query."""
    return Query.parse(query).matches(text)


# The index, and messages newer than it.


SCANNED: Final = 2 << 20
"""Threads with less text than this are scanned, which is faster than building an index."""

PROBED: Final = 32 << 10
"""After scanning this much text, check whether an index exists."""

_FEW_CHANGED: Final = 64
"""How many messages may differ from the indexed ones before the index is updated."""

_AT_ONCE: Final = 256  # A larger difference is indexed in the background.

_BATCH: Final = 2000  # Messages indexed per commit, so that writers never wait for long.
_MOST: Final = 5 * _BATCH  # If more changed, the index is rebuilt, in steps.
_FIRST_PAGE: Final = 32
_LAST_PAGE: Final = 2048
_TOGETHER: Final = 256  # Messages read at once.
_TRIES: Final = 3  # The index may move while it is being read.
_STAMP: Final = f"2 {unicodedata.unidata_version} ".encode()
"""The version of the terms. An index with another one is rebuilt."""

_PLACE: Final = 8  # Bytes of a position in the state of an unfinished index.


class Part(NamedTuple):
    """The range of positions to search, and the direction."""

    after: int | None = None
    before: int | None = None
    newest_first: bool = False

    def beyond(self, last: int | None) -> Part:
        """The range without the positions up to this one."""
        if last is None:
            return self
        return self._replace(before=last) if self.newest_first else self._replace(after=last)

    def holds(self, position: int) -> bool:
        """Whether a position is in the range."""
        return Within(0, *self).holds(position)


ALL: Final = Part()


class Messages(Protocol):
    """The messages to search: a map from position to message, at one root. `Map` conforms."""

    @property
    def root(self) -> ObjectId:
        """The root hash."""

    def __len__(self) -> int: ...

    def range(
        self, start: Any = None, stop: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """The messages at the positions [start, stop)."""

    def pick(self, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """The messages at those positions that exist, sorted."""

    def version(self, root: ObjectId) -> Self:
        """The messages at another root."""

    def differing(self, other: Self) -> list[Any]:
        """The positions that differ from another version."""


M = TypeVar("M", bound=Messages)


class Searcher(Generic[M]):
    """Searches messages by position.

    `text` extracts the searchable text of a stored message. `scope` identifies the messages in the
    index, and stays the same while they change. `behind` builds the index of a scope in the
    background.
    """

    def __init__(
        self,
        index: TextIndex,
        scope: str,
        messages: M,
        text: Callable[[Any], str],
        behind: Callable[[str, Callable[[], None]], None],
    ) -> None:
        self._index = index
        self._scope = scope
        self._messages = messages
        self._text = text
        self._behind = behind

    def find(self, query: Query, part: Part = ALL) -> Iterator[tuple[int, Any]]:
        """Yield the matching positions and messages, in order.

        Messages are scanned up to the amount of text at which an index is faster. If no index is
        ready then, its build starts in the background and the scan continues.
        """
        if query.is_empty:
            yield from self._range(part)
            return
        looked, limits = 0, [min(PROBED, SCANNED), SCANNED]
        for position, message in self._range(part):
            text = self._text(message)
            if query.matches(text):
                yield position, message
            looked += len(text)
            if limits and looked > limits[0]:
                ready = self._ready()
                if ready is not None:
                    yield from self._indexed(query, part.beyond(position), ready)
                    return
                del limits[0]
                if not limits:
                    self._behind(self._scope, self.bring_forward)

    def _indexed(
        self, query: Query, part: Part, ready: tuple[bytes, list[int]] | None
    ) -> Iterator[tuple[int, Any]]:
        tries = _TRIES
        while ready is not None and tries:
            for page in self._pages(query, part, *ready):
                if page is None:
                    break
                for position, message in self._verified(query, page, part.newest_first):
                    part = part.beyond(position)
                    yield position, message
            else:
                return
            # The index moved in between: continue after the last result.
            ready, tries = self._ready(), tries - 1
        for position, message in self._range(part):
            if query.matches(self._text(message)):
                yield position, message

    def _range(self, part: Part) -> Iterator[tuple[int, Any]]:
        start = None if part.after is None else part.after + 1
        return self._messages.range(start, part.before, reverse=part.newest_first)

    # Candidates.

    def _pages(
        self, query: Query, part: Part, state: bytes, changed: list[int]
    ) -> Iterator[list[int] | None]:
        """Yield batches of candidate positions, in order; None where the index moved."""
        size = _FIRST_PAGE
        beside = {at for at in changed if part.holds(at)}
        while True:
            found = self._index.find(self._scope, state, query.prefixes, Within(size, *part))
            if found is None:
                yield None
                return
            rest = part.beyond(found[-1]) if len(found) == size else None
            near = beside if rest is None else {at for at in beside if not rest.holds(at)}
            yield sorted({*found, *near}, reverse=part.newest_first)
            if rest is None:
                return
            part, beside, size = rest, beside - near, min(size * 2, _LAST_PAGE)

    def _verified(
        self, query: Query, positions: list[int], newest_first: bool
    ) -> Iterator[tuple[int, Any]]:
        for start in range(0, len(positions), _TOGETHER):
            found = list(self._messages.pick(positions[start : start + _TOGETHER]))
            for at, message in reversed(found) if newest_first else found:
                if query.matches(self._text(message)):
                    yield at, message

    # Maintaining the index.

    def _ready(self) -> tuple[bytes, list[int]] | None:
        """The index state to use, and the few positions that differ from it.

        None if the index cannot be used now.
        """
        for _ in range(_TRIES):
            state = self._index.state(self._scope)
            changed = self._changed(state)
            if state is None or changed is None or len(changed) > _AT_ONCE:
                return None
            if len(changed) <= _FEW_CHANGED:
                return state, changed
            self._update(state, changed)
        return None

    def bring_forward(self) -> None:
        """Bring the index up to date with the messages, step by step."""
        failures = 0
        for _ in range(2 * len(self._messages) // _BATCH + 2 * _TRIES):
            state = self._index.state(self._scope)
            changed = self._changed(state)
            if changed is not None and len(changed) <= _FEW_CHANGED:
                return
            moved = self._build(state) if changed is None else self._update(state, changed)
            failures += not moved
            if failures == _TRIES:
                return

    def _changed(self, state: bytes | None) -> list[int] | None:
        """The positions that changed since then; None if everything must be indexed."""
        root, place = _opened(state)
        if root is None or place:
            return None
        before = self._messages.version(root)
        try:
            if len(self._messages) > 2 * len(before) + _BATCH:
                return None
            changed = self._messages.differing(before)
        except MissingObjects:
            return None  # The old root was collected. If ours is incomplete, reading it raises.
        return None if len(changed) > _MOST else changed

    def _update(self, state: bytes | None, changed: list[int]) -> bool:
        """Index the changes in one step; returns whether it succeeded."""
        said: dict[int, set[str] | None] = dict.fromkeys(changed)
        for at, message in self._messages.pick(changed):
            said[at] = grams(self._text(message)) or None
        after = _STAMP + self._messages.root
        return self._index.apply(self._scope, state, after, list(said.items()))

    def _build(self, state: bytes | None) -> bool:
        """Index the next batch of a full build; returns whether it succeeded.

        Until the build is finished, the state is a root and the next position, so that any process
        can continue it.
        """
        root, place = _opened(state)
        if root is not None and place:
            try:
                return self._build_on(self._messages.version(root), state, place)
            except MissingObjects:
                pass  # Collected in between.
        return self._build_on(self._messages, None, 0)

    def _build_on(self, messages: M, state: bytes | None, start: int) -> bool:
        batch = list(islice(messages.range(start), _BATCH))
        after = _STAMP + messages.root
        if len(batch) == _BATCH:
            after += (batch[-1][0] + 1).to_bytes(_PLACE, "big")
        said = [(at, grams(self._text(message))) for at, message in batch]
        return self._index.apply(self._scope, state, after, said)


def _opened(state: bytes | None) -> tuple[bytes | None, int]:
    """Decode a state: the root, and the next position to index (0 if complete).

    An unknown state has no root.
    """
    if state is None or not state.startswith(_STAMP):
        return None, 0
    rest = state[len(_STAMP) :]
    if len(rest) not in (ID_SIZE, ID_SIZE + _PLACE):
        return None, 0
    return rest[:ID_SIZE], int.from_bytes(rest[ID_SIZE:], "big")


# Messages of a thread.


class Indexing:
    """Builds indexes in the background, each on its own thread and never one twice at a time."""

    def __init__(self) -> None:
        self._running: dict[str, threading.Thread] = {}
        self._lock = freed_after_fork(threading.Lock())

    def begin(self, scope: str, make: Callable[[], None]) -> None:
        """Start building the index of a scope unless a build is running."""

        def run() -> None:
            try:
                # The store was closed, the messages collected, or there is no room: the next
                # search retries.
                with suppress(RopewalkError):
                    make()
            finally:
                with self._lock:
                    self._running.pop(scope, None)

        with self._lock:
            running = self._running.get(scope)
            if running is not None and running.is_alive():  # Not so after a fork.
                return
            running = threading.Thread(target=run, name="ropewalk-index", daemon=True)
            self._running[scope] = running
            running.start()


class Bounds(NamedTuple):
    """The positions [first, stop)."""

    first: int = 0
    stop: int | None = None


Finder: TypeAlias = Callable[[Contents, str, Bounds, bool], Iterator[Row]]
"""Yields the messages that match a query, in order or newest first."""


def finder(thread: Thread, indexing: Indexing) -> Finder:
    """The search function of a thread."""
    index = thread.history.store.text_index()

    def find(contents: Contents, search: str, bounds: Bounds, newest_first: bool) -> Iterator[Row]:
        if contents.root is None:
            return iter(())
        part = Part(bounds.first - 1 if bounds.first else None, bounds.stop, newest_first)
        rows = _Rows(contents, contents.root)
        searcher = Searcher(index, scope_of(thread), rows, _text, indexing.begin)
        return (Row(*found) for found in searcher.find(Query.parse(search), part))

    return find


def scope_of(thread: Thread) -> str:
    """The scope of a thread's messages in a search index."""
    return f"{thread.history.space}/{thread.branch}"


class _Rows:
    """Adapts the messages of a thread to `Messages`."""

    def __init__(self, contents: Contents, root: ObjectId) -> None:
        self._contents, self.root = contents, root

    def __len__(self) -> int:
        return self._contents.message_count

    def range(
        self, start: int | None = None, stop: int | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        rank_of = self._contents.rank_of
        first = 0 if start is None else rank_of(start)
        return self._contents.rows(
            first, None if stop is None else rank_of(stop), newest_first=reverse
        )

    def pick(self, keys: Iterable[int]) -> Iterator[Row]:
        return iter(self._contents.rows_at(keys))

    def version(self, root: ObjectId) -> _Rows:
        return _Rows(self._contents.version(root), root)

    def differing(self, other: _Rows) -> list[int]:
        return self._contents.differing(other.root)


def _text(stored: dict[str, Any]) -> str:
    content = stored.get("content")
    if type(content) is str and "extra" not in stored:
        return content  # The common case: a text and nothing else.
    return Message.from_stored(stored).text
