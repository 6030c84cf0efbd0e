"""Threads of one process that write at once share one transaction, and so one sync.

Who comes first leads: it opens the transaction, and takes those along who wait behind it.
Each has a savepoint of its own, so that what one raises takes back only its own work.
Nobody is told anything before the transaction is committed.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

MOST_MEMBERS = 64
MOST_BYTES = 8 * 1024 * 1024


class Shared(Protocol):
    """What members of a transaction hand on, and must take back if one of them fails."""

    def save(self) -> object:
        """What `restore` needs."""

    def restore(self, saved: Any) -> None:
        """Forget what was done since."""

    def landed(self) -> None:
        """The transaction is committed."""


class Transaction:
    """One transaction: its connection, and what its members tell each other."""

    def __init__(self, db: sqlite3.Connection, grouped: bool) -> None:
        self.db = db
        self.grouped = grouped
        """Whether it has several members."""
        self.shared: Shared | None = None


class Member:
    """One thread's work, and what came of it."""

    def __init__(
        self, work: Callable[[Transaction], object], size: int, alone: bool = False
    ) -> None:
        self.work = work
        self.size = size
        self.alone = alone
        """Whether it wants a transaction for itself."""
        self.taken = False
        self.leads = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.wake: threading.Lock | None = None

    def wait(self, seconds: float) -> bool:
        """Wait to be woken, at most so long."""
        assert self.wake is not None
        return self.wake.acquire(timeout=seconds)


class Group:
    """The writers of one process, in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Member] = deque()
        self._led = False

    def enter(self, member: Member, seconds: float) -> bool:
        """Wait until this member leads or its work is done; False if that took too long."""
        try:
            with self._lock:
                if not self._led:
                    self._led = member.leads = True
                    return True
                member.wake = threading.Lock()
                member.wake.acquire()
                self._waiting.append(member)
            return member.wait(max(seconds, 0)) or not self._gave_up(member)
        except BaseException:  # An interrupt: nobody may be left to wait for this one.
            self._gave_up(member)
            raise

    def _gave_up(self, member: Member) -> bool:
        """Stop waiting. A member that was taken along waits for what comes of it."""
        with self._lock:
            if member in self._waiting:
                self._waiting.remove(member)
                return True
            if not member.taken:
                return not member.leads
        member.wait(-1)
        return False

    def take_along(self, leader: Member) -> list[Member]:
        """Those who wait behind a leader, first come first served."""
        if not self._waiting:
            return []
        # An interrupt comes to the main thread, and must not hit the work of another.
        if leader.alone or threading.current_thread() is threading.main_thread():
            return []
        taken: list[Member] = []
        size = leader.size
        with self._lock:
            while self._waiting and len(taken) < MOST_MEMBERS - 1:
                size += self._waiting[0].size
                if size > MOST_BYTES or self._waiting[0].alone:
                    break
                taken.append(self._waiting.popleft())
                taken[-1].taken = True
        return taken

    def put_back(self, members: list[Member]) -> None:
        """Let members wait again, before all others: nothing was done for them."""
        with self._lock:
            for member in reversed(members):
                member.taken, member.result, member.error = False, None, None
                self._waiting.appendleft(member)

    def leave(self) -> None:
        """Let the next one lead."""
        with self._lock:
            if self._waiting:
                following = self._waiting.popleft()
                following.leads = True
                wake(following)
            else:
                self._led = False


def wake(member: Member) -> None:
    """Let a member see what came of its work, or lead."""
    assert member.wake is not None
    member.wake.release()


def run_members(transaction: Transaction, leader: Member, others: list[Member]) -> list[Member]:
    """Do the work of all; those for whom nothing was done, because the transaction is gone."""
    if not others:
        leader.result = leader.work(transaction)
        return []
    members = [leader, *others]
    for at, member in enumerate(members):
        _run(transaction, member)
        if not transaction.db.in_transaction:
            return members[:at] + members[at + 1 :]
    return []


def _run(transaction: Transaction, member: Member) -> None:
    db = transaction.db
    db.execute("SAVEPOINT member")
    saved = transaction.shared.save() if transaction.shared is not None else None
    try:
        member.result = member.work(transaction)
    except Exception as error:  # noqa: BLE001 - it is raised where the work came from
        member.error = error
        if db.in_transaction:
            db.execute("ROLLBACK TO member")
        if transaction.shared is not None:
            if saved is None:
                transaction.shared = None
            else:
                transaction.shared.restore(saved)
    if db.in_transaction:
        db.execute("RELEASE member")
