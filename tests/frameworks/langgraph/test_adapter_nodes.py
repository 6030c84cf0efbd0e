"""Nodes of every kind that LangGraph takes, and graphs inside graphs."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnablePassthrough
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, RetryPolicy, Send, StreamWriter, interrupt
from pydantic import BaseModel

from ropewalk import AgentState, Externalized, Inline, MemoryStore
from ropewalk.adapters.langgraph import LangGraphAdapter
from ropewalk.errors import InvalidInput
from tests.frameworks.langgraph.adapting import (
    DURABILITIES,
    MARKER,
    CountingStore,
    chain,
    docs,
    make,
    searched_saver,
    thread,
)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def adapter(store: CountingStore) -> LangGraphAdapter:
    return make(store)


def function(state: Any) -> dict[str, Any]:
    return {"docs": [*state["docs"], "more"]}


async def coroutine(state: Any) -> dict[str, Any]:
    return function(state)


def generator(state: Any) -> Iterator[dict[str, Any]]:
    yield {"answer": "soon"}
    yield function(state)


async def stream(state: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"answer": "soon"}
    yield function(state)


class Caller:
    def __call__(self, state: Any) -> dict[str, Any]:
        return function(state)

    async def later(self, state: Any) -> dict[str, Any]:
        return function(state)

    def now(self, state: Any) -> dict[str, Any]:
        return function(state)


class AsyncCallable:
    async def __call__(self, state: Any) -> dict[str, Any]:
        return function(state)


class StreamCallable:
    async def __call__(self, state: Any) -> AsyncIterator[dict[str, Any]]:
        yield function(state)


def with_more(more: str, state: Any) -> dict[str, Any]:
    return {"docs": [*state["docs"], more]}


async def later_with_more(more: str, state: Any) -> dict[str, Any]:
    return with_more(more, state)


KINDS: dict[str, Any] = {
    "function": function,
    "coroutine": coroutine,
    "generator": generator,
    "stream": stream,
    "callable": Caller(),
    "method": Caller().now,
    "async method": Caller().later,
    "async callable": AsyncCallable(),
    "stream callable": StreamCallable(),
    "partial": partial(with_more, "more"),
    "partial of a coroutine": partial(later_with_more, "more"),
    "lambda": lambda state: {"docs": [*state["docs"], "more"]},
    "runnable": RunnableLambda(function),
    "runnable of both": RunnableLambda(function, coroutine),
    "sequence": RunnablePassthrough() | RunnableLambda(function),
}
ONLY_ASYNC = {
    "coroutine",
    "stream",
    "async method",
    "async callable",
    "stream callable",
    "partial of a coroutine",
}


def graph_of(adapter: LangGraphAdapter, node: Any, way: str) -> Any:
    builder = StateGraph(adapter.schema())
    builder.add_node("node", adapter.wrap_node(node) if way != "by the graph" else node)
    builder.add_edge(START, "node")
    saver = InMemorySaver()
    if way == "plainly compiled":
        return builder.compile(checkpointer=saver)
    return adapter.compile(builder, checkpointer=saver)


WAYS = ("wrapped", "plainly compiled", "by the graph")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - ONLY_ASYNC))
def test_a_node_of_any_kind_sees_values(kind: str, way: str, adapter: LangGraphAdapter) -> None:
    graph = graph_of(adapter, KINDS[kind], way)
    result = graph.invoke(adapter.externalize({"docs": ["one"]}), thread())

    assert adapter.hydrate(result)["docs"] == ["one", "more"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_node_of_any_kind_sees_values_in_an_event_loop(
    kind: str, way: str, adapter: LangGraphAdapter
) -> None:
    graph = graph_of(adapter, KINDS[kind], way)
    result = asyncio.run(graph.ainvoke(adapter.externalize({"docs": ["one"]}), thread()))

    assert adapter.hydrate(result)["docs"] == ["one", "more"]


@pytest.mark.parametrize("way", WAYS)
def test_a_node_gets_what_it_asks_for(way: str, adapter: LangGraphAdapter) -> None:
    seen: dict[str, Any] = {}

    def ask(
        state: Any,
        config: RunnableConfig,
        *,
        writer: StreamWriter,
        store: BaseStore,
        runtime: Runtime[Any],
    ) -> dict[str, Any]:
        writer({"progress": len(state["docs"])})
        store.put(("seen",), "config", {"thread": config["configurable"]["thread_id"]})
        seen["context"] = runtime.context
        return {"answer": "asked"}

    async def ask_later(
        state: Any, config: RunnableConfig, writer: StreamWriter, runtime: Runtime[Any]
    ) -> dict[str, Any]:
        writer({"later": config["configurable"]["thread_id"]})
        return {"docs": [*state["docs"], str(runtime.context)]}

    memory = InMemoryStore()
    builder = StateGraph(adapter.schema(), context_schema=dict)
    for node in (ask, ask_later):
        wrapped = node if way == "by the graph" else adapter.wrap_node(node)
        builder.add_node(node.__name__, wrapped)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "ask_later")
    compile = builder.compile if way == "plainly compiled" else partial(adapter.compile, builder)
    graph = compile(checkpointer=InMemorySaver(), store=memory)

    async def run() -> list[Any]:
        given = adapter.externalize({"docs": ["one"]})
        chunks = graph.astream(given, thread("7"), context={"user": 1}, stream_mode="custom")
        return [chunk async for chunk in chunks]

    written = asyncio.run(run())

    assert written == [{"progress": 1}, {"later": "7"}]
    assert memory.get(("seen",), "config").value == {"thread": "7"}
    assert seen["context"] == {"user": 1}
    assert len(adapter.hydrate(graph.get_state(thread("7")).values)["docs"]) == 2


def test_a_wrapped_node_has_the_name_and_the_ends_of_its_function(
    adapter: LangGraphAdapter,
) -> None:
    def decide(state: Any) -> Command[Literal["one", "two"]]:
        return Command(goto="two", update={"docs": docs()})

    def route(state: Any) -> Literal["one", "__end__"]:
        return "one" if len(state["docs"]) == 3 else "__end__"

    builder = StateGraph(adapter.schema())
    builder.add_node(adapter.wrap_node(decide))
    builder.add_node("one", adapter.wrap_node(lambda state: {"answer": "one"}))
    builder.add_node("two", adapter.wrap_node(lambda state: {"log": ["two"]}))
    builder.add_edge(START, "decide")
    builder.add_conditional_edges("two", adapter.wrap_node(route))
    builder.add_edge("one", END)
    graph = builder.compile()
    drawn = {(edge.source, edge.target) for edge in graph.get_graph().edges}

    assert {("decide", "one"), ("decide", "two"), ("two", "one"), ("two", "__end__")} <= drawn
    assert graph.invoke({"question": "?"})["answer"] == "one"


def test_wrapping_twice_is_wrapping_once(adapter: LangGraphAdapter) -> None:
    once = adapter.wrap_node(function)
    runnable = adapter.wrap_node(RunnableLambda(function))

    assert adapter.wrap_node(once) is once
    assert adapter.wrap_node(runnable) is runnable


def test_what_is_no_node_is_refused(adapter: LangGraphAdapter) -> None:
    with pytest.raises(InvalidInput, match="a node is a function"):
        adapter.wrap_node("retrieve")


def test_a_node_that_fails_is_tried_again_with_the_values_it_had(
    adapter: LangGraphAdapter,
) -> None:
    seen: list[int] = []

    def fail_once(state: Any) -> dict[str, Any]:
        seen.append(len(state["docs"]))
        state["docs"].append("changed in place")
        if len(seen) == 1:
            raise ConnectionError("once")
        return {"docs": state["docs"]}

    builder = StateGraph(adapter.schema())
    policy = RetryPolicy(initial_interval=0.001, jitter=False)
    builder.add_node("node", adapter.wrap_node(fail_once), retry_policy=policy)
    builder.add_edge(START, "node")
    result = adapter.compile(builder).invoke({"docs": ["one"]})

    assert seen == [1, 1] and result["docs"] == ["one", "changed in place"]


def test_a_tool_node_finds_messages_in_the_state(adapter: LangGraphAdapter) -> None:
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    class State(AgentState):
        messages: Externalized[list[Any]]

    @tool  # type: ignore[untyped-decorator, unused-ignore]
    def search(text: str) -> str:
        """Search."""
        return f"found {text}"

    adapter = LangGraphAdapter(State, backend=MemoryStore())
    builder = StateGraph(adapter.schema())
    builder.add_node("tools", adapter.wrap_node(ToolNode([search])))
    builder.add_edge(START, "tools")
    call = {"name": "search", "args": {"text": "it"}, "id": "1", "type": "tool_call"}
    graph = adapter.compile(builder)
    result = graph.invoke({"messages": [AIMessage("", tool_calls=[call])]})

    assert result["messages"][0].content == "found it"


# In an event loop.


def test_an_asynchronous_node_stores_off_the_event_loop() -> None:
    threads: set[int] = set()

    class Watching(MemoryStore):
        def commit(self, *arguments: Any, **keywords: Any) -> Any:
            threads.add(threading.get_ident())
            return super().commit(*arguments, **keywords)

    adapter = make(Watching())

    async def give(state: Any) -> dict[str, Any]:
        return {"docs": docs(), "notes": ["x"]}

    async def run() -> int:
        graph = adapter.compile(chain(adapter, give), checkpointer=InMemorySaver())
        await graph.ainvoke({"docs": docs(1), "question": "?"}, thread())
        await graph.aupdate_state(thread(), {"docs": docs(5)})
        return threading.get_ident()

    loop = asyncio.run(run())

    assert threads and loop not in threads


def test_an_asynchronous_node_can_load_off_the_event_loop() -> None:
    threads: set[int] = set()

    class Watching(MemoryStore):
        def read(self, ids: Any) -> Any:
            threads.add(threading.get_ident())
            return super().read(ids)

    adapter = make(Watching())

    async def read(state: Any) -> dict[str, Any]:
        await state.aload("docs")
        return {"answer": f"{len(state['docs'])}"}

    async def run() -> tuple[int, Any]:
        graph = adapter.compile(chain(adapter, read))
        given = make(adapter.backend).externalize({"docs": docs()})
        return threading.get_ident(), await graph.ainvoke(given)

    loop, result = asyncio.run(run())

    assert result["answer"] == "3" and threads and loop not in threads


# Graphs inside graphs.


@dataclass
class Work:
    name: str
    docs: list[Any]


class WorkModel(BaseModel):
    name: str
    docs: Any


class Inner(TypedDict):
    docs: list[Any]


def grow(state: Any) -> dict[str, Any]:
    return {"docs": [*state["docs"], {"id": "inner", "text": MARKER}]}


def adapted_inside(adapter: LangGraphAdapter) -> Any:
    return adapter.compile(chain(adapter, grow))


def plainly_compiled_inside(adapter: LangGraphAdapter) -> Any:
    return chain(adapter, grow).compile()


INSIDE: tuple[Callable[[LangGraphAdapter], Any], ...] = (adapted_inside, plainly_compiled_inside)


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("way", ["wrapped", "by the graph", "plainly compiled"])
@pytest.mark.parametrize("inside", INSIDE)
def test_a_graph_as_a_node_works_on_references(
    inside: Any, way: str, durability: Any, adapter: LangGraphAdapter, tmp_path: Path
) -> None:
    inner = inside(adapter)
    builder = StateGraph(adapter.schema())
    builder.add_node("inner", inner if way == "by the graph" else adapter.wrap_node(inner))
    builder.add_node("last", adapter.wrap_node(lambda state: {"answer": str(len(state["docs"]))}))
    builder.add_edge(START, "inner")
    builder.add_edge("inner", "last")
    with searched_saver("sqlite", tmp_path) as (saver, stored):
        if way == "plainly compiled":
            graph = builder.compile(checkpointer=saver)
        else:
            graph = adapter.compile(builder, checkpointer=saver)
        given = adapter.externalize({"docs": docs()})
        result = graph.invoke(given, thread(), durability=durability)
        found = stored()

    assert result["answer"] == "4"
    assert MARKER.encode() not in found
    assert list(graph.get_subgraphs()) == [("inner", inner)]


def test_a_graph_as_a_node_does_not_load_what_it_hands_on(
    adapter: LangGraphAdapter, store: CountingStore
) -> None:
    inner = adapter.compile(chain(adapter, lambda_named("look")))
    graph = adapter.compile(chain(adapter, named(adapter.wrap_node(inner), "inner")))
    given = adapter.externalize({"docs": docs(), "question": "?"})
    store.reads = store.commits = 0
    graph.invoke(given)

    assert (store.reads, store.commits) == (0, 0)


def named(node: Any, name: str) -> Any:
    node.__name__ = name
    return node


def lambda_named(name: str) -> Any:
    return named(lambda state: {"answer": "looked"}, name)


def test_a_graph_with_a_state_of_its_own_gets_values(adapter: LangGraphAdapter) -> None:
    inner = StateGraph(Inner)
    inner.add_node("grow", grow)
    inner.add_edge(START, "grow")
    builder = StateGraph(adapter.schema())
    builder.add_node("inner", adapter.wrap_node(inner.compile()))
    builder.add_edge(START, "inner")
    result = adapter.compile(builder).invoke({"docs": docs(), "question": "not for the inner one"})

    assert len(result["docs"]) == 4


@pytest.mark.parametrize("inside", INSIDE)
def test_a_graph_with_a_store_of_its_own_gets_values_and_gives_values(
    inside: Any, adapter: LangGraphAdapter
) -> None:
    inner = inside(make(CountingStore()))
    builder = StateGraph(adapter.schema())
    builder.add_node("inner", adapter.wrap_node(inner))
    builder.add_edge(START, "inner")
    # What is written inside comes as the input of the graph there.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if inside is plainly_compiled_inside else "error")
        result = adapter.compile(builder).invoke({"docs": docs()})

    assert len(result["docs"]) == 4


@pytest.mark.parametrize("kind", [Work, WorkModel])
def test_an_object_that_is_sent_to_a_node_arrives_with_values(
    kind: Any, adapter: LangGraphAdapter, tmp_path: Path
) -> None:
    def send(state: Any) -> list[Send]:
        return [Send("work", kind(name=str(at), docs=[one])) for at, one in enumerate(docs())]

    def work(state: Any) -> dict[str, Any]:
        assert type(state) is kind
        return {"notes": [f"{state.name}: {state.docs[0]['text']}"]}

    builder = StateGraph(adapter.schema())
    builder.add_node("work", adapter.wrap_node(work))
    builder.add_conditional_edges(START, adapter.wrap_node(send), ["work"])
    with searched_saver("sqlite", tmp_path) as (saver, stored):
        graph = adapter.compile(builder, checkpointer=saver)
        result = graph.invoke({"question": "?"}, thread())
        found = stored()

    assert result["notes"] == [f"{at}: {one['text']}" for at, one in enumerate(docs())]
    assert MARKER.encode() not in found


def test_a_graph_that_a_node_calls_gives_values(adapter: LangGraphAdapter) -> None:
    inner = adapter.compile(chain(adapter, grow))

    def call(state: Any) -> Any:
        found = inner.invoke({"docs": state["docs"]})
        assert len(found["docs"]) == 4
        return found

    result = adapter.compile(chain(adapter, call)).invoke({"docs": docs()})

    assert len(result["docs"]) == 4


@pytest.mark.parametrize("is_async", [False, True])
def test_an_interrupt_inside_is_resumed_from_outside(
    is_async: bool, adapter: LangGraphAdapter
) -> None:
    def ask(state: Any) -> dict[str, Any]:
        return {"docs": [*state["docs"], interrupt("what?")]}

    inner = adapter.compile(chain(adapter, grow, ask))
    builder = StateGraph(adapter.schema())
    builder.add_node("inner", adapter.wrap_node(inner))
    builder.add_edge(START, "inner")
    graph = adapter.compile(builder, checkpointer=InMemorySaver())

    async def run() -> Any:
        await graph.ainvoke({"docs": docs()}, thread())
        inside = (await graph.aget_state(thread(), subgraphs=True)).tasks[0].state
        return inside, await graph.ainvoke(Command(resume="this"), thread())

    if is_async:
        inside, result = asyncio.run(run())
    else:
        graph.invoke({"docs": docs()}, thread())
        inside = graph.get_state(thread(), subgraphs=True).tasks[0].state
        result = graph.invoke(Command(resume="this"), thread())

    assert len(adapter.hydrate(inside.values)["docs"]) == 4
    assert len(result["docs"]) == 5 and result["docs"][-1] == "this"


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_command_for_the_graph_outside_brings_references(
    durability: Any, adapter: LangGraphAdapter, tmp_path: Path
) -> None:
    class Small(AgentState):
        word: Inline[str]

    small = LangGraphAdapter(Small, backend=MemoryStore())

    def leave(state: Any) -> Any:
        return Command(
            graph=Command.PARENT,
            update={"docs": docs(5), "notes": [MARKER]},
            goto=Send("last", {"docs": docs(2)}),
        )

    inner = small.compile(chain(small, leave))
    builder = StateGraph(adapter.schema())
    builder.add_node("inner", adapter.wrap_node(inner), destinations=("last",))
    builder.add_node("last", adapter.wrap_node(lambda state: {"answer": str(len(state["docs"]))}))
    builder.add_edge(START, "inner")
    with searched_saver("sqlite", tmp_path) as (saver, stored):
        graph = adapter.compile(builder, checkpointer=saver)
        result = graph.invoke({"question": "?"}, thread(), durability=durability)
        found = stored()

    assert result["answer"] == "2" and len(result["docs"]) == 5 and result["notes"] == [MARKER]
    assert MARKER.encode() not in found


def test_the_state_of_a_graph_inside_can_be_updated(
    adapter: LangGraphAdapter, tmp_path: Path
) -> None:
    def ask(state: Any) -> dict[str, Any]:
        interrupt("go on?")
        return {"answer": str(len(state["docs"]))}

    inner = adapter.compile(chain(adapter, grow, ask))
    builder = StateGraph(adapter.schema())
    builder.add_node("inner", adapter.wrap_node(inner))
    builder.add_edge(START, "inner")
    with searched_saver("sqlite", tmp_path) as (saver, stored):
        graph = adapter.compile(builder, checkpointer=saver)
        graph.invoke({"docs": docs()}, thread())
        inside = graph.get_state(thread(), subgraphs=True).tasks[0].state
        graph.update_state(inside.config, {"docs": docs(9)}, as_node="grow")
        result = graph.invoke(None, thread())
        result = graph.invoke(Command(resume=True), thread())
        found = stored()

    assert result["answer"] == "9"
    assert MARKER.encode() not in found
