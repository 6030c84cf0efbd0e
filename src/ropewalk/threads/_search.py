"""Finding messages by what they say: with an index where it helps, and without one if need be.

An index is at some state: the root of the messages that it was built from. What differs
between that and the messages that are searched is found by a diff of two trees. If it is
little, it is looked at beside the index; if it is much, the index is brought up to date.
Whatever an index does, each message that is found was looked at, and none is missing: if the
index cannot help, all messages are looked at.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from ropewalk.errors import MissingObjects
from ropewalk.store import TextIndex, Within
from ropewalk.threads._words import Query, words
from ropewalk.tree import ID_SIZE, ObjectId

_FEW: Final = 64
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
            if state is not None and changed is not None and len(changed) <= _FEW:
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
