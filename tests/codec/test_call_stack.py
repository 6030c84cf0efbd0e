"""A full call stack, and errors of a program's own classes: refused, never hidden."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import struct
import sys
import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from enum import IntFlag
from typing import Any

import pydantic
import pytest

from ropewalk.codec import Codec, decode, encode
from ropewalk.errors import FormatError, NotStorable

_LEFT = 20
"""Frames that a caller needs itself to report an error."""


def _depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def _from(depth: int, call: Callable[[], Any]) -> Any:
    return _from(depth - 1, call) if depth else call()


def _room(margin: int) -> int:
    return sys.getrecursionlimit() - _depth() - margin


VALUE = [(1, (2, frozenset([(3, date(2020, 1, 1))]))), {1: 2}, 2**70]


@pytest.mark.parametrize("margin", range(_LEFT, 120))
def test_encoding_at_the_end_of_the_call_stack_works_or_is_refused(margin: int) -> None:
    with contextlib.suppress(NotStorable):
        assert _from(_room(margin), lambda: encode(VALUE)) == encode(VALUE)


@pytest.mark.parametrize("margin", range(_LEFT, 120))
def test_decoding_at_the_end_of_the_call_stack_works_or_is_refused(margin: int) -> None:
    data = encode(VALUE)
    with contextlib.suppress(FormatError):
        assert _from(_room(margin), lambda: decode(data)) == VALUE


def test_a_refusal_at_the_end_of_the_call_stack_names_the_stack() -> None:
    data = encode(VALUE)

    with pytest.raises(FormatError, match="the call stack has no room left"):
        _from(_room(_LEFT), lambda: decode(data))


_HIDING = ["Type is not msgpack serializable: X", "ext_hook failed"]


def _broken(error: Exception) -> Any:
    def fail(self: Any, name: str) -> Any:
        raise error

    made = dataclasses.make_dataclass("Made", [("x", int), ("y", int)])
    value = made(1, 2)
    del value.y
    made.__getattr__ = fail  # type: ignore[attr-defined]
    return value


@pytest.mark.parametrize(
    "error", [*map(TypeError, _HIDING), ValueError("mine"), LookupError("mine"), OSError("mine")]
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: ({1: v},)])
def test_a_field_that_cannot_be_read_is_refused_by_name(error: Exception, wrap: Any) -> None:
    value = _broken(error)
    codec = Codec(types=[type(value)])

    with pytest.raises(NotStorable, match="the field 'y' cannot be read") as caught:
        codec.encode(wrap(value))
    assert str(error) in str(caught.value)


@pytest.mark.parametrize("text", _HIDING)
def test_an_error_that_reads_like_a_hidden_interrupt_is_none(text: str) -> None:
    class Mine:
        pass

    def refuse(value: Any) -> Any:
        raise TypeError(text)

    codec = Codec()
    codec.registry.register(Mine, name="mine", encode=refuse, decode=refuse)

    with pytest.raises(NotStorable, match=text):
        codec.encode((Mine(),))


def test_a_model_that_was_never_set_up_is_refused() -> None:
    class Empty(pydantic.BaseModel):
        x: int = 1

    with pytest.raises(NotStorable, match=r"not set|cannot be read"):
        Codec(types=[Empty]).encode(Empty.__new__(Empty))


class _Odd(int):
    pass


def test_a_flag_of_an_odd_number_is_refused_and_no_interrupt() -> None:
    class Flags(IntFlag):
        ONE = 1

    stray = int.__new__(Flags, 2)
    stray._value_ = _Odd(2)

    with pytest.raises(NotStorable, match="no member stands for"):
        Codec(types=[Flags]).encode([stray])


# The zone file of a place that is nine hours ahead all year.
ZONE_FILE = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
ZONE_FILE += struct.pack(">lBB", 9 * 3600, 0, 0) + b"JST\0"


def test_a_zone_from_a_file_under_the_key_of_another_is_refused() -> None:
    zone = zoneinfo.ZoneInfo.from_file(io.BytesIO(ZONE_FILE), key="Europe/Vienna")

    assert zone.utcoffset(datetime(2025, 1, 31)) == timedelta(hours=9)
    with pytest.raises(NotStorable, match="time zone"):
        encode(datetime(2025, 1, 31, tzinfo=zone))


def test_a_zone_that_was_found_by_its_key_comes_back() -> None:
    for zone in (zoneinfo.ZoneInfo("Europe/Vienna"), zoneinfo.ZoneInfo.no_cache("Europe/Vienna")):
        moment = datetime(2025, 1, 31, tzinfo=zone)

        assert decode(encode(moment)).tzinfo.key == "Europe/Vienna"
    assert decode(encode(datetime(2025, 1, 31, tzinfo=UTC))).tzinfo is UTC
