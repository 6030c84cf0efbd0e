"""Rows by which packed records are found, for engines without an index of their own.

24 bytes for each commit and each key: what it is (1 byte, 0 or the length of the key), 16 bytes
of it, the record (7 bytes). There may be other records among those that are found.
"""

from __future__ import annotations

from typing import Final

from ropewalk.tree.objects import ObjectId

_SEQUENCE: Final = 7
_NAME: Final = 16
_ROW: Final = 1 + _NAME + _SEQUENCE


def commit_name(id: ObjectId) -> bytes:
    """What a commit is found by."""
    return b"\0" + id[:_NAME]


def key_name(key: bytes) -> bytes:
    """What the key of an operation is found by."""
    return bytes((len(key),)) + key.ljust(_NAME, b"\0")


def lookup_row(name: bytes, sequence: int) -> bytes:
    """That a record brings this."""
    return name + sequence.to_bytes(_SEQUENCE, "big")


def find_rows(rows: bytes, name: bytes) -> list[int]:
    """The records that bring this, in the order of the rows."""
    found: list[int] = []
    at = rows.find(name)
    while at >= 0:
        if at % _ROW == 0:
            found.append(int.from_bytes(rows[at + len(name) : at + _ROW], "big"))
        at = rows.find(name, at + 1)
    return found
