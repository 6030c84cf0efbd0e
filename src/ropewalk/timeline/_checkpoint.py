"""A checkpoint: a commit as the developer of an agent sees it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.history import Commit, History


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
