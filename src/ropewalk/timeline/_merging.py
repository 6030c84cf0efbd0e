"""Merging by strategy, and bringing the change of one step elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ropewalk.codec import Codec
from ropewalk.errors import InvalidInput
from ropewalk.history import Commit, History
from ropewalk.tree import Edited, Mergers, ObjectId, Reader, merge

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


def bringing(
    base: ObjectId, theirs: ObjectId, mergers: Mergers | None, codec: Codec
) -> Callable[[ObjectId | None, Reader], Edited]:
    """An edit that does to the newest value what led from one value to another."""

    def edit(root: ObjectId | None, read: Reader) -> Edited:
        assert root is not None, "a branch that has a step has a value"
        return merge(base, root, theirs, read, mergers=mergers, codec=codec)

    return edit


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
