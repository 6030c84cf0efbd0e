"""Values that somebody planted who knows how ours are spelled: nothing of them runs, nothing takes
more memory than it should, and an error says what is wrong."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from ropewalk import Timeline
from ropewalk.errors import Corrupt, RopewalkError
from ropewalk.store import RedisStore, Store
from ropewalk.store.compression import compress, varint
from ropewalk.store.packer import pack
from ropewalk.store.redis.layout import checksum, encode_segment
from ropewalk.store.segment import Packed
from ropewalk.store.segment import _checksum as head_checksum
from ropewalk.tree import Kind
from tests.store.redis.contract import ROOT, object_key, relaxed
from tests.store.redis.servers import client

AGENT = "researcher"
SPACE = f"agents/{AGENT}"
DEEP = b"\x91" * 200_000
MOST_BYTES = 400 << 20


class Planter:
    """Plants values in the place of those of a store, with the checks that belong to them."""

    def __init__(self, url: str) -> None:
        self.server: Any = client(url)
        self.store = relaxed(url)
        self.layout = self.store._layout

    def row(self, body: bytes) -> None:
        check = self.layout.check(SPACE.encode(), body)
        self.server.hset(f"{ROOT}:space:{SPACE}", "", body + b" " + check)

    def record(self, frame: bytes, *, back: int = 0) -> None:
        """Put a frame in the place of the last record."""
        sequence = str(self.store._span(SPACE)[1]).encode()
        head = bytes(8) + bytes((back, 0)) + checksum(frame)
        bound = self.layout.check(SPACE.encode(), sequence, head)[:8]
        self.server.lset(f"{ROOT}:tail:{SPACE}", -1, head + frame + bound)

    def ref(self, target: bytes) -> None:
        name = next(name for name in self.server.hkeys(f"{ROOT}:space:{SPACE}") if name)
        old = self.server.hget(f"{ROOT}:space:{SPACE}", name)
        check = self.layout.check(SPACE.encode(), name, target, old[44:])
        self.server.hset(f"{ROOT}:space:{SPACE}", name, target + check + old[44:])
        last, packed, epoch, _, buckets, _ = self.server.hget(f"{ROOT}:space:{SPACE}", "").split()
        self.row(b" ".join([last, packed, epoch, str(int(check, 16)).encode(), buckets]))

    def segment(self, head: bytes, data: bytes = b"") -> None:
        """Put a segment in the place of all records."""
        pack(self.store, SPACE, whole=True)
        last = self.store._span(SPACE)[1]
        sealed = compress(head, small=True)
        packed = Packed(1, last, head_checksum(SPACE, sealed) + sealed, data)
        self.server.set(f"{ROOT}:segment:{last}:{SPACE}", encode_segment(packed))

    def shared(self, frame: bytes) -> None:
        id = self.server.hkeys(f"{ROOT}:objects")[0]
        self.server.set(object_key(id), frame)


def bomb(length: int) -> bytes:
    """A frame that promises more than it holds."""
    return b"\x3f" + varint(length) + bytes(20)


def record(*parts: bytes, nodes: int = 0) -> bytes:
    """A frame of a record with a header, a count and what follows."""
    header, *rest = parts
    return compress(varint(len(header)) + header + varint(nodes) + b"".join(rest))


class Runs:
    """What runs if somebody unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


HEADER = ormsgpack.packb([1, 1, b"x" * 16, [], {}])

PLANTS: dict[str, Callable[[Planter, bytes], None]] = {
    "a row of huge numbers": lambda it, _: it.row(b"9" * 300 + b" 0 1 0 0"),
    "a row that counts records that are not there": lambda it, _: it.row(b"4000000000 0 1 0 0"),
    "a row of few numbers": lambda it, _: it.row(b"3 0"),
    "a row that is deep": lambda it, _: it.row(DEEP),
    "a record that promises a gigabyte": lambda it, _: it.record(bomb(1 << 30)),
    "a record that promises what may be": lambda it, _: it.record(bomb(200 << 20)),
    "a record with a deep header": lambda it, _: it.record(record(DEEP)),
    "a record with a header of other types": lambda it, _: it.record(
        record(ormsgpack.packb([{}, [], 1.5, [[1, 2, 3]], [1]]))
    ),
    "a record that leans on itself": lambda it, _: it.record(b"\x40\x7f" + bytes(9), back=15),
    "a record of a million nodes": lambda it, _: it.record(record(HEADER, nodes=1_000_000)),
    "a record with a pickle": lambda it, pickled: it.record(
        record(HEADER, bytes((Kind.VALUE, len(pickled), 0, 0)), pickled, nodes=1)
    ),
    "a header that is a pickle": lambda it, pickled: it.record(record(pickled)),
    "no frame": lambda it, _: it.record(b""),
    "a ref to nothing": lambda it, _: it.ref(bytes(32)),
    "a segment of a billion records": lambda it, _: it.segment(
        varint(1) + varint(1 << 30) + varint(2) + bytes(10)
    ),
    "a segment with a billion nodes": lambda it, _: it.segment(
        varint(1) + varint(4) + varint(2) + (varint(0) + bytes(4)) * 2 + varint(1 << 30)
    ),
    "a segment of deep bytes": lambda it, _: it.segment(DEEP),
    "a segment with a pickle": lambda it, pickled: it.segment(pickled),
    "a shared object that is a pickle": lambda it, pickled: it.shared(
        bytes((Kind.CHUNK,)) + compress(pickled)
    ),
    "a shared object that promises a gigabyte": lambda it, _: it.shared(
        bytes((Kind.CHUNK,)) + bomb(1 << 30)
    ),
}


@pytest.fixture
def planter(redis_url: str) -> Iterator[Planter]:
    with relaxed(redis_url) as store:
        agent = Timeline(AGENT, store)
        for number in range(4):
            agent.checkpoint({"number": number, "text": bytes(range(256)) * 200})
    it = Planter(redis_url)
    yield it
    it.store.close()
    it.server.close()


QUESTIONS: tuple[Callable[[Store], object], ...] = (
    lambda store: Timeline(AGENT, store).get_state(),
    lambda store: [step.state for step in Timeline(AGENT, store).history()],
    lambda store: store.operations(SPACE),
    lambda store: store.commit(SPACE),
    lambda store: store.gc(recent=1),
    lambda store: store.stats(),
)


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_planted_runs_nothing_and_is_a_specific_error(
    planter: Planter, redis_url: str, plant: str, tmp_path: Path
) -> None:
    proof = tmp_path / "it ran"
    PLANTS[plant](planter, pickle.dumps(Runs(proof)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    failed: list[RopewalkError] = []
    with RedisStore(redis_url, durability="relaxed") as store:
        for question in QUESTIONS:
            try:
                question(store)
            except RopewalkError as error:
                failed.append(error)
        problems = store.check(read_data=True).problems

    assert problems, "check finds it"
    assert any(isinstance(error, Corrupt) for error in failed) or "ref to nothing" in plant
    assert all(str(error) and "\\x91\\x91" not in str(error)[:2000] for error in failed)
    assert not proof.exists()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert used < MOST_BYTES // 1024


def test_a_lease_that_is_planted_is_a_specific_error(redis_url: str) -> None:
    with relaxed(redis_url) as store, client(redis_url) as server:
        for data in (b"1 " + DEEP, b"x", b"", b"1 " + ormsgpack.packb([1, "x", 2])):
            server.hset(f"{ROOT}:leases:{SPACE}", f"{SPACE}/lease/x", data)
            with pytest.raises(Corrupt):
                store.leases(SPACE)
