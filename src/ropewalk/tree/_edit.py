from __future__ import annotations

from ropewalk.tree.edit import embed_at

__all__ = ["embed_at"]
