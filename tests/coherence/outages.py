"""An engine that can be away, and clients of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ropewalk.coherence import CoherenceCore
from ropewalk.errors import Unavailable
from ropewalk.store import MemoryStore, Store
from ropewalk.store.wrappers import WrapperStore
from ropewalk.testing.helpers import PATIENCE

R = TypeVar("R")


class AwayStore(WrapperStore):
    """A store whose engine can be away; or it does what it is told, and does not say so."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.away = self.silent = False
        self.asked = 0
        self.last = ""
        self.seen: Callable[[], None] = lambda: None

    def _call(self, method: str, call: Callable[[], R]) -> R:
        self.asked += 1
        self.last = method
        self.seen()
        if self.away:
            raise Unavailable("the engine is away")
        found = call()
        if self.silent and method == "commit":
            self.away = True
            raise Unavailable("the reply was lost")
        return found


class World:
    """A client that degrades, and another that does not and sees the same artifacts."""

    def __init__(self, **options: Any) -> None:
        self.memory = MemoryStore()
        self.store = AwayStore(self.memory.another())
        options = {"on_error": "degrade", "bus": False, **options}
        self.core = CoherenceCore(self.store, **options)
        self.other = CoherenceCore(self.memory, bus=False, mergers=options.get("mergers"))

    def come_back(self) -> None:
        self.store.silent = self.store.away = False
        self.until(lambda: not self.core.is_degraded)

    def until(self, done: Callable[[], bool]) -> None:
        waited = threading.Event()
        for _ in range(int(PATIENCE * 200)):
            if done():
                return
            waited.wait(0.005)
        raise AssertionError("it did not come")
