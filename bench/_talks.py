"""Where the benchmarks touch the threads of Ropewalk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench._clock import Stopwatch
from bench._model import Place
from bench._ropewalk import sqlite_store
from bench.engines.conversations import Talk
from ropewalk import Message, ThreadCheckpointer
from ropewalk.store import MemoryStore, Store

_CONFIG = {"thread_id": "bench", "user_id": "somebody"}


class ThreadTalk(Talk):
    """One thread, in memory."""

    def __init__(self, store: Store | None = None) -> None:
        super().__init__()
        self._store = MemoryStore() if store is None else store
        self._chat: ThreadCheckpointer[Any] = ThreadCheckpointer(self._store)

    def message(self, item: dict[str, Any]) -> Any:
        return Message(item["role"], item["content"], id=item["id"])

    def append(self, message: Any) -> None:
        self._chat.put_messages(_CONFIG, [message])

    def page(self, count: int) -> list[Any]:
        found = self._chat.list_messages(_CONFIG, limit=count, newest_first=True)
        found.reverse()
        return found

    def text(self, message: Any) -> str:
        said: str = message.text
        return said

    def append_with(self, message: Any, state: Any) -> None:
        self._chat.put(_CONFIG, state, [message])

    def put_state(self, state: Any) -> None:
        self._chat.put_state(_CONFIG, state)

    def state(self) -> Any:
        return self._chat.get_state(_CONFIG)

    def settle(self) -> None:
        for one in threading.enumerate():
            if one.name == "ropewalk-index":
                one.join()

    def search(self, word: str, count: int) -> list[Any]:
        return self._chat.list_messages(_CONFIG, word, limit=count)

    def stored_bytes(self) -> int:
        assert isinstance(self._store, MemoryStore), "a folder is measured by its files"
        return self._store.sizes.written_bytes


class ThreadOnDisk(ThreadTalk):
    """The same in a folder."""

    def __init__(self, place: Place) -> None:
        super().__init__(sqlite_store(place))

    def close(self) -> None:
        self._store.close()


class AwaitedThread(ThreadOnDisk):
    """The same, appended to by a coroutine."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._runner = asyncio.Runner()

    def append_each(self, messages: Sequence[Any], watch: Stopwatch) -> None:
        self._runner.run(self._append_each(messages, watch))

    async def _append_each(self, messages: Sequence[Any], watch: Stopwatch) -> None:
        for message in messages:
            await watch.waits(partial(self._chat.aput_messages, _CONFIG, [message]))

    def close(self) -> None:
        self._runner.close()
        super().close()
