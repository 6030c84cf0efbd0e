"""The artifacts that agents share in the scenarios: one long text, or many small fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from bench._text import Text
from bench._values import record

Make = Callable[[int, int], dict[str, Any]]
"""An artifact of about so many bytes; the second number makes it differ from the others."""

SIZES: Mapping[str, int] = {"200": 200, "4k": 4_000, "40k": 40_000}
"""What a figure calls an artifact, and its bytes."""
_OVERHEAD, _RECORD = 60, 88


def text(size: int, number: int) -> dict[str, Any]:
    """A document: nearly all of it is one text."""
    length = size - _OVERHEAD
    begin = number * 97 % length
    return {"step": number, "title": "A document", "text": _prose(2 * length)[begin:][:length]}


@cache
def _prose(length: int) -> str:
    return Text(1).prose(length)


def fields(size: int, number: int) -> dict[str, Any]:
    """A plan: records of four small fields."""
    made = Text(number)
    return {"step": number, "items": [record(made, at) for at in range(size // _RECORD)]}
