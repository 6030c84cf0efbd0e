"""Where the benchmarks touch the states of Ropewalk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench._model import Place
from bench._ropewalk import sqlite_store
from bench.engines.states import VALUE, Held
from ropewalk import Versioned
from ropewalk.store import MemoryStore, Store


class VersionedState(Held):
    """One handle on a state. It is never told what changed in place."""

    def __init__(self, store: Store | None = None) -> None:
        super().__init__()
        self._store = MemoryStore() if store is None else store
        self._handle = Versioned(self._store)

    def look(self, name: str) -> Any:
        return self._handle[name]

    def set(self, name: str, value: Any) -> None:
        self._handle[name] = value

    def save(self) -> None:
        self._handle.commit()

    def reopen(self) -> None:
        self._handle = Versioned(self._store)

    def commit(self, value: Any) -> None:
        self.put(VALUE, value)

    def read(self) -> Any:
        return self.get(VALUE)

    def load(self, pairs: Mapping[str, Any]) -> None:
        self._handle.update(pairs)
        self._handle.commit()

    def put(self, key: str, value: Any) -> None:
        self._handle[key] = value
        self._handle.commit()

    def get(self, key: str) -> Any:
        return Versioned(self._store)[key]

    def stored_bytes(self) -> int:
        assert isinstance(self._store, MemoryStore), "a folder is measured by its files"
        # All frames that were ever written, also those that another has replaced.
        return self._store.sizes.written_bytes


class VersionedOnDisk(VersionedState):
    """The same on a store in a folder, which is closed with it."""

    def __init__(self, place: Place) -> None:
        super().__init__(sqlite_store(place))

    def close(self) -> None:
        self._store.close()
