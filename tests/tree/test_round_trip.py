"""A value that became a tree comes back exactly, whatever its type and size."""

from __future__ import annotations

import enum
import pathlib
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.codec import Codec, check_canonical
from ropewalk.tree import Kind, TreeWriter
from tests.sample_types import Coin, Item, Money, Note, Open, Person, Point, Slim, Spot
from tests.strategies import same, storable_atoms, storable_keys, storable_values
from tests.tree.support import (
    History,
    Objects,
    height_of,
    mutable_objects,
    root_of,
    small_nodes,
    stored,
)


def _round_trip(value: Any) -> Any:
    root, objects = stored(value)
    return objects.load(root)


@given(storable_values())
def test_a_small_value_comes_back_as_it_was(value: Any) -> None:
    assert same(_round_trip(value), value)


@given(storable_values(max_leaves=40))
def test_a_value_in_small_nodes_comes_back_as_it_was(value: Any) -> None:
    with small_nodes():
        assert same(_round_trip(value), value)


@given(storable_values(max_leaves=40))
def test_every_node_with_parts_is_canonical(value: Any) -> None:
    with small_nodes():
        _, objects = stored(value)

    for node in objects.values():
        if node.kind in (Kind.VALUE, Kind.ITEMS, Kind.PAIRS):
            check_canonical(node.payload)


def test_a_node_with_a_set_of_large_members_is_canonical() -> None:
    _, objects = stored([{letter * 3000 for letter in "abcdefgh"}])

    check_canonical(next(node.payload for node in objects.values() if node.kind == Kind.VALUE))


@given(storable_values(max_leaves=30), storable_values(max_leaves=30))
def test_a_value_written_after_any_other_has_the_same_root(before: Any, after: Any) -> None:
    with small_nodes():
        history = History(before)
        written = history.write(after)

        assert written.root == root_of(after)
        assert same(history.objects.load(written.root), after)


def _numbered(key: Any, number: int) -> Any:
    return (key, number)


def _scaled(part: Any, key: Any, text: str, count: int) -> list[Any]:
    """One large value of each kind, made by repetition."""
    number = random.Random(count).getrandbits(8 * count + 1)
    words = text * (count // max(len(text), 1) + 1)
    return [
        [part] * count,
        (part,) * count,
        {_numbered(key, at) for at in range(count)},
        frozenset(_numbered(key, at) for at in range(count)),
        {f"{text}{at}": part for at in range(count)},
        {_numbered(key, at): part for at in range(count)},
        dict.fromkeys(reversed(range(count)), part),
        Note(words, [part] * count),
        Slim({text: [part] * count}),
        Spot(words, (part,) * count),
        Point([part] * count, words),
        Person(name=words, age=[part] * count),
        Open(**{f"extra {at}": part for at in range(count)}),
        Item([part] * count, words),
        Coin((part,) * count),
        Money(number, words),
        np.frombuffer(random.Random(count).randbytes(8 * count), "<u8").copy(),
        np.zeros((count, 2), "f4", order="F"),
        number,
        -number,
        Decimal(abs(hash(text))) * Decimal(10) ** count,
        words,
        words.encode(),
        bytearray(words.encode()),
        pathlib.PurePosixPath(words.replace("\0", "") or "x"),
    ]


_KINDS = len(_scaled(None, None, "", 1))


@given(
    kind=st.integers(0, _KINDS - 1),
    part=storable_values(max_leaves=4),
    key=storable_keys(),
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    count=st.sampled_from([1, 20, 200, 2000]),
)
def test_a_large_value_comes_back_as_it_was(
    kind: int, part: Any, key: Any, text: str, count: int
) -> None:
    value = _scaled(part, key, text, count)[kind]
    loaded = _round_trip(value)

    # Sets are compared member by member, which takes long for long ones.
    if isinstance(value, set | frozenset) and count > 200:
        assert root_of(loaded) == root_of(value) and type(loaded) is type(value)
    else:
        assert same(loaded, value)


_TALL: dict[str, Any] = {
    "list": lambda count: [f"item {at}" * 4 for at in range(count)],
    "tuple": lambda count: tuple(f"item {at}" * 4 for at in range(count)),
    "set": lambda count: {f"item {at}" * 4 for at in range(count)},
    "frozenset": lambda count: frozenset(f"item {at}" * 4 for at in range(count)),
    "dict of texts": lambda count: {f"key {at}" * 3: at for at in range(count)},
    "dict in sorted order": lambda count: {f"key {at:06d}" * 3: at for at in range(count)},
    "dict of numbers": lambda count: {at: f"item {at}" * 3 for at in range(count)},
    "record": lambda count: Open(**{f"field {at}" * 3: at for at in range(count)}),
    "text": lambda count: "".join(f"item {at}" * 30 for at in range(count)),
    "bytes": lambda count: random.Random(1).randbytes(240 * count),
    "bytearray": lambda count: bytearray(random.Random(2).randbytes(240 * count)),
    "array": lambda count: np.arange(30 * count),
    "integer": lambda count: random.Random(3).getrandbits(8 * 240 * count),
}


@pytest.mark.parametrize("kind", _TALL)
@pytest.mark.parametrize(("count", "height"), [(150, 0), (2000, 1), (60_000, 2)])
def test_trees_of_every_height_come_back(kind: str, count: int, height: int) -> None:
    value = _TALL[kind](count)
    loaded = _round_trip(value)
    tree = height_of(value)

    assert tree is not None and tree >= height - (kind not in _SEQUENCES)
    assert type(loaded) is type(value)
    assert np.array_equal(loaded, value) if kind == "array" else loaded == value
    if isinstance(value, dict):
        assert list(loaded) == list(value)


_SEQUENCES = {"list", "tuple", "set", "frozenset", "dict of texts", "dict in sorted order"}


@given(storable_atoms())
def test_a_value_without_parts_is_one_object(value: Any) -> None:
    written = TreeWriter().write(value)

    assert [made.kind for made in written.objects] == [Kind.VALUE]


def test_a_member_with_a_long_name_comes_back() -> None:
    make: Any = enum.Enum
    long = make("long", {"x" * 5000: 1}, module=__name__)
    codec = Codec(types=[long])
    written, objects = TreeWriter(codec).write(long["x" * 5000]), Objects()
    objects.add(written)

    assert objects.load(written.root, codec) is long["x" * 5000]


def test_keys_that_equal_only_themselves_keep_their_place() -> None:
    value = {"z": "x" * 2000, float("nan"): "y" * 2000, "a": 1}

    assert same(_round_trip(value), value)


def test_long_keys_come_back_in_their_order() -> None:
    value = {"z" * 5000: 1, "a" * 60_000: 2, ("m" * 9000, 1): 3, "b": 4}

    assert same(_round_trip(value), value)


def test_one_object_in_two_places_comes_back_as_two() -> None:
    shared = [["x" * 100] * 50, bytearray(5000), np.arange(2000)]
    loaded = _round_trip({"one": shared, "two": shared, "three": [shared, shared]})
    held = mutable_objects(loaded)

    assert len({id(one) for one in held}) == len(held)


def test_nesting_at_the_limit_of_the_codec_comes_back() -> None:
    deep: Any = 0
    for _ in range(250):
        deep = [deep]
    value = ["x" * 1500, "y" * 1500, deep]

    assert _round_trip(value) == value


def test_large_values_nest_a_hundred_deep() -> None:
    value: Any = "x" * 3000
    for _ in range(99):
        value = [value, "y" * 3000]

    assert _round_trip(value) == value
