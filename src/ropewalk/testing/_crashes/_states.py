"""The folders that power losses may leave behind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from random import Random

from ropewalk.store.validation import expect_whole
from ropewalk.testing._crashes._journal import Journal, Mark
from ropewalk.testing._crashes._replay import Replay

_PASSES = 100  # How often a journal is replayed if there are too few states.
_LEAST = 64  # Moments tried per replay, after the first.


@dataclass(frozen=True, slots=True)
class CrashState:
    """A folder as a power loss may leave it."""

    point: int
    """The number of journal steps before the crash."""
    marks: tuple[Mark, ...]
    """The notes recorded by then."""
    files: Mapping[str, bytes | None]
    """The bytes of each file by its path in the journal's folder; None is a folder."""
    digest: bytes
    """Identifies this state."""

    def marked(self, name: str) -> list[object]:
        """The values recorded under a name, in order."""
        return [mark.value for mark in self.marks if mark.name == name]

    def write_to(self, folder: str | PathLike[str]) -> Path:
        """Write the files into a real folder, replacing its content."""
        root = Path(folder)
        if root.exists():
            shutil.rmtree(root)
        root.mkdir(parents=True)
        for path, data in self.files.items():
            if data is None:
                (root / path).mkdir()
            else:
                (root / path).write_bytes(data)
        return root

    def __repr__(self) -> str:
        return f"<CrashState {self.digest.hex()[:12]} after {self.point} steps>"


def crash_states(journal: Journal, *, seed: int, count: int) -> Iterator[CrashState]:
    """Up to `count` different folders that a power loss may leave.

    The crash happens at any moment of the journal. Everything that was synced before is intact.
    What was not synced is present, absent or partial: writes are dropped, reordered and torn at
    any byte or sector, files grow without their bytes, renames are delayed. The same journal and
    seed give the same states. There are fewer than `count` if no more are found. A folder that is
    also left at a moment with other notes is repeated: lacking a commit is right before the
    acknowledgement, and wrong after it.
    """
    expect_whole(count, 0, "count")
    steps, random = journal.steps, Random(seed)
    images, seen = set[bytes](), set[tuple[bytes, int]]()
    for _ in range(_PASSES):
        tries = max(count - len(images), _LEAST) if images else count
        points = sorted(random.randrange(len(steps) + 1) for _ in range(tries))
        replay, marks, done = Replay(journal.start), list[Mark](), 0
        for point in points:
            replay.do(steps[done:point])
            marks += [step for step in steps[done:point] if isinstance(step, Mark)]
            done = point
            if len(images) == count:
                return
            image = replay.crash(random)
            images.add(image.digest)
            if (image.digest, len(marks)) not in seen:
                seen.add((image.digest, len(marks)))
                yield CrashState(point, tuple(marks), image.files, image.digest)
