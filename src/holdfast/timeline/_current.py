"""Which branch of a timeline is the current one, for whoever opens it next."""

from __future__ import annotations

from holdfast.store import Store, ref_name
from holdfast.tree import load

HEAD = ref_name("head", "current")
"""The ref that says which branch is the current one."""


def stored_branch(store: Store, space: str) -> str | None:
    """The branch that was last switched to, if one ever was."""
    ref = store.ref(space, HEAD)
    if ref is None:
        return None
    found = load(ref.target, store.read)
    return found if isinstance(found, str) else None


def living_branch(store: Store, space: str) -> str | None:
    """The stored branch, unless somebody removed it."""
    stored = stored_branch(store, space)
    if stored is None:
        return None
    ref = store.ref(space, ref_name("branch", stored))
    return None if ref is None else stored
