"""A timeline drawn as text: steps one below the other, other paths indented at their fork.

Only the steps that are shown are read. Long runs without a fork or a name are folded,
and so are many tries at one step that were left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.errors import InvalidInput, NotFound
from ropewalk.history import History
from ropewalk.store import ref_name, split_name
from ropewalk.timeline.checkpoint import CheckpointStatus
from ropewalk.timeline.search import ATTEMPT, BRANCH, TAG, Shape, alive, status_of
from ropewalk.tree import Commit, ObjectId

MERGED = "[merged]"
"""Marks a step that was merged with the work of other writers."""

_LONGEST = 100
_STEPS_THAT_FAILED = 20
"""How many steps are shown only because attempts at them failed: the newest."""


@dataclass(frozen=True)
class Style:
    """How to draw."""

    unicode: bool = True
    fold: int | None = 12

    def __post_init__(self) -> None:
        if self.fold is not None and (type(self.fold) is not int or self.fold < 2):
            raise InvalidInput(f"fold is a number of steps from 2 on, or None, not {self.fold!r}")

    @property
    def marks(self) -> dict[CheckpointStatus, str]:
        """What stands before a step."""
        signs = "●○↺✗" if self.unicode else "*or!"
        return dict(zip(CheckpointStatus, signs, strict=True))

    @property
    def fork(self) -> tuple[str, str, str, str]:
        """What stands before another path, and before its further lines; the last ones last."""
        return ("├─ ", "│  ", "╰─ ", "   ") if self.unicode else ("|- ", "|  ", "`- ", "   ")

    @property
    def more(self) -> str:
        """What stands for steps that are not shown."""
        return "⋮" if self.unicode else ":"


class TreeLine(NamedTuple):
    """One line of a drawn tree: a step, or in its place how many are not shown."""

    prefix: str
    """What leads to it: the lines of forks."""
    mark: str
    """A sign for its status."""
    id: str | None
    """The id of the step; None where steps are folded."""
    hidden: int
    """How many steps are folded here; 0 for a step."""
    hidden_failures: int
    """How many failed attempts are folded with them."""
    status: CheckpointStatus | None
    description: str
    """On one line, without what cannot be printed."""
    branches: tuple[str, ...]
    """The branches that are at it."""
    is_current: bool
    """Whether the current branch is among them."""
    tags: tuple[str, ...]
    merges: tuple[str, ...]
    """The ids of the other steps that it was made from."""
    error: str
    merged: bool = False
    """Whether it was merged with the work of other writers."""

    @property
    def names(self) -> list[str]:
        """The branches and tags at it, for people; the current branch first, with a star."""
        branches = list(self.branches)
        if self.is_current:
            branches[0] += " *"
        return [*branches, *(f"tag: {tag}" for tag in self.tags)]

    @property
    def told_merges(self) -> str:
        """What it was made from beside the step before, for people."""
        if self.merged:
            return MERGED
        return f"merges {', '.join(id[:8] for id in self.merges)}" if self.merges else ""

    @property
    def folded(self) -> str:
        """What is not shown here, for people."""
        told = [f"{self.hidden} more steps"] if self.hidden else []
        if self.hidden_failures:
            more = "" if told else "more "
            told.append(f"{self.hidden_failures} {more}failed attempt(s)")
        return ", ".join(told)

    def __str__(self) -> str:
        if self.id is None:
            return f"{self.prefix}{self.mark} {self.folded}"
        parts = [f"{self.prefix}{self.mark}", self.description, f"[{self.id[:8]}]"]
        if self.names:
            parts.append(f"({', '.join(self.names)})")
        if self.told_merges:
            parts.append(self.told_merges)
        if self.error:
            parts.append(self.error)
        return " ".join(parts)


class _Line(NamedTuple):
    prefix: str
    id: ObjectId | None
    hidden: int = 0
    failures: int = 0


class _Path(NamedTuple):
    start: ObjectId
    first: str
    rest: str


class _Plan:
    """Which step goes where."""

    def __init__(self, shape: Shape, current: str, fold: int | None) -> None:
        self.shape, self.fold = shape, fold
        self.alive = alive(shape.parents, shape.refs)
        self.failed = {target for name, target in shape.refs.items() if name.startswith(ATTEMPT)}
        self.names = _names(shape, current)
        self._trunk = self._steps_to(shape.refs.get(ref_name("branch", current)))
        self._child: dict[ObjectId, ObjectId] = {}
        self._others: dict[ObjectId, list[ObjectId]] = defaultdict(list)
        """The children of a step beside the first one: few steps have some."""
        self._attempts: dict[ObjectId, list[ObjectId]] = defaultdict(list)
        """The attempts at a step that failed and led nowhere."""
        self._standing_out = set(self.names)
        """Steps that are never folded."""
        self._roots: list[ObjectId] = []
        self._link()

    def _link(self) -> None:
        """Say of each step which came from it. Most steps take the shortest way through."""
        known, child, left_out = self.shape.parents, self._child, self._left_out()
        for id, parents in known.items():
            if id in left_out:
                continue
            if not parents or parents[0] not in known:
                self._roots.append(id)
                continue
            parent = parents[0]
            if id in self.failed and id not in self.alive:
                self._attempts[parent].append(id)
            elif parent in child:
                self._others[parent].append(id)
                self._standing_out.add(parent)
            else:
                child[parent] = id
            if len(parents) > 1:
                self._standing_out.add(id)
        # Each failure is worth a line, and what came after it too, but a thousand of them
        # would hide all else.
        for id in list(self._attempts)[-_STEPS_THAT_FAILED:]:
            self._standing_out.update((id, child.get(id, id)))

    def _left_out(self) -> set[ObjectId]:
        """Second parents of merged steps, which are not drawn beside those.

        Except where another step follows one, or it has a name.
        """
        left_out: set[ObjectId] = set()
        if not self.shape.handed_over:
            return left_out
        needed = {*self.names}
        for id, parents in reversed(self.shape.parents.items()):
            if id in self.shape.handed_over and id not in needed:
                left_out.add(id)
            else:
                needed.update(parents[:1])
        return left_out

    def lines(self, style: Style) -> Iterator[_Line]:
        """The lines, from the oldest step on."""
        stack: list[_Line | _Path] = [_Path(id, "", "") for id in reversed(self._roots)]
        while stack:
            top = stack.pop()
            if isinstance(top, _Line):
                yield top
            else:
                stack.extend(reversed(list(self._path(top, style))))

    def status(self, id: ObjectId, commit: Commit | None) -> CheckpointStatus:
        """What became of a step; of its commit nothing is known if it was collected."""
        if commit is not None:
            return status_of(commit, id in self.alive)
        if id in self.failed:
            return CheckpointStatus.FAILED
        return CheckpointStatus.ACTIVE if id in self.alive else CheckpointStatus.ROLLED_BACK

    def _path(self, path: _Path, style: Style) -> Iterator[_Line | _Path]:
        """One path: its steps, and at each fork the others."""
        steps = self._chain(path.start)
        prefix = path.first
        for some in self._folded(steps):
            if len(some) > 1:
                failures = sum(len(self._attempts.get(id, ())) for id in some)
                yield _Line(prefix, None, len(some), failures)
            else:
                yield _Line(prefix, some[0])
                yield from self._forks(some[0], path, style, is_last=some[0] == steps[-1])
            prefix = path.rest

    def _forks(
        self, id: ObjectId, path: _Path, style: Style, is_last: bool
    ) -> Iterator[_Line | _Path]:
        """The other paths that begin at a step."""
        following = None if is_last else self._next(id)
        others = [child for child in self._children(id) if child != following]
        groups = list(self._tries([*self._attempts.get(id, ()), *others]))
        for number, group in enumerate(groups):
            ends = is_last and number == len(groups) - 1
            first, rest = style.fork[2:] if ends else style.fork[:2]
            if len(group) > 1:
                yield _Line(path.rest + first, None, *self._size(group))
            else:
                yield _Path(group[0], path.rest + first, path.rest + rest)

    def _tries(self, others: list[ObjectId]) -> Iterator[list[ObjectId]]:
        """Other paths one by one, and of many that were left all but the ends together."""
        left = [id for id in others if id not in self.alive]
        if self.fold is None or len(left) <= self.fold:
            yield from ([id] for id in others)
            return
        yield from self._run(left)
        yield from ([id] for id in others if id in self.alive)

    def _size(self, starts: list[ObjectId]) -> tuple[int, int]:
        """How many steps some paths have, and how many of them are attempts that failed."""
        steps, failures = 0, 0
        waiting = list(starts)
        while waiting:
            id = waiting.pop()
            is_failure = id in self.failed
            steps, failures = steps + (not is_failure), failures + is_failure
            waiting += [*self._children(id), *self._attempts.get(id, ())]
        return steps, failures

    def _chain(self, start: ObjectId) -> list[ObjectId]:
        """The steps of one path."""
        steps = [start]
        child, others = self._child, self._others
        id: ObjectId | None = start
        while id is not None:
            id = self._next(id) if id in others else child.get(id)
            if id is not None:
                steps.append(id)
        return steps

    def _children(self, id: ObjectId) -> list[ObjectId]:
        return [self._child[id], *self._others.get(id, ())] if id in self._child else []

    def _next(self, id: ObjectId) -> ObjectId | None:
        """The child with which a path goes on; None if it ends here."""
        children = self._children(id)
        for wanted in (self._trunk, self.alive):
            for child in children:
                if child in wanted:
                    return child
        return children[0] if children else None

    def _folded(self, steps: list[ObjectId]) -> Iterator[list[ObjectId]]:
        """The steps one by one, and of a long run all that are between its ends together."""
        places = [at for at, id in enumerate(steps) if id in self._standing_out]
        begin = 0
        for place in (*places, len(steps)):
            yield from self._run(steps[begin:place])
            if place < len(steps):
                yield [steps[place]]
            begin = place + 1

    def _run(self, run: list[ObjectId]) -> Iterator[list[ObjectId]]:
        if self.fold is None or len(run) <= self.fold:
            yield from ([id] for id in run)
            return
        edge = max(1, self.fold // 4)
        yield from ([id] for id in run[:edge])
        yield run[edge:-edge]
        yield from ([id] for id in run[-edge:])

    def _steps_to(self, id: ObjectId | None) -> set[ObjectId]:
        met: set[ObjectId] = set()
        while id is not None and id not in met:
            met.add(id)
            parents = self.shape.parents.get(id, ())
            id = parents[0] if parents else None
        return met


def draw(history: History, shape: Shape, current: str, style: Style) -> list[TreeLine]:
    """The timeline, line by line."""
    plan = _Plan(shape, current, style.fold)
    for id in plan.alive - shape.parents.keys():
        history.resolve(id)  # What a branch or tag leads to and is not known is missing.
    return [_drawn(history, plan, line, style) for line in plan.lines(style)]


def _drawn(history: History, plan: _Plan, line: _Line, style: Style) -> TreeLine:
    if line.id is None:
        folded = line.hidden, line.failures
        return TreeLine(line.prefix, style.more, None, *folded, None, "", (), False, (), (), "")
    told, error, merged = "(collected)", "", False
    merges: tuple[str, ...] = ()
    commit: Commit | None = None
    try:
        commit = history.resolve(line.id)
    except NotFound:
        if line.id in plan.alive:
            raise  # Nothing collects what a branch or tag leads to.
    else:
        merged = commit.merged
        told = one_line(commit.description or commit.logic_step or "(no description)")
        error, merges = one_line(commit.error), tuple(id.hex() for id in commit.parents[1:])
    status = plan.status(line.id, commit)
    names = plan.names.get(line.id, _NAMELESS)
    return TreeLine(
        line.prefix,
        style.marks[status],
        line.id.hex(),
        0,
        0,
        status,
        told,
        tuple(names.branches),
        names.is_current,
        tuple(names.tags),
        merges,
        error,
        merged,
    )


def one_line(text: str) -> str:
    """A text on one line, not too long, without what cannot be printed."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


class _Names:
    """The names at one step."""

    def __init__(self) -> None:
        self.branches: list[str] = []
        self.tags: list[str] = []
        self.is_current = False


_NAMELESS = _Names()


def _names(shape: Shape, current: str) -> dict[ObjectId, _Names]:
    names: dict[ObjectId, _Names] = defaultdict(_Names)
    for ref, target in sorted(shape.refs.items()):
        if not ref.startswith((BRANCH, TAG)):
            continue
        name = split_name(ref)[1]
        found = names[target]
        if ref.startswith(TAG):
            found.tags.append(one_line(name))
        elif name == current:
            found.branches.insert(0, one_line(name))
            found.is_current = True
        else:
            found.branches.append(one_line(name))
    return dict(names)
