"""The shape of a timeline, known from its log: which step came from which, and who names it.

The log of operations says for nearly every step which one it follows, so ten thousand
steps need not be read to draw them or to find one by the beginning of its id.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ropewalk.errors import NotFound
from ropewalk.history import History
from ropewalk.store import Move, Operation
from ropewalk.store._forking import freed_after_fork
from ropewalk.timeline._checkpoint import CheckpointStatus
from ropewalk.tree import Commit, ObjectId

BRANCH, TAG, ATTEMPT = "branch/", "tag/", "attempt/"
_NAMING = (BRANCH, TAG, ATTEMPT)
_PAGE = 2000


class Shape(NamedTuple):
    """What a timeline looks like at one moment."""

    parents: dict[ObjectId, tuple[ObjectId, ...]]
    """Of every step that is known, in the order in which they were made."""
    refs: dict[str, ObjectId]
    """Where branches, tags and failed attempts are."""
    handed_over: set[ObjectId]
    """The steps whose state was merged with what others did, as they were handed over."""
    counts: Counter[str]
    """How often what was done, by action."""


class Index:
    """Follows the log of a history. Safe to share between threads."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = freed_after_fork(threading.Lock())
        self._sequence = 0
        self._parents: dict[ObjectId, tuple[ObjectId, ...]] = {}
        self._sorted: list[ObjectId] = []
        self._refs: dict[str, ObjectId] = {}
        self._handed_over: set[ObjectId] = set()
        self._counts: Counter[str] = Counter()
        self._alive: set[ObjectId] | None = None
        """What branches and tags lead to, once it was asked for."""

    def shape(self) -> Shape:
        """The shape now."""
        with self._lock:
            self._follow()
            return Shape(
                dict(self._parents), dict(self._refs), set(self._handed_over), self._counts.copy()
            )

    def status(self, commit: Commit) -> CheckpointStatus:
        """What became of a step."""
        with self._lock:
            self._follow()
            if self._alive is None:
                self._alive = alive(self._parents, self._refs)
            return status_of(commit, commit.id in self._alive)

    def starting_with(self, prefix: str) -> list[ObjectId]:
        """The ids of steps that begin so, in hex; at most a few."""
        with self._lock:
            self._follow()
            if len(self._sorted) != len(self._parents):
                self._sorted = sorted(self._parents)
            first = bytes.fromhex(prefix.ljust(64, "0"))
            found: list[ObjectId] = []
            for place in range(bisect_left(self._sorted, first), len(self._sorted)):
                if not self._sorted[place].hex().startswith(prefix) or len(found) == 5:
                    break
                found.append(self._sorted[place])
            return found

    def _follow(self) -> None:
        while page := self._history.operations(self._sequence, _PAGE):
            self._alive = None
            for operation in page:
                self._take(operation)
            self._sequence = page[-1].sequence

    def _take(self, operation: Operation) -> None:
        action = operation.metadata.get("action")
        done = action if type(action) is str else str(action)
        for move in operation.moves:
            name, _, target = move
            if not name.startswith(_NAMING):
                continue
            if target is None:
                self._refs.pop(name, None)
                continue
            self._refs[name] = target
            if target not in self._parents:
                self._add(move, action)
                if self._handed_over.intersection(self._parents.get(target, ())[1:]):
                    done = "commit"  # Nobody asked for this merge.
        self._counts[done] += 1

    def _add(self, move: Move, action: object) -> None:
        assert move.target is not None
        if action == "commit" and (move.expected is None or move.expected in self._parents):
            self._parents[move.target] = () if move.expected is None else (move.expected,)
            return
        # A merge, or the beginning of a fork: the commits themselves know.
        for id, parents in reversed(list(self._unknown(move.target))):
            self._parents[id] = parents

    def _unknown(self, start: ObjectId) -> Iterator[tuple[ObjectId, tuple[ObjectId, ...]]]:
        """The ancestors of a step that are not known yet, parents after children."""
        pending, met = [start], {start}
        found = []
        while pending:
            try:
                commit = self._history.resolve(pending.pop())
            except NotFound:
                continue  # Collected since, or not a commit.
            found.append((commit.generation, commit.id, commit.parents))
            if commit.merged:
                self._handed_over.update(commit.parents[1:])
            for parent in commit.parents:
                if parent not in self._parents and parent not in met:
                    met.add(parent)
                    pending.append(parent)
        for _, id, parents in sorted(found, reverse=True):
            yield id, parents


def status_of(commit: Commit, is_alive: bool) -> CheckpointStatus:
    """What became of a step: of one that is not alive, that it was left, however it went."""
    if commit.status == CheckpointStatus.FAILED:
        return CheckpointStatus.FAILED
    if not is_alive:
        return CheckpointStatus.ROLLED_BACK
    recovered = commit.status == CheckpointStatus.RECOVERED
    return CheckpointStatus.RECOVERED if recovered else CheckpointStatus.ACTIVE


def alive(
    parents: Mapping[ObjectId, tuple[ObjectId, ...]], refs: Mapping[str, ObjectId]
) -> set[ObjectId]:
    """The steps that branches and tags lead to."""
    pending = [target for name, target in refs.items() if name.startswith((BRANCH, TAG))]
    met: set[ObjectId] = set()
    while pending:
        id: ObjectId | None = pending.pop()
        while id is not None and id not in met:
            met.add(id)
            first, *others = parents.get(id) or (None,)
            pending += others
            id = first
    return met
