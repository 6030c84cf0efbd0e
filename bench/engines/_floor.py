"""Plain floors: the whole value serialised again at every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench._model import Engine


class Floor(Engine):
    """Counts what every step would store and keeps the newest, which costs it least."""

    def __init__(self, dump: Callable[[Any], bytes], load: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._dump, self._load = dump, load
        self._newest = b""
        self._bytes = 0

    def commit(self, value: Any) -> None:
        self._newest = self._dump(value)
        self._bytes += len(self._newest)

    def read(self) -> Any:
        return self._load(self._newest)

    def stored_bytes(self) -> int:
        return self._bytes
