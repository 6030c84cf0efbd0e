"""What the fuzzers share: valid encodings to start from, changes, and the verdict."""

from __future__ import annotations

import contextlib
import ipaddress
import pathlib
import random
import re
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from ormsgpack import Ext

from ropewalk.codec import Codec, check_canonical, decode, encode
from ropewalk.codec.decoder import Decoder
from ropewalk.codec.msgpack import Code, extension, pack, unpack
from ropewalk.errors import ClassChanged, FormatError, NotAllowed, NotStorable, UndeclaredClass
from tests.sample_types import (
    Coin,
    Color,
    Fixed,
    IntBox,
    Item,
    Money,
    Note,
    Open,
    Person,
    Point,
    Right,
    Slim,
    Spot,
)
from tests.strategies import same

EXPECTED = (FormatError, UndeclaredClass, ClassChanged, NotAllowed)
_CODEC = Codec()
_CODES = [*map(int, Code), 99]
# Bytes that mean something to msgpack or to us.
_TELLING = [0x80, 0x81, 0x90, 0x91, 0x92, 0xA0, 0xA1, *range(0xC0, 0xE0), 0xFF, *range(24)]
# A class decides which stored fields and names it takes, so these may be written otherwise.
_OF_CLASSES = frozenset({Code.RECORD, Code.CUSTOM, Code.ENUM, Code.PICKLE})

_ODD: list[Any] = [None, True, 0, 1, -1, 5, 2**63, 2**64 - 1, 1.0, -0.0, "", "a", "C", "<i4"]
_ODD += ["|S0", "<U1", "<M8", "sample.Note", "sample.Color", "sample.Money", "UTC", "../x", "RED"]
_ODD += [b"", b"\0" * 4, [], [1], [[]], {}, {"x": 1}, {"name": 1}, {"_secret": 2, "+more": 3}]
_ODD += [Ext(Code.TUPLE, b"\x90"), Ext(Code.INT, b"\x01" + bytes(8)), Ext(Code.LINK, bytes(32))]
_ODD += ["list", "object", "(", "a*", 32, 2**63 - 1, Ext(Code.RANGE, b"\x93\x00\x01\x02")]
_ODD += [Ext(Code.DEQUE, b"\x92\xc0\x91\x01"), Ext(Code.COUNTER, b"\x92\xa1a\x01")]
_ODD += [Ext(Code.SET, b"\x91\x90"), Ext(Code.DICT, b"\x92\x01\x02"), Ext(Code.DECIMAL, b"sNaN")]


def _values() -> list[Any]:
    opened = Open.model_validate({"known": 1, "more": 2})
    return [
        [None, True, 1, -33, 2**64, -(2**70), 1.5, "text", "é" * 20, b"bytes", bytearray(b"x")],
        {"a": {"b": [1, {"c": ()}]}, "": None},
        {1: "a", "b": 2, (3, 4): {5}, None: frozenset({6, "x"})},
        (1, (2, (3, (4, [5, {"k": (6,)}])))),
        [1 + 2j, date(2024, 2, 29), time(1, 2, 3, 4, UTC), timedelta(-1, 2, 3)],
        [datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))],
        [datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-3), "there"))],
        [uuid.UUID(int=7), Decimal("-1.50E+7"), Decimal("NaN"), pathlib.PurePosixPath("/a/b")],
        [pathlib.PureWindowsPath("C:/a"), pathlib.Path("x")],
        [np.float64(1.5), np.int8(3), np.str_("né"), np.bytes_(b"b"), np.datetime64(5, "D")],
        [np.arange(6).reshape(2, 3), np.zeros((2, 2), ">f4", order="F"), np.array(["ab", "c"])],
        [Color.RED, Right.READ | Right.VAST, Point(1, "y"), Note("n", ["t"]), Spot(1)],
        [Slim(1), Person(name="p"), opened, IntBox(content=3), Item("k"), Coin(5), Money(1, "EUR")],
        {Fixed(held=1): {Spot(1, 2), Coin(3)}},
        [deque([1, (2,)], 5), deque(["a"]), Counter("abca"), OrderedDict([("b", 1), (2, "c")])],
        [defaultdict(list, {"a": [1]}), defaultdict(None, {None: 1}), range(-3, 10**20, 7)],
        [pd.DataFrame({"a": [1, 2], "b": pd.Categorical(["x", None])}), pd.RangeIndex(9, name="r")],
        [
            pd.Series([None, "t"], dtype=object),
            pd.date_range("2020", periods=3, tz="UTC", freq="D"),
        ],
        [pl.DataFrame({"n": [1, None], "t": ["x", None]}), pl.Series([[1], None]), pd.NaT],
        {Fraction(-3, 4): re.compile("a|(?i:b)", re.X), re.compile(b"\\w", re.L): Fraction(1)},
        {ipaddress.ip_address("10.0.0.1"), ipaddress.ip_network("10.0.0.0/8")},
        [ipaddress.ip_interface("fe80::1%eth0/64"), ipaddress.ip_address("::ffff:1.2.3.4")],
    ]


