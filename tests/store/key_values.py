"""Key-value stores to test with."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ropewalk.store import Durability, KVStore


class DictKV(KVStore):
    """The smallest one: only the abstract methods, on a dict. `data` may be shared."""

    durability: Durability = "none"

    def __init__(self, data: dict[str, bytes] | None = None) -> None:
        self.data: dict[str, bytes] = {} if data is None else data

    def get(self, key: str) -> bytes | None:
        return self.data.get(key)

    def set(self, key: str, value: bytes) -> None:
        self.data[key] = value

    def keys(self, prefix: str) -> Iterator[str]:
        return (key for key in list(self.data) if key.startswith(prefix))

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        with _LOCK:
            if self.data.get(key) != expected:
                return False
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value
            return True


_LOCK = threading.Lock()


class KeptKV(DictKV):
    """As if the dict outlived the process."""

    durability = "relaxed"
