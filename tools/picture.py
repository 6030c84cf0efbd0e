"""Draws the picture of README, `docs/timeline.svg`, from a store that it makes.

`python tools/picture.py docs/timeline.svg`. The steps are those of a real timeline: a branch, two
attempts that fail, a recovery, a merge. `tests/test_picture.py` holds the file against them.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Any

from ropewalk import MemoryStore, Timeline
from ropewalk.timeline import CheckpointStatus, TreeLine

ROW, COLUMN, LEFT, TOP = 34, 26, 26, 30
COLORS = {
    CheckpointStatus.ACTIVE: "#2f81f7",
    CheckpointStatus.ROLLED_BACK: "#8b949e",
    CheckpointStatus.RECOVERED: "#3fb950",
    CheckpointStatus.FAILED: "#f85149",
}


def steps() -> list[TreeLine]:
    """The steps of an agent that tries two ways, fails twice and goes on."""
    agent = Timeline("research-agent", store=MemoryStore())
    agent.checkpoint({"task": "find cafes"}, description="Parsed the request")
    agent.checkpoint({"task": "find cafes", "found": []}, description="Planned")

    agent.branch("reviews-first")
    agent.checkpoint({**agent.get_state(), "sort": "reviews"}, description="Sorted by reviews")
    agent.switch_branch("main")

    failures = iter([TimeoutError("no answer"), TimeoutError("no answer")])

    def search(state: dict[str, Any]) -> dict[str, Any]:
        for failure in failures:
            raise failure
        return {**state, "found": ["Central"]}

    agent.safe_execute(search, agent.get_state(), description="Searched", max_retries=3)
    agent.merge("reviews-first")
    agent.checkpoint({**agent.get_state(), "done": True}, description="Answered")
    return agent.tree()


def drawn(lines: list[TreeLine]) -> str:
    """The steps as SVG: the current branch on the left, other paths beside it."""
    at: dict[str, tuple[int, int]] = {}
    below: dict[int, tuple[int, int]] = {}
    """The last step at each depth: where a line to the next one begins."""
    edges, dots = [], []
    for row, line in enumerate(lines):
        depth = len(line.prefix) // 3
        status = line.status or CheckpointStatus.ACTIVE
        # Attempts stand between the current branch and the others.
        column = 2 * depth - (status is CheckpointStatus.FAILED)
        x, y = LEFT + column * COLUMN, TOP + row * ROW
        color = COLORS[status]
        if start := below.get(depth - 1 if "├" in line.prefix else depth):
            edges.append(_edge(start, (x, y), color))
        below[depth] = x, y
        edges += [_edge(at[id], (x, y), COLORS[CheckpointStatus.ACTIVE]) for id in line.merges]
        at[line.id or ""] = x, y
        dots.append(f'<circle cx="{x}" cy="{y}" r="6" fill="{color}"/>{_words(line, y)}')
    height = TOP + len(lines) * ROW - 4
    body = "\n".join((*edges, *dots))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 520 {height}" width="520" '
        'font-family="ui-sans-serif, system-ui, sans-serif" font-size="14" role="img" '
        'aria-label="A timeline: a branch, two failed attempts, a recovery and a merge">\n'
        f"{body}\n</svg>\n"
    )


def _edge(start: tuple[int, int], end: tuple[int, int], color: str) -> str:
    (x1, y1), (x2, y2) = start, end
    middle = y2 - ROW / 2 if x2 >= x1 else y1 + ROW / 2
    curve = f"M{x1} {y1} C{x1} {middle}, {x2} {middle}, {x2} {y2}"
    if x2 < x1:  # A merge: stay in the column, then cross.
        curve = f"M{x1} {y1} L{x1} {y2 - ROW} C{x1} {y2 - ROW / 2}, {x2} {y2 - ROW / 2}, {x2} {y2}"
    return f'<path d="{curve}" fill="none" stroke="{color}" stroke-width="2"/>'


def _words(line: TreeLine, y: int) -> str:
    names = ", ".join((*line.branches, *line.tags))
    note = "recovered" if line.status is CheckpointStatus.RECOVERED else line.error
    told = f'<text x="120" y="{y + 5}" fill="#8b949e">{escape(line.description)}'
    if names:
        told += f' <tspan font-weight="bold" fill="#2f81f7">{escape(names)}</tspan>'
    if note:
        told += f' <tspan font-size="12" fill="#8b949e">{escape(note)}</tspan>'
    return told + "</text>"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawn(steps()), encoding="utf-8")
