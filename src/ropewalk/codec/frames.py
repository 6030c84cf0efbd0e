"""Arrays of numpy, and frames, series and indexes of pandas and polars.

A frame is stored under its kind, column by column, as a list of parts: plain values, numpy
arrays, or frames again. So only columns that changed are stored anew. Whatever is built from
stored parts is taken apart again and compared with them, so a frame has one accepted encoding,
and one that the installed version of the library would change is an error.
"""

from __future__ import annotations

import math
import re
import sys
from types import ModuleType
from typing import Any, Final

from ropewalk.codec.msgpack import ATTEMPTS, Code, Form, Opened, pack, unpack
from ropewalk.codec.paths import Field
from ropewalk.errors import (
    ChangedMeanwhile,
    FormatError,
    NotStorable,
    RopewalkError,
    UndeclaredClass,
)

_MAX_DIMENSIONS = 64
_ELEMENT = re.compile(r"[<>|][biufcSU][0-9]{1,10}|[<>][mM]8(\[[0-9]{0,10}[a-zA-Z]{1,2}\])?")


def scalar_types(module: Any) -> list[type]:
    """Every concrete scalar type of numpy, also the two names of one width."""
    found: list[type] = []
    pending = [module.generic]
    while pending:
        cls = pending.pop()
        below = [sub for sub in cls.__subclasses__() if sub.__module__ == "numpy"]
        pending.extend(below)
        if not below:
            found.append(cls)
    return [cls for cls in found if cls not in (module.object_,)]


def is_array(value: Any) -> bool:
    """Whether a value is exactly a numpy array (a subclass may hold more)."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def is_scalar(value: Any) -> bool:
    """Whether a value is a scalar of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def array_head(value: Any) -> tuple[str, list[int], str]:
    """Element type, shape and memory order of an array."""
    if value.dtype.itemsize == 0:
        raise NotStorable("numpy elements that take no bytes have no exact stored form")
    return _dtype_name(value.dtype), list(value.shape), _order(value)


def take_array(value: Any) -> tuple[tuple[str, list[int], str], bytes]:
    """The head of an array, and its elements in its memory order, as of one moment.

    numpy changes elements without the lock of the interpreter, so they are read twice.
    """
    head, data = array_head(value), array_bytes(value)
    for _ in range(ATTEMPTS):
        again = array_head(value), array_bytes(value)
        if again == (head, data):
            return again
        head, data = again
    raise ChangedMeanwhile


def array_bytes(value: Any) -> bytes:
    """The elements of an array, in its memory order."""
    return bytes(value.tobytes(order=_order(value)))


def _order(value: Any) -> str:
    return "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"


def build_array(dtype: Any, shape: Any, order: Any, data: Any) -> Any:
    """An array that owns its elements; raises FormatError, UndeclaredClass without numpy."""
    numpy = _numpy()
    element = _parse_dtype(dtype)
    _check_shape(element.itemsize, shape, order, data)
    flat = numpy.frombuffer(data, dtype=element).copy() if data else numpy.empty(0, element)
    try:
        built = flat.reshape(shape, order=order)
    except ValueError as exc:
        raise FormatError(f"a stored array has a malformed shape: {exc}") from exc
    if array_head(built) != (dtype, shape, order):
        raise FormatError("a stored array is not in its one form")
    return built


def check_array(dtype: Any, shape: Any, order: Any, data: Any) -> None:
    """Raise FormatError unless it is an array, in its one form as far as can be seen here."""
    try:
        build_array(dtype, shape, order, data)
    except UndeclaredClass:  # There is no numpy, which does not make the array unsound.
        _check_shape(element_size(dtype), shape, order, data)


def _check_shape(element_size: int, shape: Any, order: Any, data: Any) -> None:
    sound = (
        isinstance(shape, list)
        and len(shape) <= _MAX_DIMENSIONS
        and all(type(side) is int and 0 <= side < 2**62 for side in shape)
        and order in ("C", "F")
        and isinstance(data, bytes)
        and element_size > 0
        and math.prod(shape) * element_size == len(data)
    )
    if not sound:
        raise FormatError("a stored array has a malformed shape")


