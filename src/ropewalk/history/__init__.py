"""Commits, branches, merges and operations: what everything above stores its versions in."""

from __future__ import annotations

from ropewalk.history.branch import Branch
from ropewalk.history.commits import StepFields
from ropewalk.history.history import MAIN, At, History, Pin
from ropewalk.tree import Commit

__all__ = ["MAIN", "At", "Branch", "Commit", "History", "Pin", "StepFields"]
