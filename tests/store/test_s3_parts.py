"""The parts of a store in a bucket: packs, the catalog, names of keys, and finding objects."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import FormatError
from ropewalk.store import Framed, Move, encode_delta, encode_whole, space_name
from ropewalk.store._key_value_cells import page_key, refs_key, space_key
from ropewalk.store._s3_catalog import Catalog, Mark, State, decode_catalog, encode_catalog
from ropewalk.store._s3_cells import key_of, place_of
from ropewalk.store._s3_packs import (
    epoch_of,
    name_before,
    pack_name,
    read_rows,
    rows_of,
    rows_size,
    seal,
    time_of,
)
from ropewalk.testing._stores._base import MAIN, SPACE, growing, value
from ropewalk.tree import Kind, object_id
from tests.store.s3_memory import MemoryBucket, MemoryS3Store

A, B = (object_id(Kind.CHUNK, text) for text in (b"a" * 300, b"a" * 300 + b"b"))
FRAMES = [
    Framed(A, encode_whole(Kind.CHUNK, b"a" * 300), None, 0),
    Framed(B, encode_delta(Kind.CHUNK, b"a" * 300 + b"b", A, b"a" * 300, 1), A, 1),
]


def sealed() -> bytes:
    rows = rows_of(FRAMES)
    return seal([one.frame for one in FRAMES], rows)


# Packs.


def test_a_pack_says_what_is_in_it() -> None:
    data = sealed()

    rows = read_rows(data)

    assert rows == rows_of(FRAMES) == read_rows(data[-rows_size(data) :])
    for row, framed in zip(rows, FRAMES, strict=True):
        assert data[row.offset : row.offset + row.length] == framed.frame
        assert (row.id, row.base, row.depth) == (framed.id, framed.base, framed.depth)
        assert row.kind == Kind.CHUNK
    assert [row.size for row in rows] == [300, 301]


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_pack_with_a_changed_byte_is_noticed_or_was_not_about_rows(at: int, change: int) -> None:
    data = bytearray(sealed())
    at %= len(data)
    data[at] ^= change

    try:
        rows = read_rows(bytes(data))
    except FormatError:
        return
    assert at < sum(row.length for row in rows)  # A frame: its object is verified when read.


@given(st.binary(max_size=200))
def test_what_is_no_pack_is_a_format_error(data: bytes) -> None:
    for hostile in (data, data + sealed()[-4:], data + sealed()[-20:]):
        with pytest.raises(FormatError):
            read_rows(hostile)


def test_names_of_packs_sort_by_epoch_and_time() -> None:
    first = pack_name(9)
    later = pack_name(9, not_before=time_of(first) + 5000)
    next_epoch = pack_name(16)

    assert first < later < next_epoch
    assert [epoch_of(name) for name in (first, next_epoch)] == [9, 16]
    assert name_before(later, 10_000) < first < name_before(later, 0) < later
    assert epoch_of("something else") is epoch_of("a-b-c") is None


# Names of keys.


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_each_cell_has_a_place_of_its_own_and_is_found_by_it(tenant: str, name: str) -> None:
    try:
        space = space_name(tenant, name)
    except ValueError:
        return
    keys = [space_key(space), page_key(space, 3), refs_key(space, 3)]

    places = [place_of(key) for key in keys]

    assert [key_of(place) for place in places] == keys
    assert all(len(part) <= 255 for place in places for part in place.split("/"))


def test_no_place_is_a_folder_of_another() -> None:
    names = ["a", "a" * 119, "a" * 120, "a" * 121, "a" * 250, "a" * 120 + "b"]
    places = [place_of(space_key(space_name("t", name))) for name in names]

    assert len(set(places)) == len(names)
    assert not any(one != two and two.startswith(f"{one}/") for one in places for two in places)


# The catalog.


def test_a_catalog_comes_back_and_damage_is_noticed() -> None:
    catalog = Catalog(5).condemned([A], 7).condemned([B], 8).deleted([B])
    data = encode_catalog(catalog)

    assert decode_catalog(data) == catalog
    choose = random.Random(1)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        with pytest.raises(FormatError):
            decode_catalog(bytes(damaged))


def test_a_mark_holds_for_copies_from_before_it() -> None:
    catalog = Catalog(5).condemned([A], 7)
    assert catalog.epoch == 6 and catalog.mark(A) == Mark(0, 6, 7)

    assert [catalog.mark(A).state(epoch) for epoch in (5, 6)] == [State.CONDEMNED, State.ALIVE]
    deleted = catalog.deleted([A])
    assert [deleted.mark(A).state(epoch) for epoch in (5, 6)] == [State.DEAD, State.ALIVE]
    again = deleted.condemned([A], 8)
    states = [again.mark(A).state(epoch) for epoch in (5, 6, 7)]
    assert states == [State.DEAD, State.CONDEMNED, State.ALIVE]
    assert again.revived([A]) == Catalog(7, marks={A: Mark(6, 0, 0)})
    assert catalog.revived([A]).marks == {}


# Finding objects.


def test_a_frame_against_something_that_is_gone_counts_for_nothing() -> None:
    data: dict[str, bytes] = {}
    first, second = growing(2)
    writer = MemoryS3Store(MemoryBucket(data))
    writer.commit(SPACE, [first])
    # A pack whose commit never landed, from a writer who did not hear of the collection.
    late = MemoryS3Store(MemoryBucket(data))
    late.read([first.id])
    frames, _ = late._frame_writer.frame([second])
    assert frames[0].base == first.id
    writer.condemn([first.id])
    writer.delete([first.id])
    late._keep(frames, 1, {})

    other = MemoryS3Store(MemoryBucket(data))
    assert other.missing([second.id]) == [second.id]
    assert [one.id for one in other.scan()] == []

    other.commit(SPACE, [second], moves=[Move(MAIN, None, second.id)])
    for store in (other, late, MemoryS3Store(MemoryBucket(data))):
        assert store.read([second.id])[0].payload == second.payload
    other.gc(recent=1)
    assert other.read([second.id])[0].payload == second.payload


def test_a_reader_follows_a_pack_that_was_rewritten() -> None:
    data: dict[str, bytes] = {}
    writer, reader = (MemoryS3Store(MemoryBucket(data)) for _ in range(2))
    many = [value(f"object {number}") for number in range(40)]
    for one in many:
        writer.commit(SPACE, [one], moves=[Move(f"branch/{one.id.hex()}", None, one.id)])
    assert reader.read([one.id for one in many]) == many
    packs = {key for key in data if "/pack/" in key}

    writer._tidy()
    reader._index.clear()

    assert len({key for key in data if "/pack/" in key} & packs) == 0
    assert reader.read([one.id for one in many]) == many


def test_index_files_only_save_time() -> None:
    data: dict[str, bytes] = {}
    writer = MemoryS3Store(MemoryBucket(data))
    many = [value(f"object {number}") for number in range(70)]
    for one in many:
        writer.commit(SPACE, [one])
    files = [key for key in data if "/index/" in key]
    assert files

    data[files[0]] = b"damaged"
    assert MemoryS3Store(MemoryBucket(data)).read([one.id for one in many]) == many
    del data[files[0]]
    assert MemoryS3Store(MemoryBucket(data)).read([one.id for one in many]) == many


def test_what_is_moved_between_a_listing_and_a_look_is_found() -> None:
    data: dict[str, bytes] = {}
    writer = MemoryS3Store(MemoryBucket(data))
    kept = [value(f"value {number}") for number in range(20)]
    for number, one in enumerate(kept):
        writer.commit(SPACE, [one], moves=[Move(f"branch/{number}", None, one.id)])
    bucket = MemoryBucket(data)
    reader = MemoryS3Store(bucket)
    collected: list[int] = []

    def collect_once(request: str) -> None:
        if request == "listing" and not collected:
            collected.append(len(data))
            writer._tidy()

    bucket.after = collect_once

    assert [one.payload for one in reader.read([one.id for one in kept])] == [
        one.payload for one in kept
    ]
    assert collected and len(data) < collected[0]
