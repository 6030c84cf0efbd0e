"""What is stored comes back exactly as it was."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from holdfast.codec import check_canonical, decode, encode
from tests.strategies import same, storable_keys, storable_values


@given(storable_values())
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(decode(encode(value)), value)


@given(storable_keys())
def test_a_hashable_value_comes_back_as_a_key(key: Any) -> None:
    assert same(decode(encode({key: key, "other": 1})), {key: key, "other": 1})


@given(storable_values())
def test_strict_reading_accepts_what_was_written(value: Any) -> None:
    check_canonical(encode(value))
