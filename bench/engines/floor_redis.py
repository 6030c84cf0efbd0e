"""The floor of Redis: one SET of what changed."""

from __future__ import annotations

from typing import Any

from bench._model import EngineInfo, Place
from bench.engines._client import Floor


class FloorRedis(Floor):
    """One driver for the clients of a process; it has a connection for each thread."""

    def __init__(self, driver: Any, name: str) -> None:
        super().__init__()
        self._driver, self._name = driver, name
        self._number = len(self._keys())

    def _keys(self) -> list[bytes]:
        keys: list[bytes] = list(self._driver.scan_iter(f"floor:{self._name}:*", count=10_000))
        return sorted(keys)

    def _send(self, data: bytes) -> None:
        self._driver.set(f"floor:{self._name}:{self._number:08}", data)
        self._number += 1

    def _sent(self) -> list[bytes]:
        found: list[bytes] = self._driver.mget(self._keys())
        return found

    def another(self, name: str) -> FloorRedis:
        return FloorRedis(self._driver, name)

    def close(self) -> None:
        self._driver.close()


def _open(place: Place) -> FloorRedis:
    import redis

    return FloorRedis(redis.Redis.from_url(place.url), place.branch)


ENGINE = EngineInfo(
    name="floor-redis",
    label="floor: one SET, Redis",
    open=_open,
    environment="ours",
    note="it is told what changed; appendfsync always",
    server="redis",
)
