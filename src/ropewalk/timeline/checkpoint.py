"""A checkpoint as the developer of an agent sees it, and what differs between two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from enum import StrEnum
from pprint import pformat
from typing import Any

from ropewalk.codec import Path, format_path
from ropewalk.history import Commit, History
from ropewalk.tree import Change, get

_WIDTH = 100


class CheckpointStatus(StrEnum):
    """What became of a checkpoint."""

    ACTIVE = "active"
    """A branch or tag leads to it."""
    ROLLED_BACK = "rolled_back"
    """A rollback or an undo left it behind; it can still be read and gone back to."""
    RECOVERED = "recovered"
    """It went well after attempts at it had failed."""
    FAILED = "failed"
    """An attempt that failed; the branch did not go there."""


class Checkpoint:
    """One saved step of an agent. Nothing that is done to it changes what is stored.

    `id` names the step, `hash` its state: equal states have equal hashes. `state` and
    `metadata` are read when they are asked for, anew each time, so they are the
    caller's own.
    """

    __slots__ = ("_history", "_status", "commit")

    def __init__(
        self, history: History, commit: Commit, status: Callable[[Commit], CheckpointStatus]
    ) -> None:
        self._history, self.commit, self._status = history, commit, status

    @property
    def id(self) -> str:
        """The id of the commit, 64 hex digits; a unique beginning of it is enough everywhere."""
        return self.commit.id.hex()

    @property
    def short(self) -> str:
        """The first digits of the id, for people."""
        return self.id[:8]

    @property
    def hash(self) -> str:
        """The hash of the state."""
        return self.commit.root.hex()

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of the checkpoints it was made from; a merge has two."""
        return tuple(parent.hex() for parent in self.commit.parents)

    @property
    def parent_id(self) -> str | None:
        """The id of the step before, on its branch."""
        return self.parents[0] if self.parents else None

    @property
    def state(self) -> Any:
        """The state that was saved."""
        return self._history.value(self.commit)

    @property
    def metadata(self) -> dict[str, Any]:
        """What was said about the step."""
        found: dict[str, Any] = self._history.metadata(self.commit) or {}
        return found

    @property
    def status(self) -> CheckpointStatus:
        """What became of it, as the log of operations says now."""
        return self._status(self.commit)

    @property
    def merged(self) -> bool:
        """Whether others had saved steps meanwhile, so that the state holds their changes too.

        The state that was handed over is then that of the second parent.
        """
        return self.commit.merged

    @property
    def description(self) -> str:
        """What the step was, for people."""
        return self.commit.description

    @property
    def logic_step(self) -> str:
        """The name of the step in the agent's logic."""
        return self.commit.logic_step

    @property
    def branch(self) -> str:
        """The branch that it was made on."""
        return self.commit.branch

    @property
    def agent(self) -> str:
        """The agent that made it."""
        return self.commit.agent

    @property
    def time(self) -> datetime:
        """When it was made, by the clock of the machine that made it."""
        return datetime.fromtimestamp(self.commit.time / 1e6, UTC)

    @property
    def timestamp(self) -> float:
        """The same in seconds since 1970."""
        return self.commit.time / 1e6

    @property
    def error(self) -> str | None:
        """What went wrong in a failed attempt: the error's type and message."""
        return self.commit.error or None

    @property
    def traceback(self) -> str | None:
        """Where it went wrong."""
        found = self.commit.extension.get("traceback")
        return found if isinstance(found, str) else None

    def to_dict(self, *, state: bool = True) -> dict[str, Any]:
        """Everything about it as plain values; without its state if that is not wanted."""
        told: dict[str, Any] = {
            "id": self.id,
            "hash": self.hash,
            "parents": list(self.parents),
            "agent": self.agent,
            "branch": self.branch,
            "description": self.description,
            "logic_step": self.logic_step,
            "status": str(self.status),
            "merged": self.merged,
            "error": self.error,
            "time": self.time.isoformat(),
            "metadata": self.metadata,
        }
        if state:
            told["state"] = self.state
        return told

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and other.commit.id == self.commit.id

    def __hash__(self) -> int:
        return hash(self.commit.id)

    def __repr__(self) -> str:
        what = self.description or self.logic_step
        return f"<Checkpoint {self.short} {what!r} on {self.branch!r}, {self.status}>"


