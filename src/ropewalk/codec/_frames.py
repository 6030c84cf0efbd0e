"""Frames, series and indexes of pandas and polars, stored column by column.

Each is stored under its kind as a list of parts: plain values, numpy arrays, or frames
again. So only columns that changed are stored anew. Whatever is built from stored parts is
taken apart again and compared with them, so a frame has one accepted encoding, and one that
the installed version of the library would change is an error.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Final

from ropewalk.codec import _numpy
from ropewalk.codec._codes import Code
from ropewalk.codec._opened import Form, Opened
from ropewalk.codec._paths import Field
from ropewalk.errors import (
    ChangedMeanwhile,
    FormatError,
    NotStorable,
    RopewalkError,
    UndeclaredClass,
)

KINDS: Final = frozenset(
    {
        *("pandas.DataFrame", "pandas.Series", "pandas.Index", "pandas.RangeIndex"),
        *("pandas.MultiIndex", "pandas.DatetimeIndex", "pandas.TimedeltaIndex"),
        *("pandas.PeriodIndex", "pandas.IntervalIndex", "pandas.CategoricalIndex"),
        *("pandas.Categorical", "pandas.DatetimeArray", "pandas.TimedeltaArray"),
        *("pandas.PeriodArray", "pandas.IntervalArray", "pandas.IntegerArray"),
        *("pandas.FloatingArray", "pandas.BooleanArray", "pandas.StringArray"),
        *("pandas.Timestamp", "pandas.Timedelta", "pandas.Period", "pandas.Interval"),
        *("pandas.NaT", "pandas.NA", "polars.DataFrame", "polars.Series"),
    }
)


_ATTEMPTS: Final = 8
_FRAME_PARTS: Final = ("index", "columns", "attrs", "flags")
_SERIES_PARTS: Final = ("values", "index", "name", "attrs", "flags")


def library_of(value: Any) -> ModuleType | None:
    """The module that knows a value of pandas or polars."""
    name = type(value).__module__
    root = name.partition(".")[0] if isinstance(name, str) else ""
    if root not in ("pandas", "polars") or root not in sys.modules:
        return None
    return _module(root)


def _module(root: str) -> ModuleType:
    if root == "pandas":
        from ropewalk.codec import _pandas

        return _pandas
    from ropewalk.codec import _polars

    return _polars


def open_frame(value: Any) -> Opened | None:
    """The parts of a value of pandas or polars; None for other values."""
    module = library_of(value)
    found = None if module is None else _take_apart(module, value)
    return None if found is None else Opened(Code.FRAME, Form.SEQUENCE, found[1], (found[0],))


def _take_apart(module: ModuleType, value: Any) -> tuple[str, list[Any]] | None:
    """The kind and the parts of a value.

    In the middle of a change by another thread, pandas fails with whatever comes.
    """
    failure: Exception | None = None
    for _ in range(_ATTEMPTS):
        try:
            taken: tuple[str, list[Any]] | None = module.take_apart(value)
        except (RopewalkError, RecursionError, MemoryError):
            raise
        except Exception as exc:  # noqa: BLE001
            failure = exc
        else:
            return taken
    raise ChangedMeanwhile from failure


def step_of(kind: str, parts: list[Any], at: int) -> Any:
    """The step of a path that leads to a part."""
    if kind == "pandas.DataFrame":
        return list(parts[1])[at - 4] if at >= 4 else Field(_FRAME_PARTS[at])
    if kind == "pandas.Series":
        return Field(_SERIES_PARTS[at])
    if kind == "polars.DataFrame" and at:
        return parts[at].name
    return at


def check_frame(content: list[Any]) -> None:
    """Raise FormatError unless this has the form of a frame; works without its library."""
    if len(content) != 2 or type(content[0]) is not str or content[0] not in KINDS:
        raise FormatError("a stored frame is malformed")
    if type(content[1]) is not list:
        raise FormatError("a stored frame has no parts")


def is_missing(kind: str) -> bool:
    """Whether the library of a kind is not installed."""
    try:
        __import__(kind.partition(".")[0])
    except ImportError:
        return True
    return False


def build_frame(kind: str, parts: list[Any]) -> Any:
    """A frame from its parts; raises FormatError, UndeclaredClass without its library."""
    root = kind.partition(".")[0]
    if is_missing(kind):
        raise UndeclaredClass(kind, f"a stored value is a {kind}; install {root} to read it")
    module = _module(root)
    try:
        built = module.put_together(kind, parts)
        found = module.take_apart(built)
    except (RopewalkError, RecursionError, MemoryError) as exc:
        if isinstance(exc, NotStorable):
            raise FormatError(f"a stored {kind} is malformed: {exc.reason}") from exc
        raise
    except Exception as exc:
        raise FormatError(f"a stored {kind} cannot be read with this {root}: {exc}") from exc
    if found is None or found[0] != kind or not same_part(found[1], parts):
        raise FormatError(f"a stored {kind} comes out as another value with this {root}")
    return built


def same_part(one: Any, other: Any) -> bool:
    """Whether two parts are the same value."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) is list:
        return len(one) == len(other) and all(map(same_part, one, other))
    if type(one) is dict:
        return same_part(list(one.items()), list(other.items()))
    if type(one) is tuple:
        return same_part(list(one), list(other))
    if _numpy.is_array(one):
        heads = _numpy.array_head(one), _numpy.array_head(other)
        same: bool = heads[0] == heads[1] and one.tobytes() == other.tobytes()
        return same
    module = library_of(one)
    if module is not None:
        ours, theirs = module.take_apart(one), module.take_apart(other)
        return ours is not None and theirs is not None and bool(same_part([*ours], [*theirs]))
    if _numpy.is_scalar(one) and one.dtype != other.dtype:
        return False  # Moments that are equal, but in other units.
    if type(one) is float:
        return bool(one.hex() == other.hex())
    return bool(one == other)


def expect(sound: bool, what: str) -> None:
    """Raise FormatError unless a part is what it must be."""
    if not sound:
        raise FormatError(f"a stored frame has {what} that is malformed")
