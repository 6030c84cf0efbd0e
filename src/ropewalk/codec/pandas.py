"""Values of pandas as parts, and back. Imported only where pandas is used or read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pandas as pd

from ropewalk.codec.atoms import decode_zone, encode_zone
from ropewalk.codec.frames import expect
from ropewalk.errors import ChangedMeanwhile, NotStorable

_INDEXES: Final[dict[type, str]] = {
    getattr(pd, name): f"pandas.{name}"
    for name in (
        *("Index", "RangeIndex", "MultiIndex", "DatetimeIndex", "TimedeltaIndex"),
        *("PeriodIndex", "IntervalIndex", "CategoricalIndex"),
    )
}
_MASKED: Final[dict[type, str]] = {
    getattr(pd.arrays, name): f"pandas.{name}"
    for name in ("IntegerArray", "FloatingArray", "BooleanArray")
}
_LONGEST_RANGE: Final = 1 << 24
_ADVICE: Final = "convert the column, for example with astype(object) or to a dtype of numpy"


def take_apart(value: Any) -> tuple[str, list[Any]] | None:
    """The kind of a value and its parts; None for what is not stored."""
    taker = _TAKERS.get(type(value))
    if taker is not None:
        return taker(value)
    if isinstance(value, pd.api.extensions.ExtensionArray):
        raise NotStorable(
            f"a column of dtype {value.dtype} ({type(value).__qualname__}) has no exact stored "
            f"form; {_ADVICE}"
        )
    return None


def _take_frame(frame: Any) -> tuple[str, list[Any]]:
    _expect_no_attributes(frame)
    taken = frame.copy(deep=False)
    columns = [_take_column(taken.iloc[:, at]) for at in range(taken.shape[1])]
    index, labels = taken.index, taken.columns
    if len(labels) != len(columns) or any(len(one) != len(index) for one in columns):
        raise ChangedMeanwhile
    return "pandas.DataFrame", [index, labels, *_take_options(frame), *columns]


def _take_series(series: Any) -> tuple[str, list[Any]]:
    _expect_no_attributes(series)
    taken = series.copy(deep=False)
    values = _take_column(taken)
    if len(values) != len(taken.index):
        raise ChangedMeanwhile
    return "pandas.Series", [values, taken.index, series.name, *_take_options(series)]


def _expect_no_attributes(value: Any) -> None:
    extra = [name for name in vars(value) if not name.startswith("_")]
    if extra:
        raise NotStorable(
            f"the attributes {', '.join(extra)[:80]} of this {type(value).__name__} would be "
            "lost; keep them in its attrs"
        )


def _take_options(value: Any) -> list[Any]:
    return [dict(value.attrs), bool(value.flags.allows_duplicate_labels)]


def _put_options(made: Any, attrs: Any, duplicates: Any) -> Any:
    expect(type(attrs) is dict and type(duplicates) is bool, "options")
    made.attrs = attrs
    if not duplicates:
        made.flags.allows_duplicate_labels = False
    return made


def _take_column(column: Any) -> Any:
    """A column as an array of numpy, a list of objects, or an array of pandas."""
    if not isinstance(column.dtype, np.dtype):
        return column.array
    values = column.to_numpy()
    return values.tolist() if values.dtype == object else values


def _put_column(part: Any) -> Any:
    if type(part) is list:
        return np.fromiter(part, dtype=object, count=len(part))
    known = type(part) is np.ndarray or isinstance(part, pd.api.extensions.ExtensionArray)
    expect(known and part.ndim == 1, "a column")
    return part


def _typed(part: Any) -> Any:
    """The dtype that a column keeps."""
    return object if type(part) is list else part.dtype


def _put_frame(parts: list[Any]) -> Any:
    index, labels, attrs, duplicates, *columns = parts
    expect(type(index) in _INDEXES and type(labels) in _INDEXES, "an index")
    expect(len(labels) == len(columns), "columns")
    # Checked before pandas builds anything: a hostile RangeIndex may be very long.
    expect(all(len(one) == len(index) for one in columns), "a column")
    held = {
        at: pd.Series(_put_column(one), index=index, dtype=_typed(one))
        for at, one in enumerate(columns)
    }
    made = pd.DataFrame(held, index=index, columns=range(len(columns)))
    made.columns = labels
    return _put_options(made, attrs, duplicates)


def _put_series(parts: list[Any]) -> Any:
    values, index, name, attrs, duplicates = parts
    expect(type(index) in _INDEXES and len(values) == len(index), "an index")
    made = pd.Series(_put_column(values), index=index, name=name, dtype=_typed(values))
    return _put_options(made, attrs, duplicates)


# Indexes.


def _take_index(index: Any) -> tuple[str, list[Any]]:
    parts = [_take_column(index), index.name]
    if hasattr(index, "freqstr") and type(index) is not pd.PeriodIndex:
        parts.append(index.freqstr)
        if index.freq is not None and _put_freq(index, index.freqstr).freq != index.freq:
            raise NotStorable(f"the frequency {index.freq!r} has no exact stored form")
    return _INDEXES[type(index)], parts


def _put_freq(index: Any, freq: Any) -> Any:
    expect(freq is None or type(freq) is str, "a frequency")
    plain = type(index)(index.array, name=index.name, freq=None)
    if freq is None:
        return plain
    try:
        return type(index)(plain, name=index.name, freq=pd.tseries.frequencies.to_offset(freq))
    except ValueError as exc:
        raise NotStorable(f"the frequency {freq!r} of an index does not fit its values") from exc


def _put_index(cls: Any, parts: list[Any]) -> Any:
    values, name, *freq = parts
    if cls is pd.Index:
        return pd.Index(_put_column(values), name=name, dtype=_typed(values))
    made = cls(_put_column(values), name=name)
    return _put_freq(made, freq[0]) if freq else made


def _take_range(index: Any) -> tuple[str, list[Any]]:
    return "pandas.RangeIndex", [index.start, index.stop, index.step, index.name]


def _put_range(parts: list[Any]) -> Any:
    start, stop, step, name = parts
    expect({type(start), type(stop), type(step)} == {int}, "a range")
    return pd.RangeIndex(start, stop, step, name=name)


def _is_short(index: Any) -> bool:
    """Whether a range may be written out, which takes few bytes to store and many to hold."""
    return type(index) is not pd.RangeIndex or len(index) <= _LONGEST_RANGE


def _take_multi(index: Any) -> tuple[str, list[Any]]:
    codes = [np.asarray(one) for one in index.codes]
    if any(len(one) != len(index) for one in codes) or len(index.levels) != len(codes):
        raise ChangedMeanwhile
    levels = [level.rename(None) for level in index.levels]
    if not all(map(_is_short, levels)):
        raise NotStorable("a level of this MultiIndex is a range that is too long to be stored")
    return "pandas.MultiIndex", [levels, codes, list(index.names), index.sortorder]


def _put_multi(parts: list[Any]) -> Any:
    levels, codes, names, sortorder = parts
    expect(type(levels) is type(codes) is type(names) is list, "levels")
    expect(all(type(one) in _INDEXES and _is_short(one) for one in levels), "a level")
    expect(all(type(one) is np.ndarray and one.dtype.kind == "i" for one in codes), "codes")
    expect(sortorder is None or type(sortorder) is int, "an order")
    return pd.MultiIndex(levels, codes, names=names, sortorder=sortorder)


# Arrays.


def _take_categorical(array: Any) -> tuple[str, list[Any]]:
    return "pandas.Categorical", [np.asarray(array.codes), array.categories, bool(array.ordered)]


def _put_categorical(parts: list[Any]) -> Any:
    codes, categories, ordered = parts
    expect(type(codes) is np.ndarray and type(categories) in _INDEXES, "categories")
    expect(codes.ndim == 1 and codes.dtype.kind == "i" and type(ordered) is bool, "codes")
    return pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(categories, ordered))


def _take_times(array: Any) -> tuple[str, list[Any]]:
    return "pandas.DatetimeArray", [array.asi8.view(f"M8[{array.unit}]"), encode_zone(array.tz)]


def _put_times(parts: list[Any]) -> Any:
    values, zone = parts
    expect(type(values) is np.ndarray and values.dtype.kind == "M", "times")
    made: Any = pd.DatetimeIndex(values)
    return (made if zone is None else _in_zone(made, zone)).array


def _in_zone(made: Any, zone: Any) -> Any:
    return made.tz_localize("UTC").tz_convert(decode_zone(zone))


def _take_periods(array: Any) -> tuple[str, list[Any]]:
    return "pandas.PeriodArray", [array.asi8, array.freqstr]


def _put_periods(parts: list[Any]) -> Any:
    values, freq = parts
    expect(type(values) is np.ndarray and values.dtype == np.int64, "periods")
    expect(type(freq) is str and values.ndim == 1, "a frequency")
    return pd.arrays.PeriodArray(values, dtype=pd.PeriodDtype(freq))


def _take_intervals(array: Any) -> tuple[str, list[Any]]:
    if not _is_short(array.left):
        raise NotStorable("these intervals are made of a range that is too long to be stored")
    return "pandas.IntervalArray", [array.left, array.right, array.closed]


def _put_intervals(parts: list[Any]) -> Any:
    left, right, closed = parts
    expect(type(left) in _INDEXES and type(right) in _INDEXES, "a side")
    expect(_is_short(left) and _is_short(right), "a side")
    return pd.arrays.IntervalArray.from_arrays(left, right, closed)


def _take_masked(array: Any) -> tuple[str, list[Any]]:
    mask = np.array(array._mask)
    # The numbers under the mask are arbitrary, so they are not stored.
    values = np.where(mask, array.dtype.numpy_dtype.type(0), array._data)
    return _MASKED[type(array)], [values.astype(array.dtype.numpy_dtype, copy=False), mask]


def _put_masked(cls: Any, parts: list[Any]) -> Any:
    values, mask = parts
    expect(type(values) is type(mask) is np.ndarray and values.shape == mask.shape, "a mask")
    return cls(values, mask)


def _take_texts(array: Any) -> tuple[str, list[Any]]:
    texts = array.to_numpy(dtype=object, na_value=None).tolist()
    missing = "NA" if array.dtype.na_value is pd.NA else "nan"
    return "pandas.StringArray", [array.dtype.storage, missing, *texts]


def _put_texts(parts: list[Any]) -> Any:
    storage, missing, *texts = parts
    expect(storage in ("python", "pyarrow") and missing in ("NA", "nan"), "texts")
    expect(set(map(type, texts)) <= {str, type(None)}, "texts")
    dtype = pd.StringDtype(storage, na_value=pd.NA if missing == "NA" else np.nan)
    return pd.array(np.fromiter(texts, dtype=object, count=len(texts)), dtype=dtype)


# Scalars.


def _take_timestamp(value: Any) -> tuple[str, list[Any]]:
    parts = [value.asm8, encode_zone(value.tz)]
    if _put_timestamp(parts).fold != value.fold:
        raise NotStorable("a Timestamp with fold=1 outside of a change of clocks is not stored")
    return "pandas.Timestamp", parts


def _put_timestamp(parts: list[Any]) -> Any:
    moment, zone = parts
    expect(type(moment) is np.datetime64 and not np.isnat(moment), "a time")
    made: Any = pd.Timestamp(moment)
    return made if zone is None else _in_zone(made, zone)


def _put_timedelta(parts: list[Any]) -> Any:
    (span,) = parts
    expect(type(span) is np.timedelta64 and not np.isnat(span), "a timedelta")
    return pd.Timedelta(span)


def _put_period(parts: list[Any]) -> Any:
    ordinal, freq = parts
    expect(type(ordinal) is int and type(freq) is str, "a period")
    return pd.Period(ordinal=ordinal, freq=freq)


def _put_nothing(value: Any) -> Callable[[list[Any]], Any]:
    def put(parts: list[Any]) -> Any:
        expect(not parts, "nothing")
        return value

    return put


def _text_arrays() -> list[type]:
    names = ("StringArray", "ArrowStringArray")
    found = [getattr(pd.arrays, name) for name in names if hasattr(pd.arrays, name)]
    default = type(pd.array(["a"], dtype="str"))
    return [*found, default] if hasattr(pd, "StringDtype") else found


_TAKERS: Final[dict[type, Callable[[Any], tuple[str, list[Any]]]]] = {
    pd.DataFrame: _take_frame,
    pd.Series: _take_series,
    **dict.fromkeys(_INDEXES, _take_index),
    pd.RangeIndex: _take_range,
    pd.MultiIndex: _take_multi,
    pd.Categorical: _take_categorical,
    pd.arrays.DatetimeArray: _take_times,
    pd.arrays.TimedeltaArray: lambda array: (
        "pandas.TimedeltaArray",
        [array.asi8.view(f"m8[{array.unit}]")],
    ),
    pd.arrays.PeriodArray: _take_periods,
    pd.arrays.IntervalArray: _take_intervals,
    **dict.fromkeys(_MASKED, _take_masked),
    **dict.fromkeys(_text_arrays(), _take_texts),
    pd.Timestamp: _take_timestamp,
    pd.Timedelta: lambda value: ("pandas.Timedelta", [value.asm8]),
    pd.Period: lambda value: ("pandas.Period", [value.ordinal, value.freqstr]),
    pd.Interval: lambda value: ("pandas.Interval", [value.left, value.right, value.closed]),
    type(pd.NaT): lambda value: ("pandas.NaT", []),
    type(pd.NA): lambda value: ("pandas.NA", []),
}


def _put_spans(parts: list[Any]) -> Any:
    (values,) = parts
    expect(type(values) is np.ndarray and values.dtype.kind == "m", "timedeltas")
    return pd.TimedeltaIndex(values).array


_PUTTERS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "pandas.DataFrame": _put_frame,
    "pandas.Series": _put_series,
    **{kind: lambda parts, cls=cls: _put_index(cls, parts) for cls, kind in _INDEXES.items()},  # type: ignore[misc]
    "pandas.RangeIndex": _put_range,
    "pandas.MultiIndex": _put_multi,
    "pandas.Categorical": _put_categorical,
    "pandas.DatetimeArray": _put_times,
    "pandas.TimedeltaArray": _put_spans,
    "pandas.PeriodArray": _put_periods,
    "pandas.IntervalArray": _put_intervals,
    **{kind: lambda parts, cls=cls: _put_masked(cls, parts) for cls, kind in _MASKED.items()},  # type: ignore[misc]
    "pandas.StringArray": _put_texts,
    "pandas.Timestamp": _put_timestamp,
    "pandas.Timedelta": _put_timedelta,
    "pandas.Period": _put_period,
    "pandas.Interval": lambda parts: pd.Interval(*parts),
    "pandas.NaT": _put_nothing(pd.NaT),
    "pandas.NA": _put_nothing(pd.NA),
}


def put_together(kind: str, parts: list[Any]) -> Any:
    """A value from its parts; raises whatever pandas raises."""
    return _PUTTERS[kind](parts)
