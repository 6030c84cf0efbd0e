from __future__ import annotations

from ropewalk.tree.read import reading, writing

__all__ = ["reading", "writing"]
