"""One stream of records: a bounded queue, and a thread that hands them to a sink.

`append` numbers a record and returns; it never waits for the sink and never raises.
When the queue is full, records are dropped: their numbers are used up, and a record
`dropped` stands in their place.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ropewalk.coherence._logs._records import BEGIN, END, About, Mark, Shape, control_of
from ropewalk.coherence._logs._sinks import Outlet, Unwritten

_log = logging.getLogger("ropewalk.coherence")

# The worker lets a few records gather: one write and one change of threads for many.
_GATHER_SECONDS = 0.002
_EXIT_SECONDS = 5.0

_Taken: TypeAlias = tuple[int, int, tuple[int, int] | None, Sequence[Any]]
"""The first and last number, when it was, and what a record is made of.

Of dropped ones there are only the numbers.
"""
_Made: TypeAlias = tuple[int, int, Any]


class Order:
    """The numbers and times that all streams of one instance share."""

    def __init__(self, tick_seconds: float) -> None:
        self._next = itertools.count(1)
        self._began, self._tick = _now(), tick_seconds * 1_000_000

    def now(self) -> tuple[int, int]:
        """The place and the time of a record that is taken now."""
        return next(self._next), time.time_ns() // 1000

    def mark(self, number: int, moment: tuple[int, int]) -> Mark:
        """What a record says of its number and moment."""
        order, time = moment
        return Mark(number, order, time, int((time - self._began) / self._tick))


class Stream:
    """The records of one kind, on their way to one sink."""

    def __init__(
        self, shape: Shape, outlet: Outlet, about: About, order: Order, capacity: int
    ) -> None:
        self._shape, self._outlet, self._capacity = shape, outlet, capacity
        self.dropped = 0
        self.failures = 0
        self.begin_anew(about, order)
        _streams.add(self)

    def begin_anew(self, about: About, order: Order) -> None:
        """Number from the beginning."""
        self._about, self._order = about, order
        # A collection of garbage may close this within any of its own calls.
        self._lock = threading.RLock()
        self._ready = threading.Condition(self._lock)
        self._handled = threading.Condition(self._lock)
        self._queue: deque[_Taken] = deque()
        self._missed: tuple[int, int] | None = None
        self._lost: tuple[int, int] | None = None
        self._number = self._done = 0
        self._thread: threading.Thread | None = None
        self._idle = self._hurry = self._closed = self._ended = False

    def after_fork(self, about: About, order: Order) -> None:
        """In a child: number from the beginning, for another instance."""
        closed = self._closed
        self.begin_anew(about, order)
        # What was closed stays so: its file may have become another's.
        self._closed = self._ended = closed

    def append(self, given: Sequence[Any]) -> None:
        """Take a record; what it is made of, its shape knows."""
        with self._lock:
            if self._closed:
                return
            self._number += 1
            first_miss = not self._taken(self._number, given) and self.dropped == 1
        if first_miss:
            # Outside the lock: whoever handles this warning may use the core.
            _log.warning(
                "%s: records are dropped, because its sink is too slow or fails. Their numbers "
                "are left out; `Logs.dropped` counts them.",
                self._shape.stream,
            )

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything that was appended was handed over; whether it was."""
        with self._lock:
            if self._thread is None or self._thread is threading.current_thread():
                return self._done >= self._number
            wanted = self._number
            self._hurry = True
            self._ready.notify()
            return self._handled.wait_for(lambda: self._done >= wanted or self._ended, timeout)

    def close(self) -> None:
        """Take no more; the worker hands over what there is, and ends."""
        with self._lock:
            self._closed = self._hurry = True
            self._ready.notify()
            if self._thread is None and not self._ended:
                self._ended = True
                self._outlet.close()

    def join(self, timeout: float | None) -> bool:
        """Wait until the worker has ended; whether it has."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return self._ended
        thread.join(timeout)
        return not thread.is_alive()

    def leave(self, timeout: float | None, after: str) -> None:
        """The same for who goes on; `after` says what becomes of records that still wait."""
        if self.join(timeout) or self._thread is threading.current_thread():
            return
        with self._lock:
            left = self._number - self._done
        if left:
            _log.warning(
                "%s: its sink is slow, and up to %d records are not handed over yet. %s",
                self._shape.stream,
                left,
                after,
            )

    # What follows needs the lock.

    def _taken(self, number: int, given: Sequence[Any]) -> bool:
        if len(self._queue) >= self._capacity or not self._running():
            # What is missed is missed in a row: the next record that is taken tells it first.
            self._missed = (number if self._missed is None else self._missed[0], number)
            self.dropped += 1
            return False
        self._tell_missed()
        self._queue.append((number, number, self._order.now(), given))
        if self._idle:
            self._idle = False
            self._ready.notify()
        return True

    def _running(self) -> bool:
        if self._thread is None:
            name = f"ropewalk-{self._shape.stream}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # The interpreter ends, or there are too many threads.
                return False
            self._thread = thread
            _end_with_the_process()
        return True

    def _tell_missed(self) -> None:
        if self._missed is not None:
            self._queue.append((*self._missed, None, ()))
            self._missed = None

    # The worker.

    def _work(self) -> None:
        self._write([(0, 0, self._shape.begin(self._about, _now()))])
        open_still = True
        while open_still:
            batch, open_still = self._take()
            self._write([self._made(one) for one in batch])
            with self._lock:
                self._done = max([self._done, *(one[1] for one in batch)])
                self._handled.notify_all()
        self._write([self._end()])
        self._outlet.close()
        with self._lock:
            self._ended = True
            self._handled.notify_all()

    def _take(self) -> tuple[list[_Taken], bool]:
        """What there is now, and whether there may be more."""
        with self._lock:
            self._idle = True
            self._ready.wait_for(lambda: self._queue or self._hurry)
            self._idle = False
            if not self._hurry:
                self._ready.wait_for(lambda: self._hurry, _GATHER_SECONDS)
            self._tell_missed()
            self._hurry = self._closed
            batch = list(self._queue)
            self._queue.clear()
            return batch, not self._closed

    def _made(self, taken: _Taken) -> _Made:
        first, last, moment, given = taken
        if moment is not None:
            try:
                mark = self._order.mark(first, moment)
                return first, last, self._shape.make(mark, self._about.instance_id, given)
            except Exception as error:  # noqa: BLE001 - whoever computes a hash may fail
                self._failed(error)
                self.dropped += 1
        return first, last, self._shape.dropped(first, last, self._about.instance_id, _now())

    def _end(self) -> _Made:
        number = self._number + 1
        ended = self._shape.end(number, self._about.instance_id, _now(), self.dropped)
        return number, number, ended

    def _write(self, made: list[_Made]) -> None:
        if self._lost is not None:
            first, last = self._lost
            told = self._shape.dropped(first, last, self._about.instance_id, _now())
            made = [(first, last, told), *made]
        if not self._outlet.keeps_controls:
            made = [one for one in made if control_of(one[2]) is None]
        try:
            self._outlet.write([record for _, _, record in made], self._failed)
            self._lost = None
        except Unwritten as error:
            self._failed(error)
            rest = made[error.taken :]
            if error.taken:
                self._lost = None
            self._lose(rest)

    def _lose(self, rest: list[_Made]) -> None:
        """Remember what could not be written, to tell it as soon as that is possible."""
        for first, last, record in rest:
            if control_of(record) in (BEGIN, END):
                continue
            if control_of(record) is None:
                self.dropped += 1
            self._lost = (first if self._lost is None else min(first, self._lost[0]), last)

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        if self.failures == 1:
            _warn(self._shape, error)


class InCaller:
    """The records of one kind, handed over by the thread that tells them, without a queue."""

    def __init__(
        self, shape: Shape, call: Callable[[Any], object], about: About, order: Order
    ) -> None:
        self._shape, self._call, self._about, self._order = shape, call, about, order
        self._numbers = itertools.count(1)
        self.failures = 0

    def append(self, given: Sequence[Any]) -> None:
        """Hand over a record; whatever that raises stays here."""
        try:
            mark = self._order.mark(next(self._numbers), self._order.now())
            self._call(self._shape.make(mark, self._about.instance_id, given))
        except Exception as error:  # noqa: BLE001 - nobody who looks on breaks what agents do
            self.failures += 1
            if self.failures == 1:
                _warn(self._shape, error)


def _warn(shape: Shape, error: BaseException) -> None:
    _log.warning(
        "%s: what takes its records failed, which breaks nothing else. This is said once.",
        shape.stream,
        exc_info=error,
    )


def _now() -> int:
    return time.time_ns() // 1000


_streams: weakref.WeakSet[Stream] = weakref.WeakSet()


def _end_all() -> None:
    """Hand over what is queued before the interpreter ends, but wait for nobody for long."""
    until = time.monotonic() + _EXIT_SECONDS
    streams = list(_streams)
    for one in streams:
        one.close()
    for one in streams:
        one.leave(max(0.0, until - time.monotonic()), "The program ends: they are lost.")


atexit.register(_end_all)
_told: set[int] = set()


def _end_with_the_process() -> None:
    """A process that multiprocessing forked ends without `atexit`: its own way out is used, too."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and os.getpid() not in _told:
        _told.add(os.getpid())
        util.Finalize(None, _end_all, exitpriority=0)
