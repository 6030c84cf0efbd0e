"""Threads of one process that commit at once share one statement, and so one sync.

Who comes first sends its commit. Those who come while it is under way wait, and go
together: one of them leads, and sends for all. Each commit is made or refused for itself;
what cannot go with others is sent alone afterwards, so that only one place decides what is
refused, and why. Nobody waits long for a leader that does not come back: who has waited
leads those behind it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ropewalk.errors import Unavailable
from ropewalk.store._decide import Batch
from ropewalk.store._framing import Framed
from ropewalk.store._postgres_arrays import KEY_SIZE, byteas, keys, numbers, texts
from ropewalk.store._postgres_commit import (
    NUMBER_SIZE,
    Answer,
    piece_of,
    record_of,
    write_key,
)

TYPES = (
    "integer text[] text[] bytea[] bytea[] bigint[] bigint[] bytea[] "
    "bytea uuid[] bytea bytea uuid[] integer bytea[]"
)
"""The types of what `parameters_of` gives."""

MOST_MEMBERS = 64
MOST_BYTES = 256 * 1024
_MOST_OBJECTS = 64
_PATIENCE = 0.05  # Seconds to wait for a leader before leading oneself.
_SHARE, _LONGEST = 0.5, 0.005  # Of the time of the last statement, and seconds, to gather others.
_SOON = 1.0  # Seconds after which what failed is not sent again.

LOCK_MILLISECONDS = 200
"""How long a group waits for a space that others hold: the others in it are not to wait."""

_after_a_fork = threading.Lock()  # Held by no thread of a parent that is not a child itself.

Send = Callable[[list[Any]], list[int] | None]
Alone = Callable[[Batch], Answer]


class Member:
    """One commit that may go with others, and what came of it."""

    __slots__ = ("answer", "batch", "error", "ids", "leads", "wake")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.ids = {one.id for one in batch.frames}
        self.leads = False
        self.wake: threading.Lock | None = None
        self.answer: Answer | None = None
        self.error: Exception | None = None


class Group:
    """The small commits of one process to one store."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Member] = []
        self._leader: Member | None = None
        self._expected = 1
        """How many there were the last time: those under way, and those who waited."""
        self._took = 0.0
        self._gathered: threading.Lock | None = None
        """What a leader waits for who expects more; held while it does."""
        self._process = os.getpid()  # Last: who sees it need not begin.

    def answer(self, batch: Batch, alone: Alone) -> Answer:
        """What came of a commit: the answer of the statement it shared, or of `alone`."""
        if self._process != os.getpid():
            with _after_a_fork:
                if self._process != os.getpid():
                    self._begin()  # Who led is not here.
        member = Member(batch)
        self._enter(member)
        if member.leads:
            taken: list[Member] = []
            began = 0.0
            try:
                self._gather()
                taken = self._take_along(member)
                began = time.monotonic()
                if not taken:
                    return alone(batch)
                self._lead([member, *taken])
            finally:
                self._leave(member, 1 + len(taken), time.monotonic() - began)
        if member.error is not None:
            raise member.error
        return alone(batch) if member.answer is None else member.answer

    def _enter(self, member: Member) -> None:
        """Wait until this member leads, or was taken along."""
        with self._lock:
            if self._leader is None:
                self._leader = member
                member.leads = True
                return
            member.wake = threading.Lock()
            member.wake.acquire()
            self._waiting.append(member)
            if self._gathered is not None and len(self._waiting) + 1 >= self._expected:
                self._gathered.release()
                self._gathered = None
        try:
            if member.wake.acquire(timeout=_PATIENCE):
                return
            with self._lock:
                if member in self._waiting:
                    self._waiting.remove(member)
                    self._leader = member
                    member.leads = True
                    return
            member.wake.acquire()  # It is under way, or leads.
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

    def _take_along(self, leader: Member) -> list[Member]:
        """Those who wait and can go together: each has a space and objects of its own."""
        if not self._waiting:
            return []
        spaces, ids = {leader.batch.space}, set(leader.ids)
        taken: list[Member] = []
        left: list[Member] = []
        with self._lock:
            for member in self._waiting:
                batch = member.batch
                if (
                    len(taken) < MOST_MEMBERS - 1
                    and batch.epoch == leader.batch.epoch
                    and batch.space not in spaces
                    and ids.isdisjoint(member.ids)
                ):
                    spaces.add(batch.space)
                    ids |= member.ids
                    taken.append(member)
                else:
                    left.append(member)
            self._waiting = left
        return taken

    def _lead(self, members: list[Member]) -> None:
        """Send for all; whoever gets neither an answer nor an error was not part of it."""
        members.sort(key=lambda member: member.batch.space)
        began = time.monotonic()
        try:
            answers = self._send(parameters_of([member.batch for member in members]))
            for number in answers or ():
                at, epoch = (number >> 1 & 0xFF) - 1, members[0].batch.epoch
                members[at].answer = Answer.made(number >> 9, epoch, bool(number & 1))
        except Exception as error:  # noqa: BLE001 - each finds out alone what is wrong with it
            if time.monotonic() - began > _SOON:  # Unless that would take as long again.
                for member in members:
                    member.error = Unavailable(str(error))
        finally:
            for member in members:
                if member.wake is not None and not member.leads:
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


def can_share(batch: Batch) -> bool:
    """Whether a commit is as most are: small, with one ref that moves on from where it was."""
    if batch.epoch is None or batch.targets or batch.fences or len(batch.moves) != 1:
        return False
    move, frames = batch.moves[0], batch.frames
    if move.expected is None or move.target is None or len(frames) > _MOST_OBJECTS:
        return False
    if sum([len(one.frame) for one in frames]) > MOST_BYTES // MOST_MEMBERS:
        return False
    ids = {one.id for one in frames}
    return not any(one.base in ids for one in frames)


def parameters_of(batches: Sequence[Batch]) -> list[Any]:
    """Batches as parameters, in the order that the function takes them."""
    frames: list[tuple[Framed, int]] = [
        (one, at) for at, batch in enumerate(batches, 1) for one in batch.frames
    ]
    frames.sort()
    moves = [batch.moves[0] for batch in batches]
    return [
        batches[0].epoch,
        texts([batch.space for batch in batches]),
        texts([move.name for move in moves]),
        byteas([move.expected for move in moves]),
        byteas([move.target for move in moves]),
        numbers([write_key(batch) for batch in batches]),
        numbers([batch.digest[:NUMBER_SIZE] for batch in batches]),
        byteas([record_of(batch) for batch in batches]),
        bytes([at for _, at in frames]),
        keys([one.id for one, _ in frames]),
        b"".join([one.id[KEY_SIZE:] for one, _ in frames]),
        bytes([one.depth for one, _ in frames]),
        keys([one.base for one, _ in frames]),
        # As many as are found, if each has the depth that all who build upon it expect.
        len({(one.base, one.depth) for one, _ in frames if one.base is not None}),
        byteas([piece_of(one) for one, _ in frames]),
    ]
