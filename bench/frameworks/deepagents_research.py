"""The research workflow as deep agents: ten of them at once, each with large values and files.

    python -m bench.frameworks.deepagents_research SIDE SAVER PLACE [RUNS] [ROUNDS] [PAGES]

SIDE is `own`, with the values and files in the agent's state; or `ours`, with typed state and
`RopewalkBackend`. SAVER is `memory`, `sqlite`, `postgres`, or for ours also `ropewalk`. PLACE is
an empty folder, and for Postgres the URL of an empty database. It says `ready` when everything
is imported and opened, waits for a line, and runs. Then it writes how many runs were completed,
that is, came to the right hash, as JSON, waits for another line, and ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import StateBackend
from deepagents.graph import DeepAgentState
from langchain.tools import ToolRuntime
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.types import Command

from bench._research import Research
from bench._text import Text

STEPS = ("plan", "fetch", "cut", "rank", "write", "check")


class ResearchState(DeepAgentState):
    """All that a run knows, in its state."""

    question: str
    round: int
    pages: list[dict[str, Any]]
    passages: list[dict[str, Any]]
    ranked: list[int]
    draft: str
    notes: list[str]
    digest: str


def calls(rounds: int) -> list[tuple[str, dict[str, Any]]]:
    """The tools that a run calls, in order, with their arguments."""
    made: list[tuple[str, dict[str, Any]]] = []
    for number in range(1, rounds + 1):
        text = "\n".join(Text(number).prose(60) for _ in range(100))
        path = f"/rounds/{number}.md"
        made += [("work", {"step": step}) for step in STEPS]
        made.append(("write_file", {"file_path": path, "content": text}))
        old, new = text.split("\n", 1)[0], f"Round {number}"
        made.append(("edit_file", {"file_path": path, "old_string": old, "new_string": new}))
    return [*made, ("work", {"step": "report"})]


class Scripted(BaseChatModel):
    """A model that calls one tool after the other."""

    script: list[Any]

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *rest: Any, **options: Any) -> ChatResult:
        turn = sum(isinstance(one, AIMessage) for one in messages)
        if turn < len(self.script):
            name, arguments = self.script[turn]
            call = {"name": name, "args": arguments, "id": f"call-{turn}"}
            message = AIMessage("", tool_calls=[call])
        else:
            message = AIMessage("Done.")
        return ChatResult(generations=[ChatGeneration(message=message)])

    @property
    def _llm_type(self) -> str:
        return "scripted"


def options_of(research: Research) -> dict[str, Any]:
    """The model and the tools of an agent."""

    @tool
    def work(step: str, runtime: ToolRuntime) -> Command[Any]:
        """Do a step of the research."""
        update = getattr(research, step)(runtime.state)
        said = ToolMessage(f"{step}: done", tool_call_id=str(runtime.tool_call_id))
        return Command(update={**update, "messages": [said]})

    # With room for the whole conversation, so that none of it is summarised.
    profile = {"max_input_tokens": 10_000_000}
    model = Scripted(script=calls(research.rounds), profile=profile)
    return {"model": model, "tools": [work]}


@asynccontextmanager
async def _saver(kind: str, place: str, store: Any) -> AsyncIterator[Any]:
    if kind == "sqlite":
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(f"{place}/checkpoints.sqlite") as saver:
            yield saver
    elif kind == "postgres":
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        async with AsyncPostgresSaver.from_conn_string(place) as saver:
            await saver.setup()
            yield saver
    elif kind == "ropewalk":
        from ropewalk.adapters.langgraph import RopewalkSaver

        yield RopewalkSaver(store)
    else:
        from langgraph.checkpoint.memory import InMemorySaver

        yield InMemorySaver()


@cache
def _typed() -> type:
    from ropewalk import AgentState, Externalized, Inline

    class TypedResearch(AgentState):
        """The same, with references in the places of what is large."""

        question: Inline[str]
        round: Inline[int]
        pages: Externalized[list[dict[str, Any]]]
        passages: Externalized[list[dict[str, Any]]]
        ranked: Inline[list[int]]
        draft: Externalized[str]
        notes: Inline[list[str]]
        digest: Inline[str]

    return TypedResearch


@asynccontextmanager
async def opened(side: str, saver: str, place: str, research: Research) -> AsyncIterator[Any]:
    """An agent of a side, on what keeps its checkpoints."""
    options = options_of(research)
    async with AsyncExitStack() as stack:
        if side == "own":
            checkpointer = await stack.enter_async_context(_saver(saver, place, None))
            options |= {"checkpointer": checkpointer, "backend": StateBackend()}
            yield create_deep_agent(**options, state_schema=ResearchState)
            return
        import ropewalk
        from ropewalk.adapters.deepagents import (
            DeepAgentsAdapter,
            FileVersions,
            RopewalkBackend,
            thread_branch,
        )

        url = place if "://" in place else str(Path(place) / "agents.ropewalk")
        store = stack.enter_context(ropewalk.open(url))
        checkpointer = await stack.enter_async_context(_saver(saver, place, store))
        files = RopewalkBackend(store, branch=thread_branch)
        options |= {"checkpointer": checkpointer, "backend": files}
        adapter = DeepAgentsAdapter(_typed(), backend=store)
        yield adapter.create_deep_agent(**options, middleware=[FileVersions(files)])


async def completed(agent: Any, research: Research, runs: int) -> int:
    """Run so many at once; how many came to the right hash."""
    wanted = research.digest()

    async def run(number: int) -> bool:
        config = {"configurable": {"thread_id": f"run-{number}"}}
        given = {"messages": [("user", "What is known of it?")], **research.first()}
        result = await agent.ainvoke(given, config)
        return bool(result["digest"] == wanted)

    return sum(await asyncio.gather(*map(run, range(runs))))


async def main(
    side: str, saver: str, place: str, runs: int = 10, rounds: int = 4, pages: int = 8
) -> None:
    """Open, say so, run, and tell."""
    research = Research(rounds, pages)
    async with opened(side, saver, place, research) as agent:
        print("ready", flush=True)
        sys.stdin.readline()
        done = await completed(agent, research, runs)
        print(json.dumps({"completed": done, "runs": runs}), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], *map(int, sys.argv[4:])))
