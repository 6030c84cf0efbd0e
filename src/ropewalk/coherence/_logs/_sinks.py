"""Where the records of a log go: a file by its path, an open text file, or a callback."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Protocol, TextIO, TypeAlias

from ropewalk.coherence._logs._records import Record
from ropewalk.errors import InvalidInput, NotAllowed

Sink: TypeAlias = str | PathLike[str] | TextIO | Callable[[Any], object]
"""A path, an open text file, or what is called with every record."""

Failed: TypeAlias = Callable[[BaseException], None]


class Unwritten(Exception):
    """A sink failed after it had taken `taken` of the records."""

    def __init__(self, taken: int, cause: Exception) -> None:
        super().__init__(str(cause))
        self.taken = taken


class Outlet(Protocol):
    """What the worker of a stream writes to."""

    keeps_controls: bool
    """Whether it takes the records `begin`, `end` and `dropped`."""

    def write(self, records: Sequence[Any], failed: Failed) -> None:
        """Take all records, or raise `Unwritten`; `failed` is told of one that was refused."""

    def close(self) -> None:
        """Give back what was opened."""


def outlet_of(sink: Sink, name: str) -> Outlet:
    """What writes to a sink; `name` is the parameter that it was given as."""
    if isinstance(sink, str | PathLike):
        return _Path(sink)
    if callable(sink):
        return _Callback(sink)
    if hasattr(sink, "write"):
        return _File(sink)
    raise InvalidInput(
        f"{name} is of {type(sink).__name__}. Give it a path, an open text file, or a function "
        "that takes one record."
    )


class _Path:
    """Lines of JSON at the end of a file, which other processes may write to as well."""

    keeps_controls = True

    def __init__(self, path: str | PathLike[str]) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NotAllowed(
                f"the log {os.fspath(path)!r:.200} cannot be written: {error.strerror}. Name a "
                "file in a folder that is there and that may be written to."
            ) from error
        # A line that a process began and did not finish stays, alone: readers pass over it.
        self._torn = not _ends_a_line(self._file)

    def write(self, records: Sequence[Any], failed: Failed) -> None:
        data = "".join(map(line_of, records)).encode()
        start = b"\n" if self._torn else b""
        written = 0
        # One write for all lines, so that those of several processes do not mix.
        rest = memoryview(start + data)
        try:
            while written < len(rest):
                written += os.write(self._file, rest[written:])
        except OSError as error:
            whole = bytes(rest[:written])
            if written:
                self._torn = not whole.endswith(b"\n")
            raise Unwritten(whole[len(start) :].count(b"\n"), error) from error
        self._torn = False

    def close(self) -> None:
        os.close(self._file)


class _File:
    keeps_controls = True

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, records: Sequence[Any], failed: Failed) -> None:
        try:
            self._file.write("".join(map(line_of, records)))
            self._file.flush()
        except Exception as error:
            raise Unwritten(0, error) from error

    def close(self) -> None:
        """Leave it open: it is the caller's."""


class _Callback:
    # A callback reads the fields of a record; what was dropped it sees in the numbers.
    keeps_controls = False

    def __init__(self, call: Callable[[Any], object]) -> None:
        self._call = call

    def write(self, records: Sequence[Any], failed: Failed) -> None:
        for record in records:
            try:
                self._call(record)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the next one is called
                # Also what ends a program or a task elsewhere: here it would end the log.
                failed(error)

    def close(self) -> None:
        """Nothing was opened."""


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


def line_of(record: Any) -> str:
    """A record as one line of JSON."""
    told: Record = record if isinstance(record, dict) else record._asdict()
    return _encode(told) + "\n"


def _ends_a_line(file: int) -> bool:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return True  # A pipe, or new.
    return os.pread(file, 1, found.st_size - 1) == b"\n"
