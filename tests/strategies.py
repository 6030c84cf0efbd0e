"""Hypothesis strategies for everything that can be stored, and exact equality.

`same` knows nothing of our codec: it says what "comes back as it was" means.
"""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
import pathlib
import re
import struct
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pydantic
from hypothesis import strategies as st

from tests.frames import FRAMES, SCALARS, same_frame
from tests.sample_types import (
    Coin,
    Color,
    Crate,
    Fixed,
    IntBox,
    Item,
    Level,
    Money,
    Note,
    Open,
    Person,
    Point,
    Right,
    Seat,
    Shade,
    Slim,
    Spot,
    Stamp,
    Word,
)

Value = Any

_EDGES = [0, 1, -1, 23, 127, 128, -32, -33, -128, -129, 255, 256, 65535, 65536]
_EDGES += [2**31, 2**32 - 1, 2**32, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1]
_EDGES += [2**64 - 1, 2**64, 2**64 + 1, 2**127, -(2**127), 10**40, -(10**40)]
_NAN_BITS = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0x7FFFFFFFFFFFFFFF]
_ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Chatham"]


def float_from_bits(bits: int) -> float:
    """The float with these bits, also a nan of another kind than the usual one."""
    made: float = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    return made


def _integers() -> st.SearchStrategy[int]:
    wide = st.integers(-(2**200), 2**200)
    return st.sampled_from(_EDGES) | st.integers(-(2**66), 2**66) | wide


def _floats() -> st.SearchStrategy[float]:
    special = st.sampled_from([0.0, -0.0, 1.0, float("inf"), float("-inf")])
    return special | st.floats() | st.sampled_from(_NAN_BITS).map(float_from_bits)


def _complexes() -> st.SearchStrategy[complex]:
    return st.builds(complex, _floats(), _floats())


def _texts() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def _zones() -> st.SearchStrategy[tzinfo | None]:
    offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23))
    plain = offsets.map(timezone)
    named = st.builds(timezone, offsets, _texts())
    return st.none() | st.just(UTC) | plain | named | _zone_infos()


def _zone_infos() -> st.SearchStrategy[tzinfo]:
    return st.sampled_from(_ZONES).map(zoneinfo.ZoneInfo)


def _times() -> st.SearchStrategy[time]:
    return st.builds(
        lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold),
        st.times(),
        _zones(),
        st.integers(0, 1),
    )


def _datetimes() -> st.SearchStrategy[datetime]:
    # The first and the last day have no neighbour to which an offset may lead.
    days = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29))
    return st.builds(
        lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold),
        days,
        _zones(),
        st.integers(0, 1),
    )


def _decimals() -> st.SearchStrategy[Decimal]:
    odd = ["0", "-0", "0E+5", "1E-400", "1.000", "-Infinity", "Infinity", "NaN", "-NaN", "NaN12"]
    return st.sampled_from(odd).map(Decimal) | st.decimals(allow_nan=False)


def _paths() -> st.SearchStrategy[pathlib.PurePath]:
    parts = st.lists(st.text(st.sampled_from("ab./\\: é*"), max_size=6), max_size=4)
    flavours: list[Callable[..., pathlib.PurePath]] = [pathlib.PurePosixPath, pathlib.Path]
    windows = st.lists(st.text(st.sampled_from("abé."), max_size=6), max_size=4)
    return st.one_of(
        st.builds(lambda make, pieces: make(*pieces), st.sampled_from(flavours), parts),
        windows.map(lambda pieces: pathlib.PureWindowsPath("C:\\", *pieces)),
    )


def _ranges() -> st.SearchStrategy[range]:
    return st.builds(range, _integers(), _integers(), _integers().filter(bool))


def _patterns() -> st.SearchStrategy[re.Pattern[Any]]:
    texts = st.sampled_from(["", "a|b", "(?i)é", "(?P<n>x)(?=y)", "[\u4e00-\u9fff]+", "a{2,}?#"])
    flags = [0, re.I, re.M | re.S, re.X, re.A, re.I | re.X | re.S]
    raw = [(b"a|b", re.L), (b"\xff(?i:x)", 0), (b"", re.I | re.M)]
    return st.one_of(
        st.builds(re.compile, texts, st.sampled_from(flags)),
        st.text("ab.*[](){}é", max_size=8).map(re.escape).map(re.compile),
        st.sampled_from(raw).map(lambda pair: re.compile(*pair)),
    )