class Past:
    """A read-only view of a checkpoint. What it gives is the caller's own."""

    def __init__(self, history: History, checkpoint: Checkpoint) -> None:
        self._history = history
        self.checkpoint = checkpoint
        """The checkpoint that is looked at."""

    @property
    def state(self) -> Any:
        """The whole state."""
        return self.checkpoint.state

    def get(self, path: Path | str) -> Any:
        """What is at a path, of which no more is read than needed; raises `PathNotFound`."""
        steps = (path,) if isinstance(path, str) else path
        return get(self.checkpoint.commit.root, steps, self._history.read, self._history.codec)

    def history(self, limit: int | None = 50) -> list[Checkpoint]:
        """The steps that led here, newest first."""
        return [
            Checkpoint(self._history, commit, self.checkpoint._status)
            for commit in self._history.steps(self.checkpoint.commit, limit)
        ]

    def __repr__(self) -> str:
        return f"<Past at {self.checkpoint!r}>"


@dataclass(frozen=True)
class Diff:
    """What changed between two states: deep, by path."""

    changes: tuple[Change, ...]

    @property
    def added(self) -> dict[Path, Any]:
        """What is only in the second, by its path there."""
        return {one.path: one.new for one in self.changes if one.kind == "added"}

    @property
    def removed(self) -> dict[Path, Any]:
        """What is only in the first, by its path there."""
        return {one.path: one.old for one in self.changes if one.kind == "removed"}

    @property
    def changed(self) -> dict[Path, tuple[Any, Any]]:
        """What has another value, with both."""
        return {one.path: (one.old, one.new) for one in self.changes if one.kind == "changed"}

    @property
    def reordered(self) -> list[Path]:
        """Dicts whose keys are the same in another order."""
        return [one.path for one in self.changes if one.kind == "reordered"]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def to_dict(self) -> list[dict[str, Any]]:
        """The changes as plain values."""
        return [
            {
                "kind": one.kind,
                "path": format_path(one.path, "state"),
                **({} if one.kind in ("added", "reordered") else {"old": one.old}),
                **({} if one.kind in ("removed", "reordered") else {"new": one.new}),
            }
            for one in self.changes
        ]

    def __str__(self) -> str:
        return "\n".join(line for one in self.changes for line in shown_lines(one))


def shown_lines(change: Change, root: str = "state") -> Iterable[str]:
    """A change for people; `root` is what the value that its path is in is called."""
    path = format_path(change.path, root)
    if change.kind == "reordered":
        return [f"~ {path}: other order of keys"]
    if change.kind == "added":
        return _shown(f"+ {path}: ", change.new)
    if change.kind == "removed":
        return _shown(f"- {path}: ", change.old)
    if isinstance(change.old, str) and isinstance(change.new, str) and "\n" in change.old:
        return [f"~ {path}:", *_unified(change.old, change.new)]
    return [*_shown(f"- {path}: ", change.old), *_shown(f"+ {path}: ", change.new)]


def _unified(old: str, new: str) -> list[str]:
    lines = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
    return [f"    {line}" for line in lines if not line.startswith(("---", "+++"))]


def _shown(head: str, value: Any) -> list[str]:
    try:
        first, *more = pformat(value, width=_WIDTH, sort_dicts=False).splitlines()
    except ValueError:  # Python writes no number of more than 4,300 digits.
        first, more = "(holds a number that is too long to show)", []
    return [head + first, *(f"{head[0]}     {line}" for line in more)]
