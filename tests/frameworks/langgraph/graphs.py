"""Small graphs without a model, and what can be said of their history without naming ids."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Annotated, Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolCall
from langchain_core.runnables import Runnable
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    turns: int


class Log(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    count: int


def thread(thread_id: Any = "t", **more: Any) -> Any:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread_id}, **more}


def chat_graph(saver: Any) -> Any:
    """Answers with the number of messages that it has seen."""

    def answer(state: Chat) -> dict[str, Any]:
        seen = len(state["messages"])
        message = AIMessage(f"I have seen {seen}", id=f"ai-{seen}", name="model")
        return {"messages": [message], "turns": state.get("turns", 0) + 1}

    builder = StateGraph(Chat)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def line_graph(saver: Any, length: int = 3, **options: Any) -> Any:
    """Nodes n0, n1, ... one after another; each notes its name."""
    builder = StateGraph(Log)
    names = [f"n{number}" for number in range(length)]
    for name in names:
        builder.add_node(name, _noting(name))
    builder.add_edge(START, names[0])
    for before, after in itertools.pairwise(names):
        builder.add_edge(before, after)
    builder.add_edge(names[-1], END)
    return builder.compile(checkpointer=saver, **options)


def _noting(name: str) -> Any:
    def node(state: Log) -> dict[str, Any]:
        return {"log": [name], "count": state.get("count", 0) + 1}

    return node


class Fan(TypedDict, total=False):
    items: list[int]
    found: Annotated[list[str], operator.add]


def fan_graph(saver: Any, failing: Sequence[int] = ()) -> Any:
    """Works on every item in a branch of its own; `failing` ones fail as long as they are in it."""

    def spread(state: Fan) -> list[Send]:
        return [Send("work", {"item": item}) for item in state["items"]]

    def work(state: Any) -> dict[str, Any]:
        if state["item"] in failing:
            raise ValueError(f"{state['item']} fails")
        return {"found": [f"item {state['item']}"]}

    def gather(state: Fan) -> dict[str, Any]:
        return {"found": [f"all {len(state['found'])}"]}

    builder = StateGraph(Fan)
    builder.add_node("work", work)
    builder.add_node("gather", gather)
    builder.add_conditional_edges(START, spread, ["work"])
    builder.add_edge("work", "gather")
    builder.add_edge("gather", END)
    return builder.compile(checkpointer=saver)


def asking_graph(saver: Any) -> Any:
    """Two nodes side by side that ask, one of them twice; a third tells the answers."""

    def once(state: Log) -> dict[str, Any]:
        return {"log": [f"once {interrupt('once?')}"]}

    def twice(state: Log) -> dict[str, Any]:
        first = interrupt("first?")
        second = interrupt({"and": "second?"})
        return {"log": [f"twice {first} {second}"]}

    def tell(state: Log) -> dict[str, Any]:
        return {"count": len(state["log"])}

    builder = StateGraph(Log)
    for name, node in (("once", once), ("twice", twice), ("tell", tell)):
        builder.add_node(name, node)
    builder.add_edge(START, "once")
    builder.add_edge(START, "twice")
    builder.add_edge(["once", "twice"], "tell")
    builder.add_edge("tell", END)
    return builder.compile(checkpointer=saver)


def extend(state: list[Any] | None, writes: Sequence[list[Any]]) -> list[Any]:
    """A reducer of a delta channel."""
    return [*(state or []), *(one for write in writes for one in write)]


class Delta(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(extend, list, snapshot_frequency=4)]
    count: int


def delta_graph(saver: Any) -> Any:
    """Two nodes that write to a delta channel, whose snapshots come every four updates."""

    def first(state: Delta) -> dict[str, Any]:
        return {"log": [f"first {len(state['log'])}"], "count": state.get("count", 0) + 1}

    def second(state: Delta) -> dict[str, Any]:
        return {"log": [f"second {len(state['log'])}"]}

    builder = StateGraph(Delta)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile(checkpointer=saver)


class Twofold(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(extend, list, snapshot_frequency=4)]
    plain: Annotated[list[Any], operator.add]


def twofold(*said: Any) -> dict[str, Any]:
    """The same for both channels."""
    return {"log": [*said], "plain": [*said]}


def twofold_graph(saver: Any, *, asks: bool = False) -> Any:
    """Writes the same to a delta channel and to a plain one; no two runs write the same."""
    count = itertools.count()

    def noting(name: str) -> Any:
        return lambda state: twofold(f"{name} {next(count)}")

    def ask(state: Twofold) -> dict[str, Any]:
        return twofold(f"ask {interrupt('?')} {next(count)}")

    builder = StateGraph(Twofold)
    for name in ("first", "left", "right", "last"):
        builder.add_node(name, noting(name))
    beside = ["left", "right"]
    if asks:
        builder.add_node("ask", ask)
        beside.append("ask")
    builder.add_edge(START, "first")
    for name in beside:
        builder.add_edge("first", name)
    builder.add_edge(beside, "last")
    builder.add_edge("last", END)
    return builder.compile(checkpointer=saver)


class FakeModel(GenericFakeChatModel):
    """Says what it was told to say, and may be given tools."""

    def bind_tools(self, tools: Any, **options: Any) -> Runnable[Any, Any]:
        """Take any tools."""
        return self


def calling(name: str, number: int, **arguments: Any) -> AIMessage:
    """A message that calls a tool."""
    call = ToolCall(name=name, args=arguments, id=f"call-{number}")
    return AIMessage("", id=f"ai-{number}", tool_calls=[call])


def history(graph: Any, config: Any) -> list[Any]:
    """The whole history of a thread, newest first, without ids and times."""
    return [told(one) for one in graph.get_state_history(config)]


def told(snapshot: Any) -> Any:
    """What a snapshot says, without ids and times."""
    return {
        "values": snapshot.values,
        "next": snapshot.next,
        "source": snapshot.metadata.get("source"),
        "step": snapshot.metadata["step"],
        "interrupts": [one.value for one in snapshot.interrupts],
        "tasks": [
            (task.name, str(task.error), task.result, [one.value for one in task.interrupts])
            for task in snapshot.tasks
        ],
    }
