"""The logs of a client: transitions, deliveries and metrics, written off its path.

The core appends to a bounded queue, and a thread writes it. No sink can delay or break what
the agents do.
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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from ropewalk.coherence.protocol import Artifact, Content, Transition
from ropewalk.coherence.records import (
    AUDIT_SHAPE,
    BEGIN,
    END,
    METRIC_SHAPE,
    STATE_SHAPE,
    About,
    ContentHash,
    Mark,
    Outlet,
    Record,
    Shape,
    Sink,
    SinkFailed,
    control_of,
    outlet_of,
)
from ropewalk.coherence.telemetry import TelemetryExporter, build_telemetry
from ropewalk.coherence.timers import timestamp
from ropewalk.errors import InvalidInput, NotAllowed
from ropewalk.store.forking import reset_after_fork

_log = logging.getLogger("ropewalk.coherence")

# The worker lets a few records gather: one write and one change of threads for many.
_GATHER_SECONDS = 0.002
_EXIT_SECONDS = 5.0

_Taken: TypeAlias = tuple[int, int, tuple[int, int] | None, Record]
"""The first and last number, when it was, and the fields of a record; of dropped ones none."""
_Made: TypeAlias = tuple[int, int, Any]


class Order:
    """The numbers and times that all streams of one instance share."""

    def __init__(self, tick_seconds: float) -> None:
        self._next = itertools.count(1)
        self._began, self._tick = timestamp(), tick_seconds * 1_000_000

    def now(self) -> tuple[int, int]:
        """The place and the time of a record that is taken now."""
        return next(self._next), time.time_ns() // 1000

    def mark(self, number: int, moment: tuple[int, int]) -> Mark:
        """What a record says of its number and moment."""
        order, time = moment
        return Mark(number, order, time, int((time - self._began) / self._tick))


class Stream:
    """The records of one kind, on their way to one sink: a queue, and a thread that empties it.

    `append` numbers a record and returns; it never waits for the sink and never raises. When
    the queue is full, records are dropped: their numbers are used up, and a record `dropped`
    stands in their place.
    """

    def __init__(
        self, shape: Shape, outlet: Outlet, about: About, order: Order, capacity: int
    ) -> None:
        self._shape, self._outlet, self._capacity = shape, outlet, capacity
        self.dropped = 0
        self.failures = 0
        self.reset(about, order)
        _streams.add(self)

    def reset(self, about: About, order: Order) -> None:
        """Number from the beginning."""
        self._about, self._order = about, order
        # A collection of garbage may close this within any of its own calls.
        self._lock = threading.RLock()
        self._queue: SimpleQueue[_Taken | threading.Event | None] = SimpleQueue()
        """Records, events to set when all before them are written, and None at the end."""
        self._hurry = threading.Event()
        self._missed: tuple[int, int] | None = None
        self._lost: tuple[int, int] | None = None
        self._number = self._done = 0
        self._thread: threading.Thread | None = None
        self._closed = self._ended = False

    def after_fork(self, about: About, order: Order) -> None:
        """In a child: number from the beginning, for another instance."""
        closed = self._closed
        self.reset(about, order)
        # What was closed stays so: its file may have become another's.
        self._closed = self._ended = closed

    def append(self, fields: Record) -> None:
        """Take the fields of a record."""
        with self._lock:
            if self._closed:
                return
            self._number += 1
            number = self._number
            if self._queue.qsize() < self._capacity and self._running():
                self._put_missed()
                self._queue.put((number, number, self._order.now(), fields))
                return
            # Drops come in a row: one `dropped` record before the next one that fits covers them.
            self._missed = (number if self._missed is None else self._missed[0], number)
            self.dropped += 1
            is_first = self.dropped == 1
        if is_first:
            # Outside the lock: a handler of this warning may use the core.
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
            written = threading.Event()
            closed = self._closed
            if not closed:
                self._put_missed()
                self._queue.put(written)
        self._hurry.set()
        return self.join(timeout) if closed else written.wait(timeout)

    def close(self) -> None:
        """Take no more; the worker hands over what there is, and ends."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._thread is None:
                self._ended = True
                self._outlet.close()
            else:
                self._put_missed()
                self._queue.put(None)
        self._hurry.set()

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
        left = self._number - self._done
        if left:
            _log.warning(
                "%s: its sink is slow, and up to %d records are not handed over yet. %s",
                self._shape.stream,
                left,
                after,
            )

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

    def _put_missed(self) -> None:
        if self._missed is not None:
            self._queue.put((*self._missed, None, {}))
            self._missed = None

    # The worker.

    def _work(self) -> None:
        self._write([(0, 0, self._shape.begin(self._about, timestamp()))])
        is_open = True
        while is_open:
            batch = [self._queue.get()]
            self._hurry.wait(_GATHER_SECONDS)
            self._hurry.clear()
            with suppress(Empty):
                while True:
                    batch.append(self._queue.get_nowait())
            with self._lock:
                self._put_missed()
            is_open = None not in batch
            taken = [one for one in batch if isinstance(one, tuple)]
            self._write([self._made(one) for one in taken])
            if taken:
                self._done = taken[-1][1]
            for one in batch:
                if isinstance(one, threading.Event):
                    one.set()
        number = self._number + 1
        ended = self._shape.end(number, self._about.instance_id, timestamp(), self.dropped)
        self._write([(number, number, ended)])
        self._outlet.close()
        self._ended = True

    def _made(self, taken: _Taken) -> _Made:
        first, last, moment, fields = taken
        if moment is not None:
            try:
                mark = self._order.mark(first, moment)
                return first, last, self._shape.make(mark, self._about.instance_id, fields)
            except Exception as error:  # noqa: BLE001 - a hash may fail to compute
                self._failed(error)
                self.dropped += 1
        return first, last, self._shape.dropped(first, last, self._about.instance_id, timestamp())

    def _write(self, made: list[_Made]) -> None:
        if self._lost is not None:
            first, last = self._lost
            dropped = self._shape.dropped(first, last, self._about.instance_id, timestamp())
            made = [(first, last, dropped), *made]
        if not self._outlet.keeps_controls:
            made = [one for one in made if control_of(one[2]) is None]
        try:
            self._outlet.write([record for _, _, record in made], self._failed)
            self._lost = None
        except SinkFailed as error:
            self._failed(error)
            rest = made[error.taken :]
            if error.taken:
                self._lost = None
            self._lose(rest)

    def _lose(self, rest: list[_Made]) -> None:
        """Remember what could not be written, for a `dropped` record as soon as one can be."""
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
    """The records of one kind, handed over by the thread that made them, without a queue."""

    def __init__(
        self, shape: Shape, call: Callable[[Any], object], about: About, order: Order
    ) -> None:
        self._shape, self._call, self._about, self._order = shape, call, about, order
        self._numbers = itertools.count(1)
        self.failures = 0

    def append(self, fields: Record) -> None:
        """Hand over a record; whatever that raises stays here."""
        try:
            mark = self._order.mark(next(self._numbers), self._order.now())
            self._call(self._shape.make(mark, self._about.instance_id, fields))
        except Exception as error:  # noqa: BLE001 - no callback breaks what agents do
            self.failures += 1
            if self.failures == 1:
                _warn(self._shape, error)


