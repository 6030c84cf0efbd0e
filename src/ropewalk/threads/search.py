"""Finding messages by what they say: with an index where it helps, and without one if need be.

`Query.matches` is the one meaning of a search. An index of words only gives candidates, so
every engine finds the same.

An index is at some state: the root of the messages that it was built from. What differs
between that and the messages that are searched is found by a diff of two trees. If it is
little, it is looked at beside the index; if it is much, the index is brought up to date.
Whatever an index does, each message that is found was looked at, and none is missing: if the
index cannot help, all messages are looked at.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from ropewalk.errors import MissingObjects
from ropewalk.store.search_index import TextIndex, Within
from ropewalk.threads.contents import Contents, Row
from ropewalk.threads.message import Message
from ropewalk.threads.thread import Thread
from ropewalk.tree import ID_SIZE, ObjectId

LONGEST = 50
"""As many characters of a word are indexed; so many take at most 200 bytes."""

_FEW = 32  # Words that are looked for one by one; for more, those of the text are sorted.

# Nobody sees these: soft hyphens, joiners, marks of direction, variation selectors.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]+"
)

_LETTERS = frozenset("LNM")
_SYMBOLS = frozenset({"So", "Sk"})

# Scripts that put no spaces between words: Thai, Lao, Myanmar, Khmer, Han, Hiragana, Katakana.
_SPACELESS = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x2FDF), (0x3005, 0x3007),
    (0x3021, 0x3029), (0x3038, 0x303B), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F), (0x20000, 0x3FFFF),
)  # fmt: skip


def normalise(text: str) -> str:
    """A text in which differences that a search passes over are gone.

    Those of case (also German sharp s, and the four Turkish letters i, which become one), of
    width and ligatures, and of accents that are characters of their own. Accents remain.
    """
    if text.isascii():
        return text.lower()
    text = _UNSEEN.sub("", text)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
    folded = folded.replace("i\u0307", "i").replace("\u0131", "i")
    return _UNSEEN.sub("", unicodedata.normalize("NFKC", folded.casefold()))


def words(text: str) -> set[str]:
    """The words of a text as an index keeps them."""
    found = set(_spaced(normalise(text)).split())
    if max(map(len, found), default=0) > LONGEST:
        return {word[:LONGEST] for word in found}
    return found


@dataclass(frozen=True, slots=True)
class Query:
    """What somebody looks for, taken apart.

    A text matches if for every word of the query one of its own begins so. In scripts
    without spaces, and of symbols such as emoji, the characters that stand together in the
    query stand together somewhere in the text. A query without any of these is looked for
    as it is, and an empty one matches everything.
    """

    beginnings: tuple[str, ...]
    runs: tuple[str, ...]
    literal: str

    @classmethod
    def parse(cls, text: str) -> Query:
        """Take a query apart. Every text is one."""
        normal = normalise(text)
        beginnings: dict[str, None] = {}
        runs: dict[str, None] = {}
        for kind, characters in groupby(normal, key=_kind):
            if kind:
                (beginnings if kind == _WORD else runs)["".join(characters)] = None
        literal = "" if beginnings or runs else normal.strip()
        return cls(tuple(beginnings), tuple(runs), literal)

    @property
    def is_empty(self) -> bool:
        """Whether it matches everything."""
        return not (self.beginnings or self.runs or self.literal)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What words of an index must begin with; none if only a look at every text helps.

        Those that tend to be rare come first: numbers, then long ones.
        """
        found = {one[:LONGEST] for one in self.beginnings} | set("".join(self.runs))
        return tuple(sorted(found, key=lambda one: (-one.isnumeric() * len(one), -len(one), one)))

    def matches(self, text: str) -> bool:
        """Whether a text has what is looked for."""
        normal = normalise(text)
        if self.beginnings:
            spaced = " " + _spaced(normal)
            if not _begin_so(spaced, self.beginnings):
                return False
        return self.literal in normal and all(run in normal for run in self.runs)


def _begin_so(spaced: str, beginnings: tuple[str, ...]) -> bool:
    if len(beginnings) <= _FEW:
        return all(f" {one}" in spaced for one in beginnings)
    known = sorted(set(spaced.split()))
    known.append("")  # Whatever would come behind the last one begins with nothing.
    return all(
        known[bisect_left(known, one, 0, len(known) - 1)].startswith(one) for one in beginnings
    )


