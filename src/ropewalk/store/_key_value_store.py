"""A store on a key-value store that a user brings. Design note 008 says why it is safe."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeVar

from ropewalk.errors import Corrupt
from ropewalk.store._checks import expect
from ropewalk.store._decide import Batch, Presence
from ropewalk.store._framing import DEFAULT_CACHE_BYTES, Framed
from ropewalk.store._key_value import KVStore
from ropewalk.store._key_value_calls import Calls
from ropewalk.store._key_value_cells import (
    EPOCH,
    HEADER,
    ROOT,
    damaged,
    read_epoch,
    seal,
    unseal,
)
from ropewalk.store._key_value_objects import Objects
from ropewalk.store._key_value_spaces import Spaces
from ropewalk.store._order import Below, below, lowest_first
from ropewalk.store._record_store import RecordStore
from ropewalk.store._records import (
    Capabilities,
    Durability,
    Header,
    Stored,
    decode_header,
    encode_header,
)
from ropewalk.tree.objects import Object, ObjectId

R = TypeVar("R")


class KeyValueStore(RecordStore):
    """A store on a `KVStore`, for as many processes as that one serves.

    It keeps what the `KVStore` keeps, under keys that begin with `ropewalk/`, and survives
    what that one's `durability` says. Each change of a space is one compare-and-set. A
    commit that lost against others for 30 seconds is `Unavailable`. Closing it closes the
    `KVStore`. `KVStore.as_store()` makes one with the defaults, once for each.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    poll_seconds: ClassVar[float | None] = 0.05

    def __init__(
        self,
        kv: KVStore,
        *,
        backend_id: str = "key-value",
        backend_aliases: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        threads: int = 16,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        default_ttl_seconds: float | None = None,
    ) -> None:
        expect(isinstance(kv, KVStore), "a KeyValueStore is made on a KVStore", kv)
        super().__init__(
            backend_id=backend_id,
            backend_aliases=backend_aliases,
            clock=clock,
            threads=threads,
            cache_bytes=cache_bytes,
            default_ttl_seconds=default_ttl_seconds,
        )
        self.kv = kv
        self._durability = _durability_of(kv)
        kept = self._durability != "none"
        self.capabilities = Capabilities(kept, kept, False)  # type: ignore[misc]
        self._calls = Calls(kv)
        self._objects = Objects(self._calls)
        self._log = Spaces(self._calls)
        self._header = self._open()

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives, by the word of the `KVStore`."""
        return self._durability

    # Opening and closing.

    def _open(self) -> Header:
        data = self._calls.get(HEADER)
        if data is None:
            self._create()
            data = self._calls.get(HEADER)
        if data is None:
            raise damaged(HEADER)
        return decode_header(unseal(HEADER, data))

    def _create(self) -> None:
        """Make an empty store; the header comes last."""
        others = set(self._calls.keys(ROOT)) - {EPOCH}
        if others and self._calls.get(HEADER) is None:
            raise Corrupt(
                f"the key-value store holds {min(others)!r}, but {HEADER!r} is gone. Nothing was "
                "changed: restore it from a copy, or take another key-value store."
            )
        self._calls.swap(EPOCH, None, seal(EPOCH, 1))
        self._calls.swap(HEADER, None, seal(HEADER, encode_header(Header(os.urandom(16)))))

    def _close(self) -> None:
        self._calls.close()

    # Objects.

    def _frames(self, ids: Sequence[ObjectId]) -> Mapping[ObjectId, bytes]:
        return self._objects.frames(ids)

    def _presence(self, ids: Iterable[ObjectId]) -> Mapping[ObjectId, Presence]:
        return self._objects.presence_now(list(ids))

    # Commits.

    def _present(self, batch: Batch, epoch: int) -> Mapping[ObjectId, Presence]:
        return self._objects.presence(list(batch.asks(epoch)), epoch)

    def _arrange(self, batch: Batch, objects: Sequence[Object]) -> tuple[Batch, Sequence[Object]]:
        found = below(objects)
        return replace(batch, below=found), lowest_first(objects, found)

    def _keep(self, frames: Sequence[Framed], epoch: int, below: Below) -> None:
        self._objects.put(frames, epoch, below)

    def _epoch(self) -> int:
        return read_epoch(self._calls.get(EPOCH))

    # Collection.

    def _scan(self) -> Iterator[Stored]:
        return self._objects.scan(self._epoch())

    def _clear_doubt(self, found: Sequence[Stored]) -> None:
        self._objects.settle(found)

    def _examine(self, read_data: bool) -> Iterable[tuple[str, str]]:
        return self._objects.examine() if read_data else ()

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        self._objects.change(ids, lambda cell: cell._replace(collection=collection))

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        self._objects.change(ids, lambda cell: cell._replace(collection=None))

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        return self._objects.change(
            ids, lambda cell: None if cell.collection == collection else cell
        )

    def _raise_epochs(self) -> int:
        while True:
            data = self._calls.get(EPOCH)
            epoch = read_epoch(data)
            raised = epoch + 1
            self._objects.settle_epoch(epoch, partial(self._is_epoch, epoch))
            if self._calls.swap(EPOCH, data, seal(EPOCH, raised)):
                break
        self._raise_every(raised)
        return raised

    def _is_epoch(self, epoch: int) -> bool:
        return self._epoch() == epoch


def _durability_of(kv: KVStore) -> Durability:
    durability = kv.durability
    known = durability in ("full", "relaxed", "none")
    expect(known, f"{type(kv).__name__}.durability is 'full', 'relaxed' or 'none'", durability)
    return durability
