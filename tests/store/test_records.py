"""Records: what stands in a store beside objects, as bytes."""

from __future__ import annotations

from dataclasses import replace

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import FormatError, NewerFormat
from ropewalk.store import Move, Operation
from ropewalk.store.engine import (
    Header,
    decode_header,
    decode_operation,
    encode_header,
    encode_operation,
)

IDS = st.none() | st.binary(min_size=32, max_size=32)
WHOLE = st.integers(0, 2**62)
SCALARS = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | st.binary() | st.text()
OPERATIONS = st.builds(
    Operation,
    space=st.just("a/b"),
    sequence=WHOLE,
    moves=st.lists(st.builds(Move, st.text(), IDS, IDS), max_size=4).map(tuple),
    write_id=st.text(),
    time=WHOLE,
    epoch=WHOLE,
    metadata=st.dictionaries(st.text(), SCALARS, max_size=4),
)


@given(OPERATIONS)
def test_an_operation_comes_back(operation: Operation) -> None:
    assert decode_operation("a/b", encode_operation(operation)) == operation


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_format_error(data: bytes) -> None:
    with pytest.raises((FormatError, NewerFormat)):
        decode_operation("a/b", data)
    with pytest.raises((FormatError, NewerFormat)):
        decode_header(data)


@given(OPERATIONS, st.data())
def test_a_changed_record_is_read_or_a_format_error(
    operation: Operation, data: st.DataObject
) -> None:
    encoded = bytearray(encode_operation(operation))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))

    try:
        read = decode_operation("a/b", bytes(encoded))
    except FormatError:
        return

    assert isinstance(read, Operation)


@pytest.mark.parametrize(
    "record",
    [
        [1, 1, 1, "w", [["a", None]], {}],
        [1, 1, 1, "w", [["a", None, "text"]], {}],
        [1, 1, 1, "w", [], {"a": []}],
        [1, 1, 1, b"w", [], {}],
        [1, 1, 1, "w", []],
        {},
        7,
    ],
)
def test_a_wrong_record_is_refused(record: object) -> None:
    with pytest.raises(FormatError):
        decode_operation("a/b", ormsgpack.packb(record))


def test_a_header_comes_back() -> None:
    header = Header(b"0123456789abcdef")

    assert decode_header(encode_header(header)) == header


def test_a_newer_format_is_refused() -> None:
    header = Header(b"0123456789abcdef")

    with pytest.raises(NewerFormat, match="format 3"):
        decode_header(encode_header(replace(header, format=3)))
    with pytest.raises(NewerFormat, match="blake3"):
        decode_header(encode_header(replace(header, algorithm="blake3")))


def test_a_format_that_is_not_ours_is_refused() -> None:
    with pytest.raises(FormatError):
        decode_header(ormsgpack.packb(["sqlite", 1, "sha256", b""]))
    with pytest.raises(FormatError):
        decode_header(ormsgpack.packb(["ropewalk", 0, "sha256", b""]))
