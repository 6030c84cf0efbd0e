from __future__ import annotations

from ropewalk.tree.build import reachable

__all__ = ["reachable"]
