"""Frames, series and indexes of pandas and polars come back as what they were."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ormsgpack import Ext

from fuzz.mutations import EXPECTED, Mutator
from ropewalk.codec import Codec, Undeclared, check_canonical, decode, encode
from ropewalk.codec.msgpack import Code, extension, pack
from ropewalk.errors import ChangedMeanwhile, FormatError, NotStorable, UndeclaredClass
from tests.frames import FRAMES, SCALARS, same_frame, wide_frame, wide_polars

ALL = FRAMES | SCALARS


@pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())
def test_it_comes_back_as_it_was(make: Callable[[], Any]) -> None:
    value = make()
    data = encode({"k": [value]})
    check_canonical(data)
    found = decode(data)["k"][0]

    assert same_frame(found, value)
    assert encode({"k": [found]}) == data


@pytest.mark.parametrize("make", SCALARS.values(), ids=SCALARS.keys())
def test_a_scalar_comes_back_as_a_key(make: Callable[[], Any]) -> None:
    ((found, one),) = decode(encode({make(): 1})).items()

    assert same_frame(found, make()) and one == 1


@given(
    st.lists(st.sampled_from(list(wide_frame().columns)), max_size=6),
    st.lists(st.integers(0, 4), max_size=8),
    st.booleans(),
)
def test_any_choice_of_rows_and_columns_comes_back(
    labels: list[str], rows: list[int], resets: bool
) -> None:
    frame = wide_frame()[labels].iloc[rows]
    frame = frame.reset_index() if resets and labels == sorted(set(labels)) else frame

    assert same_frame(decode(encode(frame)), frame)


def test_equal_frames_have_equal_bytes_whatever_their_memory() -> None:
    whole = pd.DataFrame({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]})
    parts = pd.concat([whole[["a"]], whole[["b"]]], axis=1)
    masked = pd.array([7, 1], dtype="Int64")
    masked[0] = pd.NA

    assert encode(parts) == encode(whole)
    assert encode(pd.array([None, 1], dtype="Int64")) == encode(masked)
    assert encode(pl.concat([pl.Series([1]), pl.Series([2])])) == encode(pl.Series([1, 2]))


class Own(pd.DataFrame):  # type: ignore[misc]
    pass


def _with_attribute() -> Any:
    made = pd.DataFrame({"a": [1]})
    object.__setattr__(made, "note", 1)
    return made


REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a query": (lambda: pl.LazyFrame({"a": [1]}), 'value["k"]', "collect"),
    "a sparse column": (
        lambda: pd.DataFrame({"a": pd.arrays.SparseArray([1, 0])}),
        'value["k"]["a"]',
        "Sparse",
    ),
    "an object in a column": (
        lambda: pd.DataFrame({"a": [1, object()]}, dtype=object),
        'value["k"]["a"][1]',
        "object",
    ),
    "attrs that cannot be stored": (
        lambda: wide_frame().assign().set_flags(allows_duplicate_labels=True).pipe(_odd_attrs),
        'value["k"].attrs["odd"]',
        "object",
    ),
    "a subclass": (lambda: Own({"a": [1]}), 'value["k"]', "Own"),
    "an attribute": (_with_attribute, 'value["k"]', "note"),
    "a level that is a long range": (
        lambda: pd.Series([1], pd.MultiIndex([pd.RangeIndex(10**8)], [[0]])),
        'value["k"].index',
        "too long",
    ),
    "many nulls for arrays": (
        lambda: pl.Series([None] * 20, dtype=pl.Array(pl.Int8, 2**20 - 1)),
        'value["k"]',
        "nulls",
    ),
    "a frequency of its own": (
        lambda: pd.date_range(
            "2020", periods=3, freq=pd.offsets.CustomBusinessDay(holidays=["2020-01-02"])
        ),
        'value["k"]',
        "frequency",
    ),
}


def _odd_attrs(frame: Any) -> Any:
    frame.attrs = {"odd": object()}
    return frame


@pytest.mark.parametrize(("make", "path", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_exact_is_refused_with_its_place(
    make: Callable[[], Any], path: str, reason: str
) -> None:
    with pytest.raises(NotStorable, match=reason) as caught:
        encode({"k": make()})

    assert caught.value.path == path


def _frame(kind: Any, *parts: Any) -> bytes:
    return extension(Code.FRAME, pack([kind, list(parts)]))


def _array(dtype: str, data: bytes) -> Ext:
    return Ext(Code.ARRAY, pack([dtype, [len(data) // 8], "C", data]))


# Few bytes that ask for much memory.
_WIDE = ["Array", ["Array", "Int8", 2**19], 2**19]
_LONG = Ext(Code.FRAME, pack(["pandas.RangeIndex", [0, 10**12, 1, None]]))


@pytest.mark.parametrize(
    "data",
    [
        _frame("pandas.Nothing"),
        _frame("os.system", "true"),
        _frame(5),
        _frame("pandas.DataFrame"),
        _frame("pandas.DataFrame", 1, 2, 3, 4),
        _frame("pandas.RangeIndex", 0, 1, 0, None),
        _frame("pandas.RangeIndex", 0, 10**18, 1.0, None),
        _frame("pandas.Index", ["a"], []),
        _frame("pandas.Timestamp", 5, None),
        _frame("pandas.NaT", 1),
        _frame("polars.DataFrame", 10**18),
        _frame("polars.DataFrame", -1),
        _frame("polars.Series", "x", "Nothing", [], None),
        _frame("polars.Series", "x", ["Array", "Int8", 2**62], [], None),
        _frame("polars.Series", "x", "String", [1], None),
        _frame("polars.Series", "x", ["Array", "Int8", 2**19], [None] * 1000, None),
        _frame("polars.Series", "x", ["List", _WIDE], [[None]], None),
        _frame("polars.Series", "x", ["Struct", [["a", _WIDE]]], [None], None),
        _frame("polars.Series", "x", ["Struct", [["a", _WIDE]]], [{"a": None}], None),
        _frame("pandas.Timestamp", Ext(Code.SCALAR, pack(["<M8[D]", bytes(8)])), None),
        _frame("pandas.MultiIndex", [_LONG], [_array("<i8", bytes(8))], [None], None),
        _frame("pandas.IntervalArray", _LONG, _LONG, "right"),
        extension(Code.FRAME, pack(["pandas.NaT"])),
    ],
)
def test_malformed_parts_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode(data)


@given(st.sampled_from(list(ALL.values())), st.integers(0, 2**32))
def test_a_changed_encoding_is_refused_or_the_one_form_of_a_value(
    make: Callable[[], Any], seed: int
) -> None:
    data = encode(make())
    try:
        changed = Mutator(seed, [data]).shake(data)
        found = decode(changed)
    except (*EXPECTED, ValueError):
        return
    assert encode(found) == changed


def test_one_that_changes_a_column_keeps_the_bytes_of_the_others() -> None:
    one, other = wide_frame(), wide_frame()
    other.loc[other.index[0], "int"] = 77

    assert encode(one) != encode(other)
    assert encode(other["text"]) == encode(one["text"])


def test_importing_and_storing_plain_values_loads_neither_library() -> None:
    code = "import sys, ropewalk; from ropewalk.codec import decode, encode; "
    code += "decode(encode([{'a': (1,)}])); print({'pandas', 'polars', 'numpy'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "set()"


def test_where_its_library_is_missing_it_is_named_and_can_be_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encode([wide_polars()])
    monkeypatch.setitem(sys.modules, "polars", None)

    with pytest.raises(UndeclaredClass, match="install polars"):
        decode(data)
    (shown,) = Codec(undeclared="show").decode(data)
    assert type(shown) is Undeclared
    assert shown.name == "polars.DataFrame"


def test_a_number_beneath_a_mask_is_no_part_of_the_value() -> None:
    hidden = [np.array([5, 1]), np.array([True, False])]
    encoded = encode(hidden)

    with pytest.raises(FormatError):
        decode(extension(Code.FRAME, b"\x92\xb3pandas.IntegerArray" + encoded))


def test_an_array_can_be_looked_at_where_numpy_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode([np.arange(6.0).reshape(2, 3)])
    monkeypatch.setitem(sys.modules, "numpy", None)
    looking = Codec(undeclared="show")

    (shown,) = looking.decode(data)

    assert type(shown) is Undeclared
    assert (shown.name, shown.content["shape"]) == ("numpy.ndarray", [2, 3])
    assert looking.encode([shown]) == data


def test_a_failure_inside_polars_is_an_error_of_the_format() -> None:
    nan = Ext(Code.DECIMAL, b"NaN")

    with pytest.raises(FormatError, match="polars"):
        decode(_frame("polars.Series", "x", ["Decimal", 38, 0], [nan], None))


def test_a_frame_amid_a_change_is_refused_as_one_that_changes() -> None:
    frame = pd.DataFrame({"a": [1], "b": ["x"]})
    # As a thread leaves it for a moment when it is stopped amid adding a column.
    frame._mgr.axes[0] = pd.Index(["a", "b", "c"])

    with pytest.raises(ChangedMeanwhile, match="k"):
        encode({"k": frame})
