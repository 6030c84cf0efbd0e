"""Branches of a timeline: which one is current, and by which rules two are merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.errors import InvalidInput
from ropewalk.history import Commit, History
from ropewalk.store import Store, View, ref_name
from ropewalk.tree import Mergers, ObjectId, Reader, load

HEAD = ref_name("head", "current")
"""The ref that says which branch is the current one."""


def stored_branch(store: Store, space: str) -> str | None:
    """The branch that was last switched to, if one ever was."""
    ref = store.ref(space, HEAD)
    return None if ref is None else _name(ref.target, store.reader(space))


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


EVERYWHERE = (...,)
"""The path of everything."""

STRATEGIES = ("combine", "ours", "theirs", "prefer_source", "prefer_higher_confidence")


def rules(
    history: History, strategy: str, ours: Commit, theirs: Commit, mergers: Mergers | None
) -> Mergers:
    """The mergers of a strategy; those that were given go before it."""
    if strategy not in STRATEGIES:
        raise InvalidInput(
            f"there is no merge strategy {strategy!r:.80}; there are {', '.join(STRATEGIES)}"
        )
    side = {"ours": "ours", "theirs": "theirs", "prefer_source": "theirs"}.get(strategy)
    if strategy == "prefer_higher_confidence":
        side = _surer(_confidence(history, ours), _confidence(history, theirs))
    if mergers is not None and not isinstance(mergers, Mapping):
        return mergers  # To be refused by whoever reads them.
    chosen: dict[Any, Any] = {} if side is None else {EVERYWHERE: side}
    return {**chosen, **(mergers or {})}


def _confidence(history: History, commit: Commit) -> float | None:
    metadata = history.metadata(commit)
    found = metadata.get("confidence") if isinstance(metadata, dict) else None
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _surer(ours: float | None, theirs: float | None) -> str | None:
    """The side that is surer; without figures, neither."""
    if ours is None and theirs is None:
        return None
    if ours is None or (theirs is not None and theirs >= ours):
        return "theirs"
    return "ours"
