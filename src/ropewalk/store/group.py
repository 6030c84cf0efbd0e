"""Group commit: threads of one process that write at once share a transaction or a round trip.

Who comes first leads, and waits for nobody. Those who come while it is at work queue behind it;
one of them leads next, and takes the others along. So a lone writer pays for one lock, and many
share one sync. Each member's work is done or refused for itself, whatever becomes of the others,
and nobody is answered before it is durable. A child of a fork begins with an empty queue.
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
    """What one thread wants done, and what came of it."""

    __slots__ = ("alone", "answer", "error", "resent", "size", "wake", "work")

    def __init__(self, work: W, size: int = 0, *, alone: bool = False) -> None:
        """`alone` says that it goes with no other."""
        self.work, self.size, self.alone = work, size, alone
        self.answer: Any = None
        self.error: BaseException | None = None
        self.resent = False
        """Whether it is sent again, by its own thread."""
        self.wake: threading.Lock | None = None
        """What its thread waits for; None if it leads at once."""


class Group(Generic[W]):
    """A queue of members of which one leads."""

    def __init__(
        self,
        lead: Callable[[Member[W]], bool],
        most_bytes: int,
        seconds: float,
        too_late: Callable[[], Exception] | None = None,
    ) -> None:
        """`lead` does a member's work and that of others; whether its own must be done again.

        Who has waited for so many seconds raises `too_late`; without it, it leads beside the
        leader that does not come back.
        """
        self._lead, self._most_bytes = lead, most_bytes
        self.seconds, self._too_late = seconds, too_late
        self._lock = freed_after_fork(threading.Lock())
        self._begin()

    def _begin(self) -> None:
        self.waiting: deque[Member[W]] = deque()
        """Those behind the leader, first come first served."""
        self.leader: Member[W] | None = None
        self.process = os.getpid()
        self._expected = 1
        """How many there were the last time: those under way, and those who waited."""
        self._gathered: threading.Lock | None = None
        """What a leader waits for who expects more; held while it does."""

    def run(self, member: Member[W]) -> Any:
        """What came of a member's work; raises what the work raised."""
        with self._lock:
            if self.process != os.getpid():
                self._begin()  # Who led is not here.
            if self.leader is None:
                self.leader = member
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
            while self.leader is member and self._lead(member):
                pass
        finally:
            with self._lock:
                if self.leader is member:
                    self.leader = self.waiting.popleft() if self.waiting else None
                    if self.leader is not None and self.leader.wake is not None:
                        self.leader.wake.release()
        if member.error is not None:
            raise member.error
        return member.answer

    def _wait(self, member: Member[W], wake: threading.Lock) -> None:
        """Wait until a member leads, or others did its work."""
        try:
            if wake.acquire(timeout=self.seconds):
                return
        except BaseException:  # An interrupt: nobody may be left to wait for this one.
            with self._lock:
                if member in self.waiting:
                    self.waiting.remove(member)
            raise
        with self._lock:
            if member in self.waiting:
                self.waiting.remove(member)
                if self._too_late is not None:
                    raise self._too_late()
                self.leader = member
                return
        if self.leader is not member:
            wake.acquire()  # It was taken along: what comes of it is known soon.

    # What a leader calls.

    def take_along(self, leader: Member[W]) -> list[Member[W]]:
        """Those who wait and can go with a leader, first come first served."""
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
        """Let members wait again, before all others: nothing was done for them."""
        with self._lock:
            for member in reversed(members):
                member.answer = member.error = None
                self.waiting.appendleft(member)

    def gather(self, seconds: float) -> None:
        """Wait a little for those who came the last time: who commits in step goes on in step."""
        with self._lock:
            if len(self.waiting) + 1 >= min(self._expected, MOST_MEMBERS):
                return
            gathered = self._gathered = threading.Lock()
            gathered.acquire()
        gathered.acquire(timeout=seconds)
        self._gathered = None

    def answer(self, members: Iterable[Member[W]]) -> None:
        """Let the threads of members go on."""
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
        """`send` gives an answer for each, in their order.

        A leader that `gathers` waits a little for those who were there the last time. If it fails
        for several, each sends its own work again by `resend`; without it, all raise what `send`
        raised. Who has waited for `patience` seconds leads beside the leader.
        """
        super().__init__(self._send_all, most_bytes, patience)
        self._send, self._gathers, self._resend = send, gathers, resend
        self._took = 0.0

    def run(self, member: Member[W]) -> A:
        """What the server answered to a member's work."""
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
                    member.resent = soon  # To try again later would take as long.
                    member.error = None if soon else error
            if len(members) > 1:
                self.answer(members[1:])
        return False
