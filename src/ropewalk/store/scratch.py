"""Small values beside history, by name and for some time, which may be lost."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from ropewalk.errors import Full, RopewalkError, StoreClosed, Unavailable
from ropewalk.store.forking import freed_after_fork

SCRATCH_BYTES: Final = 16 * 1024 * 1024

R = TypeVar("R")

_log = logging.getLogger("ropewalk.store")


class Scratch(ABC):
    """Small values by name, for some time. Each may vanish at any moment.

    Safe to share between threads.
    """

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The value of a key, unless it vanished or its time is over."""

    @abstractmethod
    def put(self, key: str, value: bytes, seconds: float | None = None) -> None:
        """Keep a value, for so many seconds; without them, as long as there is room."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Forget a key."""

    @abstractmethod
    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin so, sorted."""


class MemoryScratch(Scratch):
    """Values in memory. Those that were put first go first when there is no more room."""

    def __init__(self, clock: Callable[[], float], max_bytes: int = SCRATCH_BYTES) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._values: OrderedDict[str, tuple[bytes, float | None]] = OrderedDict()
        self._held = 0
        self._lock = freed_after_fork(threading.Lock())

    def get(self, key: str) -> bytes | None:
        """The value of a key, unless its time is over."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            value, until = found
            if until is not None and self._clock() >= until:
                self._forget(key)
                return None
            return value

    def put(self, key: str, value: bytes, seconds: float | None = None) -> None:
        """Keep a value, perhaps for some seconds."""
        until = None if seconds is None else self._clock() + seconds
        with self._lock:
            self._forget(key)
            self._values[key] = bytes(value), until
            self._held += _size(key, value)
            while self._held > self._max_bytes:
                self._forget(next(iter(self._values)))

    def remove(self, key: str) -> None:
        """Forget a key."""
        with self._lock:
            self._forget(key)

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin so and live."""
        now = self._clock()
        with self._lock:
            return sorted(
                key
                for key, (_, until) in self._values.items()
                if key.startswith(prefix) and (until is None or now < until)
            )

    def _forget(self, key: str) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self._held -= _size(key, found[0])


def _size(key: str, value: bytes) -> int:
    return len(key) + len(value) + 256


class BestEffort:
    """Attempts what may fail: a failure is logged, and goes no further."""

    def __init__(self, also: Callable[[], tuple[type[Exception], ...]] = tuple) -> None:
        self._also = also
        self.unusable = False
        """Whether it is of no use to try."""

    def attempt(self, step: Callable[[], R], otherwise: R) -> R:
        """What a step gives, or `otherwise` if it cannot be made. Raises `StoreClosed`."""
        try:
            return step()
        except StoreClosed:
            raise
        except (Unavailable, Full) as error:
            _log.info("what stands beside history cannot be used now: %s", error)
        except Exception as error:
            if not isinstance(error, (RopewalkError, *self._also())):
                raise
            self.unusable = True
            _log.warning(
                "the search index and state cache are only in this process, because those of "
                "the server cannot be used: %s",
                error,
            )
        return otherwise
