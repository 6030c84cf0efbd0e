"""Group commit: threads of one process that write at once share a transaction or a round trip.

The first thread leads at once. Threads that arrive while it is at work queue up; when it is done,
the first of them leads and runs the work of the others too. So a lone writer pays for one lock,
and many writers share one sync. Each member's work succeeds or fails by itself, and no call
returns before its work is durable. In the child of a fork the queue is empty.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from ropewalk.errors import Unavailable
from ropewalk.store.forking import freed_after_fork

W = TypeVar("W")
A = TypeVar("A")

MOST_MEMBERS: Final = 64

_SHARE, _LONGEST = 0.5, 0.005  # Of the time that sending took, and seconds, to gather others.
_SOON: Final = 1.0  # Seconds after which what failed is not sent again.


class Member(Generic[W]):
    """The work of one thread, and its result."""

    __slots__ = ("alone", "answer", "error", "leads", "resent", "size", "wake", "work")

    def __init__(self, work: W, size: int = 0, *, alone: bool = False) -> None:
        """`alone`: it must not share a transaction with others."""
        self.work, self.size, self.alone = work, size, alone
        self.answer: Any = None
        self.error: BaseException | None = None
        self.resent = False
        """Whether its own thread has to send it again."""
        self.wake: threading.Lock | None = None
        """What its thread blocks on; None if it leads at once."""
        self.leads = False
        """Whether its own thread runs its work, also if another one leads by then."""


class Group(Generic[W]):
    """A queue of members of which one leads."""

    def __init__(
        self,
        lead: Callable[[Member[W]], bool],
        most_bytes: int,
        seconds: float,
        too_late: Callable[[], Exception] | None = None,
    ) -> None:
        """`lead` runs a leader's work and that of its followers; True if it must be called again.

        A thread that has waited for `seconds` raises `too_late`; without that, it leads itself,
        beside the leader that does not return.
        """
        self._lead, self._most_bytes = lead, most_bytes
        self.seconds, self._too_late = seconds, too_late
        self._lock = freed_after_fork(threading.Lock())
        self._begin()

    def _begin(self) -> None:
        self.waiting: deque[Member[W]] = deque()
        """The members behind the leader, in order of arrival."""
        self.leader: Member[W] | None = None
        self.process = os.getpid()
        self._expected = 1
        """How many members the last leader had, with those left waiting."""
        self._gathered: threading.Lock | None = None
        """What a leader blocks on while it waits for more members."""

    def run(self, member: Member[W]) -> Any:
        """Run a member's work, alone or in a group; its result, or what it raised."""
        with self._lock:
            if self.process != os.getpid():
                self._begin()  # A child of a fork: the leader's thread is not here.
            if self.leader is None:
                self._promote(member)
            else:
                member.wake = threading.Lock()
                member.wake.acquire()
                self.waiting.append(member)
                if self._gathered is not None and len(self.waiting) + 1 >= self._expected:
                    self._gathered.release()
                    self._gathered = None
        try:
            if member.wake is not None:
                self._wait(member, member.wake)
            while member.leads and self._lead(member):
                pass
        finally:
            with self._lock:
                if self.leader is member:
                    self.leader = None
                    if self.waiting:
                        following = self.waiting.popleft()
                        self._promote(following)
                        if following.wake is not None:
                            following.wake.release()
        if member.error is not None:
            raise member.error
        return member.answer

    def _promote(self, member: Member[W]) -> None:
        self.leader, member.leads = member, True

    def _wait(self, member: Member[W], wake: threading.Lock) -> None:
        """Block until a member leads, or another leader did its work."""
        try:
            if wake.acquire(timeout=self.seconds):
                return
        except BaseException:  # An interrupt: no leader may pick up a member without a thread.
            with self._lock:
                if member in self.waiting:
                    self.waiting.remove(member)
            raise
        with self._lock:
            if member in self.waiting:
                self.waiting.remove(member)
                if self._too_late is not None:
                    raise self._too_late()
                self._promote(member)
                return
        if not member.leads:
            wake.acquire()  # A leader has already picked it up.

    # What a leader calls.

    def take_along(self, leader: Member[W]) -> list[Member[W]]:
        """Take the waiting members that fit into a leader's group, in order of arrival."""
        if leader.alone:
            return []
        taken: list[Member[W]] = []
        size = leader.size
        with self._lock:
            for member in list(self.waiting):
                if len(taken) == MOST_MEMBERS - 1:
                    break
                if not member.alone and size + member.size <= self._most_bytes:
                    size += member.size
                    taken.append(member)
                    self.waiting.remove(member)
        return taken

    def put_back(self, members: Sequence[Member[W]]) -> None:
        """Put members back at the head of the queue: none of their work is done."""
        with self._lock:
            for member in reversed(members):
                member.answer = member.error = None
                self.waiting.appendleft(member)

    def gather(self, seconds: float) -> None:
        """Wait a little for as many members as last time: threads tend to commit in step."""
        with self._lock:
            if len(self.waiting) + 1 >= min(self._expected, MOST_MEMBERS):
                return
            gathered = self._gathered = threading.Lock()
            gathered.acquire()
        gathered.acquire(timeout=seconds)
        self._gathered = None

    def answer(self, members: Iterable[Member[W]]) -> None:
        """Wake the threads of members."""
        for member in members:
            if member.wake is not None:
                member.wake.release()


class SendingGroup(Group[W], Generic[W, A]):
    """A group whose leader sends the work of all members to a server as one list."""

    def __init__(
        self,
        send: Callable[[list[W]], Sequence[A]],
        most_bytes: int,
        *,
        patience: float,
        gathers: bool = False,
        resend: Callable[[W], A] | None = None,
    ) -> None:
        """`send` returns one answer for each piece of work, in order.

        With `gathers` a leader waits a little for as many members as last time. If `send` fails
        for several members, each resends its own work by `resend`; without that, all raise the
        error. A thread that has waited for `patience` seconds leads beside the leader.
        """
        super().__init__(self._send_all, most_bytes, patience)
        self._send, self._gathers, self._resend = send, gathers, resend
        self._took = 0.0

    def run(self, member: Member[W]) -> A:
        """Send a member's work, alone or in a group; the server's answer to it."""
        answer: A = super().run(member)
        if member.resent:
            assert self._resend is not None
            return self._resend(member.work)
        return answer

    def _send_all(self, leader: Member[W]) -> bool:
        if self._gathers:
            self.gather(min(self._took * _SHARE, _LONGEST))
        members = [leader]
        if self.waiting:
            members += self.take_along(leader)
        began = time.monotonic()
        error: BaseException = Unavailable("the thread that sent it was interrupted")
        answers: Sequence[A] = ()
        try:
            answers = self._send([member.work for member in members])
        except Exception as raised:
            if len(members) == 1:
                raise
            error = raised
        finally:
            self._took = time.monotonic() - began
            self._expected = len(members) + len(self.waiting)
            if len(answers) == len(members):
                for member, answer in zip(members, answers, strict=True):
                    member.answer = answer
            else:
                soon = self._resend is not None and self._took <= _SOON
                for member in members:
                    member.resent = soon  # A resend after a slow failure would be as slow.
                    member.error = None if soon else error
            if len(members) > 1:
                self.answer(members[1:])
        return False
