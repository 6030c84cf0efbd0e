"""What is remembered of records, so that those that did not change are not encoded again.

LangGraph hands over all messages at every step, and most are the very objects of the step
before. An object is unchanged if it has the same fields with the same values, those that
are immutable by identity, and others by what they look like now.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ropewalk.codec._models import MODEL_PARTS

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph._runs import Run

_OVERHEAD: Final = 700
"""About how many bytes it takes to remember a record, beside its encoding."""
_QUIET: Final = 2 << 20
"""Below so many bytes of what is new, nothing is forgotten."""
_TURNS: Final = 4
"""After so many turns what was not used is forgotten."""


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
    """Where a pydantic model has what is extra: nothing, or a dict that is empty."""
    empty: list[Any]
    """The containers in it that are empty."""
    busy: tuple[tuple[Any, bytes], ...]
    """What else in it can change, and its encodings."""
    loose: list[str]
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

    There are two generations. Once as much is new as there was, a new one begins, and what
    is not used in the next turns is forgotten.
    """

    def __init__(self, limit: int = 32 << 20) -> None:
        self.recent: dict[int, Seen] = {}
        self._older: dict[int, Seen] = {}
        self._runs: dict[int, Run] = {}
        """By the id of their first value."""
        self._older_runs: dict[int, Run] = {}
        self._limit = limit // 2
        self._size = 0
        self._settled = 0
        self._turns = 0

    @property
    def size(self) -> int:
        """About how many bytes the recent records take."""
        return self._size

    def turn(self) -> None:
        """Say that a checkpoint was written, which used all that is still needed."""
        if self._older or self._older_runs:
            self._turns += 1
            if self._turns == _TURNS:
                self._older, self._older_runs, self._settled = {}, {}, self._size
        elif self._size - self._settled > max(_QUIET, self._settled):
            self._begin()

    def _begin(self) -> None:
        """Begin a new generation."""
        self._older, self.recent = self.recent, {}
        self._older_runs, self._runs = self._runs, {}
        self._size = self._settled = self._turns = 0

    def clear(self) -> None:
        """Forget everything."""
        self._begin()
        self._older, self._older_runs = {}, {}

    def find(self, value: Any) -> Seen | None:
        """What is remembered of an object, which may have changed since."""
        found = self.recent.get(id(value))
        if found is None and self._older:
            found = self._older.get(id(value))
            if found is not None:
                self.add(found)
        return found

    def add(self, seen: Seen) -> None:
        """Remember a record."""
        size = self._size + len(seen[1]) + _OVERHEAD
        if size > self._limit:
            if len(seen.data) > self._limit // 4:
                return
            self._begin()
            size = len(seen.data) + _OVERHEAD
        self._size = size
        self.recent[id(seen[0])] = seen

    def add_all(self, seen: list[Seen]) -> None:
        """Remember records."""
        size = sum([len(one[1]) for one in seen]) + _OVERHEAD * len(seen)
        if self._size + size > self._limit:
            for one in seen:
                self.add(one)
            return
        self._size += size
        self.recent.update([(id(one[0]), one) for one in seen])

    def forget(self, value: Any) -> Seen | None:
        """What was remembered of an object, which is not any more."""
        found = self.recent.pop(id(value), None)
        if found is None:
            return self._older.pop(id(value), None)
        self._size -= len(found.data) + _OVERHEAD
        return found

    def find_run(self, values: list[Any]) -> Run | None:
        """What is remembered of a list of models, if they are as they were."""
        first = id(values[0])
        found = self._runs.get(first)
        if found is not None:
            return found if found.is_same(values) else None
        found = self._older_runs.get(first)
        if found is None or not found.is_same(values):
            return None
        self.add_run(found)
        return found

    def add_run(self, run: Run) -> None:
        """Remember a run."""
        size = len(run.data) + _OVERHEAD // 2 * len(run.values)
        if self._size + size <= self._limit:
            self._size += size
            self._runs[id(run.values[0])] = run
