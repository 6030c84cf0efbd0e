"""The asynchronous face: every synchronous method has a twin that runs it on a thread.

A cancelled task stops waiting, but what was begun is finished: a write is never left
half done, and `close` waits for it. Any event loop of asyncio may call, from any
thread. asyncio is imported when a twin is first awaited, not before.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from ropewalk.errors import StoreClosed

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

P = ParamSpec("P")
R = TypeVar("R")

_SLICE = 256  # How many items of an iterator one trip to a thread brings.


class Threads:
    """A bounded pool of threads, started when first used."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()
        self._closed = False

    async def run(self, call: Callable[[], R]) -> R:
        """Run a call on a thread of the pool and wait for it."""
        context = copy_context()
        return await _wait(partial(self._submit, partial(context.run, call)))

    async def run_apart(self, call: Callable[[], R]) -> R:
        """Run a call on a thread of its own, outside the pool."""
        return await _wait(partial(_start_thread, call))

    def close(self) -> None:
        """Finish what was begun, then take no more."""
        self._leave_parent()
        with self._lock:
            self._closed, pool = True, self._pool
        if pool is not None:
            pool.shutdown(wait=True)

    def _submit(self, call: Callable[[], R]) -> Future[R]:
        self._leave_parent()
        with self._lock:
            if self._closed:
                raise StoreClosed("the store was closed")
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(self._most, "ropewalk")
            return self._pool.submit(call)

    def _leave_parent(self) -> None:
        """In a forked process, begin anew: a pool from before has no threads here."""
        if self._process != os.getpid():
            # The lock, too: another thread may have held it when the process was forked.
            self._process, self._lock, self._pool = os.getpid(), threading.Lock(), None


class HasThreads(Protocol):
    """What an object needs to have twins."""

    @property
    def _threads(self) -> Threads: ...


S = TypeVar("S", bound=HasThreads)


class Closes(ABC):
    """What is closed when its block ends, in threads and on event loops alike."""

    @property
    @abstractmethod
    def _threads(self) -> Threads: ...

    @abstractmethod
    def close(self) -> None:
        """Let go of what was opened."""

    async def aclose(self) -> None:
        """The asynchronous twin of `close`."""
        # Not on a thread of the pool: closing waits for those.
        await self._threads.run_apart(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


def twin(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The asynchronous twin of a method."""
    name = method.__name__

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._threads.run(partial(getattr(self, name), *args, **kwargs))

    return _named(run, method)


def twin_iterator(
    method: Callable[Concatenate[S, P], Iterator[R]],
) -> Callable[Concatenate[S, P], AsyncIterator[R]]:
    """The asynchronous twin of a method that yields."""
    name = method.__name__

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        iterator = getattr(self, name)(*args, **kwargs)
        while items := await self._threads.run(lambda: list(islice(iterator, _SLICE))):
            for item in items:
                yield item

    return _named(run, method)


def finishing(
    method: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Coroutine[Any, Any, R]]:
    """A coroutine that goes on to its end although the task that awaits it is cancelled.

    For methods that note what they stored, and hold a lock of asyncio until then.
    """

    @wraps(method)
    async def run(*args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio

        return await asyncio.shield(asyncio.ensure_future(method(*args, **kwargs)))

    return run


def _named(run: Callable[P, R], method: Callable[..., Any]) -> Callable[P, R]:
    name = method.__name__
    run.__name__ = f"a{name}"
    run.__qualname__ = method.__qualname__.removesuffix(name) + run.__name__
    run.__doc__ = f"The asynchronous twin of `{name}`."
    run.__dict__.pop("__isabstractmethod__", None)  # It calls what a subclass supplies.
    return run


class Bell:
    """Rung from any thread, heard by the task that made it."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._process = os.getpid()

    def ring(self) -> None:
        """Wake the task, or let its next wait return at once."""
        if self._process != os.getpid():
            return  # A child of a fork would wake the parent's loop.
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            self._loop.call_soon_threadsafe(self._rung.set)

    def still(self) -> None:
        """Forget earlier rings."""
        self._rung.clear()

    async def wait(self, seconds: float | None) -> None:
        """Return when rung, or after so many seconds."""
        import asyncio

        # Not `wait_for`: before Python 3.12 it forgets a cancellation that comes with the ring.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()


async def _wait(start: Callable[[], Future[R]]) -> R:
    import asyncio

    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[R] = loop.create_future()

    def deliver(done: Future[R]) -> None:
        if waiter.cancelled():
            return
        error = done.exception()
        if isinstance(error, StopIteration):  # No future takes it: the task would wait for ever.
            error = _ended(error)
        if error is None:
            waiter.set_result(done.result())
        else:
            waiter.set_exception(error)

    def finished(done: Future[R]) -> None:
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(deliver, done)

    start().add_done_callback(finished)
    return await waiter


def _ended(error: StopIteration) -> RuntimeError:
    """What a coroutine raises in place of this error, as Python's own do."""
    told = RuntimeError("a function that was called raised StopIteration")
    told.__cause__ = error
    return told


def _start_thread(call: Callable[[], R]) -> Future[R]:
    from concurrent.futures import Future

    future: Future[R] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)

    threading.Thread(target=run, name="ropewalk-apart").start()
    return future
