from __future__ import annotations

from ropewalk.tree.levels import Rebuilt, Span, View, in_turn, rebuild

__all__ = ["Rebuilt", "Span", "View", "in_turn", "rebuild"]
