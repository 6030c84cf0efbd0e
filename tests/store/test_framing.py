"""Which object is stored whole, and which against another."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import DamagedObject, MissingObjects
from ropewalk.store import MAX_DEPTH, Framed, FrameWriter, encode_delta, encode_whole, frame_depth
from ropewalk.store._framing import Known
from ropewalk.store._reading import read_bases, read_objects
from ropewalk.testing._stores._base import growing, noise, value
from ropewalk.tree import Kind, Object, ObjectId


class Shelf:
    """Frames in a dict, and a writer that puts them there."""

    def __init__(self, cache_bytes: int = 1 << 20) -> None:
        self.frames: dict[ObjectId, bytes] = {}
        self.fetched: list[ObjectId] = []
        self.writer = FrameWriter(self.bases, cache_bytes)

    def fetch(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        return {id: self.frames[id] for id in ids if id in self.frames}

    def bases(self, ids: Sequence[ObjectId]) -> Mapping[ObjectId, Known]:
        self.fetched += ids
        return read_bases(ids, self.fetch)

    def put(self, *objects: Object, whole: Sequence[ObjectId] = ()) -> list[Framed]:
        framed, fresh = self.writer.frame(objects, whole)
        self.frames.update({one.id: one.frame for one in framed})
        self.writer.remember(fresh)
        return framed

    def read(self, *objects: Object) -> list[bytes]:
        return [one.payload for one in read_objects([one.id for one in objects], self.fetch)]


def test_a_version_is_stored_against_the_one_before() -> None:
    shelf = Shelf()
    first, second = growing(2)

    (whole,), (delta,) = shelf.put(first), shelf.put(second)

    assert (whole.base, whole.depth) == (None, 0)
    assert (delta.base, delta.depth) == (first.id, 1)
    assert len(delta.frame) < len(whole.frame)
    assert shelf.fetched == []
    assert shelf.read(first, second) == [first.payload, second.payload]


def test_chains_end_at_the_limit_and_go_back_to_their_start() -> None:
    shelf = Shelf()
    versions = [value(noise(4000))]
    for step in range(30):
        payload = versions[-1].payload[:-40] + noise(40, step + 1)
        versions.append(value(payload, base=versions[-1].id))

    framed = [shelf.put(version)[0] for version in versions]

    depths = [one.depth for one in framed]
    assert depths[:10] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 1]
    assert max(depths) == MAX_DEPTH
    assert depths.count(0) == 1
    assert framed[9].base == versions[0].id
    assert shelf.read(*versions) == [one.payload for one in versions]


def test_a_chain_whose_start_has_become_too_different_begins_anew() -> None:
    shelf = Shelf()
    versions = growing(12, size=400)

    depths = [shelf.put(version)[0].depth for version in versions]

    assert depths == [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2]


def test_a_base_that_does_not_help_is_left() -> None:
    shelf = Shelf()
    first, other = value(noise(900, 1)), value(noise(900, 2))

    shelf.put(first)

    assert shelf.put(other._replace(base=first.id))[0].base is None


def test_a_tiny_object_is_stored_whole_without_asking_for_its_base() -> None:
    shelf = Shelf()

    (framed,) = shelf.put(value("tiny", base=value("before").id))

    assert framed.base is None
    assert shelf.fetched == []


def test_a_base_is_read_when_it_is_no_longer_remembered() -> None:
    writing, reading = Shelf(), Shelf(cache_bytes=0)
    versions = growing(20)
    reading.frames = writing.frames

    for version in versions:
        writing.put(version)
    latest = value(versions[-1].payload + b"more", base=versions[-1].id)
    (framed,) = reading.put(latest)

    assert reading.fetched[0] == versions[-1].id
    assert framed.base is not None
    assert reading.read(latest) == [latest.payload]


def test_a_damaged_base_is_never_used() -> None:
    shelf = Shelf(cache_bytes=0)
    first, second = growing(2)
    shelf.put(first)
    shelf.frames[first.id] = encode_whole(Kind.VALUE, b"something else")

    (framed,) = shelf.put(second)

    assert framed.base is None
    assert shelf.read(second) == [second.payload]


def test_what_must_be_whole_is_whole() -> None:
    shelf = Shelf()
    first, second = growing(2)
    shelf.put(first)

    assert shelf.put(second, whole=[second.id])[0].base is None


def test_an_object_is_never_its_own_base() -> None:
    shelf = Shelf()
    one = value(noise(500))
    shelf.put(one)

    assert shelf.put(one._replace(base=one.id))[0].base is None


def test_two_objects_that_name_each_other_make_no_circle() -> None:
    shelf = Shelf()
    left, right = growing(2)
    left = left._replace(base=right.id)

    shelf.put(left, right)
    shelf.put(left, right)

    assert shelf.read(left, right) == [left.payload, right.payload]


def test_the_memory_is_bounded() -> None:
    shelf = Shelf(cache_bytes=8000)

    shelf.put(*(value(noise(700, number)) for number in range(50)))
    shelf.put(value(noise(7000, 99)))  # Too large a share to be worth it.

    assert shelf.writer._held <= 8000
    assert shelf.writer._held == sum(len(one.payload) for one in shelf.writer._cache.values())
    assert len(shelf.writer._cache) > 5


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 400)), max_size=40), st.booleans())
def test_any_history_of_versions_comes_back(steps: list[tuple[int, int]], cached: bool) -> None:
    shelf = Shelf(cache_bytes=100_000 if cached else 0)
    chance = random.Random(len(steps))
    versions = [value(chance.randbytes(300))]
    shelf.put(versions[0])
    for back, size in steps:
        base = versions[-1 - back % len(versions)]
        versions.append(value(base.payload[size // 2 :] + chance.randbytes(size), base=base.id))
        shelf.put(versions[-1])

    assert shelf.read(*versions) == [one.payload for one in versions]
    assert all(frame_depth(frame) <= MAX_DEPTH for frame in shelf.frames.values())


def circle() -> dict[ObjectId, bytes]:
    left, right = value(noise(100, 1)), value(noise(100, 2))
    return {
        left.id: encode_delta(left.kind, left.payload, right.id, right.payload, 8),
        right.id: encode_delta(right.kind, right.payload, left.id, left.payload, 7),
    }


def test_a_circle_of_hostile_frames_is_refused() -> None:
    frames = circle()

    for id in frames:
        with pytest.raises(DamagedObject):
            read_objects([id], lambda ids: {one: frames[one] for one in ids})


def test_a_missing_base_is_told() -> None:
    frames = dict([circle().popitem()])
    (id,) = frames

    with pytest.raises(DamagedObject, match="its base, is missing"):
        read_objects([id], lambda ids: {one: frames[one] for one in ids if one in frames})
    with pytest.raises(MissingObjects):
        read_objects([value("x").id], lambda _: {})
