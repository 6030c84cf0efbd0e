"""What msgpack would store as bytes comes back as what it was, whatever stands beside it."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from ropewalk.codec import Codec
from ropewalk.errors import ChangedMeanwhile, NotStorable

CODEC = Codec()
LOOKS_BINARY = 13.436
"""A number whose encoding has bytes that could begin a binary value."""


@pytest.mark.parametrize("fill", [0, 10, 100_000])
@pytest.mark.parametrize(
    "value",
    [b"x", bytearray(b"x"), [b"x", bytearray(b"x")], {"a": [bytearray(b"x")]}, ["bytearray", b"x"]],
)
def test_bytes_and_bytearrays_come_back_as_such(value: Any, fill: int) -> None:
    given = {"value": value, "numbers": [LOOKS_BINARY] * fill}

    again = CODEC.decode(CODEC.encode(given))

    assert again == given
    assert repr(again["value"]) == repr(value)


@pytest.mark.parametrize("depth", [10, 200])
def test_a_deep_value_with_bytes_is_stored(depth: int) -> None:
    given: Any = [b"x", LOOKS_BINARY]
    for _ in range(depth):
        given = [given]

    assert CODEC.decode(CODEC.encode(given)) == given


def test_a_memoryview_is_refused_beside_numbers() -> None:
    with pytest.raises(NotStorable, match="memoryview"):
        CODEC.encode({"numbers": [LOOKS_BINARY], "view": memoryview(b"x")})


def test_a_bytearray_that_another_thread_swaps_for_bytes_is_never_mistaken() -> None:
    value: dict[str, Any] = {"number": LOOKS_BINARY, "data": b"bytes"}
    over, interval = threading.Event(), sys.getswitchinterval()

    def swap() -> None:
        while not over.is_set():
            value["data"] = bytearray(b"array")
            value["data"] = b"bytes"

    swapping = threading.Thread(target=swap)
    sys.setswitchinterval(1e-6)
    swapping.start()
    try:
        for _ in range(3000):
            try:
                data = CODEC.decode(CODEC.encode(value))["data"]
            except ChangedMeanwhile:
                continue
            assert type(data) is (bytearray if data == b"array" else bytes)
    finally:
        over.set()
        swapping.join()
        sys.setswitchinterval(interval)
