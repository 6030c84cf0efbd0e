from __future__ import annotations

from ropewalk.tree.embed import Embedder, retry_if_changed

__all__ = ["Embedder", "retry_if_changed"]
