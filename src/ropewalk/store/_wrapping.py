"""A store in front of another: what it does not change, the one behind does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ropewalk.store._aside import Scratch, TextIndex
from ropewalk.store._checks import expect
from ropewalk.store._contract import Store
from ropewalk.store._decide import Batch, Presence
from ropewalk.store._object_store import ObjectStore
from ropewalk.store._records import (
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
)
from ropewalk.tree.objects import Object, ObjectId

R = TypeVar("R")


class WrapperStore(ObjectStore):
    """Hands every call of an engine to the store behind it, `inner`.

    It has that store's names, limits and clock. A subclass overrides `_call` to come between
    all calls, or the methods that it changes. Closing it closes the store behind it.
    """

    def __init__(self, store: Store) -> None:
        expect(isinstance(store, Store), f"a {type(self).__name__} is in front of a store", store)
        super().__init__(
            backend_id=store.backend_id,
            backend_aliases=store.backend_aliases,
            clock=store._clock,
            cache_bytes=store._frame_writer.cache_bytes,
            size_limit=store.size_limit,
            default_ttl_seconds=store.default_ttl_seconds,
        )
        # What engines say of their class is here a matter of the store behind.
        self.capabilities = store.capabilities  # type: ignore[misc]
        self.poll_seconds = store.poll_seconds  # type: ignore[misc]
        self.inner = store

    def _call(self, method: str, call: Callable[[], R]) -> R:
        """Make a call of the engine; `method` is its name without the underscore."""
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

    def _frames(self, ids: Sequence[ObjectId]) -> Mapping[ObjectId, bytes]:
        return self._call("frames", lambda: self.inner._frames(ids))

    def _presence(self, ids: Sequence[ObjectId]) -> Mapping[ObjectId, Presence]:
        return self._call("presence", lambda: self.inner._presence(ids))

    def _commit(self, batch: Batch) -> Operation:
        return self._call("commit", lambda: self.inner._commit(batch))

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

    def _scan(self) -> Iterator[Stored]:
        return self._call("scan", self.inner._scan)

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        return self._call("condemn", lambda: self.inner._condemn(ids, collection))

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        return self._call("revive", lambda: self.inner._revive(ids))

    def _clear_doubt(self, found: Sequence[Stored]) -> None:
        return self._call("clear_doubt", lambda: self.inner._clear_doubt(found))

    def _raise_epochs(self) -> int:
        return self._call("raise_epochs", self.inner._raise_epochs)

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        return self._call("delete", lambda: self.inner._delete(ids, collection))

    def _examine(self, read_data: bool) -> Iterable[tuple[str, str]]:
        return self._call("examine", lambda: self.inner._examine(read_data))

    def _disk_bytes(self) -> int | None:
        return self._call("disk_bytes", self.inner._disk_bytes)

    # These ask the engine nothing, so `_call` does not hear of them.

    def _arrange(self, batch: Batch, objects: Sequence[Object]) -> tuple[Batch, Sequence[Object]]:
        return self.inner._arrange(batch, objects)

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self.inner._subscribe(space, wake)

    def _make_text_index(self) -> TextIndex:
        return self.inner.text_index()

    def _make_scratch(self) -> Scratch:
        return self.inner.scratch()

    def _close(self) -> None:
        self.inner.close()