def matches(text: str, query: str) -> bool:
    """Whether a text has what a query looks for."""
    return Query.parse(query).matches(text)


_WORD = 1
_ALONE = 2


def _kind(character: str) -> int:
    category = unicodedata.category(character)
    if category[0] in _LETTERS:
        return _ALONE if _is_spaceless(ord(character)) else _WORD
    # Modifiers of emoji are symbols; an accent that stands alone in ASCII is punctuation.
    return _ALONE if category in _SYMBOLS and ord(character) > 0xFF else 0


def _is_spaceless(code: int) -> bool:
    return code >= 0x0E00 and any(low <= code <= high for low, high in _SPACELESS)


class _Spaces(dict[int, str | int]):
    """How each character is written when words have spaces between them; found on first use."""

    def __missing__(self, code: int) -> str | int:
        kind = _kind(chr(code))
        written: str | int = code if kind == _WORD else f" {chr(code)} " if kind else " "
        if len(self) < 65_536:
            self[code] = written
        return written


_spaces = _Spaces()


def _spaced(normal: str) -> str:
    return normal.translate(_spaces)


# The index, and what is newer than it.


_FEW_CHANGED: Final = 64
"""As many messages may differ from what is indexed before the index is brought up to date."""

_BATCH: Final = 2000  # Messages that are indexed in one step, so that nobody waits for long.
_MOST: Final = 5 * _BATCH  # If more changed, all messages are indexed anew, in steps.
_FIRST_PAGE: Final = 32
_LAST_PAGE: Final = 2048
_TOGETHER: Final = 256  # Messages that are read at once.
_TRIES: Final = 3  # Others may move the index while we ask it.
_STAMP: Final = f"1 {unicodedata.unidata_version} ".encode()
"""What words were made by. Whoever makes other ones of a text begins anew."""

_PLACE: Final = 8  # Bytes of a position, in the state of an index that is not finished.


class Part(NamedTuple):
    """Which messages are searched, by position, and from which end."""

    after: int | None = None
    before: int | None = None
    newest_first: bool = False

    def beyond(self, last: int | None) -> Part:
        """The same without what comes up to a position."""
        if last is None:
            return self
        return self._replace(before=last) if self.newest_first else self._replace(after=last)

    def holds(self, position: int) -> bool:
        """Whether a position is searched."""
        return Within(0, *self).holds(position)


ALL: Final = Part()


