"""The entries of a state that a working copy has cached: one for each key that was read or set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from ropewalk.errors import FormatError, InvalidInput, NotStorable, PathNotFound
from ropewalk.tree import ABSENT, ObjectId
from ropewalk.tree.map import CachedMap, CacheEntry, MapWriter
from ropewalk.tree.read import Container

Place: TypeAlias = tuple[str, ...]
"""Namespace names from the top; empty for the top itself."""

NAMESPACES: Final = "ropewalk:namespaces"
"""The key under which a map stores its namespaces, by name."""


class At(NamedTuple):
    """Where an entry is."""

    place: Place
    encoded: bytes
    entry: CacheEntry


class CachedEntries:
    """The cached part of a state, on top of the stored map. Not thread-safe."""

    def __init__(self, writer: MapWriter, root: ObjectId | None) -> None:
        self._writer = writer
        self._reserved = writer.encode_key(NAMESPACES)
        self.top = CachedMap()
        self._removed: list[At] = []
        self._keys: dict[Place, tuple[bytes, ...]] = {(): ()}
        self.move_to(root)

    def move_to(self, root: ObjectId | None) -> None:
        self._root = root

    # The mapping at one place.

    def get(self, place: Place, key: Any) -> Any:
        cached = self._get(place, key)
        if cached is None:
            raise PathNotFound(f"{_named(place)} has no key {key!r:.200}")
        return cached.value

    def has(self, place: Place, key: Any) -> bool:
        encoded = self._encoded(key)
        if encoded is None:
            return False
        level = self._level(place, make=False)
        cached = None if level is None else level.entries.get(encoded)
        if cached is not None:
            return cached.value is not ABSENT
        return self._stored(place, encoded) is not None

    def set(self, place: Place, key: Any, value: Any) -> None:
        _expect_hashable(key)
        try:
            encoded = self._writer.encode_key(key)
            entries = self._made(place).entries
            cached = entries.get(encoded)
            # A large value that was cached before is compared at commit, which is cheaper.
            if cached is None or cached.value is not value or not cached.mirrors:
                self._writer.check(key, value)
        except NotStorable as error:
            raise inside(error) from error
        if encoded == self._reserved:
            raise InvalidInput(f"the key {key!r} is reserved: choose another one")
        if cached is None:
            entries[encoded] = CacheEntry(key, value, self._stored(place, encoded))
        else:
            cached.value = value

    def remove(self, place: Place, key: Any) -> None:
        encoded = self._encoded(key)
        if encoded is None or not self.has(place, key):
            raise PathNotFound(f"{_named(place)} has no key {key!r:.200}")
        entries = self._made(place).entries
        if encoded in entries:
            # Kept even if nothing is stored under the key: a commit under way may store it.
            entries[encoded].value = ABSENT
            self._removed.append(At(place, encoded, entries[encoded]))
        else:
            entries[encoded] = CacheEntry(key, ABSENT, self._stored(place, encoded))

    def clear(self, place: Place) -> None:
        """Remove every key without reading values."""
        entries = self._made(place).entries
        for leaf in self._container(place).view.leaves():
            for entry in leaf.entries:
                if entry.key != self._reserved and entry.key not in entries:
                    entries[entry.key] = CacheEntry(self.key_of(entry.key), ABSENT, entry.body)
        for encoded, cached in entries.items():
            cached.value = ABSENT
            self._removed.append(At(place, encoded, cached))

    def keys(self, place: Place) -> list[bytes]:
        """The encoded keys, sorted."""
        stored = [
            entry.key
            for leaf in self._container(place).view.leaves()
            for entry in leaf.entries
            if entry.key != self._reserved
        ]
        level = self._level(place, make=False)
        if level is None:
            return stored
        gone = {key for key, cached in level.entries.items() if cached.value is ABSENT}
        new = {key for key, cached in level.entries.items() if cached.part is None} - gone
        if gone:
            stored = [key for key in stored if key not in gone]
        return sorted([*stored, *new]) if new else stored

    def count(self, place: Place) -> int:
        view = self._container(place).view
        stored = view.total - (self._stored(place, self._reserved) is not None)
        level = self._level(place, make=False)
        entries = () if level is None else level.entries.values()
        gone = sum([cached.value is ABSENT and cached.part is not None for cached in entries])
        new = sum([cached.value is not ABSENT and cached.part is None for cached in entries])
        return stored - gone + new

    def names(self, place: Place) -> list[str]:
        """The non-empty namespaces at a place, sorted."""
        found = set()
        if self._stored(place, self._reserved) is not None:
            opened = self._writer.open(self._root, (*self._path(place), self._reserved))
            found = {
                self.key_of(entry.key) for leaf in opened.view.leaves() for entry in leaf.entries
            }
        found.update(one.place[len(place)] for one in self.places() if _is_below(one.place, place))
        return sorted(name for name in found if self._is_used((*place, name)))

    def key_of(self, encoded: bytes) -> Any:
        """Decode a key."""
        key = self._writer.decode_key(encoded)
        try:
            hash(key)
        except TypeError as error:
            raise FormatError(f"a stored key is malformed: {error}") from error
        return key

    # All places.

    def places(self) -> list[At]:
        return list(self._walk(self.top, ()))

    def part_at(self, at: At) -> bytes | None:
        return self._stored(at.place, at.encoded)

    def tidy(self) -> None:
        """Evict keys that were set and removed, and are not stored."""
        for at in self._removed:
            if at.entry.value is ABSENT and at.entry.part is None:
                self.drop(at)
        self._removed.clear()

    def drop(self, at: At) -> None:
        self._made(at.place).entries.pop(at.encoded, None)

    def forget(self) -> None:
        """Make the next draft include every object of the cached values."""
        for at in self.places():
            at.entry.mirrors.clear()
            at.entry.given = ABSENT

    def holds_something(self) -> bool:
        return any(at.entry.value is not ABSENT for at in self.places())

    # Internals.

    def _is_used(self, place: Place) -> bool:
        return self.count(place) > 0 or bool(self.names(place))

    def _walk(self, level: CachedMap, place: Place) -> Iterator[At]:
        for encoded, cached in level.entries.items():
            yield At(place, encoded, cached)
        names = level.inner.get(self._reserved)
        for encoded, inner in () if names is None else names.inner.items():
            yield from self._walk(inner, (*place, self.key_of(encoded)))

    def _encoded(self, key: Any) -> bytes | None:
        """The encoding of a key that may exist."""
        try:
            encoded = self._writer.encode_key(key)
        except NotStorable:
            return None
        return None if encoded == self._reserved else encoded

    def _get(self, place: Place, key: Any) -> CacheEntry | None:
        encoded = self._encoded(key)
        if encoded is None:
            return None
        level = self._level(place, make=False)
        cached = None if level is None else level.entries.get(encoded)
        if cached is None:
            part = self._stored(place, encoded)
            if part is None:
                return None
            cached = self._made(place).entries[encoded] = self._writer.load(key, part)
        return None if cached.value is ABSENT else cached

    def _stored(self, place: Place, encoded: bytes) -> bytes | None:
        _, entry = self._container(place).view.locate(encoded)
        return None if entry is None else entry.body

    def _container(self, place: Place) -> Container:
        return self._writer.open(self._root, self._path(place))

    def _path(self, place: Place) -> tuple[bytes, ...]:
        path = self._keys.get(place)
        if path is None:
            keys = [(self._reserved, self._writer.encode_key(name)) for name in place]
            path = self._keys[place] = tuple(key for pair in keys for key in pair)
        return path

    def _level(self, place: Place, make: bool) -> CachedMap | None:
        level = self.top
        for key in self._path(place):
            found = level.inner.get(key)
            if found is None:
                if not make:
                    return None
                found = level.inner[key] = CachedMap()
            level = found
        return level

    def _made(self, place: Place) -> CachedMap:
        level = self._level(place, make=True)
        assert level is not None
        return level


def _expect_hashable(key: Any) -> None:
    try:
        hash(key)
    except TypeError as error:
        raise NotStorable(f"the key {key!r:.80} is not hashable", "state") from error


def _is_below(place: Place, other: Place) -> bool:
    return len(place) > len(other) and place[: len(other)] == other


def _named(place: Place) -> str:
    return "the state" if not place else f"namespace {'/'.join(place)!r}"


def inside(error: NotStorable, top: str = "state") -> NotStorable:
    return NotStorable(error.reason, error.path.replace("value", top, 1))
