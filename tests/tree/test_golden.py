"""Roots that are format: a change here means that stored data is read as something else.

The table was made once, by this code. If a root changes, the change is a migration.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from ropewalk.tree.build import cut_bytes
from tests.sample_types import Color, Item, Money, Note, Person, Point
from tests.tree.support import root_of


def _bytes(length: int) -> bytes:
    """Bytes that no library's random numbers decide."""
    blocks = [hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(length // 32)]
    return b"".join(blocks)


def _text(length: int) -> str:
    words = [f"word {byte}" for byte in _bytes(length)]
    return " ".join(words)[:length]


_VALUES: dict[str, Any] = {
    "nothing": lambda: None,
    "a small state": lambda: {"step": 1, "task": "find cafes", "done": False, "score": 0.5},
    "atoms": lambda: [
        1, 1.0, True, "é", b"\0", bytearray(b"\0"), 2**70, (1, 2), {1, 2}, {1: 2}, Color.RED,
        datetime(2024, 2, 29, 12, tzinfo=UTC), UUID(int=5), Point(1, 2), Money(5, "EUR"),
    ],
    "a list of one leaf": lambda: ["x" * 100 for _ in range(30)],
    "a list of two levels": lambda: [f"item {at}" * 5 for at in range(3000)],
    "a list of three levels": lambda: [f"item {at}" * 5 for at in range(50_000)],
    "a list of equal items": lambda: ["same"] * 100_000,
    "a tuple": lambda: tuple(range(3000)),
    "a set": lambda: set(range(3000)),
    "a frozenset": lambda: frozenset(map(str, range(3000))),
    "a dict in sorted order": lambda: {f"key {at:05d}": at for at in range(3000)},
    "a dict in another order": lambda: {f"key {at}": at for at in reversed(range(3000))},
    "a dict of numbers": lambda: {at: str(at) for at in range(3000)},
    "a dict with long keys": lambda: {letter * 5000: letter for letter in "cabd"},
    "a record": lambda: Note("x" * 3000, list(range(2000))),
    "a model": lambda: Person(name="x" * 3000),
    "a struct": lambda: Item("x" * 3000, [1] * 3000),
    "a custom value": lambda: Money(5, "x" * 3000),
    "a long text": lambda: _text(300_000),
    "a text of one chunk": lambda: _text(2050),
    "long bytes": lambda: _bytes(320_000),
    "a long bytearray": lambda: bytearray(_bytes(32_000)),
    "an array": lambda: np.arange(10_000, dtype="<i4").reshape(100, 100),
    "a large integer": lambda: int.from_bytes(b"\x01" + _bytes(9600), "big"),
    "a nested value": lambda: {
        "messages": [{"role": "user", "text": _text(50 + at % 900)} for at in range(300)],
        "files": {f"src/file {at}.py": _text(100 * at) for at in range(60)},
        "note": Note({"deep": [[[_bytes(3200)]]]}, ("x" * 3000, 1)),
    },
}  # fmt: skip

_ROOTS = {
    "nothing": "32444d1ca2314b6449d98ed53575e1d1dca3e826e1d622fee4502e355a21dd85",
    "a small state": "4cba77f01f4be762d79811be9cc2c3aa422ff052148211e60204d31cc8cb2e14",
    "atoms": "fbd2e15cd5462a5edfb5d49d48e87ecc497cd942789dde342a83ef8d7faaa477",
    "a list of one leaf": "fd5e8346639bfbf19d2f04151b39d35358900451ad4200682a32647309c6d1f6",
    "a list of two levels": "dd8f2a693928775bf9a7594bdbda885ffc5875b81e8ebb6087537773a67983da",
    "a list of three levels": "040c67a90c8bc24572a4266399f47b58d0a6d5f1816af93127036bc2cc79ec4f",
    "a list of equal items": "e25f7ffa8363c08d805773bab09af99d56ac19b37d6509b30c88f7f24a2b5abf",
    "a tuple": "7cc111d9ecc50ba8575d059526b4c388573d2ab10eff0debda3a45f5e5197ec8",
    "a set": "9c29bbddeb549e0e9fe8c7cb46a631fd074e8a5133cceaf9744f67fa42903bdd",
    "a frozenset": "6d0e10322d756107d7ab13e83030c7872dfc4323919009105d7116ff60700af7",
    "a dict in sorted order": "da8da08d9353b2a46a569ff6bc89499e6eada8d382dd8826e4f0dd6eb6e28332",
    "a dict in another order": "06ae8df3fffd97946e0346e61027226054b26daab82241a6251f8e3ad612c522",
    "a dict of numbers": "9b724ed60aac346c8b6ab620fffcde0a93be284e827ed5f4844f7967c65521da",
    "a dict with long keys": "1794426f8d392a0716742714967d7b7cffe53e06e576ebd76ca62c0623b105a3",
    "a record": "e423e31fec7c16fff2c77d43943d721799935b61de60513f4ef94590355ae84e",
    "a model": "3b563e12e2ed044bbf2444561d74aec9607ccaeda4d181813bb4b99726b4c5db",
    "a struct": "65436ee34650b3a8a9a20c22ba5992518c65eddbd0c23449fe08513385315a7f",
    "a custom value": "48f6bb154347a14a8809d984a4c14b63663e4b86d514b5bfd5c087fa7fcaa6ce",
    "a long text": "9df5e115e504e41cec3f43d85279589c3e2a9d5f514bcf58a53d7fbc5645b803",
    "a text of one chunk": "b88f8b44f697d997c9840856a62e8c717b683f491e27db04ca8e75e14b2ee719",
    "long bytes": "3081ac491d5780291c3bebffe198c29b4703c480215117fd7ea69c19d4d86678",
    "a long bytearray": "d14331f1e964b4f0c4a21c4b1d0fe291737bf7e05aa6383e568ff045c91cf8e8",
    "an array": "9ba43efd2947ed8e837cebc05815d3fbf99f0f84f51e4cb98420d0ad91d67a58",
    "a large integer": "70d14b21ad021835f4dcaa4eba4674c59a17a105454a51e3ea471407c191a586",
    "a nested value": "6dd1574fe1764a9880cc1f4caea4628521d819ec4d591c129d1fca0f5ec9bc91",
}


@pytest.mark.parametrize("name", _VALUES)
def test_the_root_of_a_value_is_format(name: str) -> None:
    assert root_of(_VALUES[name]()).hex() == _ROOTS[name]


def test_where_bytes_are_cut_is_format() -> None:
    sizes = [len(chunk) for chunk in cut_bytes(_bytes(320_000))]

    assert sizes[:8] == [10042, 11813, 11812, 9646, 10946, 25441, 3063, 7614]
    assert len(sizes) == 31
