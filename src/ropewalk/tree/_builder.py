from __future__ import annotations

from ropewalk.tree.build import Builder, Title

__all__ = ["Builder", "Title"]
