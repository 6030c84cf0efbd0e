"""Frames, series and indexes of every kind, and their exact equality."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

_ROWS = 5


def wide_frame() -> Any:
    """A frame of pandas with a column of every dtype that is stored."""
    rows = _ROWS
    days = pd.date_range("2020", periods=rows)
    made = pd.DataFrame(
        {
            "int": range(rows),
            "float": [1.5, np.nan, -0.0, 3, 4],
            "text": ["a", None, "c", "d", "e"],
            "object": pd.Series([1, "x", None, (1,), [2]], dtype=object),
            "category": pd.Categorical(
                ["a", "b", "a", None, "b"], categories=["b", "a", "z"], ordered=True
            ),
            "Int64": pd.array([1, None, 3, 4, 5], dtype="Int64"),
            "boolean": pd.array([True, None, False, True, True]),
            "Float64": pd.array([1.5, None, 2, 3, 4]),
            "string": pd.array(
                ["q", None, "r", "s", "t"], dtype=pd.StringDtype("python", na_value=pd.NA)
            ),
            "day": days,
            "moment": days.tz_localize("Europe/Berlin"),
            "utc": days.tz_localize(dt.UTC),
            "span": pd.to_timedelta(range(rows), unit="s"),
            "month": pd.period_range("2020", periods=rows, freq="M"),
            "interval": pd.interval_range(0, rows),
        },
        index=pd.date_range("2020", periods=rows, tz="Europe/Berlin", freq="D", name="when"),
    )
    made.attrs = {"source": "test"}
    return made


def wide_polars() -> Any:
    """A frame of polars with a column of every dtype that is stored."""
    moments = [dt.datetime(2020, 1, 1), None, dt.datetime(2020, 7, 1)]
    return pl.DataFrame(
        {
            "int": [1, None, 3],
            "text": ["x", None, "z"],
            "float": [1.5, float("nan"), None],
            "truth": [True, None, False],
            "date": [dt.date(2020, 1, 1), None, dt.date(2021, 1, 1)],
            "zone": pl.Series(moments).dt.replace_time_zone("Europe/Berlin"),
            "list": [[1, 2], None, []],
            "struct": [{"a": 1}, None, {"a": None}],
            "category": pl.Series(["a", None, "b"], dtype=pl.Categorical),
            "enum": pl.Series(["a", None, "b"], dtype=pl.Enum(["a", "b", "q"])),
            "decimal": [Decimal("1.50"), None, Decimal("2.25")],
            "bytes": [b"x", None, b""],
            "nothing": [None] * 3,
            "array": pl.Series([[1, 2]] * 3, dtype=pl.Array(pl.Int8, 2)),
            "time": [dt.time(1), None, dt.time(2)],
            "span": [dt.timedelta(1), None, dt.timedelta(2)],
            "deep": pl.Series([[moments[0]], None, []], dtype=pl.List(pl.Datetime("ns", "UTC"))),
        }
    )


def _multi() -> Any:
    return pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["x", "y"])


FRAMES: dict[str, Callable[[], Any]] = {
    "every dtype": wide_frame,
    "a window": lambda: wide_frame().iloc[::2],
    "rows as columns": lambda: wide_frame()[["int", "text"]].T,
    "a MultiIndex and labels twice": lambda: pd.DataFrame(
        np.arange(8.0).reshape(4, 2), index=_multi(), columns=["a", "a"]
    ),
    "labels of several types": lambda: pd.DataFrame({1: [1], "x": [2], None: [3]}),
    "days as labels": lambda: pd.DataFrame([[1, 2]], columns=pd.date_range("2020", periods=2)),
    "named labels": lambda: pd.DataFrame({"a": [1]}).rename_axis(columns="name"),
    "an index with labels twice": lambda: pd.DataFrame({"a": [1, 2]}, index=[0, 0]),
    "nothing": pd.DataFrame,
    "rows only": lambda: pd.DataFrame(index=range(3)),
    "labels only": lambda: pd.DataFrame(columns=["a"]),
    "a Series": lambda: wide_frame()["int"],
    "a Series of texts": lambda: wide_frame()["text"],
    "an empty Series of objects": lambda: pd.Series([], dtype=object),
    "a Series of missing things": lambda: pd.Series(
        [pd.NaT, pd.NA, None, np.nan, pd.Timestamp("2020")], dtype=object, name=5
    ),
    "a Series of complex numbers": lambda: pd.Series([1 + 2j]),
    "a Series in the other byte order": lambda: pd.Series(np.array([1, 2], ">i4")),
    "a Series without labels twice": lambda: pd.Series([1]).set_flags(
        allows_duplicate_labels=False
    ),
    "a Series of seconds": lambda: pd.Series(pd.date_range("2020", periods=2, unit="s")),
    "a Series by tuples": lambda: pd.Series([1], index=pd.Index([(1, 2)], tupleize_cols=False)),
    "an index of texts": lambda: pd.Index(["a", "b"], name=("x", 1)),
    "an index of objects": lambda: pd.Index(["a", None, 1], dtype=object),
    "an index of small numbers": lambda: pd.Index([1, 2], dtype="int8"),
    "a long range": lambda: pd.RangeIndex(10**12, name="r"),
    "a MultiIndex": _multi,
    "a MultiIndex with unused levels": lambda: _multi()[1:2],
    "business days": lambda: pd.bdate_range("2020", periods=4),
    "days without a frequency": lambda: pd.DatetimeIndex(["2020-01-01", None, "2019-01-01"]),
    "no days": lambda: pd.date_range("2020", periods=0, freq="D"),
    "hours": lambda: pd.timedelta_range(0, periods=3, freq="h"),
    "quarters": lambda: pd.period_range("2020", periods=2, freq="Q"),
    "intervals": lambda: pd.interval_range(0, 2, closed="left"),
    "categories": lambda: pd.CategoricalIndex(["a", "b"], name="c"),
    "an array of texts": lambda: pd.array(["a", None]),
    "a Categorical": lambda: pd.Categorical([1, 2, None]),
    "polars: every dtype": wide_polars,
    "polars: nothing": pl.DataFrame,
    "polars: a column without a name": lambda: pl.DataFrame({"": [1], "column_0": ["x"]}),
    "polars: nulls for arrays": lambda: pl.Series([[1, 2], None], dtype=pl.Array(pl.Int8, 2)),
    "polars: rows only": lambda: pl.DataFrame(height=3),
    "polars: a Series": lambda: pl.Series([1, 2]),
    "polars: an empty Series": lambda: pl.Series("x", [], dtype=pl.Int8),
    "polars: large numbers": lambda: pl.Series([2**100, None], dtype=pl.Int128),
    "polars: objects": lambda: pl.Series("o", [1, "x", None], dtype=pl.Object),
}

SCALARS: dict[str, Callable[[], Any]] = {
    "a Timestamp": lambda: pd.Timestamp("2020"),
    "a Timestamp in a zone": lambda: pd.Timestamp("2020-07-01", tz="Europe/Berlin"),
    "a Timestamp of nanoseconds": lambda: pd.Timestamp(5, unit="ns"),
    "the hour that comes twice": lambda: pd.Timestamp("2020-10-25 00:30", tz="UTC").tz_convert(
        "Europe/Berlin"
    ),
    "a Timedelta": lambda: pd.Timedelta("1s"),
    "a Period": lambda: pd.Period("2020", "M"),
    "an Interval": lambda: pd.Interval(1, 2),
    "NaT": lambda: pd.NaT,
    "NA": lambda: pd.NA,
}


def same_frame(one: Any, other: Any) -> bool:
    """Whether two values of pandas or polars are the same, by what these say themselves."""
    if type(one) is not type(other):
        return False
    try:
        _expect_same(one, other)
    except AssertionError:
        return False
    return True


def _expect_same(one: Any, other: Any) -> None:
    if isinstance(one, pl.DataFrame):
        assert one.schema == other.schema and one.equals(other) and one.height == other.height
    elif isinstance(one, pl.Series):
        assert one.dtype == other.dtype and one.name == other.name
        assert one.to_list() == other.to_list() if one.dtype == pl.Object else one.equals(other)
    elif isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(
            one, other, check_exact=True, check_index_type="exact", check_column_type="exact"
        )
        assert one.attrs == other.attrs
    elif isinstance(one, pd.Series):
        pd.testing.assert_series_equal(one, other, check_exact=True, check_index_type="exact")
        assert one.attrs == other.attrs
    elif isinstance(one, pd.Index):
        pd.testing.assert_index_equal(one, other, exact=True)
        assert getattr(one, "freq", None) == getattr(other, "freq", None)
    elif isinstance(one, pd.api.extensions.ExtensionArray):
        pd.testing.assert_extension_array_equal(one, other, check_exact=True)
    else:
        assert one is other or (one == other and repr(one) == repr(other))
