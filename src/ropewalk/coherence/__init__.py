"""What agents share: artifacts with versions, read and written by many without surprises."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ropewalk.coherence._artifact import Artifact
from ropewalk.coherence._authorities._authority import ArtifactChange
from ropewalk.coherence._buses._bus import (
    Bus,
    Invalidation,
    Receiver,
    Subscription,
    place_of,
    space_topic,
    topic_of,
)
from ropewalk.coherence._buses._choosing import choose_bus
from ropewalk.coherence._buses._local import InProcessBus
from ropewalk.coherence._buses._log import LogBus
from ropewalk.coherence._core import CoherenceCore
from ropewalk.coherence._grants._grant import Grant
from ropewalk.coherence._grants._recovery import CrashRecoveryConfig, Reclaim
from ropewalk.coherence._logs._logs import record_to
from ropewalk.coherence._logs._records import StoreMetricEvent
from ropewalk.coherence._logs._replaying import Replay, replay
from ropewalk.coherence._logs._rules import Finding
from ropewalk.coherence._logs._telemetry import (
    LangSmithExporter,
    OpenTelemetryExporter,
    TelemetryExporter,
)
from ropewalk.coherence._logs._validating import Gap, SchemaMismatch, validate_log
from ropewalk.coherence._outages._kept import CoherenceDegradedWarning, KeptWrite, Reconciled
from ropewalk.coherence._protocol import State
from ropewalk.coherence._strategies import STRATEGIES, Bound, Strategy, build_strategy

if TYPE_CHECKING:
    from ropewalk.coherence._buses._nats import NatsBus
    from ropewalk.coherence._buses._postgres import PostgresBus
    from ropewalk.coherence._buses._redis import RedisBus

__all__ = [
    "STRATEGIES",
    "Artifact",
    "ArtifactChange",
    "Bound",
    "Bus",
    "CoherenceCore",
    "CoherenceDegradedWarning",
    "CrashRecoveryConfig",
    "Finding",
    "Gap",
    "Grant",
    "InProcessBus",
    "Invalidation",
    "KeptWrite",
    "LangSmithExporter",
    "LogBus",
    "NatsBus",
    "OpenTelemetryExporter",
    "PostgresBus",
    "Receiver",
    "Reclaim",
    "Reconciled",
    "RedisBus",
    "Replay",
    "SchemaMismatch",
    "State",
    "StoreMetricEvent",
    "Strategy",
    "Subscription",
    "TelemetryExporter",
    "build_strategy",
    "choose_bus",
    "place_of",
    "record_to",
    "replay",
    "space_topic",
    "topic_of",
    "validate_log",
]

# Buses over a server are loaded when they are asked for.
_HOMES = {"NatsBus": "_buses._nats", "PostgresBus": "_buses._postgres", "RedisBus": "_buses._redis"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"ropewalk.coherence.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
