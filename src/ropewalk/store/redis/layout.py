"""The keys and values of a store, their encoding and their checksums.

All keys begin with the root. Scripts write most of them: see scripts/common.lua, commit.lua and
pack.lua for the formats.

header            the id and format of the store
server            the restart count of the server, and the id of its current run
spaces, listed    the names of spaces, and the sum of the marks of all names
bytes             the approximate size of the store
objects           a hash: shared object, its description
object:ID         its frame
condemned         a hash: shared object, the mark of the collection that condemned it
space:NAME        a hash: '' is the row of the space; each ref is a field
tail:NAME         the list of the last records
segment:N:NAME    earlier records, up to number N, packed together
segments:NAME     a sorted set: the numbers N
index:NAME        a hash: the records of packed commits and keys
writes:NAME       8 bytes of a hash of each of the write ids before the tail
names:NAME        the set of shared objects that the space references
leases:NAME       a hash: the lease records; '' is the last token
staged:TOKEN      a segment that is not referenced yet
scratch:KEY       expiring values beside history
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha1
from typing import Final, NamedTuple
from zlib import crc32

from ropewalk.errors import Corrupt, FormatError
from ropewalk.store.model import Ref
from ropewalk.store.record import Row, seal
from ropewalk.store.segment import Packed
from ropewalk.tree.objects import ID_SIZE, Kind, ObjectId

MARKS: Final = 1 << 48
"""Sums of marks are modulo this."""
OVERHEAD: Final = 210
"""Approximate overhead of Redis per shared object, in bytes."""

_ROW: Final = re.compile(rb"(\d{1,16} ){4}\d{1,16}")
_CHECK: Final = 12
_CRC: Final = 4
_MARK: Final = 8
_BOUND: Final = 8


class SpaceRow(NamedTuple):
    """The row of a space."""

    last: int
    """The last record."""
    packed: int
    """The last record in a segment."""
    epoch: int
    """Added to the server's restart count to get the epoch."""
    refs: int
    """The sum of the marks of all refs."""
    buckets: int
    """How many entries the index has."""


NO_ROW: Final = SpaceRow(0, 0, 1, 0, 0)


class Layout:
    """The keys and the checksums of one store."""

    def __init__(self, root: str) -> None:
        self.root = root.encode()
        self.header = b""
        """Part of each check, so that what stands here belongs to this store."""

    def key(self, kind: str, space: str = "") -> bytes:
        """A key of the store, or of a space."""
        return self.root + (f":{kind}:{space}" if space else f":{kind}").encode()

    def check(self, *parts: bytes) -> bytes:
        """The checksum stored with some values, as the scripts compute it."""
        made = sha1(self.header + b"\0".join(parts), usedforsecurity=False)
        return made.hexdigest()[:_CHECK].encode()

    def mark(self, *parts: bytes) -> int:
        """The checksum as a number."""
        return int(self.check(*parts), 16)

    def read_row(self, space: str, text: bytes) -> SpaceRow:
        """Decode the row of a space; raises `Corrupt`."""
        body, _, mark = text.rpartition(b" ")
        if mark != self.check(space.encode(), body) or not _ROW.fullmatch(body):
            raise damaged_space(space)
        return SpaceRow(*map(int, body.split()))

    def read_ref(self, space: str, name: bytes, data: bytes, last: int) -> Ref:
        """Decode a ref; raises `Corrupt` if it is damaged or its record is missing."""
        target, check = data[:ID_SIZE], data[ID_SIZE : ID_SIZE + _CHECK]
        moved = data[ID_SIZE + _CHECK :]
        if check != self.check(space.encode(), name, target, moved) or int(moved) > last:
            raise Corrupt(
                f"ref {name!r:.80} of {space!r} is damaged, or records that it was moved by are "
                "lost. Restore the store from a copy; other spaces are not affected."
            )
        return Ref(name.decode(), target, int(moved))

    def read_refs(self, space: str, row: SpaceRow, fields: Mapping[bytes, bytes]) -> list[Ref]:
        """Decode all refs of a space, sorted; raises `Corrupt`, also if one is missing."""
        refs = [self.read_ref(space, name, data, row.last) for name, data in fields.items() if name]
        checks = [data[ID_SIZE : ID_SIZE + _CHECK] for name, data in fields.items() if name]
        if sum([int(check, 16) for check in checks]) % MARKS != row.refs:
            raise Corrupt(
                f"refs of {space!r} are lost. Restore the store from a copy; other spaces are not "
                "affected."
            )
        return sorted(refs)

    def read_entry(self, space: str, sequence: int, entry: bytes) -> Row:
        """Decode a record of the tail; raises `Corrupt`."""
        start = _MARK + 2 + (entry[_MARK + 1] if len(entry) > _MARK + 1 else 0)
        head, frame = entry[: start + _CRC], entry[start + _CRC : -_BOUND]
        bound = self.check(space.encode(), str(sequence).encode(), head)[:_BOUND]
        if entry[-_BOUND:] != bound or head[start:] != checksum(frame):
            raise Corrupt(
                f"record {sequence} of {space!r} is damaged. Restore the store from a copy; other "
                "spaces are not affected."
            )
        back = entry[_MARK]
        return Row(sequence, sequence - back if back else None, seal(space, sequence, frame))


def pairs(found: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """The fields of a hash from the server's reply."""
    return list(zip(found[::2], found[1::2], strict=True))


def checksum(frame: bytes) -> bytes:
    """The checksum before a frame in the tail."""
    return crc32(frame).to_bytes(_CRC, "little")


def write_mark(write_id: str) -> bytes:
    """The hash of a write id that is stored with its record."""
    return sha1(write_id.encode(), usedforsecurity=False).digest()[:_MARK]


def index_digits(kind: bytes, name: bytes) -> tuple[bytes, bytes]:
    """The index bucket of a commit or key, and its name there."""
    digits = sha1(kind + name, usedforsecurity=False).hexdigest().encode()
    return digits[:2], digits[2:18]


def listed_in(bucket: bytes, name: bytes) -> list[int]:
    """The records a bucket lists for a name."""
    rows = [row.partition(b":") for row in bucket[_BOUND:].split(b",")]
    return [int(sequence) for found, _, sequence in rows if found == name and sequence.isdigit()]


def encode_segment(packed: Packed) -> bytes:
    """Encode a segment."""
    said = f"{packed.first} {packed.last} {len(packed.head)}\n"
    return said.encode() + packed.head + packed.data


def decode_segment(space: str, data: bytes) -> Packed:
    """Decode a segment; raises `Corrupt`. Its blocks have checksums of their own."""
    said, _, rest = data.partition(b"\n")
    try:
        first, last, size = map(int, said.split())
    except ValueError:
        raise Corrupt(
            f"a segment of {space!r} is damaged. Restore the store from a copy; other spaces are "
            "not affected."
        ) from None
    return Packed(first, last, rest[:size], rest[size:])


def read_about(id: ObjectId, about: bytes) -> tuple[Kind, int, int, bool]:
    """Kind, length, stored bytes, and whether it has links; raises `FormatError`."""
    try:
        kind, length, stored, leads = map(int, about.split())
        if len(id) == ID_SIZE:
            return Kind(kind), length, stored, bool(leads)
    except ValueError:
        pass
    raise FormatError(f"what is said of shared object {id.hex():.12} is damaged")


def damaged_space(space: str) -> Corrupt:
    """The error for a space whose values are damaged."""
    return Corrupt(
        f"{space!r} is damaged: its row, or rows of its log or its refs, are not as they were "
        "written. Restore the store from a copy; other spaces are not affected."
    )
