"""The floor of S3: what changed is put, then the name of the newest, where nobody else was."""

from __future__ import annotations

from typing import Any

from bench._model import EngineInfo, Place
from bench.engines._client import Floor


class FloorS3(Floor):
    """Two puts, the second after the first. One driver for the clients of a process."""

    def __init__(self, driver: Any, name: str) -> None:
        super().__init__()
        import obstore

        self._api, self._driver, self._name = obstore, driver, name
        self._number, self._tag = self._found()

    def _found(self) -> tuple[int, str | None]:
        try:
            found = self._api.get(self._driver, f"{self._name}/newest")
        except FileNotFoundError:
            return 0, None
        return int(bytes(found.bytes())), found.meta["e_tag"]

    def _key(self, number: int) -> str:
        return f"{self._name}/{number:08}"

    def _send(self, data: bytes) -> None:
        self._number += 1
        self._put(self._key(self._number), data, "overwrite")
        mode: Any = "create" if self._tag is None else {"e_tag": self._tag}
        self._tag = self._put(f"{self._name}/newest", str(self._number).encode(), mode)

    def _put(self, key: str, data: bytes, mode: Any) -> str | None:
        done = self._api.put(self._driver, key, data, mode=mode, use_multipart=False)
        tag: str | None = done["e_tag"]
        return tag

    def _sent(self) -> list[bytes]:
        keys = (self._key(number) for number in range(1, self._number + 1))
        return [bytes(self._api.get(self._driver, key).bytes()) for key in keys]

    def another(self, name: str) -> FloorS3:
        return FloorS3(self._driver, name)

    def close(self) -> None:
        """Nothing stays open."""


def _open(place: Place) -> FloorS3:
    from bench._servers import s3_driver

    return FloorS3(s3_driver(place.url, prefix="floor"), place.branch)


ENGINE = EngineInfo(
    name="floor-s3",
    label="floor: two dependent puts, S3",
    open=_open,
    environment="ours",
    note="it is told what changed; the second put is conditional",
    server="s3",
)
