"""The example of a bus of one's own passes the suite, and serves a core."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from examples.udp_bus import UdpBus
from ropewalk.coherence import CoherenceCore
from ropewalk.store import MemoryStore
from ropewalk.testing import BusContract
from ropewalk.testing.buses import PATIENCE, BusOpener


class TestUdpBus(BusContract):
    @pytest.fixture
    def open_bus(self) -> BusOpener:
        peers: list[int] = []
        return lambda: UdpBus(peers)


def test_a_core_hears_of_writes_by_it() -> None:
    store, heard = MemoryStore(), threading.Event()
    peers: list[int] = []

    def note(record: Mapping[str, object]) -> None:
        if record["trigger"] == "invalidate":
            heard.set()

    one, two = (
        CoherenceCore(store, strategy="lease", bus=UdpBus(peers), state_log=log)
        for log in (None, note)
    )
    one.write("alice", "plan", "first")
    two.read("bob", "plan")
    one.write("alice", "plan", "second")

    assert heard.wait(PATIENCE)
    assert two.read("bob", "plan").value == "second"
    for core in (one, two):
        core.close()
