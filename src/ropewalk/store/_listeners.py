"""Who waits for operations of which space, within one store object."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from ropewalk.store.forking import freed_after_fork


class Listeners:
    """For engines that hear only of what they commit themselves. Safe to share."""

    def __init__(self) -> None:
        self._lock = freed_after_fork(threading.Lock())
        self.wakes: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)

    def add(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each operation of a space; the way to stop that."""
        with self._lock:
            self.wakes[space].append(wake)

        def stop() -> None:
            with self._lock:
                self.wakes[space].remove(wake)
                if not self.wakes[space]:
                    del self.wakes[space]

        return stop

    def wake(self, space: str) -> None:
        """Wake who waits for a space."""
        if not self.wakes:
            return
        with self._lock:
            wakes = tuple(self.wakes.get(space, ()))
        for wake in wakes:
            wake()

    def wake_all(self) -> None:
        """Wake everybody."""
        with self._lock:
            wakes = [wake for some in self.wakes.values() for wake in some]
        for wake in wakes:
            wake()
