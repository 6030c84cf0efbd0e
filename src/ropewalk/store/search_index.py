"""An index of words beside history, which may be lost.

Nothing here is needed to read or write history. An engine may forget all of it at any
moment, and whoever asks finds that out and goes without it or makes it again.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from sys import intern
from typing import Final, NamedTuple, TypeAlias

from ropewalk.store.forking import freed_after_fork

RARE = 32
"""So few positions are sooner looked at by who asks than compared with other words."""

Change: TypeAlias = tuple[int, Collection[str] | None]
"""A position and its words; None if the position is gone."""


class Within(NamedTuple):
    """Which positions are asked for, in what order, and how many of them at most."""

    limit: int
    after: int | None = None
    before: int | None = None
    newest_first: bool = False

    def holds(self, position: int) -> bool:
        """Whether a position is among them."""
        return (self.after is None or position > self.after) and (
            self.before is None or position < self.before
        )


class TextIndex(ABC):
    """Which positions of a scope have words that begin so.

    A scope is a name; a position is a whole number from 0 on. Words are normalised already:
    they hold no spaces and at most 50 characters each. The index says up to where it is
    built, its state, in bytes that only its users understand. Safe to share between threads.
    """

    @abstractmethod
    def state(self, scope: str) -> bytes | None:
        """Up to where a scope was indexed; None if it was not, or if that was lost."""

    @abstractmethod
    def apply(
        self, scope: str, before: bytes | None, after: bytes, changes: Sequence[Change]
    ) -> bool:
        """Bring a scope from one state to another: all of it, or nothing.

        With `before=None` it begins anew, whatever there was. False, with nothing changed,
        if the scope is in another state than `before`, or if there is no room or no time
        for it now.
        """

    @abstractmethod
    def find(
        self, scope: str, state: bytes, prefixes: Sequence[str], within: Within
    ) -> list[int] | None:
        """The positions that have, for every prefix, a word that begins so; in order.

        There may be positions among them that do not, or that are gone, but none is
        missing. None if the scope is not in this state. A prefix that is likely to be rare
        should come first: the others need not be looked at if it is.
        """

    @abstractmethod
    def drop(self, scope: str) -> None:
        """Forget a scope."""


INDEX_BYTES: Final = 128 * 1024 * 1024

BLOCK_BITS: Final = 14
"""Positions are indexed in blocks, so that what is in many of them is found in the first."""

_BLOCK: Final = 1 << BLOCK_BITS
_FRESH: Final = 256  # New words that are looked at one by one before all are sorted again.
_AFTER: Final = "\U0010ffff"  # Sorts behind every word that begins so.
_WORD_BYTES: Final = 120  # About what Python takes for a word that stands in one place,
_LIST_BYTES: Final = 96  # and for the list of places of one that stands in several.


class MemoryTextIndex(TextIndex):
    """An index in memory. The scopes that were not used for longest go first."""

    def __init__(self, max_bytes: int = INDEX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()
        self._too_large: set[str] = set()
        self._held = 0
        self._lock = freed_after_fork(threading.Lock())

    def state(self, scope: str) -> bytes | None:
        """What a scope was last indexed at."""
        with self._lock:
            found = self._scopes.get(scope)
            return None if found is None else found.state

    def apply(
        self, scope: str, before: bytes | None, after: bytes, changes: Sequence[Change]
    ) -> bool:
        """Change a scope; False if it is in another state, or too large."""
        with self._lock:
            if scope in self._too_large:
                return False
            if before is None:
                self._forget(scope)
            found = self._scopes.get(scope)
            if (None if found is None else found.state) != before:
                return False
            if found is None:
                found = self._scopes[scope] = _Scope()
            else:
                self._held -= found.held
            for position, words in changes:
                found.change(position, words)
            found.state = after
            self._held += found.held
            self._scopes.move_to_end(scope)
            return self._make_room(scope)

    def _make_room(self, scope: str) -> bool:
        while self._held > self._max_bytes and len(self._scopes) > 1:
            self._forget(next(iter(self._scopes)))
        if self._held > self._max_bytes:
            self._forget(scope)
            if len(self._too_large) < _FRESH:
                self._too_large.add(scope)
            return False
        return True

    def find(
        self, scope: str, state: bytes, prefixes: Sequence[str], within: Within
    ) -> list[int] | None:
        """Positions whose words begin so; None if the scope is in another state."""
        with self._lock:
            found = self._scopes.get(scope)
            if found is None or found.state != state:
                return None
            self._scopes.move_to_end(scope)
            return found.find(prefixes, within)

    def drop(self, scope: str) -> None:
        """Forget a scope."""
        with self._lock:
            self._too_large.discard(scope)
            self._forget(scope)

    def _forget(self, scope: str) -> None:
        found = self._scopes.pop(scope, None)
        if found is not None:
            self._held -= found.held


class _Scope:
    """One scope: blocks of positions, each with its own words.

    Words that a position no longer has stay in its block, so a search may return stale positions,
    which are filtered on read. It must only not miss any.
    """

    def __init__(self) -> None:
        self.state = b""
        self.held = 1024
        self._gone: set[int] = set()
        self._blocks: dict[int, _Block] = {}

    def change(self, position: int, words: Collection[str] | None) -> None:
        if words is None:
            self._gone.add(position)
            self.held += 64
            return
        self._gone.discard(position)
        number, at = divmod(position, _BLOCK)
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = _Block()
        self.held += block.add(at, words)

    def find(self, prefixes: Sequence[str], within: Within) -> list[int]:
        found: list[int] = []
        for number in sorted(self._blocks, reverse=within.newest_first):
            start = number * _BLOCK
            if within.after is not None and start + _BLOCK - 1 <= within.after:
                continue
            if within.before is not None and start >= within.before:
                continue
            for at in sorted(self._blocks[number].find(prefixes), reverse=within.newest_first):
                if within.holds(start + at) and start + at not in self._gone:
                    found.append(start + at)
                    if len(found) >= within.limit:
                        return found
        return found


class _Block:
    """The words of some thousand positions, and where each stands."""

    def __init__(self) -> None:
        # Most words stand in one place: then there is no list.
        self._places: dict[str, int | array[int]] = {}
        self._sorted: list[str] = []
        self._fresh: list[str] = []

    def add(self, at: int, words: Collection[str]) -> int:
        """Note the words of a place; how many bytes more that takes."""
        taken = 0
        for word in words:
            places = self._places.get(word)
            if places is None:
                word = intern(word)  # The other blocks have most of them too.
                self._places[word] = at
                self._fresh.append(word)
                taken += _WORD_BYTES + len(word)
            elif isinstance(places, int):
                if places != at:
                    self._places[word] = array("H", sorted((places, at)))
                    taken += _LIST_BYTES
            else:
                taken += _insert(places, at)
        return taken

    def find(self, prefixes: Sequence[str]) -> set[int]:
        """The places that have a word for every prefix, or for the first ones if those are few."""
        found: set[int] | None = None
        for prefix in prefixes:
            places: set[int] = set()
            for word in self._beginning(prefix):
                some = self._places[word]
                if isinstance(some, int):
                    places.add(some)
                else:
                    places.update(some)
            found = places if found is None else found & places
            if len(found) < RARE:
                break
        return found or set()

    def _beginning(self, prefix: str) -> Iterator[str]:
        if len(self._fresh) > _FRESH:
            self._sorted = sorted(self._sorted + sorted(self._fresh))
            self._fresh = []
        low = bisect_left(self._sorted, prefix)
        high = bisect_right(self._sorted, prefix + _AFTER, low)
        yield from self._sorted[low:high]
        for word in self._fresh:
            if word.startswith(prefix):
                yield word


def _insert(places: array[int], at: int) -> int:
    """Add a place to a sorted list, unless it is there; how many bytes more that takes."""
    if places[-1] < at:
        places.append(at)
        return 2
    index = bisect_left(places, at)
    if places[index] == at:
        return 0
    places.insert(index, at)
    return 2
