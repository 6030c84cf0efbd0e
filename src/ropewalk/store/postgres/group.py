"""Threads of one process that commit at once share one statement, and so one sync.

Who comes first sends its commit. Those who come while it is under way wait, and go together:
one of them leads, and sends for all. Each commit is made or refused for itself. Those who commit
in step go on in step: a leader waits a little for those who were there the last time. Nobody
waits long for a leader that does not come back: who has waited leads those behind it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from ropewalk.errors import RopewalkError, Unavailable
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.postgres.commit import Answer, Draft

MOST_MEMBERS: Final = 64
MOST_BYTES: Final = 256 * 1024
_PATIENCE: Final = 0.05  # Seconds to wait for a leader before leading oneself.
_SHARE, _LONGEST = 0.5, 0.005  # Of the time of the last statement, and seconds, to gather others.
_SOON: Final = 1.0  # Seconds after which what failed is not sent again.

Send = Callable[[Sequence[Draft]], "list[Answer]"]


class Member:
    """One commit that may go with others, and what came of it."""

    __slots__ = ("answer", "draft", "error", "leads", "retry", "wake")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.leads = self.retry = False
        self.wake: threading.Lock | None = None
        self.answer: Answer | None = None
        self.error: BaseException | None = None


class Group:
    """The commits of one process to one store."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = freed_after_fork(threading.Lock())
        self._begin()

    def _begin(self) -> None:
        self._waiting: list[Member] = []
        self._leader: Member | None = None
        self._expected = 1
        """How many there were the last time: those under way, and those who waited."""
        self._took = 0.0
        self._gathered: threading.Lock | None = None
        """What a leader waits for who expects more; held while it does."""
        self._process = os.getpid()

    def answer(self, draft: Draft) -> Answer:
        """What came of a commit, sent alone or with others."""
        member = Member(draft)
        self._enter(member)
        if member.leads:
            members, began = [member], 0.0
            try:
                self._gather()
                members += self._take_along(draft)
                began = time.monotonic()
                self._lead(members)
            finally:
                self._leave(member, len(members), time.monotonic() - began)
        if member.retry:
            return self._alone(member)
        if member.error is not None:
            raise member.error
        assert member.answer is not None
        return member.answer

    def _alone(self, member: Member) -> Answer:
        member.draft.look = True
        return self._send([member.draft])[0]

    def _enter(self, member: Member) -> None:
        """Wait until this member leads, or was taken along."""
        with self._lock:
            if self._process != os.getpid():
                self._begin()  # Who led is not here.
            if self._leader is None:
                self._leader = member
                member.leads = True
                return
            wake = member.wake = threading.Lock()
            wake.acquire()
            self._waiting.append(member)
            if self._gathered is not None and len(self._waiting) + 1 >= self._expected:
                self._gathered.release()
                self._gathered = None
        try:
            if wake.acquire(timeout=_PATIENCE):
                return
            with self._lock:
                if member in self._waiting:
                    self._waiting.remove(member)
                    self._leader = member
                    member.leads = True
                    return
            wake.acquire()  # It is under way, or leads.
        except BaseException:  # An interrupt: nobody may be left to wait for this one.
            with self._lock:
                if member in self._waiting:
                    self._waiting.remove(member)
            self._leave(member, 1, 0.0)
            raise

    def _gather(self) -> None:
        """Wait a little for those who were there the last time: they will come again."""
        with self._lock:
            if len(self._waiting) + 1 >= min(self._expected, MOST_MEMBERS):
                return
            gathered = self._gathered = threading.Lock()
            gathered.acquire()
        gathered.acquire(timeout=min(self._took * _SHARE, _LONGEST))
        self._gathered = None

    def _take_along(self, leader: Draft) -> list[Member]:
        """Those who wait and can go with a leader, first come first served."""
        if not self._waiting or leader.alone:
            return []
        taken: list[Member] = []
        left: list[Member] = []
        size = leader.size
        with self._lock:
            for member in self._waiting:
                draft = member.draft
                fits = len(taken) < MOST_MEMBERS - 1 and size + draft.size <= MOST_BYTES
                if fits and not draft.alone:
                    size += draft.size
                    taken.append(member)
                else:
                    left.append(member)
            self._waiting = left
        return taken

    def _lead(self, members: list[Member]) -> None:
        """Send for all; if that fails for several, each finds out alone what is wrong with it."""
        leader = members[0]
        if len(members) > 1:
            # In one order, so that two groups never wait for each other.
            members = sorted(members, key=lambda member: member.draft.batch.space)
        began = time.monotonic()
        try:
            answers = self._send([member.draft for member in members])
            for member, answer in zip(members, answers, strict=True):
                member.answer = answer
        except BaseException as error:
            if len(members) == 1:
                raise
            late = time.monotonic() - began > _SOON  # To try again would take as long.
            for member in members:
                member.retry = not late
                member.error = Unavailable(str(error)) if late else error
            if not isinstance(error, RopewalkError):
                raise
        finally:
            for member in members:
                if member is not leader and member.wake is not None:
                    member.wake.release()

    def _leave(self, member: Member, members: int, took: float) -> None:
        """Let the next one lead, unless somebody does already."""
        with self._lock:
            if self._leader is not member:
                return
            self._expected, self._took = members + len(self._waiting), took
            if not self._waiting:
                self._leader = None
                return
            following = self._leader = self._waiting.pop(0)
            following.leads = True
            assert following.wake is not None
            following.wake.release()
