"""What a command writes: for people on a terminal, for pipes, and as lines of JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, TypeAlias

from ropewalk.cli import _values as values
from ropewalk.store import Progress

Span: TypeAlias = str | tuple[str, str]
"""A text, or a text and its style."""

# Nothing that was stored may move the cursor, change what was written before, or turn
# around the order in which it is read.
_CONTROLS = (*range(9), *range(10, 32), *range(127, 160))
_DIRECTIONS = (0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPED = {code: f"\\x{code:02x}" for code in _CONTROLS} | {
    code: f"\\u{code:04x}" for code in _DIRECTIONS
}


class Output:
    """Where a command writes to, and how."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json, self.quiet = json, quiet
        self.is_terminal = _is_terminal(sys.stdout)
        self.unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        self._console: Any = None

    def record(self, record: dict[str, Any]) -> None:
        """One line of JSON."""
        print(values.line(record))

    def line(self, *spans: Span) -> None:
        """One line of text; styles show on a terminal only."""
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
        """Say what a command changed: nothing with --quiet."""
        if self.json:
            self.record(record)
        elif not self.quiet:
            self.line(*spans)

    def row(self, record: dict[str, Any], name: str, *spans: Span) -> None:
        """One thing of a list: with --quiet only its name."""
        if self.json:
            self.record(record)
        elif self.quiet:
            self.line(name)
        else:
            self.line(*spans)

    def note(self, text: str) -> None:
        """What people should know beside the output, which stays as it is."""
        if self.json:
            print(values.line({"note": text}), file=sys.stderr)
        else:
            warn(f"Note: {text}.")

    def warning(self, text: str) -> None:
        """What was done otherwise than asked for, beside the output."""
        if self.json:
            print(values.line({"warning": text}), file=sys.stderr)
        else:
            warn(f"Warning: {text}")

    @contextmanager
    def progress(self) -> Iterator[Progress | None]:
        """How far long work is, shown on a terminal while it goes on."""
        with self.bar("objects") as tell:
            if tell is None:
                yield None
            else:
                shown = tell  # For work of which nobody knows how much there is.
                yield lambda step, done: shown(step, done, None)

    @contextmanager
    def bar(self, unit: str) -> Iterator[Callable[[str, int, int | None], None] | None]:
        """The same, of work of which it may be known how much there is."""
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
    """A name that may hold anything, so that a list has a line for each."""
    return name.replace("\n", "\\n")


def warn(text: str) -> None:
    """One line to people, beside the output."""
    print(_clean(text), file=sys.stderr)


def prepare_streams() -> None:
    """Let what a stream's encoding cannot say be written as its number."""
    # A stream that was closed before we began is None.
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
