"""What is remembered of records, so that those that did not change are not encoded again.

LangGraph hands over all messages at every step, and most are the very objects of the step
before. An object is unchanged if it has the same fields with the same values, those that
are immutable by identity, and others by what they look like now.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, is_
from typing import Any, Final, NamedTuple

MODEL_PARTS: Final = attrgetter(
    "__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"
)
"""All that a pydantic model holds."""

_OVERHEAD: Final = 700
"""About how many bytes it takes to remember a record, beside its encoding."""
_QUIET: Final = 2 << 20
"""Below so many bytes nothing is forgotten."""


class Seen(NamedTuple):
    """A record that was encoded or decoded, and how it looked then."""

    value: Any
    """Held, so that no other object can have its id."""
    data: bytes
    """Its encoding."""
    depth: int
    """Inside so many extensions, at most, this is its encoding."""
    keys: list[str]
    held: tuple[Any, ...]
    """The values of its fields. Held, so that no other value can have the id of one."""
    named: frozenset[str] | None
    """Which fields of a pydantic model were set; None for other records."""
    extra: Any
    empty: list[Any]
    """The containers in it that are empty."""
    busy: tuple[tuple[Any, bytes], ...]
    """What else in it can change, and its encodings."""
    loose: tuple[str, ...]
    """The names of the fields with what is empty or busy, in this order."""


def looks_same(seen: Seen, value: Any, again: Callable[[Any, int], bytes | None]) -> bool:
    """Whether a record is as it was; `again` encodes what stands in it."""
    _, _, depth, keys, held, named, extra, empty, busy, _ = seen
    if named is None:
        now = value.__dict__
    else:
        now, named_now, extra_now, private = MODEL_PARTS(value)
        if named_now != named or extra_now is not extra or private:
            return False
    if list(now) != keys or not all(map(is_, now.values(), held)) or any(empty):
        return False
    return not busy or all(again(one, depth) == plain for one, plain in busy)


class Memo:
    """The records of one thread that were seen lately. Not for several threads.

    Two generations, so that what is no longer in the state is forgotten: whenever they have
    become twice as large as what was in use, what is not used until the next `turn` goes.
    """

    def __init__(self, limit: int = 32 << 20) -> None:
        self.recent: dict[int, Seen] = {}
        self.older: dict[int, Seen] = {}
        self.size = 0
        """About how many bytes the recent ones take."""
        self._limit = limit // 2
        self._most = _QUIET

    def turn(self) -> None:
        """Forget what is no longer in use, from time to time. Call it after each checkpoint."""
        if self.older:
            self.older, self._most = {}, 2 * self.size + _QUIET
        elif self.size > self._most:
            self._turn()

    def _turn(self) -> None:
        self.older, self.recent, self.size = self.recent, {}, 0

    def clear(self) -> None:
        """Forget everything."""
        self.recent, self.older, self.size = {}, {}, 0

    def find(self, value: Any) -> Seen | None:
        """What is remembered of an object, which may have changed since."""
        found = self.recent.get(id(value))
        if found is None and self.older:
            found = self.older.get(id(value))
            if found is not None:
                self.add(found)
        return found

    def add(self, seen: Seen) -> None:
        """Remember a record."""
        size = len(seen.data) + _OVERHEAD
        if self.size + size > self._limit:
            if size > self._limit:
                return
            self._turn()
        self.recent[id(seen.value)] = seen
        self.size += size
