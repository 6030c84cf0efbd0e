"""Commits of several threads that are waiting at the same time go to the server together.

Who comes first sends its own. Those who come meanwhile wait, and then one of them sends for all:
one connection, one write and one read, and one sync of the server's log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

MOST_BYTES: Final = 256 * 1024
"""Larger commits go alone."""
_MOST_MEMBERS: Final = 64

_after_a_fork = threading.Lock()  # Held by no thread of a parent that is not a child itself.


class Member:
    """One thread's commands, and what came of them."""

    __slots__ = ("commands", "error", "replies", "wake")

    def __init__(self, commands: Sequence[Any]) -> None:
        self.commands = commands
        self.replies: list[Any] = []
        self.error: BaseException | None = None
        self.wake: threading.Lock | None = None


class Group:
    """The small commits of one process to one server."""

    def __init__(self, send: Callable[[list[Any]], list[Any]], lost: type[Exception]) -> None:
        """`send` gives the answers to commands, errors among them; `lost` says that one is."""
        self._send, self._lost = send, lost
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Member] = []
        self._leads: Member | None = None
        self._process = os.getpid()

    def answers(self, commands: Sequence[Any]) -> list[Any]:
        """The answers to commands; raises what the connection that they shared raised."""
        if self._process != os.getpid():
            with _after_a_fork:
                if self._process != os.getpid():
                    self._begin()  # Who led is not here.
        member = Member(commands)
        with self._lock:
            if self._leads is None:
                self._leads = member
            else:
                member.wake = threading.Lock()
                member.wake.acquire()
                self._waiting.append(member)
        try:
            if member.wake is not None:
                member.wake.acquire()
            if self._leads is member:
                self._lead(member)
        finally:
            self._leave(member)
        if member.error is not None:
            raise member.error
        return member.replies

    def _lead(self, member: Member) -> None:
        with self._lock:
            taken = [member, *self._waiting[: _MOST_MEMBERS - 1]]
            del self._waiting[: _MOST_MEMBERS - 1]
        error: BaseException = self._lost("the thread that sent it was interrupted")
        replies: list[Any] = []
        try:
            replies = self._send([one for member in taken for one in member.commands])
        except Exception as raised:  # noqa: BLE001 - each of them raises it
            error = raised
        finally:
            for one in taken:
                end = len(one.commands)
                one.error = None if replies else error
                one.replies, replies = replies[:end], replies[end:]
                if one.wake is not None and one is not member:
                    one.wake.release()

    def _leave(self, member: Member) -> None:
        """Let the next one lead, if this one did; an interrupted one is not waited for."""
        with self._lock:
            if member in self._waiting:
                self._waiting.remove(member)
            if self._leads is member:
                self._leads = self._waiting.pop(0) if self._waiting else None
                if self._leads is not None and self._leads.wake is not None:
                    self._leads.wake.release()
