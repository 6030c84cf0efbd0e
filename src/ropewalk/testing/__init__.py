"""Suites that hold a part of Ropewalk, or of yours, to its contract, and faults to test with.

    from ropewalk.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda clock: MyStore(tmp_path, clock=clock)

`StoreContract` is for stores, `BaseStoreContract` for those of LangGraph, which it needs.
`FaultStore` fails when a test says so, `FaultyBus` loses messages. `crash_states` makes the
folders that a power loss may leave. Needs pytest. Nothing else in Ropewalk imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ropewalk.testing._langgraph_stores import BaseStoreContract as BaseStoreContract

pytest.register_assert_rewrite(
    "ropewalk.testing._buses",
    "ropewalk.testing._stores",
    "ropewalk.testing._every_call",
    "ropewalk.testing._key_values",
    "ropewalk.testing._langgraph_stores",
    "ropewalk.testing._threads",
)

from ropewalk.testing._buses import BusContract, FaultyBus, RemoteBusContract  # noqa: E402 - rewritten first
from ropewalk.testing._crashes import (  # noqa: E402
    CrashState,
    Journal,
    Mark,
    RecordingFilesystem,
    crash_states,
    recording,
)
from ropewalk.testing._every_call import Outcome, fail_every_call  # noqa: E402
from ropewalk.testing._faults import Fault, FaultStore  # noqa: E402
from ropewalk.testing._key_values import KVStoreContract  # noqa: E402
from ropewalk.testing._stores import Clock, StoreContract  # noqa: E402
from ropewalk.testing._threads import ThreadContract  # noqa: E402

__all__ = [
    "BusContract",
    "Clock",
    "CrashState",
    "Fault",
    "FaultStore",
    "FaultyBus",
    "Journal",
    "KVStoreContract",
    "Mark",
    "Outcome",
    "RecordingFilesystem",
    "RemoteBusContract",
    "StoreContract",
    "ThreadContract",
    "crash_states",
    "fail_every_call",
    "recording",
]


def __getattr__(name: str) -> Any:
    # Not among the names above: it cannot be imported where LangGraph is not installed.
    if name == "BaseStoreContract":
        try:
            from ropewalk.testing._langgraph_stores import BaseStoreContract
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "langgraph":
                raise
            raise ImportError(
                "BaseStoreContract needs LangGraph: pip install 'ropewalk[langgraph]'"
            ) from error
        return BaseStoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
