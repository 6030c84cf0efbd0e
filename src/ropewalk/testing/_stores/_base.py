"""What all parts of the suite share."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, TypeAlias

import pytest

from ropewalk.store import Move, Operation, Store, ref_name, space_name
from ropewalk.tree import Kind, Object, ObjectId, load, make_object

Opener: TypeAlias = Callable[[Callable[[], float]], Store]
"""Opens one more store object, with this clock, on the data of the running test."""

SPACE = space_name("test", "one")
OTHER_SPACE = space_name("test", "two")
MAIN = ref_name("branch", "main")
PATIENCE = 30.0
"""Seconds after which a test that waits for another thread gives up."""


class Clock:
    """A clock that moves when told."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class Base:
    """The fixtures that a subclass gives, and those that follow from them."""

    several_handles: ClassVar[bool] = True
    """Whether two store objects may be open on the same data at once."""

    @pytest.fixture
    def open_store(self) -> Opener:
        """Give this: a function that opens the running test's store, empty at first.

        It takes the clock for the store, and may be called several times in one test:
        each call opens another store object on the same data.
        """
        raise NotImplementedError("a subclass of StoreContract gives the fixture open_store")

    def damage(self, store: Store, id: ObjectId) -> bool:
        """Override where possible: change the stored bytes of an object; True if done."""
        return False

    def lose(self, store: Store, id: ObjectId) -> bool:
        """Override where possible: let an object be gone, unnoticed; True if done.

        It is one of `SPACE` that a ref or an operation reaches.
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


def value(text: str | bytes, base: ObjectId | None = None) -> Object:
    """An object with this payload."""
    payload = text.encode() if isinstance(text, str) else text
    return make_object(Kind.VALUE, payload, base)


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size)


def growing(steps: int, seed: int = 0, size: int = 200) -> list[Object]:
    """Versions of something that grows, each with the one before as its base."""
    versions: list[Object] = []
    payload = noise(size, seed)
    for step in range(steps):
        payload += noise(size // 4, seed * 1000 + step + 1)
        versions.append(value(payload, versions[-1].id if versions else None))
    return versions


def read(store: Store, ids: Sequence[ObjectId], space: str = SPACE) -> list[Object]:
    """Objects of a space."""
    return list(store.reader(space)(ids))


def load_value(store: Store, root: ObjectId, space: str = SPACE) -> object:
    """A value of a space."""
    return load(root, store.reader(space))


def point(
    store: Store, target: Object, name: str = MAIN, expected: ObjectId | None = None
) -> Operation:
    """Store an object and move a ref to it."""
    return store.commit(SPACE, [target], moves=[Move(name, expected, target.id)])


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work in threads that begin together; raise what one of them raised."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(PATIENCE)
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # Threads change often, so that races are met.
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10 * PATIENCE)
    finally:
        sys.setswitchinterval(usual)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)
