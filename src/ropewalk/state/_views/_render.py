"""Rendering within a budget: every part gets a line before any gets more.

Costs are estimated tokens. A container that does not fit is shown as its beginning and
its end, with a count of what is between; what room is left goes to all shown parts in
equal shares, and what a small one does not need goes to the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import dumps
from typing import Final

from ropewalk.state._views._nodes import Node, Text, counted

_INLINE: Final = 72
_DEEPEST: Final = 24
_BATCH: Final = 64
_ITEM: Final = 24.0
"""What an item of a sequence gets before a further one is shown, if it needs so much."""
_GAP: Final = 6.0
_FORMS: Final = {
    "list": ("[", ", ", "]"),
    "tuple": ("(", ", ", ")"),
    "set": ("{", ", ", "}"),
    "mapping": ("{", ", ", "}"),
    "record": ("(", ", ", ")"),
    "change": ("", " -> ", ""),
}
_WIDE = re.compile("[\u2e80-\U0010ffff]")
_OTHER = re.compile("[\u0080-\u2e7f]")


def estimate(text: str) -> float:
    """About how many tokens a text takes.

    Four characters of ASCII are one, two of other alphabets, and one of Chinese, Japanese
    or Korean; an emoji counts as one of those.
    """
    if text.isascii():
        return len(text) / 4
    wide, other = len(_WIDE.findall(text)), len(_OTHER.findall(text))
    return wide + other / 2 + (len(text) - wide - other) / 4


def _cost(line: str) -> float:
    return estimate(line) + 0.25  # And its end.


def total(lines: list[str]) -> float:
    """What lines cost together."""
    return sum(map(_cost, lines))


def render(node: Node, budget: float, depth: int = 0) -> list[str]:
    """The parts of a node as lines that cost no more than the budget."""
    picked = _pick(node, budget, depth)
    room = budget - picked.cost
    shown = _Sharing(picked.head + picked.tail, depth).spend(room)
    lines = [line for part in shown[: len(picked.head)] for line in part]
    if picked.left_out:
        lines.append(f"{_pad(depth)}... {picked.left_out:,} more ...")
    return lines + [line for part in shown[len(picked.head) :] for line in part]


def _whole_lines(name: str, node: Node, depth: int, budget: float) -> Iterator[str | None]:
    """All of a node, line by line; None for a text that costs more than the budget."""
    shown = inline(node, _INLINE)
    if shown is not None:
        yield f"{_pad(depth)}{name}: {shown}"
    elif node.text is not None:
        if node.text.size / 4 > budget:
            yield None
        else:
            yield from _text_lines(name, node.text, node.text.head(node.text.size), depth)
    else:
        yield f"{_pad(depth)}{name}: {node.label}"
        if depth < _DEEPEST:
            for inner, part in _parts(node):
                yield from _whole_lines(inner, part, depth + 1, budget)


def inline(node: Node, room: int) -> str | None:
    """A node on one line, if it takes at most so many characters."""
    if node.text is not None:
        if node.text.size > room:
            return None
        shown = node.text.head(node.text.size)
        shown = dumps(shown, ensure_ascii=False) if node.text.quoted else shown
        return shown if len(shown) <= room and "\n" not in shown else None
    if node.shape == "lines" or node.count * 2 > room:
        return None
    pieces: list[str] = []
    for name, part in node.parts(0, node.count):
        room -= 2
        shown_part = inline(part, room)
        if shown_part is None:
            return None
        pieces.append(_named(node, name) + shown_part)
        room -= len(pieces[-1])
    if room < len(node.title) + 2:
        return None
    left, between, right = _FORMS[node.shape]
    return f"{node.title}{left}{between.join(pieces)}{right}"


def _named(node: Node, name: str) -> str:
    if node.shape == "mapping":
        return f"{name}: "
    return f"{name}=" if node.shape == "record" else ""


def _parts(node: Node) -> Iterator[tuple[str, Node]]:
    for start in range(0, node.count, _BATCH):
        yield from node.parts(start, min(start + _BATCH, node.count))


def _pad(depth: int) -> str:
    return "  " * depth


def _text_lines(name: str, text: Text, shown: str, depth: int) -> Iterator[str]:
    if text.quoted and "\n" in shown:
        yield f"{_pad(depth)}{name}:"
        for line in shown.split("\n"):
            yield f"{_pad(depth + 1)}{line}"
    else:
        shown = dumps(shown, ensure_ascii=False) if text.quoted else shown.replace("\n", " ")
        yield f"{_pad(depth)}{name}: {shown}"


def _within(name: str, node: Node, depth: int, budget: float) -> list[str] | None:
    """All lines of a node if the budget allows them. Little more than that is looked at."""
    lines: list[str] = []
    room = budget
    for line in _whole_lines(name, node, depth, budget):
        if line is None or room < _cost(line):
            return None
        room -= _cost(line)
        lines.append(line)
    return lines


def _shortest(name: str, node: Node, depth: int) -> str:
    shown = inline(node, 24)
    return f"{_pad(depth)}{name}: {node.label if shown is None else shown}"


def _cut(name: str, node: Node, depth: int, budget: float) -> list[str]:
    """As much of a node as the budget allows; at least its shortest line."""
    first = f"{_pad(depth)}{name}: {node.label}"
    if node.text is not None:
        return _cut_text(name, node.text, depth, budget) or [_shortest(name, node, depth)]
    room = budget - _cost(first)
    if room < _GAP or depth >= _DEEPEST:
        return [_shortest(name, node, depth)]
    lines = render(node, room, depth + 1)
    return [first, *lines] if len(lines) > 1 else [_shortest(name, node, depth)]


def _cut_text(name: str, text: Text, depth: int, budget: float) -> list[str]:
    """The beginning and the end of a text, or nothing if there is no room for that."""
    kept = min(int(budget * 4), text.size)
    while kept >= 16:
        head, tail = text.head(kept - kept // 3), text.tail(kept // 3)
        gap = f" ... ({counted(text.size - kept, text.unit[:-1])} left out) ... "
        lines = list(_text_lines(name, text, f"{head}{gap}{tail}", depth))
        cost = total(lines)
        if cost <= budget:
            return lines
        kept = min(kept - 8, int(kept * budget / cost) - 4)
    return []


class _Picked:
    """Which parts of a container are shown: the first and the last of them, or all."""

    def __init__(self, node: Node, depth: int) -> None:
        self._depth = depth
        self._each = _ITEM if node.shape in ("list", "tuple", "set") else 0.0
        self.head: list[tuple[str, Node]] = []
        self.tail: list[tuple[str, Node]] = []
        self.left_out = 0
        self.cost = 0.0
        """What their shortest lines cost."""
        self.wants = 0.0
        """What they should have at least."""

    def take(self, part: tuple[str, Node], room: float) -> bool:
        """Count a part as shown, if there is room for it."""
        cost, wants = self._needs(part)
        if self.wants + wants > room:
            return False
        self.cost, self.wants = self.cost + cost, self.wants + wants
        return True

    def give_up(self) -> None:
        """Show the last of the first parts no longer."""
        cost, wants = self._needs(self.head.pop())
        self.cost, self.wants = self.cost - cost, self.wants - wants

    def _needs(self, part: tuple[str, Node]) -> tuple[float, float]:
        cost = _cost(_shortest(*part, self._depth))
        return cost, max(cost, 0.0 if inline(part[1], _INLINE) else self._each)


def _pick(node: Node, budget: float, depth: int) -> _Picked:
    """The parts whose shortest lines fit."""
    picked = _Picked(node, depth)
    for part in _parts(node):
        if not picked.take(part, budget):
            break
        picked.head.append(part)
    else:
        return picked
    gap = _GAP + depth / 2
    last = min(len(picked.head) // 3, node.count - len(picked.head))
    kept = len(picked.head) - last
    while picked.head and (len(picked.head) > kept or picked.wants + gap > budget):
        picked.give_up()
    picked.cost, picked.wants = picked.cost + gap, picked.wants + gap
    for part in reversed(node.parts(node.count - last, node.count) if last else []):
        if not picked.take(part, budget):
            break
        picked.tail.insert(0, part)
    picked.left_out = node.count - len(picked.head) - len(picked.tail)
    return picked


class _Sharing:
    """Shares the room that is left among parts whose shortest lines are paid for."""

    def __init__(self, parts: list[tuple[str, Node]], depth: int) -> None:
        self._parts, self._depth = parts, depth
        self._paid = [_cost(_shortest(*part, depth)) for part in parts]
        self._lines: dict[int, list[str]] = {}

    def spend(self, room: float) -> list[list[str]]:
        """The lines of each part."""
        room = self._settle_small(room)
        waiting = [at for at in range(len(self._parts)) if at not in self._lines]
        for done, at in enumerate(waiting):
            share = room / (len(waiting) - done)
            lines = _cut(*self._parts[at], self._depth, self._paid[at] + share)
            self._lines[at] = lines
            room -= total(lines) - self._paid[at]
        return [self._lines[at] for at in range(len(self._parts))]

    def _settle_small(self, room: float) -> float:
        """Show what needs no more than its share, until nothing more does."""
        while True:
            waiting = [at for at in range(len(self._parts)) if at not in self._lines]
            before = len(waiting)
            for at in waiting:
                share = room / max(before, 1)
                lines = _within(*self._parts[at], self._depth, self._paid[at] + share)
                if lines is not None:
                    self._lines[at] = lines
                    room -= total(lines) - self._paid[at]
                    before -= 1
            if before == len(waiting) or not before:
                return room
