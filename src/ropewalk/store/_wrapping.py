"""A store in front of another: what it does not change, the one behind does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from ropewalk.store._aside import Scratch, TextIndex
from ropewalk.store.batch import Batch
from ropewalk.store.contract import Store
from ropewalk.store.model import (
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
)
from ropewalk.store.validation import expect
from ropewalk.tree.objects import Object, ObjectId, Reader

if TYPE_CHECKING:
    from ropewalk.store.collection import Collected, Progress
    from ropewalk.store.statistics import Stats
    from ropewalk.store.verification import Report

R = TypeVar("R")


class WrapperStore(Store):
    """Hands every call to the store behind it, `inner`, which may be of any kind.

    It has that store's names, limits and clock. A subclass overrides `_call` to come between
    all calls, or the methods that it changes. Closing it closes the store behind it.
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

    def _land(self, batch: Batch, objects: Sequence[Object]) -> Operation:
        return self._call("commit", lambda: self.inner._land(batch, objects))

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
        """Take damaged shared objects out, so that they can be stored anew."""
        self._call("discard", lambda: self.inner.discard(ids))

    def _examine(self, read_data: bool) -> Iterable[tuple[str, str]]:
        return self._call("examine", lambda: self.inner._examine(read_data))

    def _disk_bytes(self) -> int | None:
        return self._call("disk_bytes", self.inner._disk_bytes)

    # These ask nothing of the store behind, so `_call` does not hear of them.

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self.inner._subscribe(space, wake)

    def _make_text_index(self) -> TextIndex:
        return self.inner.text_index()

    def _make_scratch(self) -> Scratch:
        return self.inner.scratch()

    def _close(self) -> None:
        self.inner.close()
