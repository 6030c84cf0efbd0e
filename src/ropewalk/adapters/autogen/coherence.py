"""Agents of a team that work on shared artifacts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import ChatAgent, Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    StructuredMessage,
    TextMessage,
)
from autogen_core import CancellationToken
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import LLMMessage, UserMessage
from pydantic import BaseModel

from ropewalk.adapters.coherence import (
    BaseCoherenceAdapter,
    Turn,
    Writes,
    agent_name_of,
    contents_of,
    names_of,
    writes_of,
    written,
)
from ropewalk.errors import VersionConflict
from ropewalk.store.asynchronous import twin
from ropewalk.store.validation import expect, expect_whole

SOURCE = "shared_artifacts"
"""The source of the messages that contain the artifacts."""


class CoherenceAdapter(BaseCoherenceAdapter):
    """Shared artifacts in a conversation: fresh before a turn, committed after it.

    `agent` does both for an agent of AgentChat, and `model_context` keeps artifacts out of
    its history. `pre_turn_context` and `post_turn_commit` are the halves, for agents of the
    core API and for tools.
    """

    def pre_turn_context(
        self, agent_name: str, artifact_ids: Iterable[str], now_tick: int | None = None
    ) -> dict[str, Any]:
        """The current contents of the artifacts, as one snapshot.

        Raises `NotFound` if one of them does not exist.
        """
        return contents_of(self._given(agent_name, artifact_ids, now_tick))

    def post_turn_commit(
        self, agent_name: str, updates: Mapping[str, Any], now_tick: int | None = None
    ) -> dict[str, int]:
        """Commit the result of a turn, all or nothing; returns the new versions.

        Each artifact is checked against the version the agent last saw. Concurrent changes are
        merged, or refused with `VersionConflict`.
        """
        return self._committed(agent_name, updates, now_tick)

    apre_turn_context = twin(pre_turn_context)
    apost_turn_commit = twin(post_turn_commit)

    def model_context(
        self,
        agent_name: str,
        *,
        reads: Iterable[str],
        inner: ChatCompletionContext | None = None,
    ) -> CoherentContext:
        """A model context for an `AssistantAgent` that begins with fresh artifacts.

        Each call of the model gets their current versions. The history in `inner` (unbounded by
        default) never contains them, so no old version is left in a prompt.
        """
        sound = inner is None or isinstance(inner, ChatCompletionContext)
        expect(sound, "inner is a model context", inner)
        return CoherentContext(self, agent_name_of(agent_name), names_of(reads, "reads"), inner)

    def agent(
        self,
        agent: ChatAgent,
        *,
        reads: Iterable[str] = (),
        writes: Writes = None,
        agent_name: str | None = None,
        attempts: int = 1,
    ) -> CoherentAgent:
        """An agent of the same name that works on shared artifacts.

        Before each turn it receives the artifacts in `reads` as a message; give an
        `AssistantAgent` a `model_context` instead to keep its history free of them. After the turn
        its response is committed: `writes` is the artifact that the message becomes, or the names
        of those fields of a structured message that are artifacts, or a function from the
        `Response` to the artifacts to commit. Nothing is committed by a turn that fails or is
        cancelled before its commit begins, nor by a handoff, unless a function says what.

        If others changed an artifact in between and it cannot be merged, the turn is repeated on
        fresh artifacts, at most `attempts` times in all; then `VersionConflict` is raised.
        """
        expect(isinstance(agent, ChatAgent), "agent() wraps an agent of AgentChat", agent)
        expect_whole(attempts, 1, "attempts")
        name = agent_name_of(agent.name if agent_name is None else agent_name)
        reads = names_of(reads, "reads")
        return CoherentAgent(self, agent, name, reads, writes_of(writes), attempts)


class CoherentContext(ChatCompletionContext):
    """A model context that begins with shared artifacts; see `CoherenceAdapter.model_context`."""

    def __init__(
        self,
        adapter: CoherenceAdapter,
        agent_name: str,
        reads: list[str],
        inner: ChatCompletionContext | None,
    ) -> None:
        super().__init__()
        self._adapter, self._agent_name, self._reads = adapter, agent_name, reads
        self._inner = UnboundedChatCompletionContext() if inner is None else inner
        self.turn: Turn | None = None

    async def add_message(self, message: LLMMessage) -> None:
        """Add a message to the history."""
        await self._inner.add_message(message)

    async def get_messages(self) -> list[LLMMessage]:
        """The current artifacts, followed by the history."""
        self.turn = await self._adapter._aturn(self._agent_name, self._reads)
        told = UserMessage(content=self.turn.text(), source=SOURCE)
        return [told, *await self._inner.get_messages()]

    async def clear(self) -> None:
        """Clear the history."""
        await self._inner.clear()

    async def save_state(self) -> Mapping[str, Any]:
        """The state of the history, without artifacts."""
        state: Mapping[str, Any] = await self._inner.save_state()
        return state

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a saved history."""
        await self._inner.load_state(state)