def _warn(shape: Shape, error: BaseException) -> None:
    _log.warning(
        "%s: what takes its records failed, which breaks nothing else. This is said once.",
        shape.stream,
        exc_info=error,
    )


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


CAPACITY = 50_000
_CLOSE_SECONDS = 10.0


class Logs:
    """The logs of one core: where they go, and what the core calls.

    `state_log`, `content_audit_log` and `on_metric` are each a path (lines of JSON are
    appended), an open text file, or a function that is called with every record: a dict,
    and for metrics a `StoreMetricEvent`. `telemetry` is "opentelemetry", "langsmith" or an
    object with a method `on_event(event)`.

    `space`, `strategy` and the bounds stand in the first record of each file, where
    `ropewalk replay` finds what was promised.
    """

    def __init__(  # noqa: PLR0913 - one for each thing to choose
        self,
        state_log: Sink | None = None,
        content_audit_log: Sink | None = None,
        on_metric: Sink | None = None,
        telemetry: object = None,
        instance_id: str | None = None,
        *,
        space: str = "",
        strategy: str = "",
        bound_seconds: float | None = None,
        bound_reads: int | None = None,
        tick_seconds: float = 1.0,
        capacity: int = CAPACITY,
    ) -> None:
        if capacity < 1:
            raise InvalidInput(f"capacity is {capacity}; a log must be able to hold one record.")
        self.instance_id = instance_id or uuid4().hex
        self._about = About(
            instance_id=self.instance_id,
            space=space,
            strategy=strategy,
            bound_seconds=bound_seconds,
            bound_reads=bound_reads,
            tick_seconds=tick_seconds,
            process=os.getpid(),
        )
        self._order = Order(tick_seconds)
        self._streams: list[Stream] = []
        try:
            self._states = self._stream(STATE_SHAPE, state_log, "state_log", capacity)
            self._deliveries = self._stream(
                AUDIT_SHAPE, content_audit_log, "content_audit_log", capacity
            )
            self._metrics = self._takers(on_metric, build_telemetry(telemetry), capacity)
        except BaseException:
            _close_all(self._streams)
            raise
        self.wants_transitions = self._states is not None
        self.wants_deliveries = self._deliveries is not None
        self.wants_metrics = bool(self._metrics)
        reset_after_fork(self)
        weakref.finalize(self, _close_all, self._streams).atexit = False

    def begin(self, state_log: Sink, content_audit_log: Sink, capacity: int = CAPACITY) -> None:
        """Write transitions and deliveries from now on; raises if they are written already."""
        if self._states is not None or self._deliveries is not None:
            raise InvalidInput("a state log or a content audit log is written already")
        self._about = replace(self._about, from_start=False)
        self._states = self._stream(STATE_SHAPE, state_log, "state_log", capacity)
        self._deliveries = self._stream(
            AUDIT_SHAPE, content_audit_log, "content_audit_log", capacity
        )
        self.wants_transitions = self.wants_deliveries = True

    @property
    def enabled(self) -> bool:
        """Whether there is any log or metric."""
        return self.wants_transitions or self.wants_deliveries or self.wants_metrics

    @property
    def dropped(self) -> int:
        """How many records were dropped, because a sink was too slow or failed."""
        return sum(one.dropped for one in self._streams)

    @property
    def failures(self) -> int:
        """How often a callback raised, or a file could not be written."""
        streams: set[Stream | InCaller] = {*self._streams, *self._metrics}
        return sum(one.failures for one in streams)

    def transition(  # noqa: PLR0913 - one for each field
        self,
        artifact: str,
        agent: str,
        from_state: str,
        to_state: str,
        trigger: str,
        version: int,
        content_hash: ContentHash = None,
        *,
        read_version: int | None = None,
        token: int | None = None,
        home: str | None = None,
    ) -> None:
        """An agent's state at an artifact changed.

        After a commit `read_version` is the version that the new content was made from:
        0 if it replaced whatever there was. `token` is that of the grant, if there is one.
        `home` is the client that the agent is in, if that is another one.
        """
        if self._states is not None:
            self._states.append(
                {
                    "artifact_id": artifact,
                    "agent_id": f"{agent}@{home or self.instance_id}",
                    "agent_name": agent,
                    "from_state": from_state,
                    "to_state": to_state,
                    "trigger": trigger,
                    "version": version,
                    "content_hash": content_hash,
                    "read_version": read_version,
                    "token": token,
                }
            )

    def delivered(  # noqa: PLR0913 - one for each field
        self,
        agent: str,
        artifact: str,
        version: int,
        content_hash: ContentHash,
        source: str,
        outcome: str,
        read_version: int | None = None,
        *,
        began: int | None = None,
        merged: bool = False,
        replaced: bool = False,
        degraded: bool = False,
        token: int | None = None,
    ) -> None:
        """An agent was given a content, or wrote one.

        `source` is "cache_hit", "fetch", "broadcast", "search" or "write"; `outcome` is
        "content", "empty" (a delete, or nothing was found) or "error". `began` is when the
        operation began (`now()`), without which a slow read looks stale. Of a write,
        `read_version` is the version that the content was made from, or merged with.
        """
        if self._deliveries is not None:
            self._deliveries.append(
                {
                    "agent_id": f"{agent}@{self.instance_id}",
                    "agent_name": agent,
                    "artifact_id": artifact,
                    "version": version,
                    "content_hash": content_hash,
                    "source": source,
                    "outcome": outcome,
                    "began": timestamp() if began is None else began,
                    "read_version": read_version,
                    "merged": merged,
                    "replaced": replaced,
                    "degraded": degraded,
                    "token": token,
                }
            )

    def metric(
        self,
        operation: str,
        namespace: Sequence[str],
        key: str,
        agent: str,
        cache_hit: bool,
        *,
        tokens_consumed: int = 0,
        tokens_saved_estimate: int = 0,
        seconds: float | None = None,
    ) -> None:
        """An operation was done."""
        fields = {
            "operation": operation,
            "namespace": tuple(namespace),
            "key": key,
            "agent_name": agent,
            "tokens_consumed": tokens_consumed,
            "cache_hit": cache_hit,
            "tokens_saved_estimate": tokens_saved_estimate,
            "seconds": seconds,
        }
        for one in self._metrics:
            one.append(fields)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything so far was written or called back; whether it was."""
        until = None if timeout is None else time.monotonic() + timeout
        flushed = [one.flush(_left(until)) for one in self._streams]
        return all(flushed)

    def close(self, timeout: float | None = _CLOSE_SECONDS) -> None:
        """Write what is queued, end the logs, and take no more records.

        A callback that does not end is not waited for longer than `timeout` seconds.
        """
        self.wants_transitions = self.wants_deliveries = self.wants_metrics = False
        _close_all(self._streams)
        until = None if timeout is None else time.monotonic() + timeout
        for one in self._streams:
            one.leave(_left(until), "They are as long as the program runs.")

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stream(self, shape: Shape, sink: Sink | None, name: str, capacity: int) -> Stream | None:
        if sink is None:
            return None
        stream = Stream(shape, outlet_of(sink, name), self._about, self._order, capacity)
        self._streams.append(stream)
        return stream

    def _takers(
        self, on_metric: Sink | None, exporter: TelemetryExporter | None, capacity: int
    ) -> list[Stream | InCaller]:
        takers: list[Stream | InCaller] = []
        called = self._stream(METRIC_SHAPE, on_metric, "on_metric", capacity)
        if called is not None:
            takers.append(called)
        if exporter is not None and getattr(exporter, "in_caller", False):
            takers.append(InCaller(METRIC_SHAPE, exporter.on_event, self._about, self._order))
        elif exporter is not None:
            exported = self._stream(METRIC_SHAPE, exporter.on_event, "telemetry", capacity)
            assert exported is not None
            takers.append(exported)
        return takers

    def after_fork(self) -> None:
        """Begin another instance, in the child of a fork."""
        # Two processes that number the same log would look like one that lost records.
        self.instance_id = f"{self.instance_id}-{os.getpid()}"
        self._about = replace(self._about, instance_id=self.instance_id, process=os.getpid())
        self._order = Order(self._about.tick_seconds)
        for one in self._streams:
            one.after_fork(self._about, self._order)


def record_to(folder: str | PathLike[str]) -> dict[str, Any]:
    """The parameters that record a run in a folder, which `ropewalk replay` reads.

    `CoherenceCore(store, **record_to("runs/today"))`. Several processes may record to one
    folder: each writes files of its own.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotAllowed(
            f"a run cannot be recorded in {os.fspath(folder)!r:.200}: {error.strerror}. Name a "
            "folder that may be made and written to."
        ) from error
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{uuid4().hex[:8]}"
    return {
        "state_log": place / f"{name}.state.jsonl",
        "content_audit_log": place / f"{name}.audit.jsonl",
    }


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


