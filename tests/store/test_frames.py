"""Frames: small, exact, and safe to read whoever wrote them."""

from __future__ import annotations

import random
import tracemalloc
from hashlib import sha256

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from ropewalk.errors import FormatError, InvalidInput
from ropewalk.store import (
    MAX_DEPTH,
    MAX_PAYLOAD,
    decode_frame,
    encode_delta,
    encode_whole,
    frame_base,
    frame_depth,
    parse_header,
)
from ropewalk.store._dictionaries import CURRENT, dictionary_bytes
from ropewalk.testing._stores._base import in_threads
from ropewalk.tree import Kind, ObjectId, object_id

KINDS = st.sampled_from(list(Kind))
PAYLOADS = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=300).map(str.encode),
    st.builds(lambda piece, count: piece * count, st.binary(max_size=40), st.integers(0, 500)),
)


def identify(payload: bytes) -> ObjectId:
    return object_id(Kind.VALUE, payload)


@given(KINDS, PAYLOADS)
@example(Kind.VALUE, b"")
@example(Kind.COMMIT, b"x" * 128)
def test_a_whole_frame_gives_its_payload_back(kind: Kind, payload: bytes) -> None:
    frame = encode_whole(kind, payload)

    assert decode_frame(frame) == (kind, payload)
    assert frame_base(frame) is None
    assert frame_depth(frame) == 0
    assert len(frame) <= len(payload) + 6


@given(KINDS, PAYLOADS, PAYLOADS, st.integers(1, MAX_DEPTH), st.booleans())
def test_a_frame_with_a_base_gives_its_payload_back(
    kind: Kind, payload: bytes, base: bytes, depth: int, grown: bool
) -> None:
    payload = (base + payload if grown else payload) or b"not empty"

    frame = encode_delta(kind, payload, identify(base), base, depth)

    assert decode_frame(frame, base) == (kind, payload)
    assert frame_base(frame) == identify(base)
    assert frame_depth(frame) == depth


@given(st.binary(max_size=200), st.none() | st.binary(max_size=50))
def test_any_bytes_are_a_frame_or_a_format_error(data: bytes, base: bytes | None) -> None:
    try:
        kind, payload = decode_frame(data, base)
    except FormatError:
        return

    assert kind in Kind
    assert len(payload) <= MAX_PAYLOAD


@given(PAYLOADS, st.data())
def test_a_changed_frame_is_a_format_error_or_another_payload(
    payload: bytes, data: st.DataObject
) -> None:
    base = payload[: len(payload) // 2] + b"base"
    frames = [encode_whole(Kind.VALUE, payload)]
    if payload:
        frames.append(encode_delta(Kind.VALUE, payload, identify(base), base, 1))
    frame = bytearray(data.draw(st.sampled_from(frames)))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))

    try:
        kind, read = decode_frame(bytes(frame), base)
    except FormatError:
        return

    assert len(read) <= MAX_PAYLOAD
    assert kind in Kind


@pytest.mark.parametrize("payload", [b"", b"x", b"word " * 200, random.Random(1).randbytes(900)])
def test_a_frame_that_is_cut_or_has_more_behind_it_is_refused(payload: bytes) -> None:
    frames = [encode_whole(Kind.VALUE, payload)]
    if payload:
        frames.append(encode_delta(Kind.VALUE, payload, identify(b"b"), b"b", 1))
    for frame in frames:
        for size in range(len(frame)):
            with pytest.raises(FormatError):
                decode_frame(frame[:size], b"b")
        with pytest.raises(FormatError):
            decode_frame(frame + b"\x00", b"b")


