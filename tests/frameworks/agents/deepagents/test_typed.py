"""Typed state of a deep agent: externalized fields stay out of any checkpointer's bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from ropewalk import AgentState, Externalized, FileStore, Inline, auto_adapt
from ropewalk.adapters.deepagents import DeepAgentsAdapter
from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.testing import Call, ModelServer, Turn, by_turn
from tests.frameworks.agents.deepagents.agents import model_at, thread

PAYLOAD = "a payload that is large"


class Research(AgentState):
    """What a researcher knows beside its messages."""

    topic: Inline[str]
    documents: Externalized[list[dict[str, Any]]]
    page: Externalized[str]


@tool
def fetch(topic: str, runtime: ToolRuntime) -> Command[Any]:
    """Find documents."""
    documents = [{"id": at, "text": PAYLOAD * 200} for at in range(20)]
    said = ToolMessage("found 20", tool_call_id=str(runtime.tool_call_id))
    return Command(update={"documents": documents, "topic": topic, "messages": [said]})


@tool
def look(runtime: ToolRuntime) -> str:
    """Look at what was found."""
    state = runtime.state
    return f"{len(state['documents'])} of {state['documents'][3]['id']}, {len(state['page'])}"


SCRIPT = [
    Turn.calling("fetch", topic="tides"),
    Turn("", [Call("look", {}), Call("look", {})]),
    Turn("Done."),
]


@contextmanager
def saver_of(kind: str, folder: Path) -> Iterator[Any]:
    if kind == "sqlite":
        with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
            yield saver
    elif kind == "ropewalk":
        with FileStore(folder / "store") as store:
            yield RopewalkSaver(store)
    else:
        yield InMemorySaver()


def kept_by(saver: Any, folder: Path) -> bytes:
    """Every byte that a checkpointer keeps."""
    if isinstance(saver, InMemorySaver):
        return repr((dict(saver.storage), dict(saver.blobs), dict(saver.writes))).encode()
    found = list(saver.list(None))
    files = [one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()]
    return b"".join([repr(found).encode(), *files])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "ropewalk"])
def test_a_payload_is_in_no_byte_of_a_checkpointer(
    kind: str, is_async: bool, tmp_path: Path
) -> None:
    if kind == "sqlite" and is_async:
        kind = "memory"  # The saver for event loops has a database of its own kind.
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    given = {"messages": [("user", "Look.")], "page": PAYLOAD * 1000}
    with (
        FileStore(tmp_path / "content") as content,
        saver_of(kind, folder) as saver,
        ModelServer(by_turn(SCRIPT)) as server,
    ):
        adapter = DeepAgentsAdapter(Research, backend=content)
        agent = adapter.create_deep_agent(
            model=model_at(server.url), tools=[fetch, look], checkpointer=saver
        )
        if is_async:
            result = asyncio.run(agent.ainvoke(given, thread()))
        else:
            result = agent.invoke(given, thread())
        said = [one.content for one in result["messages"] if isinstance(one, ToolMessage)]
        state = agent.get_state(thread()).values

        assert said == ["found 20", *["20 of 3, 23000"] * 2]
        assert state["documents"][19]["text"] == PAYLOAD * 200
        assert state["page"] == PAYLOAD * 1000 and state["topic"] == "tides"
        assert PAYLOAD.encode() * 2 not in kept_by(saver, folder)


def test_it_is_the_adapter_of_the_framework() -> None:
    assert isinstance(auto_adapt(Research, "deepagents"), DeepAgentsAdapter)
