"""What agents did and saw: written line by line, so that a killed process leaves it behind.

An operation is two lines: what is about to be done, and what came of it. Both are handed to
the operating system at once. An operation without its second line may have happened or not.
Times are CLOCK_MONOTONIC, which the processes of one machine share.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

OK, ABSENT, REFUSED, UNKNOWN, BROKEN = "ok", "absent", "refused", "unknown", "broken"
"""How an operation ends: done; done, and there is no artifact; certainly not done; perhaps
done; with an error that nobody should see."""


THINKING = ".thinking"


class Seen(NamedTuple):
    """What an operation was told of an artifact."""

    version: int
    value: Any


@dataclass(frozen=True)
class Operation:
    """One call of one agent. Its `name` is in every value that it writes."""

    name: str
    agent: str
    kind: str
    artifacts: tuple[str, ...]
    invoked: float
    returned: float = math.inf
    outcome: str = UNKNOWN
    seen: Mapping[str, Seen] = field(default_factory=dict)
    writes: bool = False
    expected: int | None = None
    """The version that a compare-and-swap asked for."""
    grant: str | None = None
    """The grant under which it was done: one name for each time that it was taken."""
    within: float = 0.0
    """By how many seconds a read may be late."""
    accesses: int | None = None
    """How many reads may be late, where reads are counted instead."""
    why: str = ""

    def __str__(self) -> str:
        told = {name: f"version {one.version} {one.value}" for name, one in self.seen.items()}
        return (
            f"{self.name} by {self.agent}: {self.kind} {', '.join(self.artifacts)} "
            f"[{self.invoked:.4f}, {self.returned:.4f}] {self.outcome} {told or ''} {self.why}"
        ).strip()


class Version(NamedTuple):
    """A version as the authority has it at the end."""

    artifact: str
    version: int
    value: Any
    deleted: bool = False


@dataclass(frozen=True)
class Record:
    """A whole run: what agents did and saw, and what is there at the end."""

    operations: tuple[Operation, ...]
    versions: tuple[Version, ...]


class Recorder:
    """Writes down the operations of one process."""

    def __init__(self, path: Path, prefix: str) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._prefix = prefix
        self._count = 0
        self._lock = threading.Lock()

    def begin(self, agent: str, kind: str, artifacts: Iterable[str], **more: Any) -> str:
        """Note what is about to be done; its name."""
        with self._lock:
            self._count += 1
            name = f"{self._prefix}.{self._count}"
        asked = {"agent": agent, "kind": kind, "artifacts": list(artifacts), **more}
        self._write({"begin": name, "at": time.monotonic(), **asked})
        return name

    def end(
        self, name: str, outcome: str, seen: Mapping[str, Seen] | None = None, why: str = ""
    ) -> None:
        """Note what came of it."""
        at = time.monotonic()
        self._write({"end": name, "at": at, "outcome": outcome, "seen": seen or {}, "why": why})

    @contextmanager
    def thinking(self) -> Iterator[None]:
        """Let others know that an agent of this process thinks while it holds something."""
        mark = Path(self._file.name).with_suffix(THINKING)
        mark.touch()
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line) + "\n"
        with self._lock:
            self._file.write(text)
            self._file.flush()


def load(paths: Iterable[Path]) -> tuple[Operation, ...]:
    """The operations of all processes, in the order in which they began."""
    begun: dict[str, dict[str, Any]] = {}
    for path in paths:
        for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if not text.endswith("\n"):
                continue  # Killed while it wrote: the operation had not begun, or has no end.
            line = json.loads(text)
            if "begin" in line:
                name, at = line.pop("begin"), line.pop("at")
                begun[name] = {**line, "name": name, "invoked": at}
            else:
                _end(begun[line.pop("end")], line)
    found = (Operation(**{**one, "artifacts": tuple(one["artifacts"])}) for one in begun.values())
    return tuple(sorted(found, key=lambda one: one.invoked))


def _end(operation: dict[str, Any], line: dict[str, Any]) -> None:
    operation["returned"] = line["at"]
    operation["outcome"], operation["why"] = line["outcome"], line["why"]
    operation["seen"] = {name: Seen(*one) for name, one in line["seen"].items()}