def test_a_seeded_storm_of_changes_raises_nothing_else() -> None:
    chance = random.Random(20_240)
    base = b"the base of it all " * 20
    frames = [
        encode_whole(Kind.ITEMS, b"some words that repeat " * 30),
        encode_whole(Kind.VALUE, chance.randbytes(200)),
        encode_delta(Kind.PAIRS, base + b"and more", identify(base), base, 3),
    ]
    for _ in range(20_000):
        frame = bytearray(chance.choice(frames))
        for _ in range(chance.randint(1, 4)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        cut = chance.randrange(len(frame) + 1) if chance.random() < 0.2 else len(frame)
        try:
            decode_frame(bytes(frame[:cut]), base)
        except FormatError:
            continue


def test_a_bomb_takes_no_more_memory_than_a_payload_may() -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 28))
    blocks = bomb[10:]
    hostile = [
        bytes((CURRENT, Kind.VALUE)) + length + blocks
        for length in (b"\x01", b"\xff\x7f", b"\x80\x80\x80\x08", b"\xff\xff\xff\x7f")
    ]
    tracemalloc.start()
    try:
        for frame in hostile:
            with pytest.raises(FormatError):
                decode_frame(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 3 * MAX_PAYLOAD


def test_the_largest_payload_fits_and_one_more_byte_does_not() -> None:
    largest = random.Random(3).randbytes(MAX_PAYLOAD // 2) * 2

    assert decode_frame(encode_whole(Kind.CHUNK, largest)) == (Kind.CHUNK, largest)
    with pytest.raises(InvalidInput):
        encode_whole(Kind.CHUNK, largest + b"x")
    with pytest.raises(InvalidInput):
        encode_delta(Kind.CHUNK, largest + b"x", identify(b""), b"", 1)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "short"),
        (b"\x00\x01", "short"),
        (b"\x00\x63\x00", "unknown kind"),
        (b"\x00\x01\x80\x00", "shortest"),
        (b"\x00\x01\x80\x80\x80\x80\x01", "too long"),
        (b"\x00\x01\xff\xff\xff\x7f", "the most is"),
        (b"\x02\x01\x05hello", "number 2"),
        (b"\x40\x01\x05hello", "unknown tag"),
        (b"\x49\x01\x05hello", "unknown tag"),
        (b"\xff\x01\x05hello", "unknown tag"),
        (b"\x41\x01\x05hello", "id of its base"),
        (b"\x01\x01\x00", "empty"),
        (b"\x00\x01\x06hello", "promises 6"),
    ],
)
def test_a_wrong_header_is_refused_with_its_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode_frame(frame)


def test_a_frame_with_a_base_is_not_read_without_it() -> None:
    frame = encode_delta(Kind.VALUE, b"payload", identify(b"base"), b"base", 1)

    with pytest.raises(FormatError, match="without it"):
        decode_frame(frame)


def test_a_small_change_makes_a_small_frame() -> None:
    base = random.Random(5).randbytes(4000)
    changed = base[:2000] + b"changed" + base[2000:]

    assert len(encode_whole(Kind.VALUE, changed)) > 4000
    assert len(encode_delta(Kind.VALUE, changed, identify(base), base, 1)) < 100


def test_the_dictionary_helps_with_what_agents_say() -> None:
    payload = b'{"role": "assistant", "content": "Here is a summary of the results so far."}'

    assert len(encode_whole(Kind.VALUE, payload)) < 0.8 * len(payload)


def test_frames_written_before_can_be_read_for_ever() -> None:
    """The bytes are the format: if this fails, stored data can no longer be read."""
    base = b"All work and no play makes Jack a dull boy. " * 3
    payload = base + b"All work and play."

    whole = bytes.fromhex(WHOLE)
    delta = bytes.fromhex(DELTA)

    assert decode_frame(b"\x00\x01\x03raw") == (Kind.VALUE, b"raw")
    assert decode_frame(whole) == (Kind.ITEMS, payload)
    assert decode_frame(delta, base) == (Kind.ITEMS, payload)
    assert parse_header(delta) == (66, Kind.ITEMS, len(payload), identify(base), 2, 36)


def test_the_published_dictionary_has_not_changed() -> None:
    data = dictionary_bytes(1)

    assert len(data) <= 32 * 1024
    assert sha256(data).hexdigest() == (
        "84002db48a849f1e4b92e13602f76351d60328ae966a6d6e06336553462a8740"
    )
    with pytest.raises(FormatError):
        dictionary_bytes(2)


def test_threads_do_not_disturb_each_other() -> None:
    def work(number: int) -> None:
        payload = f"thread {number} says something ".encode() * (number + 3)
        for _ in range(300):
            assert decode_frame(encode_whole(Kind.VALUE, payload)) == (Kind.VALUE, payload)

    in_threads(6, work)


WHOLE = (
    "010396015d010063c2064ee756f39c0e5bcfda8d3e7f99cb55f074e756f3f07df4bab5390203fcc5"
    "9bf7959f957ca72cd069"
)
DELTA = (
    "42039601413399a7a12cb7e29eac452ef18eec1c319fa840bdccffb47b80fa66ff88d18a65000028"
    "706c61792e01008e8d0a40"
)
