"""The contract suite for conversations, one class per group of promises."""

from __future__ import annotations

from ropewalk.testing._threads._cache import CacheContract
from ropewalk.testing._threads._concurrency import ConcurrencyContract
from ropewalk.testing._threads._configs import ConfigContract
from ropewalk.testing._threads._copies import CopyContract
from ropewalk.testing._threads._history import HistoryContract
from ropewalk.testing._threads._life import LifeContract
from ropewalk.testing._threads._messages import MessageContract
from ropewalk.testing._threads._pages import PageContract
from ropewalk.testing._threads._records import RecordContract
from ropewalk.testing._threads._search import SearchContract
from ropewalk.testing._threads._states import StateContract
from ropewalk.testing._threads._together import TogetherContract

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
