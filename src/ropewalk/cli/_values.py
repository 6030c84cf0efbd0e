"""Values as JSON can say them. docs/reference/cli.md has the rule for readers."""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from pathlib import PurePath
from typing import Any
from uuid import UUID

from ropewalk.codec import Undeclared
from ropewalk.codec.frames import open_frame
from ropewalk.tree import ABSENT

# Python writes no longer numbers in decimal digits, because that takes too long.
_MOST_BITS = 14_000


def plain(value: Any) -> Any:
    """A value of which JSON can say everything.

    What JSON has no word for becomes an object with one key that begins with `$`.
    """
    kind = type(value)
    if kind in (str, bool, type(None)):
        return value
    if kind is int:
        return value if value.bit_length() <= _MOST_BITS else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is list:
        return [plain(item) for item in value]
    if kind is dict:
        return _plain_dict(value)
    writer = _WRITERS.get(kind)
    return _other(value) if writer is None else writer(value)


def line(record: dict[str, Any]) -> str:
    """A record as one line of JSON."""
    return json.dumps(record, allow_nan=False)


def pretty(value: Any) -> str:
    """A value as JSON for people, on several lines."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def same(one: Any, other: Any) -> bool:
    """Whether two values are said by the same JSON: 1, 1.0 and true are three values."""
    return _one_spelling(one) == _one_spelling(other)


def _one_spelling(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _plain_dict(value: dict[Any, Any]) -> Any:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: plain(held) for key, held in value.items()}
    return {"$dict": _pairs(value)}


def _pairs(value: dict[Any, Any]) -> list[list[Any]]:
    return [[plain(key), plain(held)] for key, held in value.items()]


def _base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode()


def _set(name: str) -> Callable[[Any], Any]:
    return lambda value: {name: sorted(map(plain, value), key=_one_spelling)}


_WRITERS: dict[type, Callable[[Any], Any]] = {
    tuple: lambda value: {"$tuple": [plain(item) for item in value]},
    set: _set("$set"),
    frozenset: _set("$frozenset"),
    bytes: lambda value: {"$bytes": _base64(value)},
    bytearray: lambda value: {"$bytearray": _base64(value)},
    complex: lambda value: {"$complex": [plain(value.real), plain(value.imag)]},
    datetime: lambda value: {"$datetime": value.isoformat()},
    date: lambda value: {"$date": value.isoformat()},
    time: lambda value: {"$time": value.isoformat()},
    timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    UUID: lambda value: {"$uuid": str(value)},
    Decimal: lambda value: {"$decimal": str(value)},
    deque: lambda value: {
        "$deque": {"items": [plain(item) for item in value], "maxlen": value.maxlen}
    },
    OrderedDict: lambda value: {"$ordered_dict": _pairs(value)},
    Counter: lambda value: {"$counter": _pairs(value)},
    defaultdict: lambda value: {
        "$default_dict": {
            "factory": getattr(value.default_factory, "__name__", None),
            "items": _pairs(value),
        }
    },
    range: lambda value: {"$range": [plain(one) for one in (value.start, value.stop, value.step)]},
    Fraction: lambda value: {"$fraction": str(value)},
    re.Pattern: lambda value: {"$pattern": {"pattern": plain(value.pattern), "flags": value.flags}},
    **{
        kind: lambda value: {"$ip": str(value)}
        for kind in (
            *(IPv4Address, IPv6Address, IPv4Network),
            *(IPv6Network, IPv4Interface, IPv6Interface),
        )
    },
    Undeclared: lambda value: {
        "$class": {
            "name": value.name,
            "version": value.version,
            "content": plain(value.content),
        }
    },
}


def _other(value: Any) -> Any:
    if value is ABSENT:
        return {"$absent": True}
    if isinstance(value, PurePath):
        return {"$path": str(value)}
    frame = open_frame(value)
    if frame is not None:
        return {"$frame": {"kind": frame.head[0], "parts": [plain(one) for one in frame.parts]}}
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return {"$array": {"dtype": str(value.dtype), "items": plain(value.tolist())}}
    return {"$repr": repr(value)}
