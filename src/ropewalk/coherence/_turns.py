"""Turns of threads that edit the same artifact, so that they do not race for nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PATIENCE_SECONDS: Final = 0.5


class Turns:
    """Who edits an artifact next.

    Only for speed: whoever waited too long goes without, and an edit inside an edit of the same
    thread does not wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[threading.RLock, int]] = {}

    @contextmanager
    def turn(self, artifact: str) -> Iterator[None]:
        """A turn at an artifact, if it comes soon."""
        with self._lock:
            mine, users = self._held.get(artifact, (threading.RLock(), 0))
            self._held[artifact] = mine, users + 1
        got = mine.acquire(timeout=_PATIENCE_SECONDS)
        try:
            yield
        finally:
            if got:
                mine.release()
            with self._lock:
                mine, users = self._held.pop(artifact)
                if users > 1:
                    self._held[artifact] = mine, users - 1
