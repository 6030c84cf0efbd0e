"""One thread that does something at intervals, as long as somebody needs it."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

_logger = logging.getLogger("ropewalk.coherence")


class Beating(Protocol):
    """Who has something to do at intervals."""

    def step(self) -> float | None:
        """Do what is due; how many seconds until the next time, or None to end."""


class Beat:
    """A daemon thread that calls `step` of its owner. It ends with the owner.

    The owner is held weakly: one that nobody closed takes its thread along.
    """

    def __init__(self, owner: Beating, name: str) -> None:
        self._owner: Callable[[], Beating | None] = weakref.ref(owner)
        self._name = name
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget the thread, which is not in this process, and locks that nobody releases."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._needed = False
        self._closed = False

    def start(self) -> None:
        """Let the thread run; it does what is due when it is due."""
        if self._needed and self._thread is not None:
            return
        with self._lock:
            self._needed = True
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=_run, args=(self._owner, self), name=self._name, daemon=True
                )
                self._thread.start()

    def wake(self) -> None:
        """Let the thread look at once for what is due."""
        self.start()
        self._wake.set()

    def close(self) -> None:
        """Do nothing more; what is being done is finished first."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self._closed

    def begin_turn(self) -> None:
        """Forget who needed it: whoever does after this gets another turn."""
        with self._lock:
            self._needed = False

    def may_end(self) -> bool:
        """Whether nobody needs the thread any more; who does after this gets a new one."""
        with self._lock:
            if self._needed and not self._closed:
                return False
            self._thread = None
            return True

    def rest(self, seconds: float) -> None:
        """Wait, unless somebody wakes the thread."""
        self._wake.wait(seconds)
        self._wake.clear()


def _run(owner_of: Callable[[], Beating | None], beat: Beat) -> None:
    reported: set[type[BaseException]] = set()
    while not beat.closed:
        beat.begin_turn()
        owner = owner_of()
        if owner is None:
            return
        pause: float | None
        try:
            pause = owner.step()
        except Exception as error:
            # The thread must go on: what it renews is held by agents that know nothing of this.
            if type(error) not in reported:
                reported.add(type(error))
                _logger.exception("the beat of coherence met an error, and goes on")
            pause = 1.0
        del owner  # Between its turns, nothing here keeps it alive.
        if pause is not None:
            beat.rest(pause)
        elif beat.may_end():
            return
