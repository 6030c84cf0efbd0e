"""The contract suite for stores, one class per group of promises."""

from __future__ import annotations

from ropewalk.testing._stores._care import CareContract, StatisticsContract
from ropewalk.testing._stores._commits import CommitContract, ConcurrencyContract
from ropewalk.testing._stores._handles import AsynchronousContract, LifeContract, WatchContract
from ropewalk.testing._stores._leases import LeaseContract
from ropewalk.testing._stores._objects import NameContract, ObjectContract

__all__ = ["StoreContract"]


class StoreContract(
    ObjectContract,
    CommitContract,
    NameContract,
    LeaseContract,
    CareContract,
    StatisticsContract,
    WatchContract,
    ConcurrencyContract,
    AsynchronousContract,
    LifeContract,
):
    """What every store promises, as tests.

    Subclass it in a test file and implement the fixture `open_store`. Override `damage` and `lose`
    where stored bytes can be reached.
    """
