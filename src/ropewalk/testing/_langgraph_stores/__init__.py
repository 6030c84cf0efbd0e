"""The contract suite for LangGraph's stores, one class per group of promises."""

from __future__ import annotations

from ropewalk.testing._langgraph_stores._batches import BatchContract
from ropewalk.testing._langgraph_stores._filters import FilterContract
from ropewalk.testing._langgraph_stores._items import ItemContract
from ropewalk.testing._langgraph_stores._namespaces import NamespaceContract
from ropewalk.testing._langgraph_stores._searches import SearchContract
from ropewalk.testing._langgraph_stores._times import TimeContract
from ropewalk.testing._langgraph_stores._together import TogetherContract
from ropewalk.testing._langgraph_stores._vectors import VectorContract

__all__ = ["BaseStoreContract"]


class BaseStoreContract(
    ItemContract,
    BatchContract,
    SearchContract,
    FilterContract,
    NamespaceContract,
    TimeContract,
    VectorContract,
    TogetherContract,
):
    """What a `BaseStore` of LangGraph should do, as tests.

    Subclass it in a test file and give the fixture `open_store`. Every test runs twice: with
    the methods, and with their asynchronous twins.
    """
