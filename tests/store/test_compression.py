"""Frames: small, exact, and safe to read whoever wrote them."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ropewalk.errors import FormatError
from ropewalk.store.compression import (
    CURRENT,
    MAX_LENGTH,
    compress,
    dictionary_bytes,
    expand,
    varint,
)
from ropewalk.testing.helpers import in_threads

PAYLOADS = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=300).map(str.encode),
    st.builds(lambda piece, count: piece * count, st.binary(max_size=40), st.integers(0, 500)),
)


@given(PAYLOADS, st.booleans())
@example(b"", False)
@example(b"x" * 5000, True)
def test_a_frame_gives_its_bytes_back(data: bytes, small: bool) -> None:
    frame = compress(data, small=small)

    assert expand(frame) == data
    assert len(frame) <= len(data) + 5


@given(PAYLOADS, PAYLOADS.filter(bool))
def test_a_frame_with_a_dictionary_gives_its_bytes_back(data: bytes, dictionary: bytes) -> None:
    frame = compress(dictionary + data, dictionary)

    assert expand(frame, dictionary) == dictionary + data


def test_what_is_in_the_dictionary_takes_no_room() -> None:
    text = random.Random(1).randbytes(5000)

    assert len(compress(text + b"and one word more", text)) < 100


def test_a_frame_is_not_read_without_its_dictionary() -> None:
    text = random.Random(1).randbytes(500)

    with pytest.raises(FormatError, match="dictionary"):
        expand(compress(text, text))


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x00")
@example(b"\x00\x80")
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    try:
        found = expand(data)
    except FormatError:
        return

    assert expand(compress(found)) == found


@given(PAYLOADS, st.data())
def test_a_frame_that_was_cut_or_grew_is_not_taken_for_another(
    data: bytes, draw: st.DataObject
) -> None:
    frame = compress(data)
    cut = draw.draw(st.integers(0, len(frame) - 1))

    for other in (frame[:cut], frame + b"x"):
        with pytest.raises(FormatError):
            expand(other)


@pytest.mark.parametrize("length", [MAX_LENGTH + 1, 1 << 62])
def test_a_frame_cannot_ask_for_more_memory_than_is_allowed(length: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="promises"):
            expand(bytes((CURRENT,)) + varint(length) + b"\x00" * 50)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20


def test_an_unknown_dictionary_is_refused() -> None:
    with pytest.raises(FormatError):
        expand(bytes((CURRENT + 1,)) + varint(30) + bytes(30))
    with pytest.raises(FormatError, match="dictionary"):
        dictionary_bytes(CURRENT + 1)


def test_frames_written_before_can_be_read_for_ever() -> None:
    frame = bytes.fromhex(FRAME)

    assert expand(frame) == TEXT


def test_threads_share_compressors() -> None:
    texts = [
        f"step {number} of many, with a thought and a plan".encode() * 9 for number in range(40)
    ]

    def work(number: int) -> None:
        for text in texts[number::2]:
            assert expand(compress(text)) == text

    in_threads(4, work)


TEXT = b'{"role": "assistant", "content": "The weather is fine."}' * 3
FRAME = (
    "01a8018d01001342073be080f3f9b3edcfbdcf2e1c78150e70e05138c08157e1c05b9c39908304fc6def0456ca"
    "de5d5fae234725bdcc01"
)
