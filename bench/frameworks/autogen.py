"""AutoGen: an agent with a tool, whose state is saved after each turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from bench._model import Place
from bench.frameworks import Conversations, Rows, Session, Turn

USAGE = RequestUsage(prompt_tokens=0, completion_tokens=0)
INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=False,
    family="unknown",
    structured_output=False,
)


def agent(ahead: list[Turn], model_context: Any = None) -> Any:
    """An agent that calls a tool in each turn, and then answers."""
    results = {turn.call: turn.result for turn in ahead}

    async def lookup(query: str) -> str:
        """Look something up."""
        return results[query]

    return AssistantAgent(
        "assistant",
        ReplayChatCompletionClient(_responses(ahead), model_info=INFO),
        tools=[lookup],
        model_context=model_context,
        reflect_on_tool_use=True,
    )


def _responses(ahead: list[Turn]) -> list[Any]:
    made: list[Any] = []
    for at, turn in enumerate(ahead):
        arguments = json.dumps({"query": turn.call})
        call = FunctionCall(id=f"call-{at}", name="lookup", arguments=arguments)
        made += [
            CreateResult(finish_reason="function_calls", content=[call], usage=USAGE, cached=False),
            CreateResult(finish_reason="stop", content=turn.answer, usage=USAGE, cached=False),
        ]
    return made


def texts(state: Mapping[str, Any]) -> list[str]:
    """The texts in a saved state."""
    found: list[str] = []
    for message in state["llm_context"]["messages"]:
        content = message["content"]
        if isinstance(content, str):
            found.append(content)
        else:
            found += [
                one["content"] if "content" in one else json.loads(one["arguments"])["query"]
                for one in content
            ]
    return found


class Talk(Session):
    """A conversation with an agent."""

    def __init__(self, side: Alone, name: str, ahead: list[Turn]) -> None:
        self.side, self.name = side, name
        self.agent = side.agent(name, ahead)

    async def turn(self, turn: Turn) -> None:
        await self.agent.run(task=turn.user)
        await self.side.save(self)


class Alone(Conversations):
    """The agent gives its state after each turn, which is not kept."""

    def agent(self, name: str, ahead: list[Turn]) -> Any:
        """An agent."""
        return agent(ahead)

    async def session(self, name: str, ahead: list[Turn]) -> Talk:
        return Talk(self, name, ahead)

    async def save(self, talk: Talk) -> None:
        """Save the state of an agent."""
        await talk.agent.save_state()


class Own(Alone):
    """AutoGen has no store: its state is saved whole, as JSON, in SQLite."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._rows = Rows(place)

    async def save(self, talk: Talk) -> None:
        self._rows.put(talk.name, await talk.agent.save_state())

    async def texts(self, name: str) -> list[str]:
        return texts(self._rows.get(name))

    async def shut(self) -> None:
        self._rows.close()


class Ours(Alone):
    """`TeamTimeline` on the embedded store: each saved state is a step."""

    async def open(self) -> None:
        import ropewalk

        self._store = ropewalk.open(str(self.place.folder / "agent.ropewalk"))
        self._timelines: dict[str, Any] = {}

    def timeline(self, name: str) -> Any:
        """The timeline of a session."""
        from ropewalk.adapters.autogen import TeamTimeline

        if name not in self._timelines:
            self._timelines[name] = TeamTimeline(name, self._store)
        return self._timelines[name]

    async def save(self, talk: Talk) -> None:
        await self.timeline(talk.name).save_state(talk.agent)

    async def texts(self, name: str) -> list[str]:
        again = agent([])
        await self.timeline(name).load_state(again)
        return texts(await again.save_state())

    async def shut(self) -> None:
        self._store.close()
