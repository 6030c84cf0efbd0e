"""The contract of stores for the engine on Redis, and ways to damage what it stores."""

from __future__ import annotations

from typing import Any

from ropewalk.store import RedisStore, Store
from ropewalk.store.redis.layout import encode_segment
from ropewalk.store.segment import Packed
from ropewalk.testing import StoreContract
from ropewalk.tree import ObjectId
from tests.store.logs import PacksAtOnce, find_node, flipped, segment_without
from tests.store.redis.servers import client

ROOT = "{ropewalk:default}"


def relaxed(url: str, **options: Any) -> RedisStore:
    """A store on a server that need not keep what it acknowledged."""
    return RedisStore(url, durability="relaxed", **options)


class EagerRedisStore(PacksAtOnce, RedisStore):
    """Packs the whole tail after every commit."""


class RedisContract(StoreContract):
    """What every store promises, with ways to damage what this engine stores."""

    url = ""

    def damage(self, store: Store, id: ObjectId) -> bool:
        damage(self.url, id)
        return True

    def lose(self, store: Store, id: ObjectId) -> bool:
        lose(self.url, id)
        return True


def damage(url: str, id: ObjectId) -> None:
    """Change a bit of a shared object, or of the record or segment that brings a node."""
    with client(url) as server:
        key = object_key(id)
        if (frame := server.get(key)) is not None:
            server.set(key, flipped(frame, len(frame) - 1))
            return
        with relaxed(url) as looking:  # One that remembers nothing of it.
            space, sequence, _ = find_node(looking, id)
            packed, _ = looking._span(space)
            segment = looking._load(space, sequence)
        if not isinstance(segment, Packed):
            tail = f"{ROOT}:tail:{space}"
            entry = server.lindex(tail, sequence - packed - 1)
            server.lset(tail, sequence - packed - 1, flipped(entry, len(entry) - 20))
        else:
            changed = segment._replace(data=bytes(byte ^ 1 for byte in segment.data))
            server.set(f"{ROOT}:segment:{segment.last}:{space}", encode_segment(changed))


def lose(url: str, id: ObjectId) -> None:
    """Delete a shared object, or write the segment of a node without it."""
    with client(url) as server:
        if server.hdel(f"{ROOT}:objects", id):
            server.delete(object_key(id))
            return
        with relaxed(url) as looking:
            space, packed = segment_without(looking, id)
        server.set(f"{ROOT}:segment:{packed.last}:{space}", encode_segment(packed))


def object_key(id: ObjectId) -> bytes:
    """Where a shared object is."""
    return f"{ROOT}:object:".encode() + id
