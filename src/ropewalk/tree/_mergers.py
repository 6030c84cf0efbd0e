from __future__ import annotations

from ropewalk.tree.mergers import Rules

__all__ = ["Rules"]
