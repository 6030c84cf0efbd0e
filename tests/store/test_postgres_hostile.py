"""Rows that somebody planted in Postgres who knows how ours are spelled: nothing of them runs,
nothing takes more memory than it should, and an error says what is wrong."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from ropewalk import Timeline
from ropewalk.errors import Corrupt, RopewalkError
from ropewalk.store import PostgresStore
from ropewalk.store.compression import compress, varint
from ropewalk.store.packer import pack
from ropewalk.store.record import seal
from ropewalk.store.segment import _checksum as head_checksum
from ropewalk.tree import Kind
from tests.store.redis.test_hostile import (
    AGENT,
    DEEP,
    HEADER,
    MOST_BYTES,
    QUESTIONS,
    SPACE,
    Runs,
    bomb,
    record,
)


class Planter:
    """Plants values in the place of those of a store, with the checksums that belong to them."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url)
        self._db = psycopg.connect(url, autocommit=True)

    def row(self, change: str) -> None:
        self._db.execute(f"UPDATE ropewalk.spaces SET {change}".encode())

    def ref(self, target: bytes) -> None:
        self._db.execute("UPDATE ropewalk.refs SET target = %s", (target,))

    def record(self, frame: bytes, *, leans_on: int | None = None) -> None:
        """Put a frame in the place of the last record."""
        sequence = self.store._span(SPACE)[1]
        self._db.execute(
            "UPDATE ropewalk.tail SET frame = %s, dictionary = %s WHERE sequence = %s",
            (seal(SPACE, sequence, frame), leans_on, sequence),
        )

    def segment(self, head: bytes, data: bytes = b"") -> None:
        """Put a segment in the place of all records."""
        pack(self.store, SPACE, whole=True)
        sealed = compress(head, small=True)
        self._db.execute(
            "UPDATE ropewalk.segments SET head = %s, data = %s",
            (head_checksum(SPACE, sealed) + sealed, data),
        )

    def shared(self, frame: bytes) -> None:
        self._db.execute("UPDATE ropewalk.shared SET frame = %s", (frame,))

    def close(self) -> None:
        self._db.close()
        self.store.close()


PLANTS: dict[str, Callable[[Planter, bytes], None]] = {
    "a space of a billion records": lambda it, _: it.row("sequence = 2000000000"),
    "a space that is packed further than it goes": lambda it, _: it.row("packed = 2000000000"),
    "a space before its beginning": lambda it, _: it.row("sequence = -5, packed = -9"),
    "a ref to nothing": lambda it, _: it.ref(bytes(32)),
    "a ref that is a pickle": lambda it, pickled: it.ref(pickled),
    "a record that promises a gigabyte": lambda it, _: it.record(bomb(1 << 30)),
    "a record that promises what may be": lambda it, _: it.record(bomb(200 << 20)),
    "a record with a deep header": lambda it, _: it.record(record(DEEP)),
    "a record that leans on itself": lambda it, _: it.record(b"\x40\x7f" + bytes(9), leans_on=4),
    "a record of a million nodes": lambda it, _: it.record(record(HEADER, nodes=1_000_000)),
    "a record with a pickle": lambda it, pickled: it.record(
        record(HEADER, bytes((Kind.VALUE, len(pickled), 0, 0)), pickled, nodes=1)
    ),
    "a header that is a pickle": lambda it, pickled: it.record(record(pickled)),
    "no frame": lambda it, _: it.record(b""),
    "a segment of a billion records": lambda it, _: it.segment(
        varint(1) + varint(1 << 30) + varint(2) + bytes(10)
    ),
    "a segment with a billion nodes": lambda it, _: it.segment(
        varint(1) + varint(4) + varint(2) + (varint(0) + bytes(4)) * 2 + varint(1 << 30)
    ),
    "a segment of deep bytes": lambda it, _: it.segment(DEEP),
    "a segment with a pickle": lambda it, pickled: it.segment(pickled),
    "a shared object that is a pickle": lambda it, pickled: it.shared(compress(pickled)),
    "a shared object that promises a gigabyte": lambda it, _: it.shared(bomb(1 << 30)),
}


@pytest.fixture
def planter(postgres_url: str) -> Iterator[Planter]:
    with PostgresStore(postgres_url) as store:
        agent = Timeline(AGENT, store)
        for number in range(4):
            agent.checkpoint({"number": number, "text": bytes(range(256)) * 200})
    it = Planter(postgres_url)
    yield it
    it.close()


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_planted_runs_nothing_and_is_a_specific_error(
    planter: Planter, postgres_url: str, plant: str, tmp_path: Path
) -> None:
    proof = tmp_path / "it ran"
    PLANTS[plant](planter, pickle.dumps(Runs(proof)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    failed: list[RopewalkError] = []
    try:
        with PostgresStore(postgres_url) as store:
            for question in QUESTIONS:
                try:
                    question(store)
                except RopewalkError as error:
                    failed.append(error)
            problems = store.check(read_data=True).problems
    except Corrupt as error:
        failed.append(error)
        problems = (str(error),)  # type: ignore[assignment]

    assert problems, "check finds it"
    assert any(isinstance(error, Corrupt) for error in failed)
    assert all(str(error) and "\\x91\\x91" not in str(error)[:2000] for error in failed)
    assert not proof.exists()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert used < MOST_BYTES // 1024


def test_a_lease_that_is_planted_is_a_specific_error(planter: Planter, postgres_url: str) -> None:
    lease = planter.store.acquire(SPACE, "lease/x", "me", 10.0)
    assert lease is not None
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("UPDATE ropewalk.leases SET holder = %s", (b"\xff" * 9,))
        with pytest.raises(Corrupt, match="holder"):
            planter.store.leases(SPACE)
