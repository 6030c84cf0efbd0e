"""`RopewalkContext`: the messages of an agent, appended to a transcript as they are added."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from os import PathLike
from typing import Any, Final

from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import FunctionExecutionResultMessage, LLMMessage
from pydantic import TypeAdapter

from ropewalk.adapters.autogen.shape import SHAPE
from ropewalk.errors import InvalidInput, NotAllowed
from ropewalk.store import KVStore, Store
from ropewalk.store.asynchronous import finishing
from ropewalk.threads import ThreadCheckpointer, Transcript
from ropewalk.threads.address import Id

_KIND: Final = "RopewalkContext"
_MESSAGES: Final[TypeAdapter[list[LLMMessage]]] = TypeAdapter(list[LLMMessage])


class RopewalkContext(ChatCompletionContext):
    """The model context of one agent in one conversation, kept in a store.

    Stores each message when it is added, as one step of the thread `id`, durable when
    `add_message` returns. So the state of the agent, and of its team, holds only where in the
    thread it was. `load_state` takes the thread back there; in a context with another id it
    begins that thread as a fork, which shares what is stored.

    `threads` is a store, the URL of one, or a `ThreadCheckpointer` that several contexts share.
    With `buffer_size` the model gets only the last messages. A task that is cancelled stops
    waiting; what it began is finished first, then the next call begins.
    """

    def __init__(
        self,
        id: Id,
        threads: ThreadCheckpointer[Any] | Store | KVStore | str | PathLike[str] | None = None,
        *,
        user_id: Id | None = None,
        initial_messages: Sequence[LLMMessage] = (),
        buffer_size: int | None = None,
    ) -> None:
        super().__init__(list(initial_messages) or None)
        if buffer_size is not None and buffer_size < 1:
            raise InvalidInput(f"buffer_size is how many messages, not {buffer_size!r:.80}")
        self.transcript = Transcript(id, threads, user_id=user_id, shape=SHAPE)
        """The stored conversation: to read it, fork it and roll it back."""
        self._buffer_size = buffer_size
        self._messages: list[LLMMessage]
        self._head: str | None = None
        """The commit at which the messages are; None before they are read."""
        self._stored = sha256()
        """The hash of the messages as they are stored, to notice those that changed in place."""
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<RopewalkContext {self.transcript.id!r} in {self.transcript.threads.store!r}>"

    @finishing
    async def add_message(self, message: LLMMessage) -> None:
        """Append a message.

        Raises `RefMoved` if others have written to the thread since, as another process with the
        same conversation would: the message is not added, and the next call reads theirs.
        """
        async with self._lock:
            await self._ready()
            await self._append([message])

    @finishing
    async def get_messages(self) -> list[LLMMessage]:
        """The messages for the model."""
        async with self._lock:
            await self._ready()
            if self._buffer_size is None:
                return list(self._messages)
            last = self._messages[-self._buffer_size :]
            orphan = bool(last) and isinstance(last[0], FunctionExecutionResultMessage)
            return last[1:] if orphan else last  # Its call is not among them.

    @finishing
    async def clear(self) -> None:
        """Remove the messages; they stay in the history of the thread."""
        async with self._lock:
            self._head = None
            await self.transcript.aclear()
            self._messages, self._head, self._stored = [], self.transcript.seen, sha256()

    @finishing
    async def save_state(self) -> Mapping[str, Any]:
        """Where in the thread the messages end; messages that were changed in place are stored."""
        async with self._lock:
            await self._ready()
            if sha256(_joined(self._messages)).digest() != self._stored.digest():
                await self._save(self._messages)
            thread = {"id": self.transcript.id, "user_id": self.transcript.user_id}
            return {"type": _KIND, "thread": thread, "head": self._head}

    @finishing
    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go to where a state was saved.

        Takes states of other model contexts, too. Messages that were added since are left behind,
        and stay in the history of the thread. Raises `NotFound` if the place is not in this store,
        and `NotAllowed` if it belongs to another user.
        """
        async with self._lock:
            if state.get("type") != _KIND:
                await self._ready()
                return await self._save(_MESSAGES.validate_python(state["messages"]))
            id, user_id = state["thread"]["id"], state["thread"]["user_id"]
            if user_id != self.transcript.user_id:
                raise NotAllowed("the state is of a conversation of another user")
            self._head = None
            await self._go_to(id, user_id, state["head"])
            return await self._ready()

    async def close(self) -> None:
        """Close the store, if this context opened it."""
        await self.transcript.aclose()

    # Inside.

    async def _ready(self) -> None:
        """Read the messages, unless they are here."""
        if self._head is None:
            found = await self.transcript.aread()
            self._messages = _MESSAGES.validate_python(found.items)
            self._head, self._stored = found.head, sha256(_joined(self._messages))
            if not self._head and self._initial_messages:
                await self._append(self._initial_messages)

    async def _append(self, messages: Sequence[LLMMessage]) -> None:
        items, joined = _dumped(messages), _joined(messages)
        try:
            self._head = await self.transcript.aappend(items, expect=self._head)
        except BaseException:
            self._head = None  # Nobody knows whether it was stored: the next call reads.
            raise
        self._stored.update(joined)
        self._messages += messages

    async def _save(self, messages: Sequence[LLMMessage]) -> None:
        items, stored = _dumped(messages), sha256(_joined(messages))
        try:
            self._head = await self.transcript.asave(items, expect=self._head)
        except BaseException:
            self._head = None  # Nobody knows whether it was stored: the next call reads.
            raise
        self._messages, self._stored = list(messages), stored

    async def _go_to(self, id: Id, user_id: Id | None, head: str) -> None:
        ours = self.transcript
        there = ours
        if (id, user_id) != (ours.id, ours.user_id):
            there = Transcript(id, ours.threads, user_id=user_id, shape=SHAPE)
        now = await ours.ahead()
        if there is not ours and head and not now:
            await there.afork(ours.id, at=head, user_id=ours.user_id)
        elif there is not ours or head != now:
            items = (await there.aat(head)).items if head else []
            await ours.asave(items, expect=now, description="loaded a state")


def _dumped(messages: Sequence[LLMMessage]) -> list[Any]:
    found: list[Any] = _MESSAGES.dump_python(list(messages), mode="json")
    return found


def _joined(messages: Sequence[LLMMessage]) -> bytes:
    """The messages as JSON, such that those of two lists together are one after the other."""
    return bytes(_MESSAGES.dump_json(list(messages))[1:-1]) + b"," if messages else b""
