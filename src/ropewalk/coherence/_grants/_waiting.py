"""Waiting for a grant that another agent has: in a thread, or on an event loop."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ropewalk.coherence._grants._grant import Grant
from ropewalk.coherence._grants._holding import Holding
from ropewalk.errors import ArtifactHeld, LeaseHeld, VersionConflict
from ropewalk.store._checks import expect_timeout

if TYPE_CHECKING:
    from ropewalk.store.asynchronous import Threads

R = TypeVar("R")

_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.1
_NEVER: Final = float("inf")


class Waiting(Holding):
    """The grants of one client, and the agents that wait for one."""

    def acquire(self, agent: str, artifact: str, timeout: float | None = None) -> Grant:
        """Get a grant; waits at most `timeout` seconds for it, without one as long as it takes.

        Raises `ArtifactHeld` if somebody else has it all the while.
        """
        expect_timeout(timeout)
        patience = Patience(timeout, self.clock)
        while True:
            try:
                return self.try_acquire(agent, artifact)
            except ArtifactHeld:
                self._expect_others(agent, artifact, for_ever=timeout is None)
                pause = patience.pause()
                if pause is None:
                    raise
            with self._freeing:
                self._freed.wait(pause)

    async def aacquire(
        self,
        agent: str,
        artifact: str,
        timeout: float | None = None,  # noqa: ASYNC109 - as its twin
    ) -> Grant:
        """The asynchronous twin of `acquire`; no thread waits for it."""
        import asyncio

        expect_timeout(timeout)
        patience = Patience(timeout, self.clock)
        while True:
            asked = _Asked(self, agent, artifact)
            try:
                return await self.threads.run(asked)
            except asyncio.CancelledError:
                asked.abandon()
                raise
            except ArtifactHeld:
                pause = patience.pause()
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    def _expect_others(self, agent: str, artifact: str, *, for_ever: bool) -> None:
        """A thread that waits for what it holds itself, in a `with` block or for ever, hangs."""
        mine, here = self.held.get((agent, artifact)), threading.get_ident()
        if mine is None or mine.over is not None:
            return
        if mine.thread == here or (for_ever and mine.maker == here):
            raise ArtifactHeld(artifact, agent, here=True)

    def abandon(self, grant: Grant) -> None:
        """Give back what nobody waits for any more, without waiting for that."""
        threading.Thread(target=grant.release, name="ropewalk-release", daemon=True).start()


class _Asked:
    """A request of a task that may be cancelled; what it gets then is given back."""

    def __init__(self, waiting: Waiting, agent: str, artifact: str) -> None:
        self._waiting, self._agent, self._artifact = waiting, agent, artifact
        self._lock = threading.Lock()
        self._got: Grant | None = None
        self._abandoned = False

    def __call__(self) -> Grant:
        grant = self._waiting.try_acquire(self._agent, self._artifact)
        grant.maker = None  # It is a task's, whatever thread has asked for it.
        with self._lock:
            self._got, abandoned = grant, self._abandoned
        if abandoned:
            grant.release()
        return grant

    def abandon(self) -> None:
        """Nobody wants it any more. Waits for nothing."""
        with self._lock:
            self._abandoned, got = True, self._got
        if got is not None:
            self._waiting.abandon(got)


async def edited(
    threads: Threads,
    edit: Callable[[Callable[[Any], Any]], R],
    change: Callable[[Any], Any],
    timeout: float | None,  # noqa: ASYNC109 - as of the edit
) -> R:
    """Do an edit that waits for nobody, again and again, until nobody else is in its way.

    No thread waits meanwhile: many edits of what one agent holds would else take all threads,
    and the holder could not write.
    """
    import asyncio

    expect_timeout(timeout)
    patience, raised = Patience(timeout, time.monotonic), []

    def call(value: Any) -> Any:
        try:
            return change(value)
        except BaseException as error:
            raised.append(error)
            raise

    while True:
        try:
            return await threads.run(partial(edit, call))
        except (LeaseHeld, VersionConflict) as error:
            own = error in raised or error.__cause__ in raised
            pause = None if own else patience.pause()
            if pause is None:
                raise
        await asyncio.sleep(pause)


class Patience:
    """How long to wait between tries, and for how long to try."""

    def __init__(self, timeout: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = _NEVER if timeout is None else clock() + timeout
        self._next = _FIRST_PAUSE

    def pause(self) -> float | None:
        """Seconds to wait before the next try; None if there is to be none."""
        left = self._end - self._clock()
        if left <= 0:
            return None
        # Uneven, so that those who wait do not come all at once.
        pause = min(self._next * random.uniform(0.5, 1.0), left)  # noqa: S311 - no secret
        self._next = min(2 * self._next, _LONGEST_PAUSE)
        return pause
