"""`python -m bench.against OTHER`: the CPU of a commit, beside another version of Ropewalk.

OTHER is the `src` of a checkout, as `git worktree add` makes one. Each side is a process; the
two take turns, a few commits at a time, so what the machine does meanwhile meets both. The
work whose packages are not installed is left out, and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench._against_work import WORKS
from bench._environment import ROOT

_COMMITS = {"plain": 5, "messages": 2, "saver": 5, "decimals": 10, "small": 40}
_NEEDS = {"messages": "langchain_core", "saver": "langgraph"}


class Side:
    """One version, at work."""

    def __init__(self, source: Path, work: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench._against_work", work],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def commit(self, times: int) -> float:
        """The CPU seconds of so many commits."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{times}\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


def compare(work: str, other: Path, rounds: int) -> str:
    """A row of the table: the first commit, and those that follow."""
    before, now = sides = Side(other, work), Side(ROOT / "src", work)
    first = [side.commit(1) for side in sides]
    times: tuple[list[float], list[float]] = [], []
    for turn in range(rounds):
        for at in (0, 1) if turn % 2 else (1, 0):
            times[at].append(sides[at].commit(_COMMITS[work]) / _COMMITS[work])
    before.end()
    now.end()
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    old, new = map(statistics.median, times)
    return (
        f"| {work} | {first[0] * 1e3:.1f} | {first[1] * 1e3:.1f} "
        f"| {old * 1e6:.0f} | {new * 1e6:.0f} | {100 * (ratio - 1):+.1f} % |"
    )


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    parser.add_argument("other", type=Path, metavar="OTHER", help="the src of the other version")
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"some of: {', '.join(WORKS)}")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="turns of each side")
    chosen = parser.parse_args()
    print("| work | first, before (ms) | first, now | commit, before (us) | commit, now | median |")
    print("|---|---|---|---|---|---|")
    for work in chosen.works or WORKS:
        if importlib.util.find_spec(_NEEDS.get(work, "bench")) is None:
            print(f"| {work} | {_NEEDS[work]} is not installed |||||")
            continue
        print(compare(work, chosen.other.resolve(), chosen.rounds), flush=True)


if __name__ == "__main__":
    main()
