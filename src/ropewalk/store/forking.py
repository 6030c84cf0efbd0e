"""Forks of a process.

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

_FORK_SECONDS: Final = 2.0  # Then whoever holds a lock waits for somebody else.
_REENTRANT: Final[Any] = type(threading.RLock())


def freed_after_fork(lock: T) -> T:
    """This lock, condition or event, which no other thread holds in a child of this process.

    A reentrant lock of the thread that forks stays its own. What the lock protects must be
    usable as another thread left it, between any two of its steps.
    """
    FORKS.freed.add(lock)
    return lock


def whole_after_fork(lock: T) -> T:
    """The same for a lock that a fork waits for: what it protects is whole in the child."""
    with FORKS.lock:
        FORKS.awaited.add(lock)
    return freed_after_fork(lock)


class Gate(Protocol):
    """What threads go through on their way into a library that has locks of its own."""

    def halt(self, deadline: float) -> bool:
        """Let nobody in, and wait until then for those inside; whether `resume` is due."""

    def resume(self) -> None:
        """Let others in again."""


class Forked(Protocol):
    """What a child of a fork must not use."""

    def gate(self) -> Gate | None:
        """The gate of this process; None if nobody here went in yet."""

    def abandon(self) -> None:
        """In a child: let what the parent has open be."""


class Forks:
    """Forks of this process, and what these concern, as long as it lives."""

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
        """Let forks wait at the gate of this."""
        with self.lock:
            self._gated.add(one)

    def before(self) -> None:
        """Wait until nobody is inside, and take what is to be whole; or give up after a while."""
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
        """Go on."""
        for lock in self._taken.pop():
            lock.release()
        for gate in self._halted.pop():
            gate.resume()
        self.lock.release()

    def in_child(self) -> None:
        """Let all locks be free that the thread which forked does not hold."""
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
    """What must be reset in the child of a fork."""

    def after_fork(self) -> None:
        """Begin anew: threads are gone, locks may be held by nobody, connections are another's.

        Starts no thread: others are not reset yet, and most children do nothing here. What is
        needed is started when it is first used.
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
