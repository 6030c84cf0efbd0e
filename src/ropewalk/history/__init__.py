"""Commits, branches, merges and operations: what everything above stores its versions in."""

from __future__ import annotations

from ropewalk.history.branch import Aside, Branch
from ropewalk.history.commits import Backoff, Commits, StepFields, commit_loop, new_write_id
from ropewalk.history.history import MAIN, At, History, Pin
from ropewalk.tree import Commit

__all__ = [
    "MAIN",
    "Aside",
    "At",
    "Backoff",
    "Branch",
    "Commit",
    "Commits",
    "History",
    "Pin",
    "StepFields",
    "commit_loop",
    "new_write_id",
]
