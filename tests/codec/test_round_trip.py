"""What is stored comes back exactly as it was."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.codec import Codec, check_canonical, decode, encode
from ropewalk.codec.codec import find_refusal
from ropewalk.codec.msgpack import nesting_exceeds, pack, unpack
from tests.strategies import arrays, float_from_bits, same, storable_keys, storable_values

CODEC = Codec()
MANY = settings(max_examples=5 * settings().max_examples)


@MANY
@given(storable_values())
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(decode(encode(value)), value)


@given(storable_keys())
def test_a_hashable_value_comes_back_as_a_key_and_as_a_member(key: Any) -> None:
    value = [{key: 1, "other": key}, {key}, frozenset({key})]

    assert same(decode(encode(value)), value)


@given(arrays())
def test_an_array_comes_back_with_its_type_shape_and_order(array: Any) -> None:
    found = decode(encode(array))

    assert same(found, array)
    assert found.flags.writeable
    assert found.flags.owndata or found.base.flags.owndata


@given(storable_values())
def test_strict_reading_accepts_what_was_written(value: Any) -> None:
    check_canonical(encode(value))


@given(storable_values())
def test_nothing_is_refused_in_what_can_be_written(value: Any) -> None:
    assert find_refusal(CODEC, value) is None


@given(storable_values())
def test_what_came_back_has_the_same_bytes(value: Any) -> None:
    data = encode(value)

    assert encode(decode(data)) == data


@given(storable_values(max_leaves=4), storable_values(max_leaves=4))
def test_values_have_equal_bytes_exactly_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (encode(one) == encode(other)) == same(one, other)


@given(st.lists(storable_keys(), max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_a_set_grew_does_not_show(members: list[Any], random: Any) -> None:
    one = set({encode(member): member for member in members}.values())
    other = list(one)
    random.shuffle(other)

    assert encode(set(other)) == encode(one)


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {v: v}, lambda v: {v}])
def test_one_and_one_point_zero_and_true_never_meet(wrap: Any) -> None:
    encoded = {encode(wrap(value)) for value in (1, 1.0, True, 1 + 0j, np.int64(1), np.bool_(True))}

    assert len(encoded) == 6


def test_the_zeros_and_the_nans_are_kept_apart() -> None:
    bits = [0, 1 << 63, 0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001]

    encoded = [encode(float_from_bits(one)) for one in bits]

    assert len(set(encoded)) == len(bits)
    assert [data[1:] for data in encoded] == [one.to_bytes(8, "big") for one in bits]


def test_the_order_of_keys_is_part_of_a_dict() -> None:
    assert encode({"a": 1, "b": 2}) != encode({"b": 2, "a": 1})
    assert encode({1: 1, 2: 2}) != encode({2: 2, 1: 1})
    assert list(decode(encode({2: 0, 1: 0, "x": 0}))) == [2, 1, "x"]


def test_a_window_on_an_array_comes_back_as_an_array_of_its_own() -> None:
    whole = np.arange(24).reshape(4, 6)

    found = decode(encode(whole[::2, ::3]))

    assert same(found, np.ascontiguousarray(whole[::2, ::3]))


def test_the_context_of_decimals_does_not_show() -> None:
    number = decimal.Decimal("1E+30")
    plain = encode(number)

    with decimal.localcontext(decimal.Context(prec=1, capitals=0)):
        assert encode(number) == plain
        assert same(decode(plain), number)


def test_one_object_at_two_places_comes_back_as_two() -> None:
    shared = [1]

    first, second = decode(encode([shared, shared]))

    assert first == second
    assert first is not second


@pytest.mark.parametrize("binary", [b"x", bytearray(b"x")])
@pytest.mark.parametrize("count", [1, 255, 256, 65536])
def test_bytes_and_bytearrays_among_many_bytes_are_told_apart(binary: Any, count: int) -> None:
    value = [{"k": [b"y" * count]}, {"deep": [[binary]]}, (b"y", binary)]

    assert same(decode(encode(value)), value)


@given(st.recursive(st.none() | st.binary() | st.text(), st.lists, max_leaves=30))
def test_the_measure_of_nesting_agrees_with_a_count(value: Any) -> None:
    data = pack(value)
    padded = pack([value, "long enough to be measured at every limit"])

    assert nesting_exceeds(padded, _depth([value]) - 1)
    assert not nesting_exceeds(padded, _depth([value]))
    assert same(unpack(data), value)


def _depth(value: Any) -> int:
    if type(value) is not list or not value:
        return 0
    return 1 + max(map(_depth, value))
