"""Holdfast, the state layer for LLM agents.

Keeps every step of an agent as a version and stores only what changed.
"""

from holdfast._version import __version__
from holdfast.errors import (
    Conflict,
    Corrupt,
    Full,
    HoldfastError,
    InvalidInput,
    MergeConflict,
    NotAllowed,
    NotFound,
    NotStorable,
    Unavailable,
)

__all__ = [
    "Conflict",
    "Corrupt",
    "Full",
    "HoldfastError",
    "InvalidInput",
    "MergeConflict",
    "NotAllowed",
    "NotFound",
    "NotStorable",
    "Unavailable",
    "__version__",
]
