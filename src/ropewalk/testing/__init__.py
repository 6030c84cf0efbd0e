"""Suites that hold a part of Ropewalk, or of yours, to its contract, and faults to test with.

    from ropewalk.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda clock: MyStore(tmp_path, clock=clock)

`StoreContract` is for stores, `BaseStoreContract` for those of LangGraph, which it needs.
`SessionContract` is for adapters that store the conversations of a framework.
`FaultStore` fails when a test says so, `FaultyBus` loses messages. `ModelServer` stands for the
model of an agent. `crash_states` makes the
folders that a power loss may leave. `ropewalk.testing.helpers` has what tests of stores need
again and again. The suites need pytest, nothing else does. No other part of Ropewalk imports
this package.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.testing._crashes import (
        CrashState,
        Journal,
        Mark,
        RecordingFilesystem,
        crash_states,
        recording,
    )
    from ropewalk.testing._stores import StoreContract
    from ropewalk.testing.buses import BusContract, RemoteBusContract
    from ropewalk.testing.faults import Fault, FaultStore, Outcome, fail_every_call
    from ropewalk.testing.faulty_bus import FaultyBus
    from ropewalk.testing.helpers import Clock
    from ropewalk.testing.key_values import KVStoreContract
    from ropewalk.testing.langgraph_stores import BaseStoreContract as BaseStoreContract
    from ropewalk.testing.model_server import Call, ModelRequest, ModelServer, Turn, by_turn
    from ropewalk.testing.sessions import SessionContract, SessionKit
    from ropewalk.testing.threads import ThreadContract

__all__ = [
    "BusContract",
    "Call",
    "Clock",
    "CrashState",
    "Fault",
    "FaultStore",
    "FaultyBus",
    "Journal",
    "KVStoreContract",
    "Mark",
    "ModelRequest",
    "ModelServer",
    "Outcome",
    "RecordingFilesystem",
    "RemoteBusContract",
    "SessionContract",
    "SessionKit",
    "StoreContract",
    "ThreadContract",
    "Turn",
    "by_turn",
    "crash_states",
    "fail_every_call",
    "recording",
]

# Loaded lazily, so that using only faults needs no pytest. BaseStoreContract is not in __all__: it
# cannot be imported where LangGraph is not installed.
_HOMES = {
    "buses": "BusContract RemoteBusContract",
    "_crashes": "CrashState Journal Mark RecordingFilesystem crash_states recording",
    "_stores": "StoreContract",
    "sessions": "SessionContract SessionKit",
    "threads": "ThreadContract",
    "faults": "Fault FaultStore Outcome fail_every_call",
    "faulty_bus": "FaultyBus",
    "helpers": "Clock",
    "key_values": "KVStoreContract",
    "langgraph_stores": "BaseStoreContract",
    "model_server": "Call ModelRequest ModelServer Turn by_turn",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

if sys.modules.get("pytest"):  # Before loading them, so that pytest rewrites their assertions.
    import pytest

    pytest.register_assert_rewrite(*(f"{__name__}.{home}" for home in _HOMES))


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError as error:
        if name != "BaseStoreContract" or (error.name or "").partition(".")[0] != "langgraph":
            raise
        raise ImportError(
            "BaseStoreContract needs LangGraph: pip install 'ropewalk[langgraph]'"
        ) from error
    globals()[name] = found
    return found
