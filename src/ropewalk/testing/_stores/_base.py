"""What all parts of the suite share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from ropewalk.store import Store
from ropewalk.testing.helpers import Opener
from ropewalk.tree import ObjectId


class Base:
    """The fixtures that a subclass implements, and those derived from them."""

    several_handles: ClassVar[bool] = True
    """Whether two store objects may be open on the same data at once."""

    @pytest.fixture
    def open_store(self) -> Opener:
        """Implement this: a function that opens the running test's store, empty at first.

        It takes the clock of the store, and may be called several times in one test: each call
        opens another store object on the same data.
        """
        raise NotImplementedError("a subclass of StoreContract gives the fixture open_store")

    def damage(self, store: Store, id: ObjectId) -> bool:
        """Override where possible: damage the stored bytes of an object; True if done."""
        return False

    def lose(self, store: Store, id: ObjectId) -> bool:
        """Override where possible: make an object disappear silently; True if done.

        It is one of `SPACE` that a ref or an operation references.
        """
        return False

    @pytest.fixture
    def opened(self) -> Iterator[list[Store]]:
        """The store objects of the running test, closed at its end."""
        stores: list[Store] = []
        yield stores
        for store in stores:
            store.close()

    @pytest.fixture
    def opener(self, open_store: Opener, opened: list[Store]) -> Callable[[], Store]:
        """Opens a store object on the test's data, with a real clock."""

        def open_one() -> Store:
            opened.append(open_store(time.monotonic))
            return opened[-1]

        return open_one

    @pytest.fixture
    def store(self, opener: Callable[[], Store]) -> Store:
        """The store of the running test."""
        return opener()

    @pytest.fixture
    def second(self, store: Store, opener: Callable[[], Store]) -> Store:
        """Another store object on the same data, where the engine allows two."""
        return opener() if self.several_handles else store
