"""Whether processes that work side by side wait equally long for each other.

Time says nothing of that: a machine may stop one of them for seconds. So each counts how many
operations of all went by while it wanted one, and leaves out those during which it stood still.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from statistics import median

WAITED = "waited"

_PACE = 0.01
_STILL = 0.1
"""Seconds after which a process that should have gone on was stopped by the machine."""


class Stillness:
    """Notices when this process was stopped."""

    def __init__(self) -> None:
        self._seen = time.monotonic()
        self._woke = self._seen
        threading.Thread(target=self._look, name="stillness", daemon=True).start()

    def since(self, moment: float) -> bool:
        """Whether the process stood still for a while since a moment."""
        now = time.monotonic()
        return self._woke > moment or now - self._seen > _STILL

    def _look(self) -> None:
        while True:
            time.sleep(_PACE)
            now = time.monotonic()
            if now - self._seen > _STILL:
                self._woke = now
            self._seen = now


def waited(operations: int) -> str:
    """What a worker says: how many operations went by until it had done its own."""
    return f"{WAITED} {operations}"


def expect_fair(said: Iterable[Iterable[str]]) -> None:
    """No process waited more than three times as long as another, while it could go on."""
    waits = [[int(line.split()[1]) for line in lines if line.startswith(WAITED)] for lines in said]
    # They begin one after the other, and the first has nobody to wait for: the ends are compared.
    fewest = min((len(one) for one in waits if one), default=0)
    usual = [median(one[-fewest:]) for one in waits if one]
    assert 3 * min(usual, default=0) >= max(usual, default=0), waits
