"""Commits, branches, merges and operations: what everything above stores its versions in."""

from __future__ import annotations

from holdfast.history._branch import Branch
from holdfast.history._commits import StepFields
from holdfast.history._history import MAIN, At, History
from holdfast.history._refs import Pin
from holdfast.tree import Commit

__all__ = ["MAIN", "At", "Branch", "Commit", "History", "Pin", "StepFields"]
