"""Forks of a process that uses SQLite.

A fork waits until no thread is inside SQLite: a lock that one holds there would be held in the
child for ever. The child begins with no connection at all.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

_FORK_SECONDS = 2.0  # Then whoever is inside waits for somebody else, or for a long question.


class Gate(Protocol):
    """What threads go through on their way into SQLite."""

    def halt(self, deadline: float) -> bool:
        """Let nobody in, and wait until then for those inside; whether `resume` is due."""

    def resume(self) -> None:
        """Let others in again."""


class Forked(Protocol):
    """What a fork concerns."""

    def gate(self) -> Gate | None:
        """The gate of this process; None if nobody here went in yet."""

    def abandon(self) -> None:
        """In a child: let what the parent has open be."""


class Forks:
    """Forks of this process, and what these concern."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while a fork is under way, and while a gate is made."""
        self._known: weakref.WeakSet[Forked] = weakref.WeakSet()
        self._halted: list[Gate] = []

    def concern(self, one: Forked) -> None:
        """Let forks wait for it, as long as it lives."""
        with self.lock:
            self._known.add(one)

    def before(self) -> None:
        """Wait until no thread is inside SQLite, or for a while."""
        self.lock.acquire()
        deadline = time.monotonic() + _FORK_SECONDS
        gates = [one.gate() for one in self._known]
        self._halted = [one for one in gates if one is not None and one.halt(deadline)]

    def in_parent(self) -> None:
        """Go on."""
        for gate in self._halted:
            gate.resume()
        self._halted = []
        self.lock.release()

    def in_child(self) -> None:
        """Begin anew."""
        self._halted = []
        for one in self._known:
            one.abandon()
        self.lock.release()  # Threads that others have started here may wait for it.


FORKS = Forks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=FORKS.before,
        after_in_parent=FORKS.in_parent,
        after_in_child=FORKS.in_child,
    )
