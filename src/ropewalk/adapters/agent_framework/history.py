"""`RopewalkHistoryProvider`: the messages of sessions, appended to transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

from agent_framework import HistoryProvider, Message

from ropewalk.adapters.agent_framework.shape import SHAPE
from ropewalk.store import KVStore, Store
from ropewalk.threads import ThreadCheckpointer, Transcript
from ropewalk.threads.address import Id
from ropewalk.threads.checkpointer import threads_of


class RopewalkHistoryProvider(HistoryProvider):
    """The history of an agent's sessions on any store, each session as a thread.

    Stores the messages of a run when it ends, as one step of the thread that bears the id of the
    session, and reads them when the next run begins. Runs of several processes in one session
    follow each other, whole, in the order in which they end.

    `threads` is a store, the URL of one, or a `ThreadCheckpointer`; `options` are those of a
    `HistoryProvider`. With `limit` only the last messages are read.
    """

    def __init__(
        self,
        threads: ThreadCheckpointer[Any] | Store | KVStore | str | PathLike[str] | None = None,
        source_id: str = "ropewalk",
        *,
        user_id: Id | None = None,
        limit: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        self.threads, self._owns_threads = threads_of(threads)
        self._user_id, self._limit = user_id, limit

    def transcript(self, session_id: str) -> Transcript:
        """The stored conversation of a session: to fork it, or to roll it back."""
        return Transcript(session_id, self.threads, user_id=self._user_id, shape=SHAPE)

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """The messages of a session; none without one."""
        if session_id is None:
            return []
        found = await self.transcript(session_id).aitems(self._limit)
        return [Message.from_dict(one) for one in found]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append the messages of a run to those of its session."""
        if session_id is not None and messages:
            await self.transcript(session_id).aappend([one.to_dict() for one in messages])

    def close(self) -> None:
        """Close the store, if this provider opened it."""
        if self._owns_threads:
            self.threads.release()
