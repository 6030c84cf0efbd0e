"""What agents share: artifacts with versions, read and written by many without surprises."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.coherence.authority import ArtifactChange
from ropewalk.coherence.bus import (
    Bus,
    InProcessBus,
    Invalidation,
    Receiver,
    Subscription,
    place_of,
    space_topic,
    topic_of,
)
from ropewalk.coherence.conditional_read import Delta, Full, NotModified, Section
from ropewalk.coherence.core import CoherenceCore
from ropewalk.coherence.grants import Grant
from ropewalk.coherence.leases import CrashRecoveryConfig, Reclaim
from ropewalk.coherence.logs import record_to
from ropewalk.coherence.outages import CoherenceDegradedWarning, KeptWrite, Reconciled
from ropewalk.coherence.prices import Prices, prices_of
from ropewalk.coherence.prompt import PromptView, Rendered, with_artifacts
from ropewalk.coherence.protocol import Artifact, State
from ropewalk.coherence.records import Gap, SchemaMismatch, StoreMetricEvent, validate_log
from ropewalk.coherence.remote_bus import LogBus, PostgresBus, RedisBus, choose_bus
from ropewalk.coherence.replay import Finding, Replay, replay
from ropewalk.coherence.strategies import STRATEGIES, Bound, Strategy, build_strategy
from ropewalk.coherence.telemetry import (
    LangSmithExporter,
    OpenTelemetryExporter,
    TelemetryExporter,
)

if TYPE_CHECKING:
    from ropewalk.coherence.nats_bus import NatsBus

__all__ = [
    "STRATEGIES",
    "Artifact",
    "ArtifactChange",
    "Bound",
    "Bus",
    "CoherenceCore",
    "CoherenceDegradedWarning",
    "CrashRecoveryConfig",
    "Delta",
    "Finding",
    "Full",
    "Gap",
    "Grant",
    "InProcessBus",
    "Invalidation",
    "KeptWrite",
    "LangSmithExporter",
    "LogBus",
    "NatsBus",
    "NotModified",
    "OpenTelemetryExporter",
    "PostgresBus",
    "Prices",
    "PromptView",
    "Receiver",
    "Reclaim",
    "Reconciled",
    "RedisBus",
    "Rendered",
    "Replay",
    "SchemaMismatch",
    "Section",
    "State",
    "StoreMetricEvent",
    "Strategy",
    "Subscription",
    "TelemetryExporter",
    "build_strategy",
    "choose_bus",
    "place_of",
    "prices_of",
    "record_to",
    "replay",
    "space_topic",
    "topic_of",
    "validate_log",
    "with_artifacts",
]


def __getattr__(name: str) -> Any:
    if name != "NatsBus":  # Its module is loaded when it is asked for.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = import_module("ropewalk.coherence.nats_bus").NatsBus
    return found
