"""Metrics for OpenTelemetry, with its own SDK, and for exporters of one's own."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from ropewalk.coherence import CoherenceCore
from ropewalk.coherence.logs import Logs
from ropewalk.coherence.records import StoreMetricEvent
from ropewalk.coherence.telemetry import OpenTelemetryExporter, build_telemetry
from ropewalk.errors import InvalidInput


class Meter:
    """What OpenTelemetry has got."""

    def __init__(self, **options: Any) -> None:
        self._reader = InMemoryMetricReader()
        provider = MeterProvider(metric_readers=[self._reader])
        self.exporter = OpenTelemetryExporter(provider, **options)

    @property
    def points(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: [
                (dict(one.attributes or {}), one.value)
                for one in metric.data.data_points
                if isinstance(one, NumberDataPoint)
            ]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def total(self, name: str) -> float:
        return sum(value for _, value in self.points.get(f"ropewalk.coherence.{name}", []))


def test_operations_hits_and_misses_are_counted() -> None:
    meter = Meter()
    with CoherenceCore(telemetry=meter.exporter) as core:
        core.write("a", "plan", {})
        for _ in range(3):
            core.read("b", "plan")

    assert meter.total("operations") == 4
    assert (meter.total("cache_hits"), meter.total("cache_misses")) == (2, 1)
    assert ({"operation": "put"}, 1) in meter.points["ropewalk.coherence.operations"]


def test_writes_over_what_was_not_read_are_counted_and_are_no_operations_more() -> None:
    meter = Meter()
    with CoherenceCore(telemetry=meter.exporter) as core:
        core.write("a", "plan", 1)
        core.write("b", "plan", 2)
        core.write("a", "plan", 3)

    assert (meter.total("operations"), meter.total("replaced")) == (3, 2)


def test_however_many_agents_there_are_the_labels_stay_few() -> None:
    meter = Meter()
    with CoherenceCore(telemetry=meter.exporter) as core:
        for number in range(50):
            core.write(f"agent-{number}", f"plan-{number}", {})
            core.read("reader", f"plan-{number}")

    labels = [one for points in meter.points.values() for one, _ in points]
    assert meter.total("operations") == 100
    assert {name for one in labels for name in one} == {"operation", "cache_hit"}
    assert len(meter.points["ropewalk.coherence.operations"]) == 2


def test_the_names_of_agents_are_labels_if_that_is_asked_for() -> None:
    meter = Meter(agent_names=True)
    with CoherenceCore(telemetry=meter.exporter) as core:
        core.write("a", "plan", {})

    points = meter.points["ropewalk.coherence.operations"]
    assert points == [({"operation": "put", "agent_name": "a"}, 1)]


def test_tokens_and_degraded_operations_are_counted_and_the_gauge_goes_back() -> None:
    meter = Meter()
    with Logs(telemetry=meter.exporter) as logs:
        logs.metric("get", ("a",), "plan", "a", True, tokens_consumed=1, tokens_saved_estimate=9)
        logs.metric("degraded", ("a",), "plan", "a", False)
        assert logs.flush(30)
        while_degraded = meter.total("degraded")
        logs.metric("get", ("a",), "plan", "a", True, tokens_consumed=1)

    assert (while_degraded, meter.total("degraded")) == (1, 0)
    assert meter.total("degradations") == 1
    assert (meter.total("tokens_consumed"), meter.total("tokens_saved_estimate")) == (2, 9)


def test_the_global_meter_is_used_by_name() -> None:
    with CoherenceCore(telemetry="opentelemetry") as core:
        core.write("a", "plan", {})

        assert core.read("a", "plan").value == {}
    assert isinstance(build_telemetry("opentelemetry"), OpenTelemetryExporter)


class Exporter:
    def __init__(self) -> None:
        self.seen: list[StoreMetricEvent] = []
        self.threads: set[int] = set()

    def on_event(self, event: StoreMetricEvent) -> None:
        self.seen.append(event)
        self.threads.add(threading.get_ident())


class ExporterInCaller(Exporter):
    in_caller = True


def test_an_exporter_of_ones_own_and_a_callback_both_get_every_metric() -> None:
    exporter, called = Exporter(), list[StoreMetricEvent]()
    with CoherenceCore(telemetry=exporter, on_metric=called.append) as core:
        core.write("a", "plan", {})
        core.read("a", "plan")

    for seen in (exporter.seen, called):
        assert [(one.operation, one.sequence_number) for one in seen] == [("put", 1), ("get", 2)]
    assert threading.get_ident() not in exporter.threads


def test_an_exporter_may_ask_to_be_called_by_the_agents_own_thread() -> None:
    exporter = ExporterInCaller()
    with CoherenceCore(telemetry=exporter) as core:
        core.write("a", "plan", {})
        seen_at_once = len(exporter.seen)

    assert seen_at_once == 1
    assert exporter.threads == {threading.get_ident()}


@pytest.mark.parametrize("in_caller", [False, True])
def test_an_exporter_that_raises_breaks_nothing(in_caller: bool) -> None:
    class Broken:
        def on_event(self, event: StoreMetricEvent) -> None:
            raise RuntimeError("no")

    exporter = Broken()
    exporter.in_caller = in_caller  # type: ignore[attr-defined]
    with Logs(telemetry=exporter) as logs:
        for _ in range(3):
            logs.metric("get", ("a",), "plan", "a", True)

    assert logs.failures == 3


@pytest.mark.parametrize("given", ["otel", "datadog", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(given: str) -> None:
    with pytest.raises(InvalidInput, match="there are 'opentelemetry' and 'langsmith'"):
        CoherenceCore(telemetry=given)


@pytest.mark.parametrize("given", [3, object(), Exporter])
def test_what_cannot_take_events_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="has a method on_event"):
        CoherenceCore(telemetry=given)
