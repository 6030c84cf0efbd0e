"""Stores: where objects and refs live.

`Store` is the contract. `MemoryStore` is the smallest engine, `SqliteStore` the embedded
one, `FileStore` the one of plain files, and `open` finds the engine for a path or URL.
`CachedStore` keeps objects in memory, in front of any of them. `Memory`, `Disk` and `Cache`
are names for the first two and the last. A `KVStore` is a key-value store that a user brings,
and `KeyValueStore` the store on it.
Whoever writes an engine subclasses `Store`, supplies the methods of `Engine`, and runs
`ropewalk.testing.StoreContract` on it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.store._aside import Scratch, TextIndex, Within
from ropewalk.store._contract import Store
from ropewalk.store._decide import (
    Batch,
    Decision,
    Facts,
    Presence,
    Recorded,
    Reframe,
    check_repeated,
    decide,
    operation_of,
)
from ropewalk.store._disk import Disk
from ropewalk.store._engine import Engine
from ropewalk.store._filesystem import Filesystem
from ropewalk.store._frames import (
    MAX_DEPTH,
    MAX_PAYLOAD,
    FrameHeader,
    decode_frame,
    encode_delta,
    encode_whole,
    frame_base,
    frame_depth,
    parse_header,
)
from ropewalk.store._framing import Framed, FrameWriter
from ropewalk.store._names import (
    MAX_NAME_BYTES,
    decode_part,
    encode_part,
    ref_name,
    space_name,
    split_name,
)
from ropewalk.store._open import open  # noqa: A004 - as in `gzip.open`
from ropewalk.store._packs import (
    FOOTER_SIZE,
    Entry,
    Pack,
    build_pack,
    index_size,
    open_pack,
    read_index,
    seal_pack,
)
from ropewalk.store._records import (
    FORMAT_VERSION,
    REMEMBERED_WRITES,
    Capabilities,
    Durability,
    Fence,
    Header,
    Lease,
    LeaseRecord,
    Move,
    Operation,
    Ref,
    Scalar,
    Stored,
    View,
    decode_header,
    decode_operation,
    encode_header,
    encode_operation,
)
from ropewalk.store.memory import Memory, MemoryStore, Sizes

if TYPE_CHECKING:
    from ropewalk.store._cached import Cache, CachedStore, CacheInfo
    from ropewalk.store._checking import Problem, Report
    from ropewalk.store._collecting import Collected, Progress
    from ropewalk.store._contents import Content, Pruned
    from ropewalk.store._statistics import KeyStats, RefStats, SpaceStats, Stats
    from ropewalk.store.files import FileStore
    from ropewalk.store.migration import Migrated, amigrate, migrate
    from ropewalk.store.postgres import PostgresStore
    from ropewalk.store.records.key_value import KVStore
    from ropewalk.store.records.key_value_store import KeyValueStore
    from ropewalk.store.redis import RedisStore
    from ropewalk.store.s3 import S3Store
    from ropewalk.store.sqlite import SqliteStore

__all__ = [
    "FOOTER_SIZE",
    "FORMAT_VERSION",
    "MAX_DEPTH",
    "MAX_NAME_BYTES",
    "MAX_PAYLOAD",
    "REMEMBERED_WRITES",
    "Batch",
    "Cache",
    "CacheInfo",
    "CachedStore",
    "Capabilities",
    "Collected",
    "Content",
    "Decision",
    "Disk",
    "Durability",
    "Engine",
    "Entry",
    "Facts",
    "Fence",
    "FileStore",
    "Filesystem",
    "FrameHeader",
    "FrameWriter",
    "Framed",
    "Header",
    "KVStore",
    "KeyStats",
    "KeyValueStore",
    "Lease",
    "LeaseRecord",
    "Memory",
    "MemoryStore",
    "Migrated",
    "Move",
    "Operation",
    "Pack",
    "PostgresStore",
    "Presence",
    "Problem",
    "Progress",
    "Pruned",
    "Recorded",
    "RedisStore",
    "Ref",
    "RefStats",
    "Reframe",
    "Report",
    "S3Store",
    "Scalar",
    "Scratch",
    "Sizes",
    "SpaceStats",
    "SqliteStore",
    "Stats",
    "Store",
    "Stored",
    "TextIndex",
    "View",
    "Within",
    "amigrate",
    "build_pack",
    "check_repeated",
    "decide",
    "decode_frame",
    "decode_header",
    "decode_operation",
    "decode_part",
    "encode_delta",
    "encode_header",
    "encode_operation",
    "encode_part",
    "encode_whole",
    "frame_base",
    "frame_depth",
    "index_size",
    "migrate",
    "open",
    "open_pack",
    "operation_of",
    "parse_header",
    "read_index",
    "ref_name",
    "seal_pack",
    "space_name",
    "split_name",
]


# Loaded when they are first asked for: some bring sqlite3, and most programs need few.
_HOMES = {
    "Cache": "_cached",
    "CacheInfo": "_cached",
    "CachedStore": "_cached",
    "Collected": "_collecting",
    "Content": "_contents",
    "FileStore": "files",
    "Migrated": "migration",
    "PostgresStore": "postgres",
    "Problem": "_checking",
    "Progress": "_collecting",
    "Pruned": "_contents",
    "Report": "_checking",
    "KVStore": "records.key_value",
    "KeyStats": "_statistics",
    "KeyValueStore": "records.key_value_store",
    "RedisStore": "redis",
    "RefStats": "_statistics",
    "S3Store": "s3",
    "SpaceStats": "_statistics",
    "SqliteStore": "sqlite",
    "Stats": "_statistics",
    "amigrate": "migration",
    "migrate": "migration",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"ropewalk.store.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
