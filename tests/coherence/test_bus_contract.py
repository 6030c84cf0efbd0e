"""Every bus of ours passes the one contract, against real servers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from ropewalk.coherence.bus import Bus, InProcessBus
from ropewalk.coherence.nats_bus import NatsBus
from ropewalk.coherence.remote_bus import PostgresBus, RedisBus
from ropewalk.testing import BusContract, FaultyBus, RemoteBusContract
from ropewalk.testing.buses import BusOpener
from tests.coherence.buses import cut, proxied
from tests.proxy import Proxy


class TestInProcessBus(BusContract):
    @pytest.fixture
    def open_bus(self) -> BusOpener:
        bus = InProcessBus()
        return lambda: bus


class TestFaultyBusWithoutFaults(BusContract):
    @pytest.fixture
    def open_bus(self) -> BusOpener:
        bus = FaultyBus(InProcessBus())
        return lambda: bus


class ThroughAProxy(RemoteBusContract):
    """Each test has a proxy, and names of its own on the server."""

    @pytest.fixture
    def prefix(self) -> str:
        return uuid.uuid4().hex

    @pytest.fixture
    def server_url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def way(self, server_url: str) -> Iterator[tuple[Proxy, str]]:
        with proxied(server_url) as way:
            yield way

    @pytest.fixture
    def interrupted(self, way: tuple[Proxy, str]) -> AbstractContextManager[None]:
        return cut(way[0])

    @pytest.fixture
    def open_bus(self, way: tuple[Proxy, str], prefix: str) -> BusOpener:
        return lambda: self.open_at(way[1], prefix)

    def open_at(self, url: str, prefix: str) -> Bus:
        raise NotImplementedError


class TestRedisBus(ThroughAProxy):
    @pytest.fixture
    def server_url(self, redis_url: str) -> str:
        return redis_url

    def open_at(self, url: str, prefix: str) -> Bus:
        return RedisBus(url, prefix=prefix)


class TestPostgresBus(ThroughAProxy):
    @pytest.fixture
    def server_url(self, postgres_url: str) -> str:
        return postgres_url

    def open_at(self, url: str, prefix: str) -> Bus:
        return PostgresBus(url, prefix=prefix)


class TestNatsBus(ThroughAProxy):
    @pytest.fixture
    def server_url(self, nats_url: str) -> str:
        return nats_url

    def open_at(self, url: str, prefix: str) -> Bus:
        return NatsBus(url, prefix=prefix)
