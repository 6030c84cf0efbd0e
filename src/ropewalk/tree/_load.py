from __future__ import annotations

from ropewalk.tree.read import Loader, uncollected

__all__ = ["Loader", "uncollected"]
