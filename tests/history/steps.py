"""Steps that many tests take."""

from __future__ import annotations

from typing import Any

from ropewalk.history import Commit, History


def commit(history: History, value: Any, branch: str = "main", **fields: Any) -> Commit:
    """One version on top of a branch."""
    handle = history.open(branch)
    if handle.head is not None:
        handle.read()
    return handle.commit(value, **fields)


def state_of(history: History) -> object:
    """Everything that a change of a history would change."""
    return history.store.view(history.space)


def forked(history: History) -> tuple[Commit, Commit, Commit, Commit]:
    """A start, two branches from it, and their merge into main."""
    start = commit(history, {"a": 0, "b": 0})
    history.create_branch("side")
    left = commit(history, {"a": 1, "b": 0})
    right = commit(history, {"a": 0, "b": 1}, branch="side")
    return start, left, right, history.merge("side")
