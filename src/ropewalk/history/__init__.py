"""Commits, branches, merges and operations: what everything above stores its versions in."""

from __future__ import annotations

from ropewalk.history._branch import Branch
from ropewalk.history._commits import StepFields
from ropewalk.history._history import MAIN, At, History
from ropewalk.history._refs import Pin
from ropewalk.tree import Commit

__all__ = ["MAIN", "At", "Branch", "Commit", "History", "Pin", "StepFields"]
