"""A timeline drawn as text: steps one below the other, other paths indented at their fork.

Only the steps that are shown are read. Long runs without a fork or a name are folded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.errors import InvalidInput, NotFound
from holdfast.history import History
from holdfast.store import split_name
from holdfast.timeline._checkpoint import CheckpointStatus
from holdfast.timeline._index import ATTEMPT, BRANCH, TAG, Shape, alive
from holdfast.tree import ObjectId

_LONGEST = 100


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
        return dict(zip(_STATUSES, signs, strict=True))

    @property
    def fork(self) -> tuple[str, str, str, str]:
        """What stands before another path, and before its further lines; the last ones last."""
        return ("├─ ", "│  ", "╰─ ", "   ") if self.unicode else ("|- ", "|  ", "`- ", "   ")

    @property
    def more(self) -> str:
        """What stands for steps that are not shown."""
        return "⋮" if self.unicode else ":"


_STATUSES = (
    CheckpointStatus.ACTIVE,
    CheckpointStatus.ROLLED_BACK,
    CheckpointStatus.RECOVERED,
    CheckpointStatus.FAILED,
)


class _Line(NamedTuple):
    prefix: str
    id: ObjectId | None
    hidden: int


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
        self.recovered = set(shape.recovered.values())
        self._trunk = self._steps_to(shape.refs.get(_current_ref(shape, current)))
        self._children: dict[ObjectId, list[ObjectId]] = defaultdict(list)
        for id, parents in shape.parents.items():
            if parents and parents[0] in shape.parents:
                self._children[parents[0]].append(id)

    def lines(self, style: Style) -> Iterator[_Line]:
        """The lines, from the oldest step on."""
        known = self.shape.parents
        roots = [id for id in known if not known[id] or known[id][0] not in known]
        stack: list[_Line | _Path] = [_Path(id, "", "") for id in reversed(roots)]
        while stack:
            top = stack.pop()
            if isinstance(top, _Line):
                yield top
            else:
                stack.extend(reversed(list(self._path(top, style))))

    def status(self, id: ObjectId) -> CheckpointStatus:
        """What became of a step."""
        if id in self.failed:
            return CheckpointStatus.FAILED
        if id not in self.alive:
            return CheckpointStatus.ROLLED_BACK
        return CheckpointStatus.RECOVERED if id in self.recovered else CheckpointStatus.ACTIVE

    def _path(self, path: _Path, style: Style) -> Iterator[_Line | _Path]:
        """One path: its steps, and at each fork the others."""
        steps = list(self._chain(path.start))
        shown = self._shown([id for id, _, _ in steps])
        prefix, hidden = path.first, 0
        for place, (id, others, last) in enumerate(steps):
            if place not in shown:
                hidden += 1
                continue
            if hidden:
                yield _Line(prefix, None, hidden)
                prefix, hidden = path.rest, 0
            yield _Line(prefix, id, 0)
            prefix = path.rest
            for number, other in enumerate(others):
                ends = last and number == len(others) - 1
                first, rest = style.fork[2:] if ends else style.fork[:2]
                yield _Path(other, path.rest + first, path.rest + rest)

    def _chain(self, start: ObjectId) -> Iterator[tuple[ObjectId, list[ObjectId], bool]]:
        id: ObjectId | None = start
        while id is not None:
            children = self._children.get(id, [])
            following = self._next(children)
            others = [child for child in children if child != following]
            yield id, others, following is None
            id = following

    def _next(self, children: list[ObjectId]) -> ObjectId | None:
        for wanted in (self._trunk, self.alive):
            for child in children:
                if child in wanted:
                    return child
        return next((child for child in children if child not in self.failed), None)

    def _shown(self, steps: list[ObjectId]) -> set[int]:
        """The places of the steps that are not folded."""
        if self.fold is None:
            return set(range(len(steps)))
        shown: set[int] = set()
        run: list[int] = []
        for place in range(len(steps) + 1):
            if place < len(steps) and not self._stands_out(steps[place]):
                run.append(place)
                continue
            edge = max(1, self.fold // 4)
            shown.update(run if len(run) <= self.fold else run[:edge] + run[-edge:])
            run = []
            shown.add(place)
        return shown

    def _stands_out(self, id: ObjectId) -> bool:
        return (
            id in self.names
            or len(self._children.get(id, ())) > 1
            or len(self.shape.parents[id]) > 1
            or id in self.recovered
            or any(child in self.failed for child in self._children.get(id, ()))
        )

    def _steps_to(self, id: ObjectId | None) -> set[ObjectId]:
        met: set[ObjectId] = set()
        while id is not None and id not in met:
            met.add(id)
            parents = self.shape.parents.get(id, ())
            id = parents[0] if parents else None
        return met


def draw(history: History, shape: Shape, current: str, style: Style) -> str:
    """The timeline as text."""
    plan = _Plan(shape, current, style.fold)
    drawn = []
    for line in plan.lines(style):
        if line.id is None:
            drawn.append(f"{line.prefix}{style.more} {line.hidden} more steps")
        else:
            drawn.append(line.prefix + _step(history, plan, line.id, style))
    return "\n".join(drawn) or "(no checkpoints yet)"


def _step(history: History, plan: _Plan, id: ObjectId, style: Style) -> str:
    try:
        commit = history.resolve(id)
    except NotFound:
        return f"{style.marks[plan.status(id)]} (collected) [{id.hex()[:8]}]"
    told = _one_line(commit.description or commit.logic_step or "(no description)")
    parts = [style.marks[plan.status(id)], told, f"[{id.hex()[:8]}]"]
    if id in plan.names:
        parts.append(f"({', '.join(plan.names[id])})")
    if len(commit.parents) > 1:
        parts.append(f"merges {', '.join(parent.hex()[:8] for parent in commit.parents[1:])}")
    if commit.error:
        parts.append(_one_line(commit.error))
    return " ".join(parts)


def _one_line(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def _names(shape: Shape, current: str) -> dict[ObjectId, list[str]]:
    names: dict[ObjectId, list[str]] = defaultdict(list)
    for ref, target in sorted(shape.refs.items()):
        name = _one_line(split_name(ref)[1])
        if ref.startswith(BRANCH):
            names[target].append(f"{name} *" if split_name(ref)[1] == current else name)
        elif ref.startswith(TAG):
            names[target].append(f"tag: {name}")
    return dict(names)


def _current_ref(shape: Shape, current: str) -> str:
    found = [ref for ref in shape.refs if ref.startswith(BRANCH) and split_name(ref)[1] == current]
    return found[0] if found else ""