def _addresses() -> st.SearchStrategy[Value]:
    scopes = st.sampled_from(["", "%eth0", "%1"])
    fourth, sixth = st.ip_addresses(v=4), st.ip_addresses(v=6)
    narrow, wide = st.integers(0, 32), st.integers(0, 128)
    scoped = st.builds(lambda one, scope: f"{one}{scope}", sixth, scopes)
    return st.one_of(
        fourth,
        scoped.map(ipaddress.IPv6Address),
        st.builds(
            lambda one, n: ipaddress.IPv4Network((int(one), n), strict=False), fourth, narrow
        ),
        st.builds(lambda one, n: ipaddress.IPv6Network((int(one), n), strict=False), sixth, wide),
        st.builds(lambda one, n: ipaddress.IPv4Interface(f"{one}/{n}"), fourth, narrow),
        st.builds(lambda one, n: ipaddress.IPv6Interface(f"{one}/{n}"), scoped, wide),
        scoped.map(ipaddress.IPv6Network),
    )


def _enums() -> st.SearchStrategy[enum.Enum]:
    members: list[enum.Enum] = [*Color, *Level, *Word, *Right, *Shade]
    composed = [Right(0), Right.READ | Right.OWN, Right.WRITE | Right.VAST]
    return st.sampled_from([*members, *composed])


_DTYPES = "?bBhHiIlLefdFD"
_NAMED_DTYPES = [*_DTYPES, ">i4", ">f8", ">u2", "M8[s]", "m8[us]", ">M8[ns]", "M8[D]", "S5", "U3"]


def _numpy_scalars() -> st.SearchStrategy[np.generic]:
    dtypes = st.sampled_from([*_DTYPES, "M8[s]", "m8[us]", "M8[D]"]).map(np.dtype)
    numbers = st.builds(_scalar, dtypes, st.binary(min_size=16, max_size=16))
    texts = _texts().map(lambda text: np.str_(text.rstrip("\0")))
    return numbers | texts | st.binary(max_size=8).map(lambda raw: np.bytes_(raw.rstrip(b"\0")))


def _scalar(dtype: np.dtype[Any], raw: bytes) -> np.generic:
    if dtype.kind == "b":
        return np.bool_(raw[0] & 1)
    made: np.generic = np.frombuffer(raw[: dtype.itemsize], dtype)[0]
    return made


def arrays() -> st.SearchStrategy[np.ndarray[Any, Any]]:
    """numpy arrays of every element type, in both memory orders."""
    dtypes = st.sampled_from(_NAMED_DTYPES).map(np.dtype)
    shapes = st.lists(st.integers(0, 3), max_size=3)
    return st.builds(_array, dtypes, shapes, st.sampled_from("CF"), st.integers(0, 2**32))


def _array(dtype: np.dtype[Any], shape: list[int], order: Any, seed: int) -> Any:
    count = int(np.prod(shape, dtype=int))
    raw = np.random.default_rng(seed).bytes(count * dtype.itemsize)
    if dtype.kind == "b":
        raw = bytes(byte & 1 for byte in raw)
    if dtype.kind == "U":
        raw = np.array([f"é{seed % 97}"[:3]] * count, dtype).tobytes()
    return np.frombuffer(raw, dtype).copy().reshape(shape, order=order)


def storable_atoms() -> st.SearchStrategy[Value]:
    """Values without parts, all of them hashable."""
    return st.one_of(
        st.none(),
        st.booleans(),
        _integers(),
        _floats(),
        _complexes(),
        _texts(),
        st.binary(max_size=40),
        st.dates(),
        _times(),
        _datetimes(),
        st.timedeltas(),
        st.uuids(),
        _decimals(),
        _paths(),
        _enums(),
        _numpy_scalars(),
        _ranges(),
        st.fractions(),
        _patterns(),
        _addresses(),
        _frame_scalars(),
        st.builds(Money, st.integers(), _texts()),
    )


def storable_keys() -> st.SearchStrategy[Value]:
    """Hashable values, also those with parts."""
    return st.recursive(storable_atoms(), _hashable_containers, max_leaves=4)


def _hashable_containers(parts: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.lists(parts, max_size=3).map(tuple),
        _distinct(parts, 3).map(frozenset),
        st.builds(Point, parts, parts),
        st.builds(Spot, parts, parts),
        st.builds(Coin, parts),
        st.builds(Seat, parts, parts),
        st.builds(Stamp, parts, parts),
        st.builds(lambda held: Fixed(held=held), parts),
    )


def storable_values(max_leaves: int = 12) -> st.SearchStrategy[Value]:
    """Any value that can be stored, of every type that there is."""
    leaves = storable_atoms() | st.binary(max_size=20).map(bytearray) | arrays() | _frames()
    return st.recursive(leaves, _containers, max_leaves=max_leaves)


