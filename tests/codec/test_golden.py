"""The bytes are a format: what was written once must be read forever."""

from __future__ import annotations

import ipaddress
import math
import pathlib
import re
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ropewalk.codec import decode, encode
from tests.sample_types import (
    Coin,
    Color,
    IntBox,
    Item,
    Level,
    Money,
    Note,
    Open,
    Person,
    Point,
    Right,
    Slim,
    Spot,
    Word,
)
from tests.strategies import same

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
EAST = timezone(timedelta(hours=1), "east")


def _open() -> Open:
    made = Open.model_validate({"known": 1, "more": 2})
    made._secret = 3
    return made


VECTORS: list[tuple[Any, str]] = [
    (None, "c0"),
    (True, "c3"),
    (False, "c2"),
    (0, "00"),
    (127, "7f"),
    (128, "cc80"),
    (-32, "e0"),
    (-33, "d0df"),
    (65536, "ce00010000"),
    (-(2**63), "d38000000000000000"),
    (2**64 - 1, "cfffffffffffffffff"),
    (2**64, "c70907010000000000000000"),
    (-(2**63) - 1, "c70907ff7fffffffffffffff"),
    (0.0, "cb0000000000000000"),
    (-0.0, "cb8000000000000000"),
    (1.0, "cb3ff0000000000000"),
    (math.inf, "cb7ff0000000000000"),
    (math.nan, "cb7ff8000000000000"),
    (1.5 - 2j, "d8083ff8000000000000c000000000000000"),
    ("", "a0"),
    ("é", "a2c3a9"),
    ("x" * 32, "d9207878787878787878787878787878787878787878787878787878787878787878"),
    (b"", "c400"),
    (b"bytes", "c4056279746573"),
    (bytearray(b"bytes"), "c705066279746573"),
    ([], "90"),
    ([1, [2]], "92019102"),
    ((), "d40290"),
    ((1, 1.0, True), "c70c029301cb3ff0000000000000c3"),
    ({}, "80"),
    ({"b": 1, "a": [2]}, "82a16201a1619102"),
    ({1: "one", "two": 2}, "c70b059401a36f6e65a374776f02"),
    ({(1, 2): None}, "d70592c70302920102c0"),
    (set(), "d40390"),
    ({3, 1, 2}, "d60393010203"),
    ({"b", 1, b"c"}, "c707039301a162c40163"),
    (frozenset({1}), "d5049101"),
    (date(2024, 2, 29), "c7060993cd07e8021d"),
    (time(1, 2, 3, 4, fold=1), "c7070a960102030401c0"),
    (time(1, 2, tzinfo=UTC), "c7070a96010200000000"),
    (datetime(2024, 2, 29, 1, 2, 3, 4), "c70c0b99cd07e8021d0102030400c0"),
    (
        datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=BERLIN),
        "c7190b99cd07e80a1b021e000001ad4575726f70652f4265726c696e",
    ),
    (datetime(2024, 2, 29, tzinfo=EAST), "c7160b99cd07e8021d000000000092ced693a400a465617374"),
    (
        datetime(2024, 2, 29, tzinfo=timezone(timedelta(microseconds=-1))),
        "c70c0b99cd07e8021d0000000000ff",
    ),
    (timedelta(-1, 5, 6), "d60c93ff0506"),
    (uuid.UUID(int=5), "d80d00000000000000000000000000000005"),
    (Decimal("-1.50E+7"), "d70e2d312e3530452b37"),
    (Decimal("sNaN"), "d60e734e614e"),
    (pathlib.PurePosixPath("/a/b"), "c7070f9200a42f612f62"),
    (pathlib.PureWindowsPath("C:/a"), "c7070f9202a4433a5c61"),
    (Color.RED, "c7131093ac73616d706c652e436f6c6f7201a3524544"),
    (Level.HIGH, "c7141093ac73616d706c652e4c6576656c01a448494748"),
    (Word.YES, "c7121093ab73616d706c652e576f726401a3594553"),
    (Right.READ | Right.OWN, "d81093ac73616d706c652e52696768740105"),
    (Right.VAST, "c71b1093ac73616d706c652e526967687401c70907400000000000000000"),
    (Point(1, "y"), "c7171193ac73616d706c652e506f696e740182a17801a179a179"),
    (
        Note("text", ["tag"]),
        "c7231193ab73616d706c652e4e6f74650182a474657874a474657874a47461677391a3746167",
    ),
    (Spot(1, 2), "c71c1193ab73616d706c652e53706f740182a3726f7701a6636f6c756d6e02"),
    (Slim(None), "c71c1193ab73616d706c652e536c696d0182a46c656674c0a57269676874c0"),
    (
        Person(name="Ann"),
        "c7251194ad73616d706c652e506572736f6e0191a46e616d6582a46e616d65a3416e6ea361676500",
    ),
    (
        Person(name="Ann", age=3),
        "c71f1193ad73616d706c652e506572736f6e0182a46e616d65a3416e6ea361676503",
    ),
    (_open(), "c7261193ab73616d706c652e4f70656e0183a56b6e6f776e01a52b6d6f726502a75f73656372657403"),
    (IntBox(content=7), "c71a1193ad73616d706c652e496e74426f780181a7636f6e74656e7407"),
    (Item("k"), "c71d1193ab73616d706c652e4974656d0182a36b6579a16ba677656967687401"),
    (Coin(5), "c7161193ab73616d706c652e436f696e0181a5776f72746805"),
    (Money(100, "EUR"), "c7151293ac73616d706c652e4d6f6e6579019264a3455552"),
    (np.float64(1.5), "c70f1492a33c6638c408000000000000f83f"),
    (np.int8(-1), "d71492a37c6931c401ff"),
    (np.str_("é"), "c70b1492a33c5531c404e9000000"),
    (np.datetime64("2024-02-29", "D"), "c7121492a63c4d385b445dc408464d000000000000"),
    (np.array([[1, 2], [3, 4]], "<i2"), "c7141394a33c6932920202a143c4080100020003000400"),
    (
        np.array([[1, 2], [3, 4]], ">i2", order="F"),
        "c7141394a33e6932920202a146c4080001000300020004",
    ),
    (np.array(1.5), "c7121394a33c663890a143c408000000000000f83f"),
    (np.zeros((0, 3), "?"), "c70c1394a37c6231920003a143c400"),
    (deque([1, "a"], 9), "c7061692099201a161"),
    (deque(), "c7031692c090"),
    (OrderedDict([("b", 1), ("a", [2])]), "d71794a16201a1619102"),
    (Counter({"x": 2, 1: -1}), "c7061894a1780201ff"),
    (defaultdict(list, {"a": [1]}), "c70b1992a46c69737492a1619101"),
    (defaultdict(None), "c7031992c090"),
    (range(3), "d61a93000301"),
    (range(10**20, 0, -7), "c70f1a93c70907056bc75e2d6310000000f9"),
    (Fraction(-3, 4), "c7031b92fd04"),
    (Fraction(2**70), "c70e1b92c7090740000000000000000001"),
    (re.compile("a|b", re.I), "c7061c92a3617c6222"),
    (re.compile(rb"\d+"), "c7071c92c4035c642b00"),
    (ipaddress.ip_address("10.0.0.1"), "c70a1d9400c4040a000001c0c0"),
    (
        ipaddress.ip_address("fe80::1%eth0"),
        "c71a1d9401c410fe800000000000000000000000000001c0a465746830",
    ),
    (ipaddress.ip_network("10.0.0.0/8"), "c70a1d9402c4040a00000008c0"),
    (ipaddress.ip_network("fe80::/10"), "c7161d9403c410fe8000000000000000000000000000000ac0"),
    (ipaddress.ip_interface("10.0.0.1/8"), "c70a1d9404c4040a00000108c0"),
    (ipaddress.ip_interface("fe80::1/64"), "c7161d9405c410fe80000000000000000000000000000140c0"),
]


@pytest.mark.parametrize(("value", "stored"), VECTORS, ids=[stored for _, stored in VECTORS])
def test_a_value_has_the_bytes_it_always_had(value: Any, stored: str) -> None:
    assert encode(value).hex() == stored
    assert same(decode(bytes.fromhex(stored)), value)