def seeds() -> list[bytes]:
    """Encodings of every type, and some bytes that are refused for a reason."""
    values = [encode(one) for one in _values()]
    pickled = Codec(pickle_key=bytes(16)).encode(range(3))
    undeclared = extension(Code.RECORD, pack(["no.Where", 1, {"a": 1}]))
    link = extension(Code.LINK, bytes(32))
    return [*values, pickled, undeclared, link]


class Mutator:
    """Bends encodings; the same seed gives the same bytes."""

    def __init__(self, seed: int, pool: list[bytes]) -> None:
        self._random = random.Random(seed)
        self._pool = pool

    def bend(self) -> bytes:
        """One encoding with some changes."""
        whole = self._random.choice(self._pool)
        if self._random.random() < 0.6:
            whole = self.shake(whole)
            if self._random.random() < 0.7:
                return whole
        data = bytearray(whole)
        changes = [self._flip, self._set, self._insert, self._delete, self._copy, self._wrap]
        for _ in range(self._random.choice([1, 1, 1, 2, 3, 5])):
            self._random.choice(changes)(data)
        return bytes(data)

    def shake(self, data: bytes) -> bytes:
        """Other parts in the structure of an encoding; raises ValueError if it has none."""
        return pack(self._shake(unpack(data), self._random.choice([0.02, 0.1, 0.3])))

    def _shake(self, value: Any, chance: float) -> Any:
        """The same structure with some parts exchanged; every length fits again."""
        if self._random.random() < chance:
            return self._random.choice(_ODD)
        if type(value) is list:
            items = [self._shake(item, chance) for item in value]
            return self._rearrange(items) if self._random.random() < chance else items
        if type(value) is dict:
            pairs = list(value.items())
            if self._random.random() < chance:
                pairs = self._rearrange(pairs)
            return {key: self._shake(held, chance) for key, held in pairs}
        if type(value) is Ext:
            return self._shake_extension(value, chance)
        return value

    def _shake_extension(self, value: Ext, chance: float) -> Ext:
        code, data = unpack(pack(value), lambda code, data: (code, data))
        if self._random.random() < chance / 4:
            code = self._random.choice(_CODES)
        try:
            return Ext(code, pack(self._shake(unpack(data), chance)))
        except ValueError:
            bent = bytearray(data)
            if self._random.random() < chance:
                self._random.choice([self._flip, self._set, self._insert, self._delete])(bent)
            return Ext(code, bytes(bent))

    def _rearrange(self, items: list[Any]) -> list[Any]:
        """Some items in another order, twice, or not at all."""
        count = self._random.randint(0, len(items) + 1)
        return self._random.choices(items, k=count) if items else []

    def _at(self, data: bytearray) -> int:
        return self._random.randrange(len(data)) if data else 0

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] ^= 1 << self._random.randrange(8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] = self._random.choice(_TELLING)

    def _insert(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = bytes(self._random.choices(_TELLING, k=self._random.randint(1, 4)))

    def _delete(self, data: bytearray) -> None:
        at = self._at(data)
        del data[at : at + self._random.randint(1, 4)]

    def _copy(self, data: bytearray) -> None:
        """A piece of one encoding inside another."""
        source = self._random.choice(self._pool)
        start = self._random.randrange(len(source))
        at = self._at(data)
        data[at:at] = source[start : start + self._random.randint(1, 24)]

    def _wrap(self, data: bytearray) -> None:
        """The whole as the content of an extension, or as an item."""
        code = self._random.choice(_CODES)
        head = self._random.choice([b"", b"\x91", b"\x92\x01", b"\x81\xa1a"])
        data[:] = extension(code, head + bytes(data))


def judge(data: bytes) -> str:
    """Decode bytes from anywhere, and say what came of it; raises if that is wrong."""
    _read_unchecked(data)
    try:
        value = decode(data)
    except EXPECTED:
        return "refused"
    check_canonical(data)
    try:
        again = encode(value)
    except NotStorable as exc:
        raise AssertionError(f"what was read cannot be stored: {data.hex()}") from exc
    if again == data:
        return "same bytes"
    assert _names_classes(data), f"accepted in a form of its own: {data.hex()}"
    assert same(decode(again), value), f"comes back as another value: {data.hex()}"
    return "other bytes"


def _read_unchecked(data: bytes) -> None:
    """Reading without the strict check, as for objects whose hash was verified."""
    try:
        Decoder(_CODEC).decode(data)
    except EXPECTED:
        return


def _names_classes(data: bytes) -> bool:
    found: set[int] = set()

    def note(code: int, content: bytes) -> None:
        found.add(code)
        with contextlib.suppress(ValueError):
            unpack(content, note)

    unpack(data, note)
    return not found.isdisjoint(_OF_CLASSES)
