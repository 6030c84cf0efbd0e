from __future__ import annotations

from ropewalk.tree.nodes import (
    INLINE_MAX,
    KEY_MAX,
    NODE_MAX,
    NODE_MIN,
    NODE_TARGET,
    cuts_after,
    mark,
)

__all__ = ["INLINE_MAX", "KEY_MAX", "NODE_MAX", "NODE_MIN", "NODE_TARGET", "cuts_after", "mark"]
