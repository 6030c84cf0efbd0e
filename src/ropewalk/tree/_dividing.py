from __future__ import annotations

from ropewalk.tree.container import Division, Share, divide

__all__ = ["Division", "Share", "divide"]
