"""Surviving `os.fork`: locks are freed in the child, and objects are reset.

A child has only the thread that forked. What another thread of its parent held at that moment,
nobody in the child would ever release. So locks are freed in the child, a fork waits for those
whose data must be whole, and until no thread is inside a library that has locks of its own.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

_FORK_SECONDS: Final = 2.0  # Longer than this a lock is held only by a thread that is blocked.
_REENTRANT: Final[Any] = type(threading.RLock())


def freed_after_fork(lock: T) -> T:
    """Register a lock, condition or event to be freed in the child of a fork; returns it.

    A reentrant lock that the forking thread holds stays held. What the lock protects must be
    usable in any state in which another thread may have left it.
    """
    FORKS.freed.add(lock)
    return lock


def whole_after_fork(lock: T) -> T:
    """The same, and forks wait for the lock, so what it protects is consistent in the child."""
    with FORKS.lock:
        FORKS.awaited.add(lock)
    return freed_after_fork(lock)


class Gate(Protocol):
    """Guards calls into a library with locks of its own, such as SQLite: forks wait for them."""

    def halt(self, deadline: float) -> bool:
        """Block new calls, and wait for running ones until `deadline`; whether to `resume`."""

    def resume(self) -> None:
        """Allow calls again."""


class Forked(Protocol):
    """An object with a resource that a child of a fork must not use."""

    def gate(self) -> Gate | None:
        """The gate of this process; None if it has made no call yet."""

    def abandon(self) -> None:
        """In a child: drop the parent's resource without closing it."""


class Forks:
    """The fork handlers of this process, and the locks and objects registered for them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while a fork is under way, and while a gate is made."""
        self.freed: weakref.WeakSet[Any] = weakref.WeakSet()
        self.awaited: weakref.WeakSet[Any] = weakref.WeakSet()
        self._gated: weakref.WeakSet[Forked] = weakref.WeakSet()
        # Of a fork, and of one in a signal's handler meanwhile.
        self._halted: list[list[Gate]] = []
        self._taken: list[list[Any]] = []

    def concern(self, one: Forked) -> None:
        """Register an object at whose gate forks wait."""
        with self.lock:
            self._gated.add(one)

    def before(self) -> None:
        """Halt all gates and acquire the awaited locks, giving up after a while."""
        self.lock.acquire()
        until = time.monotonic() + _FORK_SECONDS
        gates = [one.gate() for one in self._gated]
        self._halted.append([one for one in gates if one is not None and one.halt(until)])
        until = time.monotonic() + _FORK_SECONDS
        self._taken.append([])
        for lock in self.awaited:
            if lock.acquire(timeout=max(until - time.monotonic(), 0)):
                self._taken[-1].append(lock)

    def in_parent(self) -> None:
        """Release what `before` acquired."""
        for lock in self._taken.pop():
            lock.release()
        for gate in self._halted.pop():
            gate.resume()
        self.lock.release()

    def in_child(self) -> None:
        """Free all registered locks that the forking thread does not hold, and reset objects."""
        for lock in self._taken.pop():
            lock.release()
        for lock in list(self.freed):
            if not (isinstance(lock, _REENTRANT) and lock._is_owned()):
                # What the standard library does with locks of its own.
                lock._at_fork_reinit()
        self._halted.pop()
        for one in self._gated:
            one.abandon()
        self.lock.release()  # Threads that others have started here may wait for it.


FORKS: Final = Forks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORKS.before,
        after_in_parent=FORKS.in_parent,
        after_in_child=FORKS.in_child,
    )


class Forkable(Protocol):
    """An object that has to be reset in the child of a fork."""

    def after_fork(self) -> None:
        """Reset: threads are gone, locks may be held by no thread, connections are the parent's.

        Must not start a thread: other objects are not reset yet, and most children never use
        this one. Threads are started on first use.
        """


_known: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()


def reset_after_fork(one: Forkable) -> None:
    """Call its `after_fork` in every child of this process, as long as it lives."""
    _known.add(one)


def _forked() -> None:
    failed: list[Exception] = []
    for one in list(_known):
        try:
            one.after_fork()
        except Exception as error:  # noqa: BLE001 - the others must begin anew all the same
            failed.append(error)
    if failed:
        raise ExceptionGroup("what a child of a fork could not begin anew", failed)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
