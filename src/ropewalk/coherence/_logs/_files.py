"""Reading what `_sinks` wrote, also of a process that was killed while it wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from os import PathLike
from typing import Any, NamedTuple

from ropewalk.coherence._logs._records import Record
from ropewalk.errors import InvalidInput


class Line(NamedTuple):
    """One line of a log, and where it stands; `record` is None if it is no whole record."""

    at: int
    record: Record | None


def lines_of(path: str | PathLike[str]) -> Iterator[Line]:
    """The lines of a log, counted from 0, without empty ones."""
    with open(path, "rb") as file:
        index = -1
        for text in file:
            if text.strip():
                index += 1
                yield Line(index, _record(text))


def field_of(record: Record, name: str, path: str | PathLike[str], index: int) -> Any:
    """A field that a record must have."""
    try:
        return record[name]
    except KeyError:
        raise InvalidInput(
            f"line {index + 1} of {path} has no field {name!r}, so it is no record of this log. "
            "Check that this is the right file, and the right stream."
        ) from None


def _record(text: bytes) -> Record | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
