"""The same work by several sides, each in a process of its own, which take turns in short blocks.

What disturbs the machine disturbs all of them. `python -m bench._interleaved MODULE WORK SIDE SIZE`
is one side: it writes null before each block and waits for a line, and ends with its figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from bench._environment import ROOT
from bench._model import EngineInfo
from bench._registry import engines

Turn = Callable[[], None]
"""Waits until it is this side's turn. What comes before the first one is not part of the work."""
Work = Callable[[EngineInfo, Mapping[str, int], Turn], dict[str, float]]
_FAILURE = "failure"


def interleaved(
    work: Work, sides: Sequence[str], size: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """The figures of each side."""
    found: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        running = {side: stack.enter_context(_started(work, side, size)) for side in sides}
        for process in running.values():
            _answer(process)
        order = list(sides)
        while len(found) < len(sides):
            for side in [side for side in order if side not in found]:
                _tell(running[side])
                if figures := _answer(running[side]):
                    assert _FAILURE not in figures, f"{side}: {figures[_FAILURE]}"
                    found[side] = figures
            order.reverse()
    return found


@contextmanager
def _started(work: Work, side: str, size: Mapping[str, int]) -> Iterator[subprocess.Popen[str]]:
    told = [work.__module__, work.__name__, side, json.dumps(dict(size))]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench._interleaved", *told],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline() or f'{{"{_FAILURE}": "it ended early"}}')


def main() -> None:
    """Whatever a peer prints goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    def turn() -> None:
        answer(None)
        sys.stdin.readline()

    module, work, side, size = sys.argv[1:]
    try:
        answer(getattr(import_module(module), work)(engines()[side], json.loads(size), turn))
    except BaseException as failure:
        answer({_FAILURE: repr(failure)})
        raise


if __name__ == "__main__":
    main()
