"""The messages of an agent's `Memory`, each conversation a transcript."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from os import PathLike
from typing import Any, TypeAlias, TypeVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from ropewalk.errors import RefMoved
from ropewalk.store import KVStore, Store
from ropewalk.threads import ThreadCheckpointer, Transcript
from ropewalk.threads.checkpointer import threads_of
from ropewalk.threads.transcript import UNCHANGED

T = TypeVar("T")

_ARCHIVED = "archived"
"""In the state of a transcript: which of its items are archived, as ranges of positions."""


class RopewalkChatStore(AsyncDBChatStore):
    """Keeps the messages of each session in a transcript, and commits those of each call at once.

    For `Memory.from_defaults(session_id=..., chat_store=RopewalkChatStore(store))`. A commit holds
    what was added. Messages that are archived or deleted stay in the history, so `transcript(key)`
    goes back to them, and forks a session from any of its turns.

    `user_id` keeps the sessions of different users apart. `close` closes a store that this
    opened.
    """

    user_id: str | None = None
    _threads: ThreadCheckpointer[Any] = PrivateAttr()
    _owns_threads: bool = PrivateAttr()

    def __init__(
        self,
        store: ThreadCheckpointer[Any] | Store | KVStore | str | PathLike[str],
        *,
        user_id: str | None = None,
    ) -> None:
        super().__init__(user_id=user_id)
        self._threads, self._owns_threads = threads_of(store)

    @classmethod
    def class_name(cls) -> str:
        """The name of the class."""
        return "RopewalkChatStore"

    def transcript(self, key: str) -> Transcript:
        """A session as a transcript: its turns, `fork`, `rollback`, and its timeline."""
        return Transcript(key, self._threads, user_id=self.user_id, shape="llamaindex")

    def close(self) -> None:
        """Close the store, if this opened it."""
        if self._owns_threads:
            self._threads.release()

    # Reading.

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """The messages with a status, oldest first; `limit` of them, from `offset` on."""
        start = offset or 0
        end = None if limit is None else start + limit

        def read(chat: Transcript) -> list[Any]:
            return _read(chat, status)[start:end]

        return [ChatMessage.model_validate(one) for one in await self._run(key, read)]

    async def count_messages(
        self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE
    ) -> int:
        """How many messages with a status there are."""

        def count(chat: Transcript) -> int:
            held = chat.read(0)
            total = chat.count()
            archived = sum(stop - start for start, stop in _ranges(held.state))
            if status is None:
                return total
            return archived if status == MessageStatus.ARCHIVED else total - archived

        return await self._run(key, count)

    async def get_keys(self) -> list[str]:
        """The sessions that have messages."""
        threads = self._threads

        def keys() -> list[str]:
            found = [str(one.thread_id) for one in threads.list_threads({"user_id": self.user_id})]
            return [key for key in found if self.transcript(key).count()]

        return await threads.store._threads.run(keys)

    # Writing.

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Add a message at the end."""
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Add messages at the end, all of them or none."""
        items = _dumped(messages)
        if status == MessageStatus.ACTIVE:
            await self._run(key, lambda chat: chat.append(items))
        else:
            await self._edit(key, lambda held: [*held, *((one, True) for one in items)])

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Replace all messages, whatever their status, by these."""
        archived = status == MessageStatus.ARCHIVED
        items = [(one, archived) for one in _dumped(messages)]
        await self._edit(key, lambda held: items)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete a message by its number, which counts from 1, and return it; None if not there."""
        held = await self._edit(
            key, lambda held: [one for number, one in enumerate(held, 1) if number != idx]
        )
        found = held[idx - 1 : idx] if idx > 0 else []
        return ChatMessage.model_validate(found[0][0]) if found else None

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete the messages with a status, or all."""
        await self._edit(key, lambda held: [one for one in held if not _is(one, status)])

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Delete the oldest active messages, and return them."""

        def delete(held: list[_Held]) -> list[_Held]:
            oldest = set(_oldest(held, n))
            return [one for at, one in enumerate(held) if at not in oldest]

        before = await self._edit(key, delete)
        return [ChatMessage.model_validate(before[at][0]) for at in _oldest(before, n)]

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archive the oldest active messages, and return them."""

        def archive(held: list[_Held]) -> list[_Held]:
            oldest = set(_oldest(held, n))
            return [(item, old or at in oldest) for at, (item, old) in enumerate(held)]

        before = await self._edit(key, archive)
        return [ChatMessage.model_validate(before[at][0]) for at in _oldest(before, n)]

    # Inside.

    async def _run(self, key: str, function: Callable[[Transcript], T]) -> T:
        """Call a function with the transcript of a session, on a thread."""
        chat = self.transcript(key)
        return await self._threads.store._threads.run(lambda: function(chat))

    async def _edit(self, key: str, edit: Callable[[list[_Held]], list[_Held]]) -> list[_Held]:
        """Replace the messages by what is made of them, and return those from before."""

        def replace(chat: Transcript) -> list[_Held]:
            while True:
                held = chat.read()
                before = _held(held.items, held.state)
                after = edit(before)
                state = UNCHANGED if _flags(after) == _flags(before) else _state(after)
                try:
                    chat.save([item for item, _ in after], state, expect=held.head)
                except RefMoved:
                    continue  # Somebody else changed the session: the edit is made of that.
                return before

        return await self._run(key, replace)


_Held: TypeAlias = tuple[Any, bool]
"""An item, and whether it is archived."""


def _read(chat: Transcript, status: MessageStatus | None) -> list[Any]:
    """The items with a status; where the oldest are archived, only the others are read."""
    while status == MessageStatus.ACTIVE:
        held = chat.read(0)
        ranges = _ranges(held.state)
        if len(ranges) != 1 or ranges[0][0] != 0:
            break
        total = chat.count()
        if chat.seen == held.head:
            rest = chat.read(total - ranges[0][1])
            if rest.head == held.head:
                return rest.items
    held = chat.read()
    return [item for item, old in _held(held.items, held.state) if _is((item, old), status)]


def _dumped(messages: list[ChatMessage]) -> list[Any]:
    return [message.model_dump(mode="json") for message in messages]


def _is(held: _Held, status: MessageStatus | None) -> bool:
    return status is None or held[1] == (status == MessageStatus.ARCHIVED)


def _oldest(held: list[_Held], n: int) -> list[int]:
    """The positions of the oldest active messages."""
    return [at for at, (_, old) in enumerate(held) if not old][: max(0, n)]


def _flags(held: list[_Held]) -> list[bool]:
    return [old for _, old in held]


def _ranges(state: Any) -> list[list[int]]:
    return [] if state is None else list(state[_ARCHIVED])


def _held(items: list[Any], state: Any) -> list[_Held]:
    flags = [False] * len(items)
    for start, stop in _ranges(state):
        flags[start:stop] = [True] * (stop - start)
    return list(zip(items, flags, strict=True))


def _state(held: list[_Held]) -> Any:
    ranges, at = [], 0
    for old, run in groupby(_flags(held)):
        size = len(list(run))
        if old:
            ranges.append([at, at + size])
        at += size
    return {_ARCHIVED: ranges} if ranges else None
