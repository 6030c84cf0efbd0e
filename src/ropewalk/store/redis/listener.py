"""Who waits for operations is woken by what the server publishes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ropewalk.errors import RopewalkError
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.watch import Listeners

if TYPE_CHECKING:
    from ropewalk.store.redis.server import Server

_HEARS = 0.2  # Seconds after which the thread looks whether it is still wanted.
_RESTS = 0.5  # Seconds before it subscribes again, after the connection was lost.


class Listener:
    """One thread and one connection for all watchers of a store, while there are any.

    A wake is a hint: while the connection is lost, watchers look at intervals.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._channel = server.layout.key("wake")
        self._listeners = Listeners()
        self._lock = freed_after_fork(threading.Lock())
        self._waiting = 0
        self._thread: tuple[int, threading.Thread] | None = None
        self._ended = freed_after_fork(threading.Event())

    def add(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` soon after each operation of a space; the way to stop that."""
        remove = self._listeners.add(space, wake)
        with self._lock:
            self._waiting += 1
            self._start()

        def stop() -> None:
            remove()
            with self._lock:
                self._waiting -= 1

        return stop

    def wake(self, space: str) -> None:
        """Wake who waits for a space in this process."""
        self._listeners.wake(space)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread[0] == os.getpid():
            thread[1].join()

    def _start(self) -> None:
        # After a fork, the child has the object but not its thread.
        if self._thread is not None and self._thread[0] == os.getpid():
            return
        thread = threading.Thread(target=self._listen, name="ropewalk-redis", daemon=True)
        self._thread = os.getpid(), thread
        thread.start()

    def _listen(self) -> None:
        while self._wanted():
            try:
                self._hear()
            except RopewalkError:
                self._ended.wait(_RESTS)

    def _hear(self) -> None:
        with self._server.listening(self._channel) as heard:
            # What was published before this is not heard: let everybody look once.
            self._listeners.wake_all()
            while self._wanted():
                space = heard(_HEARS)
                if space is not None:
                    self._listeners.wake(space.decode())

    def _wanted(self) -> bool:
        """Whether somebody waits; if not, the next who comes starts another thread."""
        with self._lock:
            if self._waiting and not self._ended.is_set():
                return True
            self._thread = None
            return False
