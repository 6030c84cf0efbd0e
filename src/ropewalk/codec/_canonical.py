"""The strict check: a value has one accepted encoding.

It knows nothing of declared classes, so it holds for data of programs that are not
here, and of older versions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from ormsgpack import Ext

from ropewalk.codec._atoms import DECODERS, is_canonical_atom
from ropewalk.codec._classes import LONGEST_NAME
from ropewalk.codec._codes import DEEP_NESTING, FREE_NESTED, MAX_NESTED, Code
from ropewalk.codec._collections import check_head
from ropewalk.codec._frames import check_frame
from ropewalk.codec._models import set_unless_marked
from ropewalk.codec._msgpack import hidden_failure, nesting_exceeds, pack, unpack
from ropewalk.codec._numpy import check_array
from ropewalk.errors import FormatError

_TWICE = "a dict has the same key twice"
_LINK_SIZE = 32
_LINK_HEAD = bytes([0xC7, _LINK_SIZE, Code.LINK])


def check_canonical(data: bytes) -> None:
    """Raise FormatError unless the bytes are the one encoding of some value."""
    _check(data, 0)


def _check(data: bytes, depth: int) -> Any:
    failures: list[BaseException] = []
    try:
        value = unpack(data, partial(_check_extension, depth, failures))
        again = pack(value)
    except (ValueError, TypeError, RecursionError) as exc:
        if failures:
            raise failures[0] from None
        hidden = hidden_failure(exc)
        if hidden is not None:
            raise hidden from exc
        raise FormatError(f"the bytes are not a stored value: {exc}") from exc
    if again != data:
        raise FormatError("the bytes are not in the one form that is accepted")
    return value


def _check_extension(depth: int, failures: list[BaseException], code: int, data: bytes) -> Ext:
    try:
        _check_content(depth, code, data)
    except BaseException as exc:
        failures.append(exc)
        raise
    return Ext(code, data)


def _check_content(depth: int, code: int, data: bytes) -> None:
    if code in DECODERS:
        name = Code(code).name.lower()
        _expect(is_canonical_atom(code, data), f"a {name} is not in its one form")
    elif code == Code.LINK:
        _expect(len(data) == _LINK_SIZE, "a link is malformed")
    elif code in _CHECKS:
        deep = depth + 1 > FREE_NESTED and nesting_exceeds(data, DEEP_NESTING)
        _expect(depth < MAX_NESTED and not deep, "the bytes are nested too deeply")
        content = _check(data, depth + 1)
        _expect(type(content) is list, f"extension {code} holds no list")
        _CHECKS[code](content)
    else:
        _expect(code == Code.PICKLE, f"type code {code} is not known")


def _check_set(content: list[Any]) -> None:
    encoded = [pack(item) for item in content]
    _expect(len(set(encoded)) == len(encoded), "a set has the same member twice")
    # Members are in the order of their encodings, which a link does not show.
    if not any(_LINK_HEAD in member for member in encoded):
        ascending = all(one < other for one, other in pairwise(encoded))
        _expect(ascending, "a set is not in its order")


def _check_dict(content: list[Any]) -> None:
    _check_pairs(content)
    _expect(
        any(type(key) is not str for key in content[::2]), "a dict of texts is stored as another"
    )


def _check_pairs(content: Any) -> None:
    _expect(type(content) is list and len(content) % 2 == 0, "a dict lacks a value")
    _expect(len({pack(key) for key in content[::2]}) * 2 == len(content), _TWICE)


def _check_deque(content: list[Any]) -> None:
    *head, items = content or [None]
    check_head(Code.DEQUE, head)
    sound = type(items) is list and (head[0] is None or len(items) <= head[0])
    _expect(sound, "a deque has more items than its maxlen")


def _check_default_dict(content: list[Any]) -> None:
    *head, pairs = content or [None]
    check_head(Code.DEFAULT_DICT, head)
    _check_pairs(pairs)


def _check_named(content: list[Any]) -> None:
    sound = len(content) >= 3 and type(content[0]) is str
    sound = sound and 0 < len(content[0]) <= LONGEST_NAME
    _expect(sound and type(content[1]) is int and content[1] >= 1, "a class name is malformed")


def _check_record(content: list[Any]) -> None:
    _check_named(content)
    _expect(len(content) <= 4 and type(content[-1]) is dict, "a record is malformed")
    if len(content) == 4:
        marks = content[2]
        sound = type(marks) is list and all(type(mark) is str for mark in marks)
        sound = (
            sound and marks == sorted(set(marks)) and set(marks) != set_unless_marked(content[3])
        )
        _expect(sound, "the set fields of a record are malformed")


def _check_enum(content: list[Any]) -> None:
    _check_named(content)
    sound = len(content) == 3 and (
        type(content[2]) in (str, int) or _is_extension(content[2], Code.INT)
    )
    _expect(sound, "an enum member is malformed")


def _is_extension(value: Any, code: Code) -> bool:
    return type(value) is Ext and bool(unpack(pack(value), lambda found, data: found) == code)


def _check_custom(content: list[Any]) -> None:
    _check_named(content)
    _expect(len(content) == 3, "a custom value is malformed")


def _check_array(content: list[Any]) -> None:
    _expect(len(content) == 4, "an array is malformed")
    if not _is_extension(content[3], Code.LINK):
        check_array(*content)


_CHECKS: dict[int, Callable[[list[Any]], None]] = {
    Code.TUPLE: lambda content: None,
    Code.SET: _check_set,
    Code.FROZENSET: _check_set,
    Code.DICT: _check_dict,
    Code.RECORD: _check_record,
    Code.CUSTOM: _check_custom,
    Code.ENUM: _check_enum,
    Code.ARRAY: _check_array,
    Code.DEQUE: _check_deque,
    Code.ORDERED_DICT: _check_pairs,
    Code.COUNTER: _check_pairs,
    Code.DEFAULT_DICT: _check_default_dict,
    Code.FRAME: check_frame,
}


def _expect(sound: bool, problem: str) -> None:
    if not sound:
        raise FormatError(problem)
