"""The contract suite for buses."""

from __future__ import annotations

from ropewalk.testing._buses._contract import BusContract, RemoteBusContract

__all__ = ["BusContract", "RemoteBusContract"]