def element_size(name: Any) -> int:
    """How many bytes a stored element takes, also where numpy is not installed."""
    if not isinstance(name, str) or _ELEMENT.fullmatch(name) is None:
        raise FormatError("a stored numpy element type is malformed")
    if name[1] in "mM":
        return 8
    return int(name[2:]) * (4 if name[1] == "U" else 1)


def encode_scalar(value: Any) -> bytes:
    """The bytes of a numpy scalar with its type."""
    # numpy gives an empty text the bytes of one letter.
    stored = value.tobytes()[: value.dtype.itemsize]
    encoded = pack([_dtype_name(value.dtype), stored])
    # numpy drops zeros at the end of a text when it reads one.
    if value.dtype.kind in "SU" and len(decode_scalar(encoded)) != len(value):
        raise NotStorable(f"numpy would drop the zeros at the end of {value!r}; use str or bytes")
    return encoded


def decode_scalar(data: bytes) -> Any:
    """A numpy scalar; raises FormatError, UndeclaredClass without numpy."""
    dtype, stored = unpack(data)
    element = _parse_dtype(dtype)
    if not isinstance(stored, bytes) or len(stored) != element.itemsize:
        raise FormatError("a stored numpy scalar has a malformed size")
    if not stored:
        return element.type()
    if element.kind == "U":
        # numpy reports a number that is no letter as an internal error.
        stored.decode("utf-32-le" if dtype[0] == "<" else "utf-32-be", "surrogatepass")
    return _numpy().frombuffer(stored, dtype=element)[0]


def _dtype_name(dtype: Any) -> str:
    if dtype.kind not in "biufcmMSU":
        raise NotStorable(f"numpy elements of type {dtype} have no exact stored form")
    if dtype.char in "gG":
        raise NotStorable(f"numpy elements of type {dtype} differ between machines; use float64")
    if _numpy().dtype(dtype.str).char != dtype.char:
        raise NotStorable(
            f"numpy elements of type {dtype.type.__name__} come back as another type of the "
            "same width; use int64 or uint64"
        )
    if dtype.metadata:
        raise NotStorable("numpy elements with metadata have no exact stored form")
    return str(dtype.str)


def _parse_dtype(name: Any) -> Any:
    if not isinstance(name, str) or _ELEMENT.fullmatch(name) is None:
        raise FormatError("a stored numpy element type is malformed")
    numpy = _numpy()
    try:
        dtype = numpy.dtype(name)
        if _dtype_name(dtype) == name:
            return dtype
    except (TypeError, ValueError, SyntaxError) as exc:
        raise FormatError(f"the stored numpy element type {name!r} is not known") from exc
    raise FormatError(f"the stored numpy element type {name!r} is not in its one form")


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as exc:
        raise UndeclaredClass(
            "numpy.ndarray", "a stored value is of numpy; install numpy to read it"
        ) from exc
    return numpy


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
        from ropewalk.codec import pandas

        return pandas
    from ropewalk.codec import polars

    return polars


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
    for _ in range(ATTEMPTS):
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
    if is_array(one):
        heads = array_head(one), array_head(other)
        same: bool = heads[0] == heads[1] and one.tobytes() == other.tobytes()
        return same
    module = library_of(one)
    if module is not None:
        ours, theirs = module.take_apart(one), module.take_apart(other)
        return ours is not None and theirs is not None and bool(same_part([*ours], [*theirs]))
    if is_scalar(one) and one.dtype != other.dtype:
        return False  # Moments that are equal, but in other units.
    if type(one) is float:
        return bool(one.hex() == other.hex())
    return bool(one == other)


def expect(sound: bool, what: str) -> None:
    """Raise FormatError unless a part is what it must be."""
    if not sound:
        raise FormatError(f"a stored frame has {what} that is malformed")
