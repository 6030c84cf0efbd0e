"""Objects that lead to up to three others, whatever these are."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.tree import Object, ObjectId, make_commit


def manifest(ids: Sequence[ObjectId]) -> Object:
    """A commit that leads to these."""
    root, metadata, events = [*ids, None, None][:3]
    assert root is not None
    return make_commit(root, metadata=metadata, events=events)[1]
