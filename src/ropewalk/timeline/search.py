"""Finding steps by id, time and what they did, with the shape of a timeline from its log.

The log of operations says for nearly every step which one it follows, so ten thousand
steps need not be read to draw them or to find one by the beginning of its id.
"""

from __future__ import annotations

import threading
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from ropewalk.codec import Path, spell_path
from ropewalk.errors import InvalidInput, InvalidName, NotFound, PathNotFound
from ropewalk.history import History
from ropewalk.store import Move, Operation
from ropewalk.store.forking import freed_after_fork
from ropewalk.timeline.checkpoint import CheckpointStatus
from ropewalk.tree import ABSENT, Commit, Object, ObjectId, fingerprint, get

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


SHORTEST = 4
"""The fewest digits of an id that name a checkpoint."""

FEW = 200
"""So many steps are read one by one; for more it is worth to look at the log first."""

_AHEAD = 200
_KEPT = 2000
_DIGITS = frozenset("0123456789abcdef")


def find(history: History, index: Index, name: str) -> Commit:
    """The commit that a branch, a tag, an id or a unique beginning of one names."""
    if not isinstance(name, str):
        raise InvalidInput(f"a checkpoint is named by text, not {name!r:.80}")
    try:
        return history.resolve(name)
    except (NotFound, InvalidName):
        if not (SHORTEST <= len(name) <= 64 and _DIGITS.issuperset(name)):
            raise NotFound(
                f"there is no branch, tag or checkpoint {name!r:.80}; an id has at least "
                f"{SHORTEST} hex digits"
            ) from None
    found = index.starting_with(name)
    if not found:
        raise NotFound(f"there is no checkpoint whose id begins with {name!r}")
    if len(found) > 1:
        listed = ", ".join(id.hex()[: len(name) + 4] for id in found)
        raise InvalidInput(f"several checkpoints begin with {name!r}: {listed}. Give more digits.")
    return history.resolve(found[0])


def check_limit(limit: int | None) -> None:
    """A number of steps, or None for all."""
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInput(f"a limit is a number of steps from 0 on, or None, not {limit!r:.80}")


def steps_back(history: History, head: Commit, steps: int, branch: str) -> Commit:
    """The step so many before the head; the first, with a warning, where there are fewer."""
    if type(steps) is not int or steps < 1:
        raise InvalidInput(f"a rollback goes back by 1 step or more, not by {steps!r:.80}")
    walked = list(history.steps(head, steps + 1))
    if len(walked) <= steps:
        warnings.warn(
            f"branch {branch!r} can go back by {len(walked) - 1} step(s), not by {steps}: it goes "
            f"to its first step, {walked[-1].short}",
            stacklevel=3,  # The caller of `rollback`.
        )
    return walked[-1]


def at_time(history: History, head: Commit, moment: datetime | float) -> Commit:
    """The newest step that was made at a time or before."""
    if isinstance(moment, datetime):
        moment = moment.timestamp()
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        raise InvalidInput(f"a time is a datetime or seconds since 1970, not {moment!r:.80}")
    for commit in history.steps(head):
        if commit.time <= moment * 1e6:
            return commit
    raise NotFound("there was no checkpoint yet at that time")


def blame(history: History, line: list[ObjectId], path: Path) -> Commit:
    """The step that last wrote what is at a path, from the steps of a branch, oldest first."""
    ahead = Ahead(history, line)
    commit = ahead.commit(line[-1])
    value = _print(history, ahead, commit, path)
    if value is None:
        raise PathNotFound(f"there is nothing at {spell_path(path):.200} now")
    while True:
        for id in commit.parents:
            parent = ahead.commit(id)
            if parent.root == commit.root or _print(history, ahead, parent, path) == value:
                commit = parent
                break
        else:
            return commit


def _print(history: History, ahead: Ahead, commit: Commit, path: Path) -> bytes | None:
    try:
        return fingerprint(commit.root, path, ahead.read, history.codec)
    except PathNotFound:
        return None


class Ahead:
    """Reads what a walk back along a branch will need, before it asks: many at a time."""

    def __init__(self, history: History, line: list[ObjectId]) -> None:
        self._history, self._line = history, line
        self._places = {id: place for place, id in enumerate(line)}
        self._objects: dict[ObjectId, Object] = {}
        self._from = len(line)
        """The first place of the branch that was read."""

    def commit(self, id: ObjectId) -> Commit:
        """A commit."""
        place = self._places.get(id, self._from)
        if place < self._from:
            self._from = max(place - _AHEAD, 0)
            self._fetch(self._line[self._from : place + 1])
        return self._history.resolve(id)

    def read(self, ids: Iterable[ObjectId]) -> list[Object]:
        """Objects; what was read is kept, for the next step has most of it too."""
        asked = list(ids)
        missing = [id for id in asked if id not in self._objects]
        if len(self._objects) > _KEPT:
            self._objects, missing = {}, asked
        for one in self._history.read(missing) if missing else ():
            self._objects[one.id] = one
        return [self._objects[id] for id in asked]

    def _fetch(self, ids: list[ObjectId]) -> None:
        self._history.look_ahead(ids)
        with suppress(NotFound):  # What was collected is missed when it is asked for.
            self.read({self._history.resolve(id).root for id in ids})


def steps_of(history: History, shape: Shape, head: Commit, limit: int | None) -> list[Commit]:
    """The newest steps of a branch, read together."""
    found: list[Commit] = []
    ids = line_to(shape, head)[::-1][:limit]
    for start in range(0, len(ids), _AHEAD):
        some = ids[start : start + _AHEAD]
        history.look_ahead(some)
        found += map(history.resolve, some)
    return found


def line_to(shape: Shape, head: Commit) -> list[ObjectId]:
    """The steps of one branch, oldest first."""
    steps: list[ObjectId] = [head.id]
    while parents := shape.parents.get(steps[-1]):
        steps.append(parents[0])
    return steps[::-1]


def bisect(
    history: History, line: list[ObjectId], predicate: Callable[[Any], bool], path: Path | None
) -> Commit:
    """The first step of a branch whose state, or what is at a path in it, satisfies a predicate."""

    def is_true(id: ObjectId) -> bool:
        if path is None:
            return bool(predicate(history.value(id)))
        try:
            found = get(history.resolve(id).root, path, history.read, history.codec)
        except PathNotFound:
            found = ABSENT
        return bool(predicate(found))

    if not is_true(line[-1]):
        raise NotFound("it is not true at the head, so no step made it true")
    return history.resolve(line[bisect_left(line, True, 0, len(line) - 1, key=is_true)])


def metrics(shape: Shape) -> dict[str, int]:
    """How often what was done, and how much there is."""
    kinds = [name.split("/")[0] + "/" for name in shape.refs]
    failed = kinds.count(ATTEMPT)
    return {
        "checkpoints": len(shape.parents.keys() - shape.handed_over) - failed,
        "branches": kinds.count(BRANCH),
        "tags": kinds.count(TAG),
        "failed_attempts": failed,
        "rollbacks": shape.counts["rollback"],
        "merges": shape.counts["merge"],
        "undos": shape.counts["undo"],
        "operations": shape.counts.total(),
    }
