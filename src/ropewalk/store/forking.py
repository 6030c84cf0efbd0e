"""Locks in a forked process.

A child has only the thread that forked. What another thread of its parent held at that
moment, nobody in the child would ever release.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Final, TypeVar

T = TypeVar("T")

_FORK_SECONDS: Final = 2.0  # Then whoever holds a lock waits for somebody else.
_REENTRANT: Final[Any] = type(threading.RLock())


def freed_after_fork(lock: T) -> T:
    """This lock, condition or event, which no other thread holds in a child of this process.

    A reentrant lock of the thread that forks stays its own. What the lock protects must be
    usable as another thread left it, between any two of its steps.
    """
    _forks.freed.add(lock)
    return lock


def whole_after_fork(lock: T) -> T:
    """The same for a lock that a fork waits for: what it protects is whole in the child."""
    _forks.await_before(lock)
    return freed_after_fork(lock)


class _Forks:
    """Forks of this process, and the locks that these concern."""

    def __init__(self) -> None:
        self.freed: weakref.WeakSet[Any] = weakref.WeakSet()
        self._awaited: weakref.WeakSet[Any] = weakref.WeakSet()
        self._turn = threading.RLock()
        self._taken: list[list[Any]] = []  # Of a fork, and of one in a signal's handler meanwhile.

    def await_before(self, lock: object) -> None:
        """Have each fork wait until nobody holds a lock."""
        with self._turn:
            self._awaited.add(lock)

    def before(self) -> None:
        """Take what is to be whole, or give up after a while."""
        self._turn.acquire()
        until = time.monotonic() + _FORK_SECONDS
        self._taken.append([])
        for one in self._awaited:
            if one.acquire(timeout=max(until - time.monotonic(), 0)):
                self._taken[-1].append(one)

    def in_parent(self) -> None:
        """Give it back."""
        self._give_back()
        self._turn.release()

    def in_child(self) -> None:
        """Let all locks be free that the thread which forked does not hold."""
        self._turn = threading.RLock()
        self._give_back()
        for one in list(self.freed):
            if not (isinstance(one, _REENTRANT) and one._is_owned()):
                # What the standard library does with locks of its own.
                one._at_fork_reinit()

    def _give_back(self) -> None:
        for one in self._taken.pop():
            one.release()


_forks: Final = _Forks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.before,
        after_in_parent=_forks.in_parent,
        after_in_child=_forks.in_child,
    )
