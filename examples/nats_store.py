"""A key-value store on NATS JetStream, for everything that takes a store.

    nats-server --jetstream --store_dir /var/lib/nats -c nats.conf     # max_payload: 32MB
    python examples/nats_store.py nats://localhost:4222

It needs the extra `nats`. Looking and writing are one step on the server by the revision of a
key. JetStream syncs its files every two minutes, so this is "relaxed"; with `sync_interval:
always` in the server's configuration write `durability = "full"` in the class.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import nats
from nats.js.api import KeyValueConfig
from nats.js.errors import BadRequestError, KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from ropewalk import KVStore, Timeline

R = TypeVar("R")
SECONDS = 20.0
WRONG_LAST_SEQUENCE = (10071, 10164)
MOST_KEYS = 100_000  # That the server names in one answer.


class NatsStore(KVStore):
    """A bucket of JetStream's key-value store. The client runs on an event loop of its own."""

    def __init__(self, url: str, bucket: str = "ropewalk") -> None:
        self._name, self._closed = bucket, False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._client = self._run(nats.connect(url, connect_timeout=5, max_reconnect_attempts=3))
            self._stream = self._client.jetstream(timeout=SECONDS)
            self._bucket = self._run(self._open(bucket))
        except BaseException:
            self._stop()
            raise

    async def _open(self, bucket: str) -> KeyValue:
        config = KeyValueConfig(bucket=bucket, history=1)
        return await self._stream.create_key_value(config)

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if self._closed:
            work.close()
            raise ConnectionError("the connection to NATS was closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def get(self, key: str) -> bytes | None:
        return self._run(self._entry(key))[1]

    def set(self, key: str, value: bytes) -> None:
        self._run(self._bucket.put(spelled(key), value))

    def keys(self, prefix: str) -> Iterable[str]:
        return self._run(self._keys(prefix))

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        return self._run(self._swap(key, expected, value))

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        asked = list(keys)
        found = self._run(self._each(self._entry(key) for key in asked))
        return {
            key: value for key, (_, value) in zip(asked, found, strict=True) if value is not None
        }

    def compare_and_set_many(
        self, changes: Sequence[tuple[str, bytes | None, bytes | None]]
    ) -> list[bool]:
        return self._run(self._each(self._swap(*change) for change in changes))

    def close(self) -> None:
        if self._loop.is_running():
            self._run(self._client.close())
            self._stop()

    def _stop(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(SECONDS)
        self._loop.close()

    # On the event loop.

    def _end(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()  # Whoever still waits for an answer is told now.
        self._loop.call_soon(self._loop.stop)

    async def _each(self, work: Iterable[Coroutine[Any, Any, R]]) -> list[R]:
        return list(await asyncio.gather(*work))

    async def _keys(self, prefix: str) -> list[str]:
        """The keys that begin so. The client's own `keys()` misses some now and then.

        The server names those that were removed, too, so each is looked at.
        """
        place = f"$KV.{self._name}."
        stream = await self._stream.stream_info(f"KV_{self._name}", subjects_filter=f"{place}>")
        named = [unspelled(one.removeprefix(place)) for one in stream.state.subjects or {}]
        if len(named) >= MOST_KEYS:
            raise OSError(f"{self._name} has more keys than the server names at once")
        asked = [key for key in named if key.startswith(prefix)]
        found: list[str] = []
        for start in range(0, len(asked), 256):
            some = asked[start : start + 256]
            values = await self._each(self._entry(key) for key in some)
            found += [
                key for key, (_, value) in zip(some, values, strict=True) if value is not None
            ]
        return found

    async def _entry(self, key: str) -> tuple[int, bytes | None]:
        """The revision of a key, and its value; nothing for one that is not there."""
        try:
            entry = await self._bucket.get(spelled(key))
        except KeyNotFoundError as gone:  # Also one that was removed: that is a revision, too.
            removed = getattr(gone, "entry", None)
            return (0 if removed is None else removed.revision), None
        return entry.revision or 0, entry.value or b""

    async def _swap(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        revision, now = await self._entry(key)
        if now != expected:
            return False
        if now is None and value is None:
            return True
        try:
            if value is None:
                await self._bucket.delete(spelled(key), last=revision)
            else:
                await self._bucket.update(spelled(key), value, last=revision)
        except KeyWrongLastSequenceError:
            return False
        except BadRequestError as error:  # What `delete` raises.
            if error.err_code not in WRONG_LAST_SEQUENCE:
                raise
            return False
        return True


def spelled(key: str) -> str:
    """A key in the letters that NATS allows."""
    return key.replace("%", "=25").replace("~", "=7E").replace(".", "=2E")


def unspelled(key: str) -> str:
    return key.replace("=2E", ".").replace("=7E", "~").replace("=25", "%")


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else "nats://localhost:4222"
    with NatsStore(url).as_store() as store:
        agent = Timeline("researcher", store=store)
        agent.checkpoint({"task": "find cafes", "stage": "parse"})
        print(f"{url} holds {agent.get_state()!r}")


if __name__ == "__main__":
    main()
