"""A bucket in memory, for tests that say what happens between two requests.

It keeps conditions as a server does, and its tags are hashes of the bytes, as on most servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import md5
from typing import Any, ClassVar, TypeVar

from ropewalk.errors import Unavailable
from ropewalk.store import S3Store
from ropewalk.store.log import SpaceCache
from ropewalk.store.packer import pack
from ropewalk.store.s3.bucket import Bucket, Got
from ropewalk.store.s3.store import Place

A = TypeVar("A")
R = TypeVar("R")


class MemoryBucket(Bucket):
    """Requests to a dict. `before` is called with the name of each request before it is done,
    `after` when it was done and before its reply: either may raise."""

    def __init__(self, data: dict[str, bytes]) -> None:
        self.name = "s3://memory"
        self.data = data
        self.before: Callable[[str], None] = lambda request: None
        self.after: Callable[[str], None] = lambda request: None
        self.requests: list[str] = []

    def _ask(self, request: str, answer: Callable[[], R]) -> R:
        self.requests.append(request)
        self.before(request)
        answered = answer()
        self.after(request)
        return answered

    def get(self, key: str, known: str | None = None) -> Got | None:
        def answer() -> Got | None:
            found = self.data.get(key)
            if found is None:
                return None
            return Got(b"" if tag(found) == known else found, tag(found))

        return self._ask("get", answer)

    def ranges(self, key: str, pieces: Sequence[tuple[int, int]]) -> list[bytes] | None:
        def answer() -> list[bytes] | None:
            found = self.data.get(key)
            if found is None:
                return None
            return [found[start : start + length] for start, length in pieces]

        return self._ask("ranges", answer)

    def put(self, key: str, data: bytes) -> None:
        self._ask("put", lambda: self.data.update({key: data}))

    def put_if(self, key: str, data: bytes, e_tag: str | None) -> str | None:
        def answer() -> str | None:
            found = self.data.get(key)
            if (None if found is None else tag(found)) != e_tag:
                return None
            self.data[key] = data
            return tag(data)

        return self._ask("put_if", answer)

    def listing(self, folder: str) -> list[tuple[str, int]]:
        def answer() -> list[tuple[str, int]]:
            found = [key for key in self.data if key.startswith(f"{folder}/")]
            return [(key, len(self.data[key])) for key in found]

        return self._ask("listing", answer)

    def delete(self, keys: Sequence[str]) -> None:
        def answer() -> None:
            for key in keys:
                self.data.pop(key, None)

        self._ask("delete", answer)

    def each(self, work: Callable[[A], R], items: Iterable[A]) -> list[R]:
        return [work(one) for one in items]

    def close(self) -> None:
        pass


class MemoryS3Store(S3Store):
    """A store in such a bucket. It has no reason to wait long before it tries again."""

    _waits: ClassVar[tuple[float, float]] = 0.0001, 0.001

    def __init__(self, bucket: MemoryBucket, **options: Any) -> None:
        self._given = bucket
        super().__init__("s3://memory", **options)

    def _connect(self, place: Place, timeout: float) -> Bucket:
        return self._given


class EagerS3Store(MemoryS3Store):
    """Packs the whole tail after every third commit, with every record in an overflow part."""

    _inline_bytes = 0

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        if sequence % 3 == 0:
            pack(self, space, whole=True)


def tag(data: bytes) -> str:
    """As a server tags bytes."""
    return f'"{md5(data).hexdigest()}"'


def no_answer(*_: object) -> None:
    """What a server that is gone does."""
    raise Unavailable("s3://memory: the server does not answer as it should (no reply in time)")
