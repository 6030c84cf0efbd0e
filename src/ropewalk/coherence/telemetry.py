"""Metrics for the tools that people watch their systems with."""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol, runtime_checkable

from ropewalk.coherence.records import StoreMetricEvent
from ropewalk.errors import InvalidInput
from ropewalk.store.forking import freed_after_fork

_DEGRADED: Final = "degraded"
_READ: Final = "get"
_REPLACED: Final = "replaced"
"""Told after the put that it is about, so it is no operation of its own."""


@runtime_checkable
class TelemetryExporter(Protocol):
    """What gets every metric: for tools that Ropewalk does not know.

    It is called by a thread of its own, so it may wait. One with `in_caller = True` is
    called by the agent's thread, where the context of the run is, and must be quick.
    What it raises breaks nothing.
    """

    def on_event(self, event: StoreMetricEvent) -> None:
        """Take one metric."""


class OpenTelemetryExporter:
    """Counters and a gauge below `ropewalk.coherence`, for OpenTelemetry.

    Their labels are the operation and whether it was a hit, so there are few series. With
    `agent_names=True` there is one for each agent as well: only for names that are few.
    Without `meter_provider` the global one is used.
    """

    def __init__(self, meter_provider: Any = None, *, agent_names: bool = False) -> None:
        try:
            from opentelemetry import metrics
        except ModuleNotFoundError as error:
            raise _missing("opentelemetry", "opentelemetry-api", "otel") from error
        meter = metrics.get_meter("ropewalk.coherence", meter_provider=meter_provider)
        self._agent_names = agent_names
        self._operations = meter.create_counter(
            "ropewalk.coherence.operations", "{operation}", "Reads, writes and what else was done."
        )
        self._hits = meter.create_counter(
            "ropewalk.coherence.cache_hits", "{read}", "Reads whose content was at hand."
        )
        self._misses = meter.create_counter(
            "ropewalk.coherence.cache_misses", "{read}", "Reads whose content was fetched."
        )
        self._consumed = meter.create_counter(
            "ropewalk.coherence.tokens_consumed", "{token}", "Tokens that were handed over."
        )
        self._saved = meter.create_counter(
            "ropewalk.coherence.tokens_saved_estimate", "{token}", "Tokens that were not."
        )
        self._degradations = meter.create_counter(
            "ropewalk.coherence.degradations", "{operation}", "Operations without the engine."
        )
        self._replaced = meter.create_counter(
            "ropewalk.coherence.replaced", "{write}", "Writes over what was not read."
        )
        self._degraded = meter.create_gauge(
            "ropewalk.coherence.degraded", "1", "Whether the last operation was degraded."
        )

    def on_event(self, event: StoreMetricEvent) -> None:
        """Count it."""
        labels: dict[str, Any] = {"operation": event.operation}
        if self._agent_names:
            labels["agent_name"] = event.agent_name
        if event.operation == _READ:
            (self._hits if event.cache_hit else self._misses).add(1, labels)
            labels = {**labels, "cache_hit": event.cache_hit}
        if event.operation != _REPLACED:
            self._operations.add(1, labels)
        if event.tokens_consumed:
            self._consumed.add(event.tokens_consumed, labels)
        if event.tokens_saved_estimate:
            self._saved.add(event.tokens_saved_estimate, labels)
        is_degraded = event.operation == _DEGRADED
        if is_degraded:
            self._degradations.add(1, labels)
        if event.operation == _REPLACED:
            self._replaced.add(1, labels)
        self._degraded.set(int(is_degraded))


class LangSmithExporter:
    """What the current run of LangSmith did with shared artifacts, as metadata of the run.

    Its names begin with `ropewalk.`: how many operations, reads and hits there were, the rate
    of hits, and the last operation with its agent. Without a current run nothing is done.
    """

    in_caller: Final = True

    def __init__(self) -> None:
        try:
            from langsmith.run_helpers import get_current_run_tree
        except ModuleNotFoundError as error:
            raise _missing("langsmith", "langsmith", "langsmith") from error
        self._current_run = get_current_run_tree
        self._lock = freed_after_fork(threading.Lock())

    def on_event(self, event: StoreMetricEvent) -> None:
        """Add it to what the run's metadata say."""
        run = self._current_run()
        if run is None:
            return
        # In the metadata themselves, so that nothing is left behind when the run is over.
        with self._lock:
            run.add_metadata(_summed(run.extra.get("metadata", {}), event))


def build_telemetry(telemetry: object) -> TelemetryExporter | None:
    """The exporter of a name, "opentelemetry" or "langsmith", or one that was handed over."""
    if telemetry is None:
        return None
    if isinstance(telemetry, str):
        if telemetry == "opentelemetry":
            return OpenTelemetryExporter()
        if telemetry == "langsmith":
            return LangSmithExporter()
        raise InvalidInput(
            f"there is no telemetry {telemetry!r:.80}; there are 'opentelemetry' and 'langsmith', "
            "and any object with a method on_event"
        )
    if isinstance(telemetry, TelemetryExporter) and not isinstance(telemetry, type):
        return telemetry
    raise InvalidInput(f"telemetry has a method on_event; {telemetry!r:.80} has none")


def _summed(before: dict[str, Any], event: StoreMetricEvent) -> dict[str, Any]:
    reads, hits = before.get("ropewalk.reads", 0), before.get("ropewalk.cache_hits", 0)
    if event.operation == _READ:
        reads, hits = reads + 1, hits + event.cache_hit
    consumed = before.get("ropewalk.tokens_consumed", 0) + event.tokens_consumed
    saved = before.get("ropewalk.tokens_saved_estimate", 0) + event.tokens_saved_estimate
    degraded = before.get("ropewalk.degradations", 0) + (event.operation == _DEGRADED)
    replaced = event.operation == _REPLACED
    return {
        "ropewalk.operations": before.get("ropewalk.operations", 0) + (not replaced),
        "ropewalk.reads": reads,
        "ropewalk.cache_hits": hits,
        "ropewalk.cache_hit_rate": hits / reads if reads else None,
        "ropewalk.degradations": degraded,
        "ropewalk.replaced": before.get("ropewalk.replaced", 0) + replaced,
        "ropewalk.tokens_consumed": consumed,
        "ropewalk.tokens_saved_estimate": saved,
        "ropewalk.operation": event.operation,
        "ropewalk.agent_name": event.agent_name,
        "ropewalk.cache_hit": event.cache_hit,
        "ropewalk.tick": event.tick,
    }


def _missing(telemetry: str, package: str, extra: str) -> InvalidInput:
    return InvalidInput(
        f"telemetry={telemetry!r} needs the package {package!r}: pip install 'ropewalk[{extra}]'"
    )
