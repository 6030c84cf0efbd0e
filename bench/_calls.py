"""Counts the calls of Ropewalk's own functions, and the modules that they are in."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Self

import ropewalk

_OURS = str(Path(ropewalk.__file__).parent)
_IDLE = {threading.__file__}
"""Where a thread begins, whoever made it."""
_RUN, _STEPS = 3, 10


class Profile:
    """Listens to the thread that opened it and to all that begin while it is open."""

    def __init__(self) -> None:
        self._called: list[str] = []
        self._behind: list[str] = []

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def begin(self) -> None:
        """Forget what was called; what a thread still does is not the next action's."""
        self._called, self._behind = [], []

    def figures(self, prefix: str, actions: int) -> dict[str, float]:
        """The calls of so many actions, for one of them."""
        called, behind = self._called, self._behind
        self.begin()
        return {
            f"{prefix}_calls": len(called) / actions,
            f"{prefix}_modules": len(set(called)),
            f"{prefix}_behind": len(behind) / actions,
        }

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_OURS):
            (self._behind if _is_behind(frame) else self._called).append(name)


def _is_behind(frame: FrameType) -> bool:
    """Whether this is a thread of our own, and none that a caller or a pool of a framework has."""
    if threading.current_thread().name.startswith("ropewalk"):
        return True
    outer: FrameType | None = frame
    while outer is not None:
        if not outer.f_code.co_filename.startswith(_OURS) and outer.f_code.co_filename not in _IDLE:
            return False
        outer = outer.f_back
    return True


def checkpoint(folder: Path) -> dict[str, float]:
    """What the third checkpoint of a small dict calls."""
    with Profile() as profile:
        timeline = ropewalk.Timeline("bench", ropewalk.SqliteStore(folder))
        for number in range(_RUN):
            profile.begin()
            timeline.checkpoint({"step": number, "stage": "search", "done": False})
        figures = profile.figures("checkpoint", 1)
        timeline.store.close()
    return figures


def superstep(folder: Path) -> dict[str, float]:
    """What a superstep of a graph calls, in the third run of the graph: the mean of some."""
    from ropewalk.adapters.langgraph import RopewalkSaver

    with Profile() as profile, RopewalkSaver(str(folder / "agent.ropewalk")) as saver:
        for number in range(_RUN):
            figures = _supersteps(profile, saver, f"thread-{number}")
    return figures


def _supersteps(profile: Profile, saver: Any, thread: str) -> dict[str, float]:
    from bench._graphs import Stepping

    loop = Stepping(_STEPS + 3)
    step, figures = loop.step, dict[str, float]()

    def profiled(state: Any) -> Any:
        if len(loop.marks) == 2:
            profile.begin()
        if len(loop.marks) == 2 + _STEPS:
            figures.update(profile.figures("superstep", _STEPS))
        return step(state)

    loop.step = profiled  # type: ignore[method-assign]
    loop.compiled(saver).invoke(loop.first(), loop.config(thread), durability="sync")
    return figures
