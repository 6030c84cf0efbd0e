"""How far a graph has run ahead of what is stored of it.

With `durability="async"` LangGraph queues checkpoints without bound. The only thing that it
asks a checkpointer for at every step, and waits for, is the next version of a channel. So
there a graph is held up while too many of its steps are not stored yet.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

_MOST_KNOWN: Final = 100_000
_PATIENCE: Final = 5.0
"""After so many seconds without an answer it is looked again whether somebody still writes."""


class Backlog:
    """The versions that were given out, and are not stored yet."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._before: OrderedDict[str, str | None] = OrderedDict()
        """The version that each one followed."""
        self._running: set[str] = set()
        """The versions of checkpoints that are being stored."""

    def __len__(self) -> int:
        return len(self._before)

    def next_version(self, current: str | int | float | None) -> str:
        """A version that is greater, and that nobody else gives out."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        version = f"{number + 1:032}.{random.getrandbits(32):010}"
        before = current if isinstance(current, str) else None
        with self._changed:
            while self._is_behind(before) and not _on_event_loop():
                self._changed.wait(_PATIENCE)
            self._before[version] = before
            while len(self._before) > _MOST_KNOWN:
                self._before.popitem(last=False)
        return version

    @contextmanager
    def storing(self, versions: Collection[str | int | float]) -> Iterator[None]:
        """While a checkpoint with new versions is being stored."""
        mine = {version for version in versions if isinstance(version, str)}
        with self._changed:
            self._running |= mine
        try:
            yield
        finally:
            with self._changed:
                self._running -= mine
                for version in mine:
                    self._before.pop(version, None)
                self._changed.notify_all()

    def _is_behind(self, version: str | None) -> bool:
        """Whether too many steps before this one wait for one that is being stored."""
        steps = 0
        running = False
        while version is not None and version in self._before and steps < 4 * self._most:
            steps += 1
            running = running or version in self._running
            version = self._before[version]
        return running and steps >= self._most


def _on_event_loop() -> bool:
    """Whether waiting here would stop an event loop, and with it those who store."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