def _containers(parts: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    keys = storable_keys()
    return st.one_of(
        st.lists(parts, max_size=5),
        st.lists(parts, max_size=4).map(tuple),
        st.dictionaries(_texts(), parts, max_size=4),
        st.builds(dict, _pairs(keys, parts)),
        _distinct(keys, 4).map(set),
        _distinct(keys, 4).map(frozenset),
        _collections(keys, parts),
        _objects(parts),
    )


def _collections(
    keys: st.SearchStrategy[Value], parts: st.SearchStrategy[Value]
) -> st.SearchStrategy[Value]:
    pairs = st.dictionaries(_texts(), parts, max_size=4).map(dict.items) | _pairs(keys, parts)
    factories = st.sampled_from([None, list, int, dict, str, set, Counter, deque, OrderedDict])
    return st.one_of(
        st.builds(deque, st.lists(parts, max_size=4), st.none() | st.integers(0, 2**63 - 1)),
        st.builds(_moved, pairs, st.booleans()),
        pairs.map(_counter),
        _distinct(keys, 4).map(Counter),
        st.builds(defaultdict, factories, pairs),
    )


def _moved(pairs: Iterable[tuple[Value, Value]], moves: bool) -> OrderedDict[Value, Value]:
    """An OrderedDict whose order may be another one than that of the dict underneath."""
    made = OrderedDict(pairs)
    if made and moves:
        made.move_to_end(next(iter(made)))
    return made


def _counter(pairs: Iterable[tuple[Value, Value]]) -> Counter[Value]:
    made: Counter[Value] = Counter()
    dict.update(made, pairs)
    return made


def _pairs(
    keys: st.SearchStrategy[Value], parts: st.SearchStrategy[Value]
) -> st.SearchStrategy[list[tuple[Value, Value]]]:
    return st.lists(st.tuples(keys, parts), max_size=4).map(
        lambda pairs: _once(pairs, lambda pair: pair[0])
    )


def _distinct(members: st.SearchStrategy[Value], most: int) -> st.SearchStrategy[list[Value]]:
    return st.lists(members, max_size=most).map(lambda found: _once(found, lambda one: one))


def _once(found: list[Value], key: Callable[[Value], Value]) -> list[Value]:
    """Drop what has the same key as an earlier one: two nans are two keys for Python."""
    kept: list[Value] = []
    for one in found:
        if not any(same(key(one), key(other)) for other in kept):
            kept.append(one)
    return kept


def _objects(parts: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.builds(Point, parts, parts),
        st.builds(Note, parts, parts),
        st.builds(Note, parts),
        st.builds(Spot, parts, parts),
        st.builds(Slim, parts, parts),
        st.builds(lambda name: Person(name=name), parts),
        st.builds(lambda name, age: Person(name=name, age=age), parts, parts),
        st.builds(_open_model, parts, st.dictionaries(_extra_names(), parts, max_size=2), parts),
        st.builds(lambda number: IntBox(content=number), st.integers()),
        st.builds(Item, parts, parts),
        st.builds(Coin, parts),
        st.builds(Crate, parts, parts),
        st.builds(Seat, parts, parts),
        st.builds(Stamp, parts, parts),
    )


def _extra_names() -> st.SearchStrategy[str]:
    return st.sampled_from(["colour", "+plus", "size of it", "é", "_under"])


def _open_model(known: Value, extra: dict[str, Value], secret: Value) -> Open:
    # Pydantic itself keeps no extra value whose name begins like a private one.
    made = Open(known=known, **{name: held for name, held in extra.items() if name[0] != "_"})
    made._secret = secret
    return made


_FEW = ["a Series of texts", "labels only", "a long range", "a Categorical", "polars: a Series"]


@cache
def _made(name: str) -> Value:
    # One of a kind is made once: pandas takes its time, and nobody changes them.
    return FRAMES[name]()


def _frames() -> st.SearchStrategy[Value]:
    return st.sampled_from(_FEW).map(_made)


def _frame_scalars() -> st.SearchStrategy[Value]:
    return st.sampled_from(list(SCALARS.values())).map(lambda make: make())


def same(a: Value, b: Value) -> bool:
    """Whether two values cannot be told apart, type by type and bit by bit."""
    if type(a) is not type(b):
        return False
    if type(a).__module__.partition(".")[0] in ("pandas", "polars"):
        return same_frame(a, b)
    for kind, compare in _COMPARE:
        if isinstance(a, kind):
            return compare(a, b)
    raise TypeError(f"no exact equality is known for {type(a).__qualname__}")


def _same_float(a: float, b: float) -> bool:
    return struct.pack(">d", a) == struct.pack(">d", b)


def _same_items(a: Iterable[Value], b: Iterable[Value]) -> bool:
    ours, theirs = list(a), list(b)
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def _same_dict(a: dict[Value, Value], b: dict[Value, Value]) -> bool:
    return _same_items(a, b) and _same_items(a.values(), b.values())


def _same_address(a: Value, b: Value) -> bool:
    scopes = [getattr(getattr(one, "network_address", one), "scope_id", None) for one in (a, b)]
    return str(a) == str(b) and scopes[0] == scopes[1]


def _same_set(a: Iterable[Value], b: Iterable[Value]) -> bool:
    left = list(b)
    for one in a:
        found = [index for index, other in enumerate(left) if same(one, other)]
        if not found:
            return False
        del left[found[0]]
    return not left


def _same_zone(a: tzinfo | None, b: tzinfo | None) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, zoneinfo.ZoneInfo) and isinstance(b, zoneinfo.ZoneInfo):
        return a.key == b.key
    # The offset, and the name if one was given.
    return a is b or a.__reduce__() == b.__reduce__()


