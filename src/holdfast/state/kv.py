"""The interface for a key-value store of yours, which a `Versioned` can be kept in."""

from __future__ import annotations

from holdfast.store import KeyValueStore, KVStore

__all__ = ["KVStore", "KeyValueStore"]
