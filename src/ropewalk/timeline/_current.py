"""Which branch of a timeline is the current one, for whoever opens it next."""

from __future__ import annotations

from ropewalk.store import Store, View, ref_name
from ropewalk.tree import ObjectId, Reader, load

HEAD = ref_name("head", "current")
"""The ref that says which branch is the current one."""


def stored_branch(store: Store, space: str) -> str | None:
    """The branch that was last switched to, if one ever was."""
    ref = store.ref(space, HEAD)
    return None if ref is None else _name(ref.target, store.read)


def living_branch(store: Store, space: str) -> str | None:
    """The stored branch, unless somebody removed it."""
    stored = stored_branch(store, space)
    if stored is None:
        return None
    ref = store.ref(space, ref_name("branch", stored))
    return None if ref is None else stored


def branch_in(view: View, read: Reader) -> str | None:
    """The same, where all refs of the space have been seen."""
    targets = {ref.name: ref.target for ref in view.refs}
    head = targets.get(HEAD)
    stored = None if head is None else _name(head, read)
    return stored if stored is not None and ref_name("branch", stored) in targets else None


def _name(target: ObjectId, read: Reader) -> str | None:
    found = load(target, read)
    return found if isinstance(found, str) else None
