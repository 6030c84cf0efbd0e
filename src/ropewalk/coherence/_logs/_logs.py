"""What happened, for people and programs that look on: transitions, deliveries, metrics.

The core tells; a queue takes it at once; a thread writes it. Nobody who looks on can
delay or break what the agents do.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import uuid4

from ropewalk.coherence._forking import tell_after_fork
from ropewalk.coherence._logs._records import (
    AUDIT_SHAPE,
    METRIC_SHAPE,
    STATE_SHAPE,
    About,
    ContentHash,
    More,
    Shape,
)
from ropewalk.coherence._logs._sinks import Sink, outlet_of
from ropewalk.coherence._logs._streams import InCaller, Order, Stream
from ropewalk.coherence._logs._telemetry import TelemetryExporter, build_telemetry
from ropewalk.errors import InvalidInput, NotAllowed

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
        tell_after_fork(self)
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
        """Whether anybody looks on at all."""
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
        from_state: object,
        to_state: object,
        trigger: str,
        version: int,
        content_hash: ContentHash = None,
        *,
        read_version: int | None = None,
        token: int | None = None,
        home: str | None = None,
        tick: int | None = None,
    ) -> None:
        """An agent's state at an artifact changed.

        After a commit `read_version` is the version that the new content was made from:
        0 if it replaced whatever there was. `token` is that of the grant, if there is one.
        `home` is the client that the agent is in, if that is another one.
        """
        if self._states is not None:
            content = (version, content_hash, read_version)
            self._states.append(
                (artifact, agent, from_state, to_state, trigger, *content, token, home, tick)
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
        tick: int | None = None,
    ) -> None:
        """An agent was given a content, or wrote one.

        `source` is "cache_hit", "fetch", "broadcast", "search" or "write"; `outcome` is
        "content", "empty" (a delete, or nothing was found) or "error". `began` is when the
        operation began (`now()`), without which a slow read looks stale. Of a write,
        `read_version` is the version that the content was made from, or merged with.
        """
        if self._deliveries is not None:
            more = More(began, merged, degraded, token, tick, replaced)
            self._deliveries.append(
                (agent, artifact, version, content_hash, source, outcome, read_version, more)
            )

    def metric(  # noqa: PLR0913 - one for each field
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
        tick: int | None = None,
    ) -> None:
        """An operation was done."""
        tokens = (tokens_consumed, tokens_saved_estimate)
        given = (operation, namespace, key, agent, cache_hit, *tokens, seconds, tick)
        for one in self._metrics:
            one.append(given)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything told so far was written or called back; whether it was."""
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


def now() -> int:
    """The time that records have: microseconds since 1970."""
    return time.time_ns() // 1000


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
