"""Stores in front of another: one that hands every call on, one that caches objects."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ropewalk.store.contract import Store
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.model import (
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
    check_ids,
)
from ropewalk.store.record import Append
from ropewalk.store.records.key_value import KVStore
from ropewalk.store.scratch import Scratch
from ropewalk.store.search_index import TextIndex
from ropewalk.store.validation import expect, expect_whole
from ropewalk.tree.objects import Object, ObjectId, Reader, object_id

if TYPE_CHECKING:
    from ropewalk.store.collection import Collected, Progress
    from ropewalk.store.statistics import Stats
    from ropewalk.store.verification import Report


R = TypeVar("R")


class WrapperStore(Store):
    """Forwards every call to the store behind it, `inner`, which may be of any kind.

    It has that store's names, limits and clock. A subclass overrides `_call` to intercept all
    calls, or single methods. Closing it closes the inner store.
    """

    def __init__(self, store: Store) -> None:
        expect(isinstance(store, Store), f"a {type(self).__name__} is in front of a store", store)
        super().__init__(
            backend_id=store.backend_id,
            backend_aliases=store.backend_aliases,
            clock=store._clock,
            size_limit=store.size_limit,
            default_ttl_seconds=store.default_ttl_seconds,
        )
        # What engines say of their class is here a matter of the store behind.
        self.capabilities = store.capabilities  # type: ignore[misc]
        self.poll_seconds = store.poll_seconds  # type: ignore[misc]
        self.inner = store

    def _call(self, method: str, call: Callable[[], R]) -> R:
        """Make a call of the store behind; `method` is its name without underscores."""
        self.inner._check_open()
        return call()

    @property
    def header(self) -> Header:
        """The header of the store behind."""
        return self.inner.header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""
        return self.inner.durability

    def read(self, ids: Iterable[ObjectId]) -> list[Object]:
        """The shared objects with these ids, in this order, each verified against its hash.

        Raises as `Store.read` does.
        """
        return self._call("read", lambda: self.inner.read(ids))

    def reader(self, space: str) -> Reader:
        """A function that reads objects of a space, and shared ones, as `read` does."""
        read = self.inner.reader(space)
        return lambda ids: self._call("read", lambda: read(ids)) if ids else []

    def missing(self, ids: Iterable[ObjectId], space: str | None = None) -> list[ObjectId]:
        """Those of the ids that a commit to a space could not name in its needs.

        Without a space: those that are no shared objects of the store.
        """
        return self._call("missing", lambda: self.inner.missing(ids, space))

    def scan(self) -> Iterator[Stored]:
        """Every object, in no order; what is written meanwhile may be left out."""
        return self._call("scan", self.inner.scan)

    def _land(self, append: Append) -> Operation:
        return self._call("commit", lambda: self.inner._land(append))

    def _find(self, space: str, key: bytes) -> list[int]:
        return self._call("find", lambda: self.inner._find(space, key))

    def _ref(self, space: str, name: str) -> Ref | None:
        return self._call("ref", lambda: self.inner._ref(space, name))

    def _view(self, space: str, prefix: str) -> View:
        return self._call("view", lambda: self.inner._view(space, prefix))

    def _spaces(self, prefix: str) -> list[str]:
        return self._call("spaces", lambda: self.inner._spaces(prefix))

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        return self._call("operations", lambda: self.inner._operations(space, after, limit))

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        return self._call("lease", lambda: self.inner._lease(space, name))

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        return self._call("leases", lambda: self.inner._leases(space, prefix))

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        return self._call(
            "grant_lease", lambda: self.inner._grant_lease(space, name, expected, holder, duration)
        )

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        return self._call("swap_lease", lambda: self.inner._swap_lease(space, expected, record))

    def _gc(self, recent: int, grace: float, dry_run: bool, progress: Progress | None) -> Collected:
        return self._call("gc", lambda: self.inner._gc(recent, grace, dry_run, progress))

    def _check(self, read_data: bool, progress: Progress | None) -> Report:
        return self._call("check", lambda: self.inner._check(read_data, progress))

    def _stats(self, recent: int, progress: Progress | None) -> Stats:
        return self._call("stats", lambda: self.inner._stats(recent, progress))

    def carry(self, space: str, ids: Iterable[ObjectId]) -> Iterator[list[Object]]:
        """What commits to another space must bring: see `Store.carry`."""
        return self._call("carry", lambda: self.inner.carry(space, ids))

    def _free(self, dropped: Sequence[Ref], recent: int, grace: float) -> tuple[int, int]:
        return self._call("free", lambda: self.inner._free(dropped, recent, grace))

    def discard(self, ids: Iterable[ObjectId]) -> None:
        """Remove damaged shared objects, so that they can be stored again."""
        self._call("discard", lambda: self.inner.discard(ids))

    def _examine(self, read_data: bool) -> Iterable[tuple[str, str]]:
        return self._call("examine", lambda: self.inner._examine(read_data))

    def _disk_bytes(self) -> int | None:
        return self._call("disk_bytes", self.inner._disk_bytes)

    # These do not call the inner store, so they do not go through `_call`.

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self.inner._subscribe(space, wake)

    def _make_text_index(self) -> TextIndex:
        return self.inner.text_index()

    def _make_scratch(self) -> Scratch:
        return self.inner.scratch()

    def _close(self) -> None:
        self.inner.close()


_OVERHEAD = 256  # About what Python takes for an entry beside its payload.
_SPACES = 4096  # Whose epochs are remembered.


class CacheInfo(NamedTuple):
    """How well a cache does, since it was made."""

    hits: int
    """Objects that were read from memory."""
    misses: int
    """Objects that had to be read from the store behind."""
    objects: int
    held_bytes: int
    max_bytes: int


class CachedStore(WrapperStore):
    """A store in front of another that keeps objects in memory, at most `max_bytes`.

    What was read or committed is kept, and what was not used for longest goes first. Every
    object was verified against its hash before it came in, and never changes. Nothing that
    can change is kept: refs, views, operations and leases are always those of the store
    behind. `gc`, `check` and `stats` look at that store too, not at the cache.

    What another process collected is read as missing as soon as this store object has seen
    that the epoch was raised, by a commit or a `view`; what it deletes itself, at once. Safe
    to share between threads. Closing it closes the store behind it.
    """

    def __init__(self, store: Store | KVStore, max_bytes: int = 64 * 1024 * 1024) -> None:
        super().__init__(store.as_store() if isinstance(store, KVStore) else store)
        expect_whole(max_bytes, 0, "max_bytes")
        self._cache = _Cache(max_bytes)

    def info(self) -> CacheInfo:
        """What the cache holds, and how often it helped."""
        return self._cache.info()

    def clear(self) -> None:
        """Forget all objects; the counters go on."""
        self._cache.clear()

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<{type(self).__name__} in front of {self.inner!r}{state}>"

    def read(self, ids: Iterable[ObjectId]) -> list[Object]:
        """The shared objects with these ids, in this order, each verified against its hash.

        Raises as `Store.read` does. What is held in memory is not asked for again.
        """
        return self._read(None, super().read, ids)

    def reader(self, space: str) -> Reader:
        """A function that reads objects of a space, and shared ones, as `read` does."""
        return partial(self._read, space, super().reader(space))

    def _read(
        self, space: str | None, read_behind: Reader, ids: Iterable[ObjectId]
    ) -> list[Object]:
        self.inner._check_open()
        asked = check_ids(ids, "what is read")
        moment = self._cache.moment(space)
        found, doubted = self._cache.get(space, asked, moment)
        gone: set[ObjectId] = set()
        if doubted:  # A collection has been at work.
            gone = set(self.missing(doubted, space))
            alive = {id: one for id, one in doubted.items() if id not in gone}
            self._cache.add(space, alive.values(), moment)
            found |= alive
        absent = [id for id in dict.fromkeys(asked) if id not in found]
        self._cache.count(len(found), len(absent))
        if absent:
            read = read_behind(absent)
            # An object that is marked for deletion can be read, but may be gone any moment.
            self._cache.add(space, [one for one in read if one.id not in gone], moment)
            found.update((one.id, one) for one in read)
        return [found[id] for id in asked]

    # What the store does teaches the cache.

    def _call(self, method: str, call: Callable[[], R]) -> R:
        try:
            return super()._call(method, call)
        finally:  # Also if only the reply was lost.
            if method in ("gc", "free", "discard"):
                self._cache.clear()

    def _land(self, append: Append) -> Operation:
        space = append.space
        moment = self._cache.moment(space)
        operation = super()._land(append)
        self._cache.see(space, operation.epoch)
        # They were there at this epoch, whatever has become of them since. Nothing is served
        # that was not verified, and only reading from the store behind does that.
        sound = [one for one in append.sent if object_id(one.kind, one.payload) == one.id]
        self._cache.add(space, sound, moment._replace(epoch=operation.epoch))
        return operation

    def _view(self, space: str, prefix: str) -> View:
        view = super()._view(space, prefix)
        self._cache.see(space, view.epoch)
        return view


class _Moment(NamedTuple):
    """The state of the cache before a read: the latest epoch, and how often it was cleared."""

    epoch: int
    drops: int


class _Cache:
    """An LRU cache of objects by space and id; all operations are O(1).

    An entry has the epoch of its space at which its object was in the store. After a later epoch
    was seen, a collection may have deleted the object, so the entry is in doubt. Shared objects
    are cached under no space, whose epoch counts how often that of any space was seen to rise.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = freed_after_fork(threading.Lock())
        self._entries: OrderedDict[tuple[str | None, ObjectId], tuple[Object, int]] = OrderedDict()
        self._epochs: dict[str | None, int] = {}
        self._drops = self._held = self._hits = self._misses = 0

    def moment(self, space: str | None) -> _Moment:
        """To be asked for before the store behind is."""
        return _Moment(self._epochs.get(space, 0), self._drops)

    def get(
        self, space: str | None, ids: Iterable[ObjectId], moment: _Moment
    ) -> tuple[dict[ObjectId, Object], dict[ObjectId, Object]]:
        """The cached ones of these ids: those that are sure, and those in doubt."""
        sure: dict[ObjectId, Object] = {}
        doubted: dict[ObjectId, Object] = {}
        with self._lock:
            for id in ids:
                entry = self._entries.get((space, id))
                if entry is not None:
                    self._entries.move_to_end((space, id))
                    (sure if entry[1] >= moment.epoch else doubted)[id] = entry[0]
        return sure, doubted

    def add(self, space: str | None, objects: Iterable[Object], moment: _Moment) -> None:
        """Cache objects that were in the store at a moment, unless the cache was cleared since."""
        with self._lock:
            if moment.drops != self._drops:
                return
            for one in objects:
                size = _size(one)
                if size <= self._max_bytes:
                    self._remove((space, one.id))
                    self._entries[space, one.id] = one, moment.epoch
                    self._held += size
            while self._held > self._max_bytes:
                self._remove(next(iter(self._entries)))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._drops += 1
            self._entries.clear()
            self._epochs.clear()
            self._held = 0

    def see(self, space: str, epoch: int) -> None:
        """Learn of the epoch of a space."""
        known = self._epochs.get(space)
        if known is not None and epoch <= known:
            return
        with self._lock:
            if len(self._epochs) >= _SPACES:
                self._drops += 1
                self._entries.clear()
                self._epochs.clear()
                self._held = 0
            elif known is not None:
                self._epochs[None] = self._epochs.get(None, 0) + 1
            self._epochs[space] = max(epoch, self._epochs.get(space, 0))

    def count(self, hits: int, misses: int) -> None:
        """Count what was found and what was not."""
        with self._lock:
            self._hits += hits
            self._misses += misses

    def info(self) -> CacheInfo:
        """All counters at one moment."""
        with self._lock:
            held = len(self._entries), self._held
            return CacheInfo(self._hits, self._misses, *held, self._max_bytes)

    def _remove(self, key: tuple[str | None, ObjectId]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._held -= _size(entry[0])


def _size(one: Object) -> int:
    return len(one.payload) + _OVERHEAD
