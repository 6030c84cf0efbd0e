"""What callers want written to a thread, and how they wait for each other.

A request waits until it is stored. Whoever finds nobody writing takes all that wait and
stores it with one commit. Writes of a task linger for a moment: the checkpoint that they
lead to mostly follows at once, and then both land together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph._entries import Address

_LINGER: Final = 0.005
"""For how many seconds writes wait for their checkpoint."""


class Put(NamedTuple):
    """A checkpoint that is to be stored."""

    address: Address
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    parent: str | None
    forks_from: str | None
    """The checkpoint that a caller asked for by its id: from there a fork is wanted."""


class Writes(NamedTuple):
    """Writes of a task that are to be stored."""

    address: Address
    task_id: str
    task_path: str
    writes: Sequence[tuple[int, str, Any]]
    """Their numbers, channels and values."""

    @property
    def are_last(self) -> bool:
        """Whether no checkpoint follows at once: an interrupt or an error."""
        return any(number < 0 for number, _, _ in self.writes)


class Request:
    """A put or writes, until they are stored or refused."""

    def __init__(self, wanted: Put | Writes) -> None:
        self.wanted = wanted
        self.is_done = False
        self.error: BaseException | None = None

    @property
    def is_put(self) -> bool:
        """Whether it is a checkpoint."""
        return isinstance(self.wanted, Put)

    def finish(self, error: BaseException | None = None) -> None:
        """Say what became of it; the first answer counts."""
        if not self.is_done:
            self.is_done, self.error = True, error


class Requests:
    """The requests of one thread of a graph."""

    def __init__(self, serve: Callable[[list[Request]], None]) -> None:
        self._serve = serve
        self._changed = threading.Condition()
        self._waiting: list[Request] = []
        self._serving: list[Request] | None = None
        self._lingers = True
        """Whether checkpoints came soon after their writes."""

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._waiting and self._serving is None

    def send(self, wanted: Put | Writes) -> None:
        """Store something, with what others want stored at the same time."""
        self._send([Request(wanted)])

    def send_all(self, wanted: Sequence[Put | Writes]) -> None:
        """Store several things together; raises for the first that is refused."""
        if wanted:
            self._send([Request(one) for one in wanted])

    def _send(self, requests: list[Request]) -> None:
        last = requests[-1]
        with self._changed:
            self._waiting += requests
            self._note(last)
            self._linger(last)
            while not last.is_done and self._serving is not None:
                self._changed.wait()
            if not last.is_done:
                self._serving, self._waiting = self._waiting, []
        if not last.is_done:
            self._lead()
        error = next((one.error for one in requests if one.error is not None), None)
        if error is not None:
            raise error

    def _lead(self) -> None:
        batch = self._serving
        assert batch is not None
        try:
            # Writes first: a checkpoint is never there without those that led to it.
            self._serve(sorted(batch, key=lambda one: one.is_put))
        except BaseException as error:
            for one in batch:
                one.finish(error)
            raise
        finally:
            with self._changed:
                for one in batch:
                    one.finish()
                self._serving = None
                self._changed.notify_all()

    def _note(self, request: Request) -> None:
        """Learn whether it pays to linger."""
        if not request.is_put:
            return
        if self._serving is not None and not any(one.is_put for one in self._serving):
            self._lingers = True
        self._changed.notify_all()

    def _linger(self, request: Request) -> None:
        wanted = request.wanted
        if not self._lingers or isinstance(wanted, Put) or wanted.are_last:
            return
        deadline = time.monotonic() + _LINGER
        while not request.is_done and not any(one.is_put for one in self._waiting):
            if self._serving is not None and request in self._serving:
                return
            left = deadline - time.monotonic()
            if left <= 0:
                self._lingers = False
                return
            self._changed.wait(left)
