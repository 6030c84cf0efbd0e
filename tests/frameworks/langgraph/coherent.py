"""Agents of the tests of `CoherentStore`."""

from __future__ import annotations

PLANNER = ("planner", "shared")
REVIEWER = ("reviewer", "shared")