def _same_clock(a: time | datetime, b: time | datetime) -> bool:
    plain = a.replace(tzinfo=None, fold=0) == b.replace(tzinfo=None, fold=0)
    return plain and a.fold == b.fold and _same_zone(a.tzinfo, b.tzinfo)


def _order(array: np.ndarray[Any, Any]) -> str:
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def _same_array(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    heads = [(x.dtype.str, x.dtype.char, x.shape, _order(x)) for x in (a, b)]
    return heads[0] == heads[1] and a.tobytes() == b.tobytes()


def _same_path(a: pathlib.PurePath, b: pathlib.PurePath) -> bool:
    return str(a) == str(b) and (a.drive, a.root, a.parts) == (b.drive, b.root, b.parts)


def _same_model(a: pydantic.BaseModel, b: pydantic.BaseModel) -> bool:
    return (
        same(a.__dict__, b.__dict__)
        and same(a.__pydantic_extra__, b.__pydantic_extra__)
        and same(a.__pydantic_private__, b.__pydantic_private__)
        and a.__pydantic_fields_set__ == b.__pydantic_fields_set__
    )


def _same_fields(names: Iterable[str], a: Value, b: Value) -> bool:
    fields = all(same(getattr(a, name), getattr(b, name)) for name in names)
    return fields and same(getattr(a, "__dict__", None), getattr(b, "__dict__", None))


def _same_struct(a: msgspec.Struct, b: msgspec.Struct) -> bool:
    return _same_fields(a.__struct_fields__, a, b)


def _same_object(a: Value, b: Value) -> bool:
    if hasattr(type(a), "__attrs_attrs__"):
        return all(same(getattr(a, one.name), getattr(b, one.name)) for one in a.__attrs_attrs__)
    if dataclasses.is_dataclass(a):
        return _same_fields([field.name for field in dataclasses.fields(a)], a, b)
    return _same_dict(dict(vars(a)), dict(vars(b)))


_ADDRESSES = (
    *(ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network),
    *(ipaddress.IPv6Network, ipaddress.IPv4Interface, ipaddress.IPv6Interface),
)
# The first that fits decides: numpy scalars and enum members may also be numbers.
_COMPARE: list[tuple[type | tuple[type, ...], Callable[[Value, Value], bool]]] = [
    (enum.Enum, lambda a, b: a is b),
    (np.generic, lambda a, b: a.dtype.str == b.dtype.str and a.tobytes() == b.tobytes()),
    (np.ndarray, _same_array),
    (float, _same_float),
    (complex, lambda a, b: _same_float(a.real, b.real) and _same_float(a.imag, b.imag)),
    ((type(None), int, str, bytes, bytearray, uuid.UUID), lambda a, b: a == b),
    ((list, tuple), _same_items),
    (deque, lambda a, b: _same_items(a, b) and a.maxlen == b.maxlen),
    (defaultdict, lambda a, b: _same_dict(a, b) and a.default_factory is b.default_factory),
    (range, lambda a, b: (a.start, a.stop, a.step) == (b.start, b.stop, b.step)),
    (Fraction, lambda a, b: a.as_integer_ratio() == b.as_integer_ratio()),
    (re.Pattern, lambda a, b: same(a.pattern, b.pattern) and a.flags == b.flags),
    (_ADDRESSES, _same_address),
    (dict, _same_dict),
    ((set, frozenset), _same_set),
    ((time, datetime), _same_clock),
    ((date, timedelta), lambda a, b: a == b),
    (Decimal, lambda a, b: a.as_tuple() == b.as_tuple()),
    (pathlib.PurePath, _same_path),
    (pydantic.BaseModel, _same_model),
    (msgspec.Struct, _same_struct),
    (object, _same_object),
]
