"""The interface for a key-value store of yours, which a `Versioned` can be kept in."""

from __future__ import annotations

from ropewalk.store import KeyValueStore, KVStore

__all__ = ["KVStore", "KeyValueStore"]
