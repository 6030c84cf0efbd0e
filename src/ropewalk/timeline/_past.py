"""A timeline as it was: a view of one checkpoint that changes nothing."""

from __future__ import annotations

from typing import Any

from ropewalk.codec import Path
from ropewalk.history import History
from ropewalk.timeline._checkpoint import Checkpoint
from ropewalk.tree import get


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
        return get(
            self.checkpoint.commit.root, steps, self._history.store.read, self._history.codec
        )

    def history(self, limit: int | None = 50) -> list[Checkpoint]:
        """The steps that led here, newest first."""
        return [
            Checkpoint(self._history, commit, self.checkpoint._status)
            for commit in self._history.steps(self.checkpoint.commit, limit)
        ]

    def __repr__(self) -> str:
        return f"<Past at {self.checkpoint!r}>"
