"""Places of keys in a map, and versions of one that share what they read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ropewalk.errors import NotStorable
from ropewalk.tree import Map, Object, ObjectId


class Objects:
    """Objects in memory, which count what is read."""

    def __init__(self) -> None:
        self.known: dict[ObjectId, Object] = {}
        self.reads = 0

    def keep(self, objects: Sequence[Object]) -> None:
        self.known.update((one.id, one) for one in objects)

    def read(self, ids: Sequence[ObjectId]) -> list[Object]:
        self.reads += len(ids)
        return [self.known[id] for id in ids]


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def numbers(objects: Objects) -> Map:
    """A map of 5,000 keys of one length: k0000 to k4999."""
    empty = Map.empty()
    objects.keep(empty.objects)
    made = Map(empty.root, objects.read).edit({f"k{n:04d}": n for n in range(5000)})
    objects.keep(made.objects)
    return Map(made.root, objects.read)


def test_places_count_the_keys_between_two(numbers: Map) -> None:
    assert numbers.places() == range(5000)
    assert numbers.places("k0100", "k0200") == range(100, 200)
    assert numbers.places("k01001"[:5], "k0100") == range(100, 100)
    assert numbers.places("k4990") == range(4990, 5000)
    assert numbers.places(None, "k0003") == range(3)


def test_keys_need_not_be_there_and_may_be_the_wrong_way_round(numbers: Map) -> None:
    assert numbers.places("k010x", "k011x") == range(110, 120)
    assert len(numbers.places("k0200", "k0100")) == 0
    with pytest.raises(NotStorable):
        numbers.places(object())


def test_places_are_for_slices(numbers: Map) -> None:
    places = numbers.places("k1234", "k1240")

    assert [value for _, value in numbers.slice(places.start, places.stop)] == list(
        range(1234, 1240)
    )


def test_places_are_found_without_what_is_between(numbers: Map, objects: Objects) -> None:
    numbers.places("k0000", "k4999")

    assert objects.reads < 10


def test_another_version_knows_the_nodes_that_both_have(numbers: Map, objects: Objects) -> None:
    known = [f"k{n:04d}" for n in range(0, 1000, 100)]
    assert all(key in numbers for key in known)
    edited = numbers.edit({"k4000": "new"})
    objects.keep(edited.objects)
    later = numbers.version(edited.root)
    before = objects.reads

    assert [later[key] for key in known] == list(range(0, 1000, 100))
    assert objects.reads - before <= 3
    assert later["k4000"] == "new" and numbers["k4000"] == 4000
