"""Values that msgpack cannot say: dates, ids, numbers, paths, patterns, and `collections`.

Atoms have no parts, and one form only: decoding and encoding again gives the same bytes.
Modules are adopted when a program has imported them, so that importing Ropewalk stays light.
Containers of `collections` are stored as the list or dict that they hold, under a code of
their own; what else one needs stands before that: the longest length of a deque, the factory
of a defaultdict.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ormsgpack import Ext

from ropewalk.codec.frames import decode_scalar, encode_scalar, scalar_types
from ropewalk.codec.msgpack import Code, Form, Opened, pack, unpack
from ropewalk.errors import (
    ChangedMeanwhile,
    FormatError,
    NotStorable,
    RopewalkError,
    UndeclaredClass,
)


class Atom(NamedTuple):
    """How values of one type become the bytes of an extension."""

    code: Code
    encode: Callable[[Any], bytes]


def _encode_int(value: int) -> bytes:
    # One bit more than the magnitude, for the sign.
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _decode_int(data: bytes) -> int:
    value = int.from_bytes(data, "big", signed=True)
    if -(2**63) <= value < 2**64:
        raise FormatError("a small integer is stored as a large one")
    return value


def encode_zone(zone: Any) -> Any:
    """A time zone as a plain value; raises NotStorable."""
    from datetime import timedelta, timezone

    if zone is None:
        return None
    if type(zone) is timezone:
        offset = zone.utcoffset(None) // timedelta(microseconds=1)
        named = zone.__getinitargs__()[1:]  # type: ignore[attr-defined]
        return [offset, *named] if named else offset
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is not None and type(zone) is zoneinfo.ZoneInfo and _is_found(zone):
        return zone.key
    raise NotStorable(
        f"the time zone {zone!r} is a {type(zone).__module__}.{type(zone).__qualname__}; "
        "use datetime.timezone, or a zoneinfo.ZoneInfo that was found by its key"
    )


def decode_zone(stored: Any) -> Any:
    """The time zone that was stored so; raises FormatError."""
    from datetime import timedelta, timezone

    if stored is None:
        return None
    if isinstance(stored, str):
        return _named_zone(stored)
    if isinstance(stored, list):
        offset, name = stored
        return timezone(timedelta(microseconds=offset), name)
    return timezone(timedelta(microseconds=stored))


def _named_zone(key: str) -> Any:
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(key)
    except Exception as exc:
        raise FormatError(
            f"the time zone {key!r} is not known on this machine; "
            "if it is a real one, install the package tzdata"
        ) from exc


def _is_found(zone: Any) -> bool:
    # A zone that was read from a file may have no key, or that of another zone. It
    # refuses to be pickled; the error is not named here, because that loads pickle.
    try:
        zone.__reduce__()
        return zone.key is not None and _named_zone(zone.key) is not None
    except Exception:  # noqa: BLE001 - whatever it is, the zone is not found by its key
        return False


def _decode_date(data: bytes) -> Any:
    from datetime import date

    return date(*unpack(data))


def _clock(value: Any) -> list[Any]:
    parts = [value.hour, value.minute, value.second, value.microsecond]
    return [*parts, value.fold, encode_zone(value.tzinfo)]


def _decode_time(data: bytes) -> Any:
    from datetime import time

    hour, minute, second, microsecond, fold, zone = unpack(data)
    return time(hour, minute, second, microsecond, decode_zone(zone), fold=fold)


def _decode_datetime(data: bytes) -> Any:
    from datetime import datetime

    *parts, fold, zone = unpack(data)
    year, month, day, hour, minute, second, microsecond = parts
    clock = (hour, minute, second, microsecond)
    return datetime(year, month, day, *clock, tzinfo=decode_zone(zone), fold=fold)


def _decode_timedelta(data: bytes) -> Any:
    from datetime import timedelta

    days, seconds, microseconds = unpack(data)
    return timedelta(days, seconds, microseconds)


def _decode_uuid(data: bytes) -> Any:
    from uuid import UUID

    return UUID(bytes=data)


def _decode_decimal(data: bytes) -> Any:
    from decimal import Decimal, InvalidOperation

    try:
        return Decimal(data.decode("ascii"))
    except InvalidOperation as exc:
        raise FormatError("a stored decimal is not a number") from exc


_FLAVOURS = ("PurePosixPath", "PosixPath", "PureWindowsPath", "WindowsPath")


def _encode_path(value: Any) -> bytes:
    text = str(value)
    again = type(value)(text)
    if (again.drive, again.root, again.parts) != (value.drive, value.root, value.parts):
        raise NotStorable(f"the path {value!r} means another one when it is read as text")
    return pack([_FLAVOURS.index(type(value).__name__), text])


def _decode_path(data: bytes) -> Any:
    import pathlib

    flavour, text = unpack(data)
    cls = getattr(pathlib, _FLAVOURS[flavour])
    try:
        return cls(text)
    except NotImplementedError as exc:
        raise FormatError(
            f"the stored path {text!r} is a {_FLAVOURS[flavour]}, "
            "which this operating system does not have"
        ) from exc


def _plain_int(value: int) -> Any:
    """An integer as msgpack can say it."""
    return value if -(2**63) <= value < 2**64 else Ext(Code.INT, _encode_int(value))


def _unpack_ints(data: bytes) -> list[Any]:
    found = unpack(data, lambda code, content: _decode_int(content) if code == Code.INT else None)
    if type(found) is not list or set(map(type, found)) != {int}:
        raise FormatError("a stored range or fraction does not hold integers")
    return found


_FRACTION_BITS = 1 << 16
"""The longest numerator or denominator: reducing a fraction takes the square of its length."""


def _encode_fraction(value: Any) -> bytes:
    parts = (value.numerator, value.denominator)
    if set(map(type, parts)) != {int} or parts[1] < 1:
        raise NotStorable("a fraction of other numbers than int has no exact stored form")
    if max(parts[0].bit_length(), parts[1].bit_length()) > _FRACTION_BITS:
        raise NotStorable(
            f"a fraction of more than {_FRACTION_BITS:,} bits is not stored; "
            "store its numerator and denominator"
        )
    if math.gcd(*parts) != 1:
        raise NotStorable("a fraction that is not in its lowest terms comes back as another one")
    return pack(list(map(_plain_int, parts)))


def _decode_fraction(data: bytes) -> Any:
    from fractions import Fraction

    numerator, denominator = _unpack_ints(data)
    if max(numerator.bit_length(), denominator.bit_length()) > _FRACTION_BITS:
        raise FormatError("a stored fraction is too long")
    return Fraction(numerator, denominator)


_PATTERN_FLAGS = int(re.A | re.I | re.L | re.M | re.S | re.U | re.X)
_LONGEST_PATTERN = 1 << 15
"""In characters. A pattern is compiled when it is read, so its length is bounded."""
_MOST_RANGES = 1 << 20
"""In characters, of all ranges of a pattern: compiling with re.I goes through each of them."""
_CHARACTER = re.compile(
    r"\\(?:U([0-9a-fA-F]{8})|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|N\{[^}]*\}|.)|.", re.S
)


def _characters_in_ranges(pattern: str) -> int:
    """An upper bound of the number of characters in the ranges of a pattern."""
    found = list(_CHARACTER.finditer(pattern))
    total = 0
    for low, dash, high in zip(found, found[1:], found[2:], strict=False):
        if dash[0] == "-":
            ends = [_code_point(low), _code_point(high)]
            total += (1 << 16) if None in ends else min(max(0, ends[1] - ends[0]), 1 << 16)
    return total


def _code_point(character: re.Match[str]) -> Any:
    if character.lastindex:
        return int(character[character.lastindex], 16)
    return None if character[0].startswith("\\N{") else ord(character[0][-1])


def _is_wide(pattern: Any) -> bool:
    return type(pattern) is str and _characters_in_ranges(pattern) > _MOST_RANGES


def _encode_pattern(value: Any) -> bytes:
    if type(value.pattern) not in (str, bytes):
        raise NotStorable("a pattern of another type than str or bytes has no exact stored form")
    if value.flags & ~_PATTERN_FLAGS:
        raise NotStorable("a pattern that was compiled with re.DEBUG or re.TEMPLATE is not stored")
    if len(value.pattern) > _LONGEST_PATTERN:
        raise NotStorable(
            f"a pattern of more than {_LONGEST_PATTERN:,} characters is not stored; store its text"
        )
    if _is_wide(value.pattern):
        raise NotStorable("a pattern with so many wide ranges is not stored; store its text")
    return pack([value.pattern, value.flags])


def _decode_pattern(data: bytes) -> Any:
    pattern, flags = unpack(data)
    sound = type(pattern) in (str, bytes) and len(pattern) <= _LONGEST_PATTERN
    if not sound or type(flags) is not int or flags & ~_PATTERN_FLAGS or _is_wide(pattern):
        raise FormatError("a stored pattern is malformed")
    try:
        return re.compile(pattern, flags)
    except Exception as exc:
        raise FormatError(f"a stored pattern does not compile here: {exc}") from exc


_IP_KINDS = (
    "IPv4Address",
    "IPv6Address",
    "IPv4Network",
    "IPv6Network",
    "IPv4Interface",
    "IPv6Interface",
)


def _encode_ip(value: Any) -> bytes:
    # Not as text: versions of Python write IPv6 addresses differently.
    kind = _IP_KINDS.index(type(value).__name__)
    address = value.network_address if "Network" in _IP_KINDS[kind] else value
    prefix = None if kind < 2 else (value if address is not value else value.network).prefixlen
    return pack([kind, address.packed, prefix, getattr(address, "scope_id", None)])


def _decode_ip(data: bytes) -> Any:
    import ipaddress

    kind, packed, prefix, scope = unpack(data)
    if type(kind) is not int or kind < 0 or type(packed) is not bytes:
        raise FormatError("a stored IP address is malformed")
    cls = getattr(ipaddress, _IP_KINDS[kind])
    plain = ipaddress.IPv6Address if kind % 2 else ipaddress.IPv4Address
    text = str(plain(packed)) if scope is None else f"{plain(packed)}%{scope}"
    return cls(text if prefix is None else f"{text}/{prefix}")


def _datetime_atoms(module: Any) -> dict[type, Atom]:
    return {
        module.date: Atom(Code.DATE, lambda one: pack([one.year, one.month, one.day])),
        module.time: Atom(Code.TIME, lambda one: pack(_clock(one))),
        module.datetime: Atom(
            Code.DATETIME, lambda one: pack([one.year, one.month, one.day, *_clock(one)])
        ),
        module.timedelta: Atom(
            Code.TIMEDELTA, lambda one: pack([one.days, one.seconds, one.microseconds])
        ),
    }


_MODULES: dict[str, Callable[[Any], dict[type, Atom]]] = {
    "datetime": _datetime_atoms,
    # `is_safe` says how an id was made; it is no part of its value.
    "uuid": lambda module: {module.UUID: Atom(Code.UUID, lambda one: bytes(one.bytes))},
    "decimal": lambda module: {
        # A context may ask for a small e.
        module.Decimal: Atom(Code.DECIMAL, lambda one: str(one).replace("e", "E").encode())
    },
    "pathlib": lambda module: {
        getattr(module, name): Atom(Code.PATH, _encode_path) for name in _FLAVOURS
    },
    "fractions": lambda module: {module.Fraction: Atom(Code.FRACTION, _encode_fraction)},
    "ipaddress": lambda module: {
        getattr(module, name): Atom(Code.IP_ADDRESS, _encode_ip) for name in _IP_KINDS
    },
    "numpy": lambda module: {
        scalar: Atom(Code.SCALAR, encode_scalar) for scalar in scalar_types(module)
    },
}

_atoms: dict[type, Atom] = {
    bytearray: Atom(Code.BYTEARRAY, bytes),
    int: Atom(Code.INT, _encode_int),
    complex: Atom(Code.COMPLEX, lambda one: struct.pack(">dd", one.real, one.imag)),
    range: Atom(
        Code.RANGE, lambda one: pack(list(map(_plain_int, (one.start, one.stop, one.step))))
    ),
    re.Pattern: Atom(Code.PATTERN, _encode_pattern),
}
_adopted: set[str] = set()
_CONTAINERS = frozenset({tuple, list, dict, set, frozenset})


def atom_of(cls: type) -> Atom | None:
    """How values of exactly this type are encoded, if they are atoms."""
    found = _atoms.get(cls)
    if found is None and cls not in _CONTAINERS and len(_adopted) < len(_MODULES):
        _adopt()
        found = _atoms.get(cls)
    return found


def _adopt() -> None:
    for name, atoms in _MODULES.items():
        module = sys.modules.get(name)
        # A module that is being imported in another thread may lack its classes.
        if name not in _adopted and module is not None and not _initializing(module):
            _atoms.update(atoms(module))
            _adopted.add(name)


def _initializing(module: Any) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


DECODERS: dict[int, Callable[[bytes], Any]] = {
    Code.BYTEARRAY: bytearray,
    Code.INT: _decode_int,
    Code.COMPLEX: lambda data: complex(*struct.unpack(">dd", data)),
    Code.DATE: _decode_date,
    Code.TIME: _decode_time,
    Code.DATETIME: _decode_datetime,
    Code.TIMEDELTA: _decode_timedelta,
    Code.UUID: _decode_uuid,
    Code.DECIMAL: _decode_decimal,
    Code.PATH: _decode_path,
    Code.SCALAR: decode_scalar,
    Code.RANGE: lambda data: range(*_unpack_ints(data)),
    Code.FRACTION: _decode_fraction,
    Code.PATTERN: _decode_pattern,
    Code.IP_ADDRESS: _decode_ip,
}


def decode_atom(code: int, data: bytes) -> Any:
    """Decode the bytes of an atom; raises FormatError."""
    try:
        return DECODERS[code](data)
    except FormatError:
        raise
    except (ValueError, TypeError, OverflowError, IndexError, struct.error, ArithmeticError) as exc:
        raise FormatError(f"a stored {Code(code).name.lower()} is malformed: {exc}") from exc


def is_canonical_atom(code: int, data: bytes) -> bool:
    """Whether these are the bytes that encoding the atom gives."""
    try:
        value = decode_atom(code, data)
    except UndeclaredClass:  # There is no numpy, which does not make its scalars unsound.
        return True
    atom = atom_of(type(value))
    return atom is not None and atom.code == code and atom.encode(value) == data


MAPPINGS: Final = frozenset({Code.ORDERED_DICT, Code.COUNTER, Code.DEFAULT_DICT})

CLASSES: Final[dict[int, type]] = {
    Code.DEQUE: deque,
    Code.ORDERED_DICT: OrderedDict,
    Code.COUNTER: Counter,
    Code.DEFAULT_DICT: defaultdict,
}

# The factories that a defaultdict may have. Reading calls none of them.
_FACTORIES: Final[dict[str, type]] = {
    factory.__name__: factory
    for factory in (
        *(bool, bytearray, bytes, complex, dict, float, frozenset, int, list, set, str, tuple),
        *(Counter, OrderedDict, deque),
    )
}
_NAMES: Final = {factory: name for name, factory in _FACTORIES.items()}
_LONGEST: Final = 2**63


def open_collection(value: Any) -> Opened | None:
    """The parts of a container, as they are at one moment; None for other values."""
    opener = _OPENERS.get(type(value))
    if opener is None:
        return None
    try:
        opened: Opened = opener(value)
    except (RuntimeError, KeyError) as exc:
        if isinstance(exc, RopewalkError | RecursionError):
            raise
        raise ChangedMeanwhile from exc
    return opened


def _open_deque(value: deque[Any]) -> Opened:
    return Opened(Code.DEQUE, Form.SEQUENCE, list(value), (value.maxlen,))


def _open_ordered(value: OrderedDict[Any, Any]) -> Opened:
    _expect_no_attributes(value)
    # Its order is its own, and not that of the dict which it is underneath.
    return Opened(Code.ORDERED_DICT, Form.MAPPING, dict(list(OrderedDict.items(value))))


def _open_counter(value: Counter[Any]) -> Opened:
    _expect_no_attributes(value)
    return Opened(Code.COUNTER, Form.MAPPING, dict.copy(value))


def _open_default(value: defaultdict[Any, Any]) -> Opened:
    factory: Any = value.default_factory
    try:
        name = None if factory is None else _NAMES[factory]
    except (KeyError, TypeError):
        raise NotStorable(
            f"the factory of a defaultdict is stored only if it is None or one of "
            f"{', '.join(_FACTORIES)}; this one is {factory!r:.80}. Use one of these, or store "
            "dict(value)"
        ) from None
    return Opened(Code.DEFAULT_DICT, Form.MAPPING, dict.copy(value), (name,))


def _expect_no_attributes(value: Any) -> None:
    if value.__dict__:
        raise NotStorable(
            f"the attributes of this {type(value).__name__} would be lost: "
            f"{', '.join(map(str, value.__dict__))[:80]}"
        )


_OPENERS: Final[dict[type, Any]] = {
    deque: _open_deque,
    OrderedDict: _open_ordered,
    Counter: _open_counter,
    defaultdict: _open_default,
}


def check_head(code: int, head: Any) -> None:
    """Raise FormatError unless this can stand before the content of a container."""
    if code == Code.DEQUE:
        sound = len(head) == 1 and (
            head[0] is None or (type(head[0]) is int and 0 <= head[0] < _LONGEST)
        )
    elif code == Code.DEFAULT_DICT:
        sound = len(head) == 1 and (
            head[0] is None or (type(head[0]) is str and head[0] in _FACTORIES)
        )
    else:
        sound = not head
    if not sound:
        raise FormatError(f"a stored {CLASSES[code].__name__} is malformed")


def build_collection(code: int, head: list[Any], parts: Any) -> Any:
    """A container from its parts, a list or a dict; raises FormatError."""
    check_head(code, head)
    if code == Code.DEQUE:
        if head[0] is not None and len(parts) > head[0]:
            raise FormatError("a stored deque has more items than its maxlen")
        return deque(parts, head[0])
    if code == Code.DEFAULT_DICT:
        return defaultdict(None if head[0] is None else _FACTORIES[head[0]], parts)
    made: Any = CLASSES[code]()
    made.update(parts)
    return made
