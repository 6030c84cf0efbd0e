"""The example of a bus over gRPC passes the suites, on loopback, and serves a core."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import pytest

from examples.grpc_bus import GrpcBus, GrpcHub
from ropewalk.coherence import CoherenceCore
from ropewalk.store import MemoryStore
from ropewalk.testing import RemoteBusContract
from ropewalk.testing.buses import PATIENCE, BusOpener


@pytest.fixture
def hubs() -> Iterator[list[GrpcHub]]:
    running = [GrpcHub()]
    yield running
    running[-1].stop()


class TestGrpcBus(RemoteBusContract):
    @pytest.fixture
    def open_bus(self, hubs: list[GrpcHub]) -> BusOpener:
        return lambda: GrpcBus(f"127.0.0.1:{hubs[-1].port}")

    @pytest.fixture
    def interrupted(self, hubs: list[GrpcHub]) -> AbstractContextManager[None]:
        @contextmanager
        def cut() -> Iterator[None]:
            hubs[-1].stop()
            yield
            hubs.append(GrpcHub(hubs[-1].port))

        return cut()


def test_a_core_hears_of_writes_by_it(hubs: list[GrpcHub]) -> None:
    store, heard, read = MemoryStore(), threading.Event(), threading.Event()

    def note(record: Mapping[str, object]) -> None:
        if record["trigger"] == "invalidate" and read.is_set():
            heard.set()

    buses = [GrpcBus(f"127.0.0.1:{hubs[-1].port}") for _ in range(2)]
    one, two = (
        CoherenceCore(store, strategy="lease", bus=bus, state_log=log)
        for bus, log in zip(buses, (None, note), strict=True)
    )
    one.write("alice", "plan", "first")
    two.read("bob", "plan")
    read.set()
    one.write("alice", "plan", "second")

    assert heard.wait(PATIENCE)
    assert two.read("bob", "plan").value == "second"
    for core, bus in zip((one, two), buses, strict=True):
        core.close()
        bus.close()
