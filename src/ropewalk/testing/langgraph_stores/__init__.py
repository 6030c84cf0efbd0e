"""The contract suite for LangGraph's stores, one class per group of promises."""

from __future__ import annotations

from ropewalk.testing.langgraph_stores.items import (
    BatchContract,
    ItemContract,
    NamespaceContract,
    TimeContract,
    TogetherContract,
)
from ropewalk.testing.langgraph_stores.searches import (
    FilterContract,
    SearchContract,
    VectorContract,
)

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

    Subclass it in a test file and implement the fixture `open_store`. Every test runs twice: with
    the methods, and with their asynchronous twins.
    """
