"""Packs: several frames in one piece of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import FormatError
from ropewalk.store import (
    FOOTER_SIZE,
    Framed,
    build_pack,
    index_size,
    open_pack,
    read_index,
    seal_pack,
)
from ropewalk.testing._stores._base import value

FRAMES = st.lists(
    st.builds(
        lambda data, depth: Framed(value(data).id, data, None, depth),
        st.binary(max_size=100),
        st.integers(0, 8),
    ),
    max_size=20,
)


@given(FRAMES)
def test_a_pack_gives_its_frames_back(frames: list[Framed]) -> None:
    pack = build_pack(frames)

    assert [pack.frame(entry) for entry in pack.entries] == [one.frame for one in frames]
    assert [(entry.id, entry.depth) for entry in pack.entries] == [
        (one.id, one.depth) for one in frames
    ]
    assert open_pack(seal_pack(pack)) == pack


@given(FRAMES)
def test_an_index_is_read_without_the_frames(frames: list[Framed]) -> None:
    pack = build_pack(frames)
    sealed = seal_pack(pack)

    size = index_size(sealed[-FOOTER_SIZE:])
    tail = sealed[len(sealed) - size - FOOTER_SIZE :]

    assert read_index(tail, len(sealed) - len(tail)) == pack.entries


@given(FRAMES, st.data())
def test_a_torn_pack_is_refused(frames: list[Framed], data: st.DataObject) -> None:
    sealed = seal_pack(build_pack(frames))
    cut = data.draw(st.integers(0, len(sealed) - 1))

    with pytest.raises(FormatError):
        open_pack(sealed[:cut])
    with pytest.raises(FormatError):
        open_pack(sealed + b"\x00")


@given(FRAMES, st.data())
def test_a_changed_index_is_refused(frames: list[Framed], data: st.DataObject) -> None:
    pack = build_pack(frames)
    sealed = bytearray(seal_pack(pack))
    place = data.draw(st.integers(len(pack.data), len(sealed) - 1))
    sealed[place] ^= data.draw(st.integers(1, 255))

    with pytest.raises(FormatError):
        open_pack(bytes(sealed))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_pack_or_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        open_pack(data)
    with pytest.raises(FormatError):
        open_pack(data + b"RWP\x01")
