"""The contract suite for conversations, one class per group of promises."""

from __future__ import annotations

from holdfast.testing._threads._cache import CacheContract
from holdfast.testing._threads._concurrency import ConcurrencyContract
from holdfast.testing._threads._configs import ConfigContract
from holdfast.testing._threads._copies import CopyContract
from holdfast.testing._threads._history import HistoryContract
from holdfast.testing._threads._life import LifeContract
from holdfast.testing._threads._messages import MessageContract
from holdfast.testing._threads._pages import PageContract
from holdfast.testing._threads._records import RecordContract
from holdfast.testing._threads._search import SearchContract
from holdfast.testing._threads._states import StateContract
from holdfast.testing._threads._together import TogetherContract

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
    CopyContract,
    HistoryContract,
    ConcurrencyContract,
    LifeContract,
):
    """What a `ThreadCheckpointer` promises on every store, as tests.

    Subclass it in a test file and give the fixture `open_checkpointer`. Every test runs
    twice: with the methods, and with their asynchronous twins.
    """
