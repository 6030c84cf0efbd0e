"""Values of polars as parts, and back. Imported only where polars is used or read."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import numpy as np
import polars as pl

from ropewalk.codec.frames import expect
from ropewalk.errors import FormatError, NotStorable

_NUMBERS: Final = {
    name: getattr(pl, name)
    for name in (
        *("Boolean", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
        *("Float16", "Float32", "Float64", "Date", "Time"),
    )
    if hasattr(pl, name)
}
"""Types that polars stores as numbers."""
_LISTED: Final = {
    name: getattr(pl, name)
    for name in ("String", "Binary", "Null", "Object", "Int128", "UInt128")
    if hasattr(pl, name)
}
_UNITS: Final = ("ms", "us", "ns")
_DEEPEST: Final = 16
_MOST_ROOM: Final = 1 << 24
"""A null that stands for an array takes the room of all its elements."""


def take_apart(value: Any) -> tuple[str, list[Any]] | None:
    """The kind of a value and its parts; None for what is not stored."""
    if type(value) is pl.DataFrame:
        return "polars.DataFrame", [value.height, *value.get_columns()]
    if type(value) is pl.Series:
        return "polars.Series", _take_series(value)
    if isinstance(value, pl.LazyFrame):
        raise NotStorable("a LazyFrame is a query and no data; store what collect() gives")
    return None


def put_together(kind: str, parts: list[Any]) -> Any:
    """A value from its parts; raises whatever polars raises."""
    try:
        return _put(kind, parts)
    except pl.exceptions.PanicException as exc:  # No Exception.
        raise FormatError(f"a stored {kind} makes this polars fail: {exc}") from exc


def _put(kind: str, parts: list[Any]) -> Any:
    if kind == "polars.Series":
        return _put_series(parts)
    height, *columns = parts
    expect(type(height) is int and 0 <= height < 2**32, "a height")
    sound = all(type(one) is pl.Series and len(one) == height for one in columns)
    expect(sound, "a column")
    if not columns:
        return pl.DataFrame(height=height)
    # By their names: polars calls a column of a list otherwise where its name is empty.
    made = {one.name: one for one in columns}
    expect(len(made) == len(columns), "two columns of one name")
    return pl.DataFrame(made)


def _take_series(series: Any) -> list[Any]:
    spec = _spec(series.dtype, 0)
    if _is_flat(spec):
        physical = series.to_physical()
        empty = False if physical.dtype == pl.Boolean else 0
        values = np.array(physical.fill_null(empty).to_numpy())
        nulls = np.array(series.is_null().to_numpy()) if series.null_count() else None
        return [series.name, spec, values, nulls]
    if type(spec) is str or spec[0] == "Decimal":
        return [series.name, spec, series.to_list(), None]
    if spec[0] in ("Categorical", "Enum"):
        return [series.name, spec, series.cast(pl.String).to_list(), None]
    values = series.to_physical().to_list()
    if _room(spec, values) > _MOST_ROOM:
        raise NotStorable("a polars series with so many nulls in the place of arrays is not stored")
    if not _put_nested(series.name, spec, values).equals(series, null_equal=True):
        raise NotStorable(f"a polars series of dtype {series.dtype} has no exact stored form")
    return [series.name, spec, values, None]


def _is_flat(spec: Any) -> bool:
    return spec in _NUMBERS if type(spec) is str else spec[0] in ("Datetime", "Duration")


def _put_series(parts: list[Any]) -> Any:
    name, spec, values, nulls = parts
    expect(type(name) is str and _is_spec(spec, 0), "a type")
    dtype = _dtype(spec)
    if _is_flat(spec):
        expect(type(values) is np.ndarray and values.ndim == 1, "a column")
        made = pl.Series(name, values)
        if nulls is not None:
            expect(type(nulls) is np.ndarray and nulls.dtype == bool, "nulls")
            expect(nulls.shape == values.shape, "nulls")
            made = made.set(pl.Series(nulls), None)
        expect(made.dtype == _physical(spec), "a column")
        return made.cast(dtype)
    expect(type(values) is list and nulls is None, "a column")
    if type(spec) is str or spec[0] == "Decimal":
        return pl.Series(name, values, dtype=dtype)
    if spec[0] in ("Categorical", "Enum"):
        return pl.Series(name, values, dtype=pl.String).cast(dtype)
    # Before polars makes anything of them.
    expect(_room(spec, values) <= _MOST_ROOM, "too many nulls")
    return _put_nested(name, spec, values)


def _put_nested(name: str, spec: Any, values: list[Any]) -> Any:
    return pl.Series(name, values, dtype=_physical(spec)).cast(_dtype(spec))


def _room(spec: Any, values: list[Any]) -> int:
    """How many elements polars makes of nulls that stand for whole arrays."""
    match spec:
        case ["Array", inner, _]:
            given = [one for one in values if one is not None]
            nulls = len(values) - len(given)
            return nulls * _width(spec) + _room(inner, [*chain.from_iterable(given)])
        case ["List", inner]:
            return _room(inner, [*chain.from_iterable(one for one in values if one is not None)])
        case ["Struct", fields]:
            held = [one or {} for one in values]
            return sum(_room(inner, [one.get(name) for one in held]) for name, inner in fields)
    return 0


def _width(spec: Any) -> int:
    """How many elements one value of a type takes, also if it is null."""
    match spec:
        case ["Array", inner, size]:
            return int(size) * _width(inner)
        case ["Struct", fields]:
            return sum(_width(inner) for _, inner in fields)
    return 1


def _spec(dtype: Any, depth: int) -> Any:
    """A dtype as a plain value."""
    kind = type(dtype).__name__
    if depth < _DEEPEST:
        inner = depth + 1
        if kind in _NUMBERS or (kind in _LISTED and (not depth or kind != "Object")):
            return kind
        if kind in ("Datetime", "Duration"):
            zone = [dtype.time_zone] if kind == "Datetime" else []
            return [kind, dtype.time_unit, *zone]
        if kind == "Decimal" and not depth:
            return [kind, dtype.precision, dtype.scale]
        if kind == "Enum" and not depth:
            return [kind, dtype.categories.to_list()]
        if kind == "Categorical" and not depth and dtype == pl.Categorical():
            return [kind]
        if kind == "List":
            return [kind, _spec(dtype.inner, inner)]
        if kind == "Array" and type(dtype.size) is int:
            return [kind, _spec(dtype.inner, inner), dtype.size]
        if kind == "Struct":
            return [kind, [[field.name, _spec(field.dtype, inner)] for field in dtype.fields]]
    raise NotStorable(
        f"a polars series of dtype {dtype!r:.80} has no exact stored form; cast it to another one"
    )


def _is_spec(spec: Any, depth: int) -> bool:  # noqa: PLR0911 - one line for each type
    if depth >= _DEEPEST:
        return False
    match spec:
        case str():
            return spec in _NUMBERS or spec in _LISTED
        case ["Datetime", str() as unit, None | str()]:
            return unit in _UNITS
        case ["Duration", str() as unit]:
            return unit in _UNITS
        case ["Decimal", int(), int()]:
            return bool(1 <= spec[1] <= 38 and 0 <= spec[2] <= spec[1])
        case ["Enum", list(names)]:
            return set(map(type, names)) <= {str}
        case ["Categorical"]:
            return True
        case ["List", inner]:
            return _is_spec(inner, depth + 1)
        case ["Array", inner, int(size)]:
            return 0 <= size < 2**20 and _is_spec(inner, depth + 1)
        case ["Struct", list(fields)]:
            return all(
                type(one) is list
                and len(one) == 2
                and type(one[0]) is str
                and _is_spec(one[1], depth + 1)
                for one in fields
            )
    return False


def _dtype(spec: Any) -> Any:
    if type(spec) is str:
        return (_NUMBERS | _LISTED)[spec]
    match spec:
        case ["Datetime", unit, zone]:
            return pl.Datetime(unit, zone)
        case ["Duration", unit]:
            return pl.Duration(unit)
        case ["Decimal", precision, scale]:
            return pl.Decimal(precision, scale)
        case ["Enum", names]:
            return pl.Enum(names)
        case ["List", inner]:
            return pl.List(_dtype(inner))
        case ["Array", inner, size]:
            return pl.Array(_dtype(inner), size)
        case ["Struct", fields]:
            return pl.Struct([pl.Field(name, _dtype(inner)) for name, inner in fields])
    return pl.Categorical()


def _physical(spec: Any) -> Any:
    """The type in which polars stores the values of another one."""
    match spec:
        case "Date":
            return pl.Int32
        case "Time" | ["Datetime" | "Duration", *_]:
            return pl.Int64
        case ["List", inner]:
            return pl.List(_physical(inner))
        case ["Array", inner, size]:
            return pl.Array(_physical(inner), size)
        case ["Struct", fields]:
            return pl.Struct([pl.Field(name, _physical(inner)) for name, inner in fields])
    return _dtype(spec)
