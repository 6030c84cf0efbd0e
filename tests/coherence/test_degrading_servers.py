"""Agents that go on while a real server is gone, and do not wait for it to come back."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from ropewalk.coherence import Artifact, CoherenceCore, CoherenceDegradedWarning
from ropewalk.errors import Unavailable
from ropewalk.store import PostgresStore, RedisStore, Store
from ropewalk.testing.helpers import PATIENCE
from tests.coherence.buses import killable

LONG = 3600.0
"""For how many seconds the engine itself would try to find its server."""


def opened(kind: str, url: str) -> Store:
    if kind == "redis":
        return RedisStore(url, durability="relaxed", timeout=LONG)
    return PostgresStore(url, timeout=LONG)


def soon(call: Callable[[], Any]) -> Any:
    """What a call gives or raises, if it does so long before the engine would give up."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - it is what the call gave
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "it still waits"
    return found[0]


def without_server(call: Callable[[], Any]) -> Any:
    """What a call gives once its server is gone: those who serve us may outlive it a moment."""
    found = soon(call)
    while isinstance(found, Artifact) and not found.degraded:
        found = soon(call)
    return found


@pytest.mark.filterwarnings("ignore::ropewalk.coherence.CoherenceDegradedWarning")
@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_nobody_waits_for_a_server_that_is_gone(kind: str) -> None:
    with killable(kind) as server, opened(kind, server.url) as store:
        core = CoherenceCore(store, on_error="degrade", bus=False)
        core.write("planner", "plan", {"step": 1})
        core.write("planner", "notes", "first")
        server.kill()
        made = without_server(lambda: core.write("planner", "plan", {"step": 2}))
        found = soon(lambda: core.read("reviewer", "notes"))
        refused = [
            soon(lambda: core.recover("planner")),
            soon(core.enforce_stable_grant_timeouts),
            soon(core.watch),
            soon(core.artifacts),
            soon(lambda: core.hold("planner", "plan")),
        ]
        soon(lambda: core.heartbeat("planner"))
        soon(core.close)

    assert made.degraded and made.value == {"step": 2}
    assert found.degraded and found.value == "first"
    assert [type(one) for one in refused] == [Unavailable] * len(refused)


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_read_finds_out_soon_that_the_server_is_gone(kind: str) -> None:
    with killable(kind) as server, opened(kind, server.url) as store:
        core = CoherenceCore(store, on_error="degrade", bus=False)
        core.write("planner", "plan", 1)
        server.kill()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = without_server(lambda: core.read("planner", "plan"))
        soon(core.close)

    assert found.degraded and found.value == 1
    assert CoherenceDegradedWarning in [one.category for one in caught]
