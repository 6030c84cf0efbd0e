"""The contract suite for buses, and a bus that fails."""

from __future__ import annotations

from ropewalk.testing._buses._contract import BusContract, RemoteBusContract
from ropewalk.testing._buses._faulty import FaultyBus

__all__ = ["BusContract", "FaultyBus", "RemoteBusContract"]
