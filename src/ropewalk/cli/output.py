"""The output of commands: for people on a terminal, for pipes, and as JSON lines.

docs/reference/cli.md defines how values are written as JSON.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from typing import Any, TextIO, TypeAlias
from uuid import UUID

from ropewalk.codec import Undeclared
from ropewalk.codec.frames import open_frame
from ropewalk.store import Progress
from ropewalk.tree import ABSENT

# Python refuses to format longer numbers, because that takes too long.
_MOST_BITS = 14_000

_SECRET = re.compile(r"(?i)((?:password|secret|token|key|refs)[^=&]*=)[^&]*")
Span: TypeAlias = str | tuple[str, str]
"""A text, or a text and its style."""

# Stored text must not move the cursor, overwrite earlier output, or change the reading direction.
_CONTROLS = (*range(9), *range(10, 32), *range(127, 160))
_DIRECTIONS = (0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPED = {code: f"\\x{code:02x}" for code in _CONTROLS} | {
    code: f"\\u{code:04x}" for code in _DIRECTIONS
}


def plain(value: Any) -> Any:
    """A value that JSON can represent.

    Values without a JSON equivalent become an object with one key that begins with `$`.
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


def json_line(record: dict[str, Any]) -> str:
    """A record as one line of JSON."""
    return json.dumps(record, allow_nan=False)


def pretty_json(value: Any) -> str:
    """A value as indented JSON for people."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def same(one: Any, other: Any) -> bool:
    """Whether two values have the same JSON: 1, 1.0 and true are three values."""
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


def shown_url(url: str) -> str:
    """A path as it is, or a URL without its password."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        return url
    place, question, options = rest.partition("?")
    if "@" in options and "@" not in place:  # An unescaped ? in a password.
        place, question, options = "***@" + rest.rpartition("@")[2], "", ""
    # Up to the last @, because an unescaped password may contain one too.
    user, at, host = place.rpartition("@")
    if ":" in user:
        user = user.partition(":")[0] + ":***"
    kept = _SECRET.sub(r"\1***", options)
    return f"{scheme}://{user}{at}{host}{question}{kept}"


class Output:
    """Where and how a command writes."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json, self.quiet = json, quiet
        self.is_terminal = _is_terminal(sys.stdout)
        self.unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        self._console: Any = None

    def record(self, record: dict[str, Any]) -> None:
        """One line of JSON."""
        print(json_line(record))

    def line(self, *spans: Span) -> None:
        """One line of text; styles apply on a terminal only."""
        if not (self.is_terminal and not os.environ.get("NO_COLOR")):
            print("".join(_clean(_text(span)) for span in spans))
            return
        from rich.text import Text

        told = Text()
        for span in spans:
            told.append(_clean(_text(span)), None if isinstance(span, str) else span[1])
        self._rich().print(told, soft_wrap=True)

    def lines(self, text: str, *, before: str = "", style: str = "") -> None:
        """Several lines of text."""
        for one in text.split("\n"):
            self.line((before + one, style))

    def done(self, record: dict[str, Any], *spans: Span) -> None:
        """Report a change: nothing with --quiet."""
        if self.json:
            self.record(record)
        elif not self.quiet:
            self.line(*spans)

    def row(self, record: dict[str, Any], name: str, *spans: Span) -> None:
        """One item of a list: with --quiet only its name."""
        if self.json:
            self.record(record)
        elif self.quiet:
            self.line(name)
        else:
            self.line(*spans)

    def note(self, text: str) -> None:
        """A note for people, separate from the output."""
        if self.json:
            print(json_line({"note": text}), file=sys.stderr)
        else:
            warn(f"Note: {text}.")

    def warning(self, text: str) -> None:
        """A warning about something done differently than asked, separate from the output."""
        if self.json:
            print(json_line({"warning": text}), file=sys.stderr)
        else:
            warn(f"Warning: {text}")

    @contextmanager
    def progress(self) -> Iterator[Progress | None]:
        """The progress of long work, shown on a terminal."""
        with self.bar("objects") as tell:
            if tell is None:
                yield None
            else:
                shown = tell  # Without a known total.
                yield lambda step, done: shown(step, done, None)

    @contextmanager
    def bar(self, unit: str) -> Iterator[Callable[[str, int, int | None], None] | None]:
        """The same, with an optional total."""
        if self.quiet or not _is_terminal(sys.stderr):
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        shown = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,}{task.fields[of]} " + unit),
            TimeElapsedColumn(),
            console=Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR"))),
            transient=True,
        )
        with shown:
            task = shown.add_task("beginning", total=None, of="")

            def tell(step: str, done: int, total: int | None) -> None:
                of = "" if total is None else f" of {total:,}"
                shown.update(task, description=step, completed=done, total=total, of=of)

            yield tell

    def _rich(self) -> Any:
        if self._console is None:
            from rich.console import Console

            self._console = Console(highlight=False, markup=False, emoji=False)
        return self._console


def on_one_line(name: str) -> str:
    """A name of any characters on one line."""
    return name.replace("\n", "\\n")


def warn(text: str) -> None:
    """One line on standard error."""
    print(_clean(text), file=sys.stderr)


def prepare_streams() -> None:
    """Escape characters that a stream's encoding cannot represent."""
    # A stream that was closed before we started is None.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # It was closed.
        return False


def _text(span: Span) -> str:
    return span if isinstance(span, str) else span[0]


def _clean(text: str) -> str:
    return text.translate(_ESCAPED)