def _close_all(streams: list[Stream]) -> None:
    for one in streams:
        one.close()


Places = Callable[[str, str], tuple[Sequence[str], str]]
"""The namespace and key of an agent's artifact, for metrics."""

_COMMITS = ("commit", "commit_cas")


class WriteEvent(NamedTuple):
    """A write that became a version; its content is None for a deletion."""

    version: int
    content: Content | None
    read_version: int
    """What it was made from, or merged with; 0 if the agent knew of nothing."""
    merged: bool
    replaced: bool
    """Whether it took the place of what others wrote and its agent had not read."""
    token: int
    began: int


class Recorder:
    """The logs, as reads and writes use them. Does nothing if there are none."""

    def __init__(self, logs: Logs, places: Places | None = None) -> None:
        self.logs = logs
        self._places: Places = places or (lambda agent, artifact: ((agent,), artifact))
        self.is_recording = logs.enabled

    def record_to(self, folder: str | PathLike[str]) -> None:
        """Record from now on."""
        self.logs.begin(**record_to(folder))
        self.is_recording = True

    def transitions(
        self,
        transitions: Sequence[Transition],
        content: Content | None = None,
        read_version: int | None = None,
    ) -> None:
        """States changed; if by a write, to this content, which was made from that version."""
        if not transitions or not self.logs.wants_transitions:
            return
        for one in transitions:
            artifact, agent, before, after, trigger, version, token, home = one
            commits = trigger in _COMMITS
            self.logs.transition(
                artifact,
                agent,
                before.value,
                after.value,
                trigger,
                version,
                _hash_of(content) if commits else None,
                read_version=read_version if commits else None,
                token=token or None,
                home=home or None,
            )

    def read(self, agent: str, artifact: Artifact, began: int) -> None:
        """An agent was given an artifact that it began to ask for at a moment (`_logs.now`)."""
        if self.logs.wants_deliveries:
            self.logs.delivered(
                agent,
                artifact.name,
                artifact.version,
                _hash_of(artifact.content),
                artifact.source,
                "content",
                began=began,
                degraded=artifact.degraded,
            )
        if self.logs.wants_metrics and not artifact.degraded:  # That counts as `degraded`.
            operation = "search.hit" if artifact.source == "search" else "get"
            self.metric(operation, agent, artifact.name, artifact.source == "cache_hit", began)

    def miss(self, agent: str, artifact: str, version: int, began: int) -> None:
        """An agent found that there is no artifact: since a version, or there never was (0)."""
        if self.logs.wants_deliveries:
            self.logs.delivered(agent, artifact, version, None, "fetch", "empty", began=began)

    def write(self, agent: str, artifact: str, wrote: WriteEvent) -> None:
        """An agent's write became a version."""
        deleted = wrote.content is None
        if self.logs.wants_deliveries:
            self.logs.delivered(
                agent,
                artifact,
                wrote.version,
                _hash_of(wrote.content),
                "write",
                "empty" if deleted else "content",
                wrote.read_version,
                began=wrote.began,
                merged=wrote.merged,
                replaced=wrote.replaced,
                token=wrote.token or None,
            )
        if self.logs.wants_metrics:
            self.metric("delete" if deleted else "put", agent, artifact, False, wrote.began)
            if wrote.replaced:
                self.metric("replaced", agent, artifact, False)

    def write_of_unknown_outcome(self, agent: str, artifacts: Iterable[str], began: int) -> None:
        """It is not known whether an agent's write became a version."""
        if self.logs.wants_deliveries:
            for artifact in artifacts:
                self.logs.delivered(agent, artifact, 0, None, "write", "error", began=began)

    def metric(self, operation: str, agent: str, artifact: str, hit: bool, began: int = 0) -> None:
        """An operation was done; `began` at a moment, if that is known."""
        namespace, key = self._places(agent, artifact)
        seconds = max(timestamp() - began, 0) / 1_000_000 if began else None
        self.logs.metric(operation, namespace, key, agent, hit, seconds=seconds)


def _hash_of(content: Content | None) -> Callable[[], str] | None:
    # For the thread that writes the log to compute. The queue holds no value of a caller.
    return None if content is None else lambda: content.root().hex()
