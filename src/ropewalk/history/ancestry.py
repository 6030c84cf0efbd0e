"""Where commits come from: ancestors, and what two of them have in common. Pure.

Every function takes `find`, which gives the commit of an id. Generations only fall from
a commit to its parents, so the highest goes first and nothing is met twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from ropewalk.tree import Commit, ObjectId

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
