"""One value has one accepted encoding: every other form of it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ormsgpack import Ext

from ropewalk.codec import check_canonical, decode, encode
from ropewalk.codec.msgpack import (
    DEEP_NESTING,
    MAX_NESTED,
    Code,
    array_header,
    extension,
    map_header,
    pack,
    unpack,
)
from ropewalk.errors import FormatError
from tests.strategies import same, storable_values


def _ext(code: int, content: Any) -> bytes:
    return extension(code, pack(content))


def _record(*content: Any) -> bytes:
    return _ext(Code.RECORD, list(content))


NOT_CANONICAL: dict[str, bytes] = {
    "nothing": b"",
    "a reserved byte": b"\xc1",
    "two values": b"\x01\x02",
    "a byte too much": encode([1, 2]) + b"\x00",
    "a small number in one byte more": b"\xcc\x01",
    "a small number in two bytes": b"\xcd\x00\x01",
    "a small number in four bytes": b"\xce\x00\x00\x00\x01",
    "a small number in eight bytes": b"\xcf\x00\x00\x00\x00\x00\x00\x00\x01",
    "a positive number with a sign": b"\xd0\x01",
    "a negative number in one byte more": b"\xd0\xff",
    "a negative number in two bytes": b"\xd1\xff\xff",
    "a float of four bytes": b"\xca\x3f\x80\x00\x00",
    "a short text with a long head": b"\xd9\x01a",
    "a text that is not UTF-8": b"\xa1\xff",
    "a text with a surrogate": b"\xa3\xed\xa0\x80",
    "bytes with a long head": b"\xc5\x00\x01a",
    "a list with a long head": b"\xdc\x00\x01\x01",
    "a dict with a long head": b"\xde\x00\x01\xa1a\x01",
    "a list without its end": b"\x92\x01",
    "a dict with the same key twice": b"\x82\xa1a\x01\xa1a\x02",
    "a dict with a number as key": b"\x81\x01\x02",
    "a dict with nil as key": b"\x81\xc0\x02",
    "an extension with a long head": b"\xc7\x01\x07\x00",
    "a timestamp of msgpack": b"\xd6\xff\x00\x00\x00\x00",
    "an unknown code": extension(99, b""),
    "the code of a root": extension(Code.LIST, pack([])),
    "an extension without a list": _ext(Code.TUPLE, {"a": 1}),
    "an extension with two lists": extension(Code.TUPLE, b"\x90\x90"),
    "an extension without content": extension(Code.TUPLE, b""),
    "a list inside with a long head": extension(Code.TUPLE, b"\xdc\x00\x01\x01"),
    "a small number as a large one": extension(Code.INT, b"\x01"),
    "a large number with a zero before it": extension(Code.INT, b"\x00" * 2 + b"\xff" * 9),
    "a large number without bytes": extension(Code.INT, b""),
    "a complex number that is short": extension(Code.COMPLEX, b"\0" * 8),
    "a set in another order": _ext(Code.SET, [2, 1]),
    "a set with a member twice": _ext(Code.SET, [1, 1]),
    "a frozenset in another order": _ext(Code.FROZENSET, [2, 1]),
    "a dict of texts as another dict": _ext(Code.DICT, ["a", 1]),
    "an empty dict as another dict": _ext(Code.DICT, []),
    "another dict without its last value": _ext(Code.DICT, [1, 2, 3]),
    "another dict with a key twice": _ext(Code.DICT, [1, 2, 1, 3]),
    "a date with a true in it": _ext(Code.DATE, [True, 1, 1]),
    "a date as pickle writes it": _ext(Code.DATE, [b"\x07\xd0\x01\x01"]),
    "a date that is none": _ext(Code.DATE, [2023, 2, 29]),
    "a date of two numbers": _ext(Code.DATE, [2023, 2]),
    "a date as a dict": _ext(Code.DATE, {"year": 1}),
    "a date with a long head": extension(Code.DATE, b"\xdc\x00\x03\x01\x01\x01"),
    "a time with a fraction": _ext(Code.TIME, [1, 2, 3, 4.0, 0, None]),
    "a time with another fold": _ext(Code.TIME, [1, 2, 3, 4, 2, None]),
    "a time with a true for fold": _ext(Code.TIME, [1, 2, 3, 4, True, None]),
    "a zone with a fraction": _ext(Code.TIME, [1, 2, 3, 4, 0, 1.0]),
    "a zone that is too far": _ext(Code.TIME, [1, 2, 3, 4, 0, 10**15]),
    "a zone without a name": _ext(Code.TIME, [1, 2, 3, 4, 0, [0]]),
    "a zone with a number as name": _ext(Code.TIME, [1, 2, 3, 4, 0, [0, 5]]),
    "a zone that nobody knows": _ext(Code.TIME, [1, 2, 3, 4, 0, "No/Where"]),
    "a zone that leads elsewhere": _ext(Code.TIME, [1, 2, 3, 4, 0, "../../../etc/passwd"]),
    "a zone that is absolute": _ext(Code.TIME, [1, 2, 3, 4, 0, "/etc/passwd"]),
    "a zone that is a folder": _ext(Code.TIME, [1, 2, 3, 4, 0, "Europe"]),
    "a zone with a null": _ext(Code.TIME, [1, 2, 3, 4, 0, "a\0b"]),
    "a datetime that is short": _ext(Code.DATETIME, [2024, 1, 1]),
    "a timedelta with too many seconds": _ext(Code.TIMEDELTA, [0, 86400, 0]),
    "a timedelta with too many days": _ext(Code.TIMEDELTA, [10**10, 0, 0]),
    "a uuid that is short": extension(Code.UUID, b"\0" * 15),
    "a decimal with a space": extension(Code.DECIMAL, b" 1"),
    "a decimal with an underscore": extension(Code.DECIMAL, b"1_0"),
    "a decimal with a small e": extension(Code.DECIMAL, b"1e+30"),
    "a decimal in other digits": extension(Code.DECIMAL, "١".encode()),
    "a decimal that is none": extension(Code.DECIMAL, b"one"),
    "a path with a double slash": _ext(Code.PATH, [0, "a//b"]),
    "a path of an unknown kind": _ext(Code.PATH, [4, "a"]),
    "a path of a kind from behind": _ext(Code.PATH, [-4, "a"]),
    "a path of numbers": _ext(Code.PATH, [0, 5]),
    "a link that is short": extension(Code.LINK, b"\0" * 31),
    "an array of a wrong shape": _ext(Code.ARRAY, ["<i4", [2], "C", b"\0" * 4]),
    "an array of a negative shape": _ext(Code.ARRAY, ["<i4", [-1], "C", b"\0" * 4]),
    "an array of a true shape": _ext(Code.ARRAY, ["<i4", [True], "C", b"\0" * 4]),
    "an array of an impossible shape": _ext(Code.ARRAY, ["<i4", [0, 2**61], "C", b""]),
    "an array with many sides": _ext(Code.ARRAY, ["<i4", [1] * 65, "C", b"\0" * 4]),
    "an array of one side in columns": _ext(Code.ARRAY, ["<i4", [1], "F", b"\0" * 4]),
    "an array of another order": _ext(Code.ARRAY, ["<i4", [1], "K", b"\0" * 4]),
    "an array of objects": _ext(Code.ARRAY, ["|O", [1], "C", b"\0" * 8]),
    "an array of records": _ext(Code.ARRAY, ["<i4,<i4", [1], "C", b"\0" * 8]),
    "an array of long doubles": _ext(Code.ARRAY, ["<f16", [1], "C", b"\0" * 16]),
    "an array of nothing": _ext(Code.ARRAY, ["|S0", [3], "C", b""]),
    "an array with another name of its type": _ext(Code.ARRAY, ["|a4", [1], "C", b"abcd"]),
    "an array with a long name of its type": _ext(Code.ARRAY, ["int32", [1], "C", b"\0" * 4]),
    "an array with a list for its elements": _ext(Code.ARRAY, ["<i4", [1], "C", [0]]),
    "an array without elements": _ext(Code.ARRAY, ["<i4", [1], "C"]),
    "a numpy number in the other order": _ext(Code.SCALAR, [">i4", b"\0" * 4]),
    "a numpy number that is short": _ext(Code.SCALAR, ["<i4", b"\0" * 3]),
    "a numpy text with a zero at its end": _ext(Code.SCALAR, ["|S2", b"a\0"]),
    "a numpy text of no letters": _ext(Code.SCALAR, ["<U1", b"\xff" * 4]),
    "a numpy truth of two": _ext(Code.SCALAR, ["|b1", b"\x02"]),
    "a record without a name": _record("", 1, {}),
    "a record with a long name": _record("x" * 257, 1, {}),
    "a record with a number as name": _record(1, 1, {}),
    "a record of version zero": _record("sample.Note", 0, {"text": 1}),
    "a record of a true version": _record("sample.Note", True, {"text": 1}),
    "a record without fields": _record("sample.Note", 1),
    "a record with a list of fields": _record("sample.Note", 1, ["text"]),
    "a record with set fields out of order": _record("sample.Person", 1, ["b", "a"], {"name": 1}),
    "a record with a set field twice": _record("sample.Person", 1, ["a", "a"], {"name": 1}),
    "a record with all fields marked as set": _record("sample.Person", 1, ["name"], {"name": 1}),
    "a record with a number as set field": _record("sample.Person", 1, [1], {"name": 1}),
    "a record with too much": _record("sample.Person", 1, [], {}, {"name": 1}),
    "an enum with a fraction": _ext(Code.ENUM, ["sample.Color", 1, 1.0]),
    "an enum with a list": _ext(Code.ENUM, ["sample.Color", 1, []]),
    "an enum with a set": _ext(Code.ENUM, ["sample.Color", 1, Ext(Code.SET, pack([]))]),
    "a deque without its maxlen": _ext(Code.DEQUE, [[1]]),
    "a deque of a dict": _ext(Code.DEQUE, [None, {"a": 1}]),
    "a deque of a true maxlen": _ext(Code.DEQUE, [True, []]),
    "a deque of a negative maxlen": _ext(Code.DEQUE, [-1, []]),
    "a deque of a vast maxlen": _ext(Code.DEQUE, [2**63, []]),
    "a deque of a maxlen that is a text": _ext(Code.DEQUE, ["9", []]),
    "a deque with too many items": _ext(Code.DEQUE, [1, [1, 2]]),
    "a deque of nothing": _ext(Code.DEQUE, []),
    "an OrderedDict without its last value": _ext(Code.ORDERED_DICT, [1, 2, 3]),
    "an OrderedDict with a key twice": _ext(Code.ORDERED_DICT, ["a", 1, "a", 2]),
    "an OrderedDict of a dict": _ext(Code.ORDERED_DICT, {"a": 1}),
    "a Counter with a key twice": _ext(Code.COUNTER, ["a", 1, "a", 2]),
    "a defaultdict without a factory": _ext(Code.DEFAULT_DICT, [[]]),
    "a defaultdict of another factory": _ext(Code.DEFAULT_DICT, ["object", []]),
    "a defaultdict of a function": _ext(Code.DEFAULT_DICT, ["os.system", []]),
    "a defaultdict of a number": _ext(Code.DEFAULT_DICT, [1, []]),
    "a defaultdict with a key twice": _ext(Code.DEFAULT_DICT, ["list", ["a", 1, "a", 2]]),
    "a range of two numbers": _ext(Code.RANGE, [0, 1]),
    "a range of a step of nothing": _ext(Code.RANGE, [0, 1, 0]),
    "a range of a true": _ext(Code.RANGE, [True, 1, 1]),
    "a range of a fraction": _ext(Code.RANGE, [0.0, 1, 1]),
    "a range of a small number as a large one": _ext(Code.RANGE, [Ext(Code.INT, b"\x01"), 1, 1]),
    "a range of something else": _ext(Code.RANGE, [Ext(Code.DECIMAL, b"1"), 1, 1]),
    "a fraction that is not reduced": _ext(Code.FRACTION, [2, 4]),
    "a fraction with its sign below": _ext(Code.FRACTION, [1, -2]),
    "a fraction of nothing": _ext(Code.FRACTION, [1, 0]),
    "a fraction of floats": _ext(Code.FRACTION, [1.0, 2.0]),
    "a fraction that is very long": _ext(Code.FRACTION, [1, Ext(Code.INT, b"\x01" * 1_000_000)]),
    "a pattern that does not compile": _ext(Code.PATTERN, ["(", 32]),
    "a pattern that is nested deeply": _ext(Code.PATTERN, ["(" * 9000 + ")" * 9000, 32]),
    "a pattern that is very long": _ext(Code.PATTERN, ["a" * 40_000, 32]),
    "a pattern without flags": _ext(Code.PATTERN, ["a"]),
    "a pattern that shows how it is compiled": _ext(Code.PATTERN, ["a", 32 | 128]),
    "a pattern of unknown flags": _ext(Code.PATTERN, ["a", 32 | 4096]),
    "a pattern of texts with flags of bytes": _ext(Code.PATTERN, ["a", 4]),
    "a pattern of texts that does not say so": _ext(Code.PATTERN, ["a", 0]),
    "a pattern of a number": _ext(Code.PATTERN, [1, 32]),
    "an address of an unknown kind": _ext(Code.IP_ADDRESS, [6, b"\0" * 4, None, None]),
    "an address of a kind from behind": _ext(Code.IP_ADDRESS, [-1, b"\0" * 16, 1, None]),
    "an address that is short": _ext(Code.IP_ADDRESS, [0, b"\0" * 3, None, None]),
    "an address with a prefix": _ext(Code.IP_ADDRESS, [0, b"\0" * 4, 8, None]),
    "an address with a number as scope": _ext(Code.IP_ADDRESS, [1, b"\0" * 16, None, 1]),
    "an address of four bytes with a scope": _ext(Code.IP_ADDRESS, [0, b"\0" * 4, None, "e"]),
    "a network without a prefix": _ext(Code.IP_ADDRESS, [2, b"\0" * 4, None, None]),
    "a network with a mask for a prefix": _ext(Code.IP_ADDRESS, [2, b"\0" * 4, "255.0.0.0", None]),
    "a network with bits of a host": _ext(Code.IP_ADDRESS, [2, b"\1" * 4, 8, None]),
    "an interface of a long prefix": _ext(Code.IP_ADDRESS, [4, b"\1" * 4, 33, None]),
    "a custom value with too much": _ext(Code.CUSTOM, ["sample.Money", 1, 1, 1]),
}


@pytest.mark.parametrize("data", NOT_CANONICAL.values(), ids=NOT_CANONICAL.keys())
@pytest.mark.parametrize(
    "wrap",
    [lambda data: data, lambda data: b"\x91" + data, lambda data: extension(2, b"\x91" + data)],
    ids=["alone", "in a list", "in a tuple"],
)
def test_what_encode_never_gives_is_refused(data: bytes, wrap: Any) -> None:
    with pytest.raises(FormatError):
        check_canonical(wrap(data))
    with pytest.raises(FormatError):
        decode(wrap(data))


@pytest.mark.parametrize("code", [Code.SET, Code.FROZENSET])
def test_members_that_python_takes_for_one_are_refused(code: Code) -> None:
    data = _ext(code, [1, 1.0])

    with pytest.raises(FormatError, match="twice"):
        decode(data)


def test_keys_that_python_takes_for_one_are_refused() -> None:
    with pytest.raises(FormatError, match="twice"):
        decode(_ext(Code.DICT, [1, "a", True, "b"]))


def test_keys_and_members_that_cannot_be_hashed_are_refused() -> None:
    with pytest.raises(FormatError, match="malformed"):
        decode(_ext(Code.DICT, [[], 1]))
    with pytest.raises(FormatError, match="malformed"):
        decode(_ext(Code.SET, [[]]))


def test_a_link_is_canonical_but_stands_for_no_value_alone() -> None:
    data = extension(Code.LINK, b"\0" * 32)

    check_canonical(data)
    with pytest.raises(FormatError, match="points to another object"):
        decode(data)


def test_records_of_classes_that_are_not_here_can_be_checked() -> None:
    check_canonical(_record("somewhere.Else", 3, ["a"], {"a": 1, "b": 2, "_c": 3}))


def test_what_is_nested_at_the_limit_is_read_and_beyond_it_is_refused() -> None:
    data = b"\x01"
    for _ in range(MAX_NESTED):
        data = extension(Code.TUPLE, b"\x91" + data)

    check_canonical(data)
    with pytest.raises(FormatError, match="deeply"):
        check_canonical(extension(Code.TUPLE, b"\x91" + data))


def test_lists_deep_inside_extensions_have_a_limit_of_their_own() -> None:
    def nested(depth: int) -> bytes:
        data = extension(Code.TUPLE, b"\x91" * depth + b"\x01")
        for _ in range(3):
            data = extension(Code.TUPLE, b"\x91" + data)
        return data

    check_canonical(nested(DEEP_NESTING))
    with pytest.raises(FormatError, match="deeply"):
        check_canonical(nested(DEEP_NESTING + 1))


@given(storable_values(max_leaves=6), st.data())
def test_longer_heads_are_refused_wherever_they_stand(value: Any, data: st.DataObject) -> None:
    loose = _loosely(unpack(encode(value)), data)

    if loose != encode(value):
        with pytest.raises(FormatError):
            check_canonical(loose)
    else:
        assert same(decode(loose), value)


def _loosely(value: Any, data: st.DataObject) -> bytes:
    """Encode what msgpack can say, with heads that may be longer than needed."""
    wide = data.draw(st.booleans())
    if type(value) is int and 0 <= value < 2**32 and wide:
        return b"\xcf" + value.to_bytes(8, "big")
    if type(value) is str and wide:
        encoded = value.encode()
        return b"\xdb" + len(encoded).to_bytes(4, "big") + encoded
    if type(value) is list:
        head = b"\xdd" + len(value).to_bytes(4, "big") if wide else array_header(len(value))
        return head + b"".join(_loosely(item, data) for item in value)
    if type(value) is dict:
        head = b"\xdf" + len(value).to_bytes(4, "big") if wide else map_header(len(value))
        return head + b"".join(pack(key) + _loosely(held, data) for key, held in value.items())
    return pack(value)
