"""Typed state in frameworks: which one is in use, and what every adapter does."""

from __future__ import annotations

from holdfast.adapters._base import Hydrated, StateAdapter, Update, auto_adapt
from holdfast.adapters._detection import detect_active_framework

__all__ = [
    "Hydrated",
    "StateAdapter",
    "Update",
    "auto_adapt",
    "detect_active_framework",
]
