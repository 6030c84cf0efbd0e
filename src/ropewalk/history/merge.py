"""Lineage of commits: ancestors, merge bases, and merges of commits from them.

How two values are merged is in `tree.three_way_merge`; here it is decided what they are merged
from. Two branches that were merged into each other (a criss-cross) have several nearest common
ancestors. With only one of them as merge base, a change that both sides got through another
would look like a change of one side, and would be applied twice, or brought back after it was
reverted. So these ancestors are merged first, and the result, which is not stored, is the base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from ropewalk.codec import Codec
from ropewalk.errors import Conflict, MergeConflict
from ropewalk.tree import (
    Commit,
    Edited,
    Merger,
    Mergers,
    Object,
    ObjectId,
    Reader,
    merge,
)
from ropewalk.tree.build import reachable
from ropewalk.tree.three_way_merge import Rules

Function: TypeAlias = Callable[[Any, Any, Any], Any]

DIFFERS = "(the common ancestors differ here)"
"""Placeholder in a merge base where its ancestors conflict, so that both sides differ from it."""

_DEEPEST = 200  # After more criss-cross merges than this a single ancestor is the base.
_TRIES = 3


def check_mergers(mergers: Mergers | None, codec: Codec) -> None:
    """Raise `InvalidInput` for a mistake in mergers now, not when there is a conflict."""
    if mergers is not None and mergers != {}:
        Rules(mergers, codec.encode)


class Merging(NamedTuple):
    """What a merge needs beside its three values: readers, mergers and codec."""

    find: Find
    read: Reader
    mergers: Mergers | None
    codec: Codec
    exclusive: bool = False
    """Whether the same change on both sides is a conflict too."""

    def trees(self, base: ObjectId | None, ours: ObjectId, theirs: ObjectId) -> Edited:
        """Merge two values from their base."""
        return merge(
            base,
            ours,
            theirs,
            self.read,
            mergers=self.mergers,
            codec=self.codec,
            exclusive=self.exclusive,
        )


class Base(NamedTuple):
    """A merge base, and those of its objects that are not in the store."""

    root: ObjectId | None
    objects: Sequence[Object] = ()


def removed(branch: str, space: str) -> Conflict:
    """The error for a commit to a branch that was removed."""
    return Conflict(
        f"branch {branch!r} of {space!r} was removed meanwhile. Open it again to create it."
    )


def merge_late(base: ObjectId | None, mine: ObjectId, published: ObjectId, how: Merging) -> Edited:
    """Merge a value into the one that was published first.

    The published value keeps its order, because others already build on it: `append` puts
    the items of `mine` after it, and its keys come first. Mergers and conflicts still call
    `mine` ours.
    """
    if isinstance(how.mergers, Mapping):  # Anything else is refused by `merge`.
        how = how._replace(mergers={key: _turned(one) for key, one in how.mergers.items()})
    try:
        return how.trees(base, published, mine)
    except MergeConflict as conflict:
        raise MergeConflict(
            [one._replace(ours=one.theirs, theirs=one.ours) for one in conflict.conflicts]
        ) from None


def merge_edited(
    base: ObjectId | None, edited: Edited, published: ObjectId, how: Merging
) -> Edited:
    """Merge an edit of a base into the value that was published first.

    The result has only those of the edited objects that the merged value still reaches.
    """
    reading = how._replace(read=reading_too(how.read, edited.objects))
    merged = merge_late(base, edited.root, published, reading)
    made = {one.id: one for one in [*edited.objects, *merged.objects]}
    return Edited(merged.root, *reachable(merged.root, made))


def _turned(merger: Merger | Function | str) -> Merger | Function | str:
    """A merger with the two sides swapped."""
    if isinstance(merger, str):
        return {"ours": "theirs", "theirs": "ours"}.get(merger, merger)
    function, on_equal = merger if isinstance(merger, Merger) else (merger, False)
    if not callable(function):
        return merger  # Refused where it is used.
    return Merger(lambda base, ours, theirs: function(base, theirs, ours), on_equal)


def nearest(commits: Iterable[Commit]) -> list[Commit]:
    """Common ancestors in a deterministic order."""
    return sorted(commits, key=lambda commit: (commit.generation, commit.id), reverse=True)


def merge_commits(ours: Commit, theirs: Commit, bases: Iterable[Commit], how: Merging) -> Edited:
    """The value of two commits, merged; raises `MergeConflict`."""
    base = _together(nearest(bases), how, 0)
    return _reading_too(how, base.objects).trees(base.root, ours.root, theirs.root)


def reading_too(read: Reader, objects: Iterable[Object]) -> Reader:
    """A reader that also finds objects which are not in the store yet."""
    ours = {one.id: one for one in objects}
    if not ours:
        return read

    def both(ids: Sequence[ObjectId]) -> list[Object]:
        others = [id for id in ids if id not in ours]
        found = dict(zip(others, read(others), strict=True)) if others else {}
        return [ours.get(id) or found[id] for id in ids]

    return both


def _reading_too(how: Merging, objects: Iterable[Object]) -> Merging:
    return how._replace(read=reading_too(how.read, objects))


def _together(commits: Sequence[Commit], how: Merging, depth: int) -> Base:
    """The value that commits make together."""
    if not commits:
        return Base(None)
    joined = Base(commits[0].root)
    if depth == _DEEPEST:
        return joined
    for number, commit in enumerate(commits[1:], 1):
        known = [one.id for one in commits[:number]]
        base = _together(nearest(merge_bases(known, commit.id, how.find)), how, depth + 1)
        joined = _joined(base, joined, commit.root, how)
    return joined


def _joined(base: Base, ours: Base, theirs: ObjectId, how: Merging) -> Base:
    """Two values as one, with a word in the place of every conflict."""
    assert ours.root is not None
    mergers = dict(how.mergers or {})
    how = _reading_too(how, [*base.objects, *ours.objects])._replace(mergers=mergers)
    for _ in range(_TRIES):
        try:
            made = how.trees(base.root, ours.root, theirs)
        except MergeConflict as conflict:
            mergers.update((one.path, lambda *_: DIFFERS) for one in conflict.conflicts)
        else:
            return Base(made.root, [*ours.objects, *made.objects])
    return ours


# Ancestors, and what two commits have in common. Pure.
#
# Every function takes `find`, which gives the commit of an id. Generations only fall from
# a commit to its parents, so the highest goes first and nothing is met twice.


Find: TypeAlias = Callable[[ObjectId], Commit]

_OURS, _THEIRS, _STALE = 1, 2, 4
_BOTH = _OURS | _THEIRS


def ancestors(starts: Iterable[ObjectId], find: Find) -> Iterator[Commit]:
    """These commits and everything they come from, each once, parents after children."""
    queue = _Queue(find)
    for id in starts:
        queue.add(id)
    while queue:
        commit = queue.take()
        yield commit
        for parent in commit.parents:
            queue.add(parent)


def first_parents(start: ObjectId, find: Find) -> Iterator[Commit]:
    """A commit, its first parent, and so on: the steps of one branch."""
    commit = find(start)
    yield commit
    while commit.parents:
        commit = find(commit.parents[0])
        yield commit


def merge_bases(ours: Iterable[ObjectId], theirs: ObjectId, find: Find) -> list[Commit]:
    """The common ancestors of some commits and another one that no other one comes from."""
    queue = _Queue(find)
    reached = dict.fromkeys(ours, _OURS)
    reached[theirs] = reached.get(theirs, 0) | _THEIRS
    for id in reached:
        queue.add(id)
    found: list[Commit] = []
    while queue and any(not reached[id] & _STALE for id in queue.ids):
        commit = queue.take()
        flags = reached[commit.id]
        if flags & _BOTH == _BOTH:
            if not flags & _STALE:
                found.append(commit)
            flags |= _STALE
        for parent in commit.parents:
            reached[parent] = reached.get(parent, 0) | flags
            queue.add(parent)
    return [commit for commit in found if not reached[commit.id] & _STALE]


def is_ancestor(old: Commit, new: Commit, find: Find) -> bool:
    """Whether a commit is another one, or the other comes from it."""
    for commit in ancestors([new.id], find):
        if commit.id == old.id:
            return True
        if commit.generation < old.generation:
            return False
    return False


class _Queue:
    """Commits to look at, the highest generation first, each once."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._heap: list[tuple[int, int, ObjectId]] = []
        self._added: dict[ObjectId, Commit] = {}
        self.ids: set[ObjectId] = set()
        """Those that wait."""

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, id: ObjectId) -> None:
        if id in self._added:
            return
        commit = self._added[id] = self._find(id)
        self.ids.add(id)
        # The newer of two of one generation first; the id only makes it definite.
        heappush(self._heap, (-commit.generation, -commit.time, id))

    def take(self) -> Commit:
        id = heappop(self._heap)[2]
        self.ids.discard(id)
        return self._added[id]
