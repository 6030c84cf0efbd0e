"""Where a run of entries is cut into nodes. These numbers and rules are format.

A cut depends on the entry it follows and on how full the node is, never on history.
The chance of a cut grows with the entry's size, so nodes have about the same size
whatever the size of their entries.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

INLINE_MAX: Final = 2048
"""A part whose encoding is longer than this leaves its parent."""

KEY_MAX: Final = 65536
"""The longest encoding of a dict's key."""

NODE_MIN: Final = 2048
NODE_TARGET: Final = 6144
NODE_MAX: Final = 16384

_SPAN = NODE_TARGET - NODE_MIN


def mark(data: bytes) -> int:
    """32 bits that decide about a cut."""
    # A multiplication spreads what crc32 leaves alike in similar texts.
    return (crc32(data) * 0x9E3779B1) & 0xFFFFFFFF


def cuts_after(filled: int, size: int, marked: int) -> bool:
    """Whether a node of `filled` bytes ends after its last entry, of `size` bytes."""
    if filled < NODE_MIN:
        return False
    return filled >= NODE_MAX or marked * _SPAN < size << 32
