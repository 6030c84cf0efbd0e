from __future__ import annotations

from ropewalk.tree.commits import MAX_COMMIT_BYTES, MERGED, Commit

__all__ = ["MAX_COMMIT_BYTES", "MERGED", "Commit"]
