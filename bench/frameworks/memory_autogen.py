"""AutoGen: an agent whose tool returns pages, and whose saved states are all kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult
from autogen_ext.models.replay import ReplayChatCompletionClient

from bench._text import Text
from bench.frameworks.autogen import INFO, USAGE
from bench.frameworks.memory import Workload, agentref_files, our_store

_PAGE = 60_000
_THRESHOLD = 1024


def _pages(number: int, pages: int) -> str:
    text = Text(1000 + number)
    return "\n".join(text.prose(_PAGE) for _ in range(pages))


def _agent(rounds: int, pages: int) -> Any:
    async def fetch(number: int) -> str:
        """Fetch the pages of a search."""
        return _pages(number, pages)

    responses: list[Any] = []
    for number in range(rounds):
        call = FunctionCall(
            id=f"call-{number}", name="fetch", arguments=json.dumps({"number": number})
        )
        responses += [
            CreateResult(finish_reason="function_calls", content=[call], usage=USAGE, cached=False),
            CreateResult(finish_reason="stop", content=_answer(number), usage=USAGE, cached=False),
        ]
    client = ReplayChatCompletionClient(responses, model_info=INFO)
    return AssistantAgent("researcher", client, tools=[fetch], reflect_on_tool_use=True)


def _task(number: int) -> str:
    return f"Find what is known of part {number}."


def _answer(number: int) -> str:
    return f"That is what is known of part {number}."


class Alone(Workload):
    """The state is saved as JSON after each turn, and every one is kept."""

    def prepare(self, size: Mapping[str, int]) -> None:
        self._rounds, self._pages = size["rounds"], size["pages"]
        self._agent = _agent(self._rounds, self._pages)

    def run(self) -> list[str]:
        return [asyncio.run(self._run())]

    async def _run(self) -> str:
        kept: list[str] = []
        messages: list[Any] = []
        for number in range(self._rounds):
            # A stream, of which nothing is kept but the agent's state.
            async for _ in self._agent.run_stream(task=_task(number)):
                pass
            state = await self._agent.save_state()
            context = state["llm_context"]
            messages += self.small(context["messages"][len(messages) :])
            kept.append(json.dumps({**state, "llm_context": {**context, "messages": messages}}))
        del state, context, self._agent
        return await self._read_back(json.loads(kept[-1]))

    async def _read_back(self, state: Any) -> str:
        """The hash of a new agent's history."""
        whole = self.whole(state["llm_context"]["messages"])
        agent = _agent(0, 0)
        await agent.load_state({**state, "llm_context": {"messages": whole}})
        return _digest((await agent.save_state())["llm_context"]["messages"])

    def small(self, messages: list[Any]) -> list[Any]:
        """New messages as a saved state has them."""
        return messages

    def whole(self, messages: list[Any]) -> list[Any]:
        """The messages of a saved state."""
        return messages


class AgentRef(Alone):
    """AgentRef's helpers for histories; each message is given to them once."""

    def prepare(self, size: Mapping[str, int]) -> None:
        from agentref.adapters.autogen import AutoGenAdapter

        super().prepare(size)
        self._adapter = AutoGenAdapter(backend=agentref_files(self.place))

    def small(self, messages: list[Any]) -> list[Any]:
        found: list[Any] = self._adapter.externalize_message_history(
            messages, threshold_bytes=_THRESHOLD
        )
        return found

    def whole(self, messages: list[Any]) -> list[Any]:
        found: list[Any] = self._adapter.hydrate_message_history(messages)
        return found


class Ours(AgentRef):
    """Our helpers, on the embedded store."""

    def prepare(self, size: Mapping[str, int]) -> None:
        from ropewalk.adapters.autogen import AutoGenAdapter

        Alone.prepare(self, size)
        self._content = our_store(self.place)
        self._adapter = AutoGenAdapter(backend=self._content)

    def close(self) -> None:
        self._content.close()


def _digest(messages: list[Any]) -> str:
    found = hashlib.sha256()
    for message in messages:
        content = message["content"]
        texts = [content] if isinstance(content, str) else [one.get("content") for one in content]
        for text in texts:
            found.update((text or "call").encode())
    return found.hexdigest()


def digests(size: Mapping[str, int]) -> list[str]:
    """What the work must end with."""
    history: list[Any] = []
    for number in range(size["rounds"]):
        pages = _pages(number, size["pages"])
        contents = [_task(number), [{}], [{"content": pages}], _answer(number)]
        history += [{"content": content} for content in contents]
    return [_digest(history)]