class CoherentAgent(BaseChatAgent):
    """An agent on shared artifacts; see `CoherenceAdapter.agent`."""

    def __init__(
        self,
        adapter: CoherenceAdapter,
        agent: ChatAgent,
        agent_name: str,
        reads: list[str],
        writes: Writes,
        attempts: int,
    ) -> None:
        super().__init__(agent.name, agent.description)
        self._adapter, self._agent, self._agent_name = adapter, agent, agent_name
        self._reads, self._writes, self._attempts = reads, writes, attempts
        context = getattr(agent, "model_context", None)
        self._context = context if isinstance(context, CoherentContext) else None

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The message types of the wrapped agent."""
        types: Sequence[type[BaseChatMessage]] = self._agent.produced_message_types
        return types

    async def on_messages(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> Response:
        """Take a turn on fresh artifacts, and commit the result."""
        async for one in self.on_messages_stream(messages, cancellation_token):
            if isinstance(one, Response):
                return one
        raise AssertionError("a stream of an agent ends with a response")

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        """The same, streaming the agent's messages; the response is committed before it is sent."""
        for left in reversed(range(self._attempts)):
            if self._context is not None:
                self._context.turn = None
            turn = await self._adapter._aturn(self._agent_name, self._reads, self._writes)
            said = [*self._told(turn), *messages]
            response: Response | None = None
            async for one in self._agent.on_messages_stream(said, cancellation_token):
                if isinstance(one, Response):
                    response = one
                else:
                    yield one
            assert response is not None, "a stream of an agent ends with a response"
            try:
                await self._committed(turn, response, cancellation_token)
            except VersionConflict as conflict:
                if not left:
                    raise
                messages = [_again(conflict)]
            else:
                yield response
                return

    def _told(self, turn: Turn) -> list[BaseChatMessage]:
        return [TextMessage(content=turn.text(), source=SOURCE)] if self._reads else []

    async def _committed(self, turn: Turn, response: Response, token: CancellationToken) -> None:
        if token.is_cancelled():
            # The agent may ignore the cancellation, and nobody waits for its answer any more.
            raise asyncio.CancelledError
        if isinstance(response.chat_message, HandoffMessage) and not callable(self._writes):
            return  # A handoff names the next agent, and contains no result.
        context = self._context
        if context is not None and context.turn is not None:
            # The answer is based on what the model saw last.
            turn = replace(turn, artifacts={**turn.artifacts, **context.turn.artifacts})
        made = written(self._writes, response, lambda: _value(response))
        await token.link_future(asyncio.ensure_future(turn.acommit(made)))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Reset the agent; artifacts stay."""
        await self._agent.on_reset(cancellation_token)

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Pause the agent."""
        await self._agent.on_pause(cancellation_token)

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Resume the agent."""
        await self._agent.on_resume(cancellation_token)

    async def save_state(self) -> Mapping[str, Any]:
        """The state of the agent, without artifacts."""
        state: Mapping[str, Any] = await self._agent.save_state()
        return state

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state of the agent."""
        await self._agent.load_state(state)

    async def close(self) -> None:
        """Close the agent."""
        await self._agent.close()


def _again(conflict: VersionConflict) -> TextMessage:
    return TextMessage(
        content=f"{conflict} Others changed what you worked on. The shared artifacts are now the "
        "newest ones: take your turn again with them.",
        source=SOURCE,
    )


def _value(response: Response) -> Any:
    """The message of a response as a plain value."""
    message = response.chat_message
    if isinstance(message, StructuredMessage) and isinstance(message.content, BaseModel):
        return message.content.model_dump()
    return message.to_text()
