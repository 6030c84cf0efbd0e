"""What stands beside history, in this process: bounded in bytes, the oldest goes first."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from sys import intern
from typing import Final

from ropewalk.store._aside import RARE, Change, Scratch, TextIndex, Within
from ropewalk.store.forking import freed_after_fork

INDEX_BYTES: Final = 128 * 1024 * 1024
SCRATCH_BYTES: Final = 16 * 1024 * 1024

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
        with self._lock:
            found = self._scopes.get(scope)
            return None if found is None else found.state

    def apply(
        self, scope: str, before: bytes | None, after: bytes, changes: Sequence[Change]
    ) -> bool:
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
        with self._lock:
            found = self._scopes.get(scope)
            if found is None or found.state != state:
                return None
            self._scopes.move_to_end(scope)
            return found.find(prefixes, within)

    def drop(self, scope: str) -> None:
        with self._lock:
            self._too_large.discard(scope)
            self._forget(scope)

    def _forget(self, scope: str) -> None:
        found = self._scopes.pop(scope, None)
        if found is not None:
            self._held -= found.held


class _Scope:
    """One scope: blocks of positions, each with its own words.

    What a position no longer says stays, so it may be found in vain; it must only not be
    missed.
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


class MemoryScratch(Scratch):
    """Values in memory. Those that were put first go first when there is no more room."""

    def __init__(self, clock: Callable[[], float], max_bytes: int = SCRATCH_BYTES) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._values: OrderedDict[str, tuple[bytes, float | None]] = OrderedDict()
        self._held = 0
        self._lock = freed_after_fork(threading.Lock())

    def get(self, key: str) -> bytes | None:
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            value, until = found
            if until is not None and self._clock() >= until:
                self._forget(key)
                return None
            return value

    def put(self, key: str, value: bytes, seconds: float | None = None) -> None:
        until = None if seconds is None else self._clock() + seconds
        with self._lock:
            self._forget(key)
            self._values[key] = bytes(value), until
            self._held += _size(key, value)
            while self._held > self._max_bytes:
                self._forget(next(iter(self._values)))

    def remove(self, key: str) -> None:
        with self._lock:
            self._forget(key)

    def keys(self, prefix: str = "") -> list[str]:
        now = self._clock()
        with self._lock:
            return sorted(
                key
                for key, (_, until) in self._values.items()
                if key.startswith(prefix) and (until is None or now < until)
            )

    def _forget(self, key: str) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self._held -= _size(key, found[0])


def _size(key: str, value: bytes) -> int:
    return len(key) + len(value) + 256
