"""Expiring values beside history on Redis: keys of their own with a time to live."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from ropewalk.store.scratch import BestEffort, MemoryScratch, Scratch

if TYPE_CHECKING:
    from ropewalk.store.redis.server import Server

_LONGEST: Final = 7 * 24 * 3600.0
"""The lifetime of a value without one of its own, in seconds, so that the server can free it."""

_AT_A_TIME: Final = 1000


class RedisScratch(Scratch):
    """Expiring values on the server, or in this process if the server does not allow them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._root = server.layout.key("scratch").decode() + ":"
        self._memory = MemoryScratch(time.monotonic)
        self._best_effort = BestEffort()

    @property
    def _instead(self) -> MemoryScratch | None:
        return self._memory if self._best_effort.unusable else None

    def get(self, key: str) -> bytes | None:
        """The value of a key; None if there is none."""
        if self._instead is not None:
            return self._instead.get(key)
        ask = self._server.ask
        found: bytes | None = self._best_effort.attempt(lambda: ask("GET", self._root + key), None)
        return found

    def put(self, key: str, value: bytes, seconds: float | None = None) -> None:
        """Store a value for at most this many seconds."""
        if self._instead is not None:
            self._instead.put(key, value, seconds)
            return
        lives = int(1000 * min(_LONGEST if seconds is None else seconds, _LONGEST))
        if lives < 1:
            self.remove(key)
            return
        ask = self._server.ask
        self._best_effort.attempt(lambda: ask("SET", self._root + key, value, "PX", lives), None)

    def remove(self, key: str) -> None:
        """Forget a value."""
        if self._instead is not None:
            self._instead.remove(key)
            return
        self._best_effort.attempt(lambda: self._server.ask("DEL", self._root + key), None)

    def keys(self, prefix: str = "") -> list[str]:
        """The keys with a prefix."""
        if self._instead is not None:
            return self._instead.keys(prefix)
        return self._best_effort.attempt(lambda: self._scan(prefix), [])

    def _scan(self, prefix: str) -> list[str]:
        """Scans all keys of the database: for tools, not for regular use."""
        pattern = re.sub(r"([\[\]*?\\^])", r"\\\1", self._root + prefix) + "*"
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            asked = ("SCAN", cursor, "MATCH", pattern, "COUNT", _AT_A_TIME)
            cursor, some = self._server.ask(*asked)
            found.update(some)
            if cursor in (b"0", 0):
                break
        return sorted(key.decode().removeprefix(self._root) for key in found)
