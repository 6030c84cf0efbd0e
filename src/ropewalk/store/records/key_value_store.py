"""The store on a key-value store that a user brings."""

from __future__ import annotations

from typing import ClassVar, Unpack

from ropewalk.errors import InvalidInput
from ropewalk.store.contract import StoreOptions
from ropewalk.store.model import Capabilities, Durability
from ropewalk.store.records.calls import Calls
from ropewalk.store.records.cells import HEADER, ROOT, damaged
from ropewalk.store.records.key_value import KVStore
from ropewalk.store.records.store import CellStore
from ropewalk.store.validation import expect


class KeyValueStore(CellStore):
    """A store on a `KVStore`, for as many processes as that one serves.

    It keeps what the `KVStore` keeps, under keys that begin with `ropewalk/`, and survives
    what that one's `durability` says. Each change of a space is one compare-and-set. A
    commit that lost against others for 30 seconds is `Unavailable`. Closing it closes the
    `KVStore`. `KVStore.as_store()` makes one with the defaults, once for each.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    poll_seconds: ClassVar[float | None] = 0.05
    _pack_bytes: ClassVar[int] = 256 * 1024

    def __init__(self, kv: KVStore, **options: Unpack[StoreOptions]) -> None:
        expect(isinstance(kv, KVStore), "a KeyValueStore is made on a KVStore", kv)
        if options.get("size_limit") is not None:
            raise InvalidInput("a store on a KVStore has no size_limit: that one says StoreFull")
        options.setdefault("backend_id", "key-value")
        super().__init__(**options)
        self.kv = kv
        self._durability = _durability_of(kv)
        kept = self._durability != "none"
        self.capabilities = Capabilities(kept, kept, False)  # type: ignore[misc]
        self._calls = Calls(kv)
        self._use(self._calls, self._calls)
        header = self._opened_header()
        if header is None:
            self._create(self._calls.keys(ROOT))
            header = self._opened_header()
        if header is None:
            raise damaged(HEADER)
        self._header = header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives, by the word of the `KVStore`."""
        return self._durability

    def _shown(self) -> str:
        return f"this {type(self.kv).__name__}"

    def _close(self) -> None:
        self._close_packer()
        self._calls.close()


def _durability_of(kv: KVStore) -> Durability:
    durability = kv.durability
    known = durability in ("full", "relaxed", "none")
    expect(known, f"{type(kv).__name__}.durability is 'full', 'relaxed' or 'none'", durability)
    return durability
