"""The contract of stores for the engine on Redis, and ways to damage what it stores."""

from __future__ import annotations

from typing import Any

from ropewalk.store import RedisStore, Store
from ropewalk.store.log import SpaceCache
from ropewalk.store.packer import heads_of, pack
from ropewalk.store.record import place_of, settled_header
from ropewalk.store.redis.layout import encode_segment
from ropewalk.store.segment import build, without
from ropewalk.testing import StoreContract
from ropewalk.tree import ObjectId
from tests.store.redis.servers import client

ROOT = "{ropewalk:default}"


def relaxed(url: str, **options: Any) -> RedisStore:
    """A store on a server that need not keep what it acknowledged."""
    return RedisStore(url, durability="relaxed", **options)


class EagerRedisStore(RedisStore):
    """Packs the whole tail after every commit."""

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        pack(self, space, whole=True)


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
            space, sequence, _ = _find(looking, id)
            packed, _ = looking._span(space)
            segment = looking._segment(space, sequence)
        if segment is None:
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
            space, sequence, at = _find(looking, id)
            pack(looking, space, whole=True)
            records = looking._stretch(space, sequence)
        (one,) = (record for record in records if record.sequence == sequence)
        header = settled_header(one, lambda position: position != at)
        records[records.index(one)] = without(
            one, header, lambda place: place != place_of(sequence, at)
        )
        packed = build(space, records, heads_of(records))
        server.set(f"{ROOT}:segment:{packed.last}:{space}", encode_segment(packed))


def object_key(id: ObjectId) -> bytes:
    """Where a shared object is."""
    return f"{ROOT}:object:".encode() + id


def _find(store: RedisStore, id: ObjectId) -> tuple[str, int, int]:
    """Where a node is: its space, its record, and its position there."""
    return next(
        (space, record.sequence, at)
        for space in store.spaces()
        for record in store.records(space)
        for at, node in enumerate(record.nodes())
        if node is not None and node.id == id
    )


def flipped(data: bytes, at: int) -> bytes:
    """Bytes of which one bit is another."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)
