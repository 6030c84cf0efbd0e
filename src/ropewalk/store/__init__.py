"""Stores: where objects and refs live.

`Store` is the contract. `MemoryStore` is the smallest engine, `SqliteStore` the embedded
one, `FileStore` the one of plain files, and `open` finds the engine for a path or URL.
`CachedStore` keeps objects in memory, in front of any of them. A `KVStore` is a key-value store
that a user brings, and `KeyValueStore` the store on it.
What an engine is made of is in `ropewalk.store.engine`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.store.contract import Store
from ropewalk.store.memory import MemoryStore
from ropewalk.store.model import Durability, Fence, Lease, LeaseRecord, Move, Operation, Ref, View
from ropewalk.store.names import ref_name, space_name, split_name
from ropewalk.store.opening import open  # noqa: A004 - as in `gzip.open`

if TYPE_CHECKING:
    from ropewalk.store.collection import Collected, Progress
    from ropewalk.store.files import FileStore
    from ropewalk.store.migration import Migrated, amigrate, migrate
    from ropewalk.store.postgres import PostgresStore
    from ropewalk.store.records.key_value import KeyValueStore, KVStore
    from ropewalk.store.redis import RedisStore
    from ropewalk.store.reserved import Content, Pruned
    from ropewalk.store.s3 import S3Store
    from ropewalk.store.sqlite import SqliteStore
    from ropewalk.store.statistics import KeyStats, RefStats, SpaceStats, Stats
    from ropewalk.store.verification import Problem, Report
    from ropewalk.store.wrappers import CachedStore, CacheInfo

__all__ = [
    "CacheInfo",
    "CachedStore",
    "Collected",
    "Content",
    "Durability",
    "Fence",
    "FileStore",
    "KVStore",
    "KeyStats",
    "KeyValueStore",
    "Lease",
    "LeaseRecord",
    "MemoryStore",
    "Migrated",
    "Move",
    "Operation",
    "PostgresStore",
    "Problem",
    "Progress",
    "Pruned",
    "RedisStore",
    "Ref",
    "RefStats",
    "Report",
    "S3Store",
    "SpaceStats",
    "SqliteStore",
    "Stats",
    "Store",
    "View",
    "amigrate",
    "migrate",
    "open",
    "ref_name",
    "space_name",
    "split_name",
]


# Loaded when they are first asked for: some bring sqlite3, and most programs need few.
_HOMES = {
    "CacheInfo": "wrappers",
    "CachedStore": "wrappers",
    "Collected": "collection",
    "Content": "reserved",
    "FileStore": "files",
    "Migrated": "migration",
    "PostgresStore": "postgres",
    "Problem": "verification",
    "Progress": "collection",
    "Pruned": "reserved",
    "Report": "verification",
    "KVStore": "records.key_value",
    "KeyStats": "statistics",
    "KeyValueStore": "records.key_value",
    "RedisStore": "redis",
    "RefStats": "statistics",
    "S3Store": "s3",
    "SpaceStats": "statistics",
    "SqliteStore": "sqlite",
    "Stats": "statistics",
    "amigrate": "migration",
    "migrate": "migration",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"ropewalk.store.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
