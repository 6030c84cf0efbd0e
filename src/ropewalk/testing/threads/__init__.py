"""The contract suite for conversations, one class per group of promises."""

from __future__ import annotations

from ropewalk.testing.threads.history import (
    ConcurrencyContract,
    HistoryContract,
    LifeContract,
    TogetherContract,
)
from ropewalk.testing.threads.lists import PageContract, SearchContract
from ropewalk.testing.threads.messages import MessageContract
from ropewalk.testing.threads.records import ConfigContract, RecordContract
from ropewalk.testing.threads.states import CacheContract, StateContract

__all__ = ["ThreadContract"]


class ThreadContract(
    StateContract,
    CacheContract,
    MessageContract,
    PageContract,
    SearchContract,
    RecordContract,
    ConfigContract,
    TogetherContract,
    HistoryContract,
    ConcurrencyContract,
    LifeContract,
):
    """What a `ThreadCheckpointer` promises on every store, as tests.

    Subclass it in a test file and implement the fixture `open_checkpointer`. Every test runs
    twice: with the methods, and with their asynchronous twins.
    """
