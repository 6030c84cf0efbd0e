from __future__ import annotations

from ropewalk.tree.verify import Verifier

__all__ = ["Verifier"]