class Messages(Protocol):
    """What is searched: messages by position, at one root. A `Map` is such."""

    @property
    def root(self) -> ObjectId:
        """What names all of them as they are."""

    def __len__(self) -> int: ...

    def range(
        self, start: Any = None, stop: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """The positions [start, stop), with their messages."""

    def pick(self, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Those of some positions that there are, sorted, with their messages."""

    def version(self, root: ObjectId) -> Self:
        """The messages at another root."""

    def differing(self, other: Self) -> list[Any]:
        """The positions that are not as they are in another version."""


M = TypeVar("M", bound=Messages)


class Searcher(Generic[M]):
    """Searches messages by position.

    `text` gives what people said in a stored message. `scope` names the messages in the
    index, and stays the same while they change.
    """

    def __init__(
        self, index: TextIndex, scope: str, messages: M, text: Callable[[Any], str]
    ) -> None:
        self._index = index
        self._scope = scope
        self._messages = messages
        self._text = text

    def find(self, query: Query, part: Part = ALL) -> Iterator[tuple[int, Any]]:
        """The positions and messages that match, in order, as they are asked for."""
        return self._found(query, part) if query.prefixes else self._scanned(query, part)

    def _found(self, query: Query, part: Part) -> Iterator[tuple[int, Any]]:
        last: int | None = None
        for _ in range(_TRIES):
            ready = self._made_ready()
            if ready is None:
                break
            # Where the index was moved meanwhile, the search goes on behind what was found.
            for page in self._pages(query, part.beyond(last), *ready):
                if page is None:
                    break
                for position, message in self._verified(query, page, part.newest_first):
                    last = position
                    yield position, message
            else:
                return
        yield from self._scanned(query, part.beyond(last))

    def _scanned(self, query: Query, part: Part) -> Iterator[tuple[int, Any]]:
        start = None if part.after is None else part.after + 1
        found = self._messages.range(start, part.before, reverse=part.newest_first)
        if query.is_empty:
            return found
        return ((at, one) for at, one in found if query.matches(self._text(one)))

    # Candidates.

    def _pages(
        self, query: Query, part: Part, state: bytes, changed: list[int]
    ) -> Iterator[list[int] | None]:
        """Positions to look at, some at a time, in order; None where the index was moved."""
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

    # Keeping the index up to date.

    def _made_ready(self) -> tuple[bytes, list[int]] | None:
        """A state of the index, and the positions that differ from it: few.

        None if the index cannot be used now.
        """
        failures = 0
        steps = 2 * len(self._messages) // _BATCH + 2 * _TRIES
        for _ in range(steps):
            state = self._index.state(self._scope)
            changed = self._changed(state)
            if state is not None and changed is not None and len(changed) <= _FEW_CHANGED:
                return state, changed
            moved = self._build(state) if changed is None else self._update(state, changed)
            failures += not moved
            if failures == _TRIES:
                break
        return None

    def _changed(self, state: bytes | None) -> list[int] | None:
        """The positions that are not now as they were; None if all are to be indexed."""
        root, place = _opened(state)
        if root is None or place:
            return None
        before = self._messages.version(root)
        try:
            if len(self._messages) > 2 * len(before) + _BATCH:
                return None
            changed = self._messages.differing(before)
        except MissingObjects:
            return None  # It was collected. If ours is incomplete, reading it will say so.
        return None if len(changed) > _MOST else changed

    def _update(self, state: bytes | None, changed: list[int]) -> bool:
        """Index what changed, in one step; whether that was done."""
        said: dict[int, set[str] | None] = dict.fromkeys(changed)
        for at, message in self._messages.pick(changed):
            said[at] = words(self._text(message)) or None
        after = _STAMP + self._messages.root
        return self._index.apply(self._scope, state, after, list(said.items()))

    def _build(self, state: bytes | None) -> bool:
        """Index some more of all messages; whether that was done.

        Until it is finished, the state is a root and the next position, so that whoever
        comes can go on.
        """
        root, place = _opened(state)
        if root is not None and place:
            try:
                return self._build_on(self._messages.version(root), state, place)
            except MissingObjects:
                pass  # It was collected meanwhile.
        return self._build_on(self._messages, None, 0)

    def _build_on(self, messages: M, state: bytes | None, start: int) -> bool:
        batch = list(islice(messages.range(start), _BATCH))
        after = _STAMP + messages.root
        if len(batch) == _BATCH:
            after += (batch[-1][0] + 1).to_bytes(_PLACE, "big")
        said = [(at, words(self._text(message))) for at, message in batch]
        return self._index.apply(self._scope, state, after, said)


def _opened(state: bytes | None) -> tuple[bytes | None, int]:
    """The root in a state, and the next position to be indexed; 0 if all are.

    No root in what is no state of ours.
    """
    if state is None or not state.startswith(_STAMP):
        return None, 0
    rest = state[len(_STAMP) :]
    if len(rest) not in (ID_SIZE, ID_SIZE + _PLACE):
        return None, 0
    return rest[:ID_SIZE], int.from_bytes(rest[ID_SIZE:], "big")


# The messages of a thread.


class Bounds(NamedTuple):
    """The positions [first, stop)."""

    first: int = 0
    stop: int | None = None


Finder: TypeAlias = Callable[[Contents, str, Bounds, bool], Iterator[Row]]
"""Finds messages that say something, in order or newest first."""


def finder(thread: Thread) -> Finder:
    """What finds messages of a thread."""
    index = thread.history.store.text_index()

    def find(contents: Contents, search: str, bounds: Bounds, newest_first: bool) -> Iterator[Row]:
        if contents.root is None:
            return iter(())
        part = Part(bounds.first - 1 if bounds.first else None, bounds.stop, newest_first)
        searcher = Searcher(index, scope_of(thread), _Rows(contents, contents.root), _text)
        return (Row(*found) for found in searcher.find(Query.parse(search), part))

    return find


def scope_of(thread: Thread) -> str:
    """What names the messages of a thread in an index of words."""
    return f"{thread.history.space}/{thread.branch}"


class _Rows:
    """The messages of a thread, as they are searched."""

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


def _text(stored: dict[str, object]) -> str:
    return Message.from_stored(stored).text
