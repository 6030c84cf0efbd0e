"""What all parts of the suite for LangGraph's stores share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeAlias

import pytest
from langgraph.store.base import BaseStore

from ropewalk.testing.threads.faces import Face, Faces, TwoFaces

Opener: TypeAlias = Callable[..., BaseStore]
"""Opens one more store, with `index` and `ttl`, on the running test's data."""

NOTES = ("notes",)


class Base(TwoFaces):
    """The fixture that a subclass implements, and those derived from it."""

    has_ttl: ClassVar[bool] = True
    """Whether items can expire; otherwise those tests are skipped."""
    has_vectors: ClassVar[bool] = True
    """Whether it searches by similarity; otherwise those tests are skipped."""
    reopens: ClassVar[bool] = True
    """Whether another store from `open_store` sees the data of the first one."""
    minutes: ClassVar[float] = 0.03
    """The unit of time in tests of expiry, in minutes: 1.8 seconds."""

    @pytest.fixture
    def open_store(self) -> Opener:
        """Implement this: a function that opens a store on the running test's data.

        It takes the keyword arguments `index` and `ttl`, which are LangGraph's `IndexConfig` and
        `TTLConfig`, and may be called several times in one test: each call opens another store
        object on the same data, which is empty at first.
        """
        raise NotImplementedError("a subclass of BaseStoreContract gives the fixture open_store")

    def wait(self, store: BaseStore, minutes: float) -> None:
        """Let time pass; a subclass with an adjustable clock may advance it."""
        time.sleep(minutes * 60)

    @pytest.fixture
    def opened(self, open_store: Opener, runner: asyncio.Runner | None) -> Iterator[Faces]:
        """Opens stores, which are closed at the end of the test if they can be."""
        faces: list[Face] = []

        def open_one(**options: Any) -> Face:
            faces.append(Face(open_store(**options), runner))
            return faces[-1]

        yield open_one
        for face in faces:
            _close(face.target)

    @pytest.fixture
    def store(self, open_store: Opener) -> Iterator[BaseStore]:
        """A bare store, for tests that need both interfaces."""
        store = open_store()
        yield store
        _close(store)

    @pytest.fixture
    def memory(self, opened: Faces) -> Face:
        """The store of the running test."""
        return opened()


def _close(store: BaseStore) -> None:
    getattr(store, "close", lambda: None)()


def put_numbered(memory: Face, count: int, namespace: tuple[str, ...] = NOTES) -> None:
    """Put a number of items whose values are their numbers."""
    for number in range(count):
        memory.put(namespace, f"k{number}", {"number": number})


def joined(pages: Iterable[list[Any]]) -> list[Any]:
    """All items of some pages, in order."""
    return [one for page in pages for one in page]


def keys(items: Iterable[Any]) -> list[str]:
    """The keys of items, in their order."""
    return [item.key for item in items]
