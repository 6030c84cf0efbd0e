"""The built-in compression dictionaries, by number.

A dictionary is part of the format: a number once published stands for the same
bytes for ever. `tools/train_dictionary.py` makes them, from synthetic data.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

from ropewalk.errors import FormatError

CURRENT = 1
"""The number that new frames are written with."""

_DIGESTS = {
    1: "84002db48a849f1e4b92e13602f76351d60328ae966a6d6e06336553462a8740",
}


@cache
def dictionary_bytes(number: int) -> bytes:
    """The bytes of a built-in dictionary; `FormatError` if this version has none."""
    if number not in _DIGESTS:
        raise FormatError(f"no built-in dictionary has number {number} in this version")
    # Not `pkgutil`: to import it takes as long as the first read of a process.
    data = Path(__file__).with_name("dictionaries").joinpath(f"{number}.zdict").read_bytes()
    if sha256(data).hexdigest() != _DIGESTS[number]:
        raise FormatError(
            f"built-in dictionary {number} is not the one that was published: install again"
        )
    return data
