"""What callers see: results, streams of every mode, and snapshots."""

from __future__ import annotations

import asyncio
import warnings
from typing import Annotated, Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, StreamWriter, interrupt

from ropewalk import AgentState, ContentRef, Externalized, Inline
from ropewalk.adapters.langgraph import LangGraphAdapter
from tests.frameworks.langgraph.adapting import CountingStore, chain, docs, make, thread


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def adapter(store: CountingStore) -> LangGraphAdapter:
    return make(store)


def retrieve(state: Any) -> dict[str, Any]:
    return {"docs": docs()}


def answer(state: Any) -> dict[str, Any]:
    return {"answer": str(len(state["docs"]))}


@pytest.fixture
def graph(adapter: LangGraphAdapter) -> Any:
    return adapter.compile(chain(adapter, retrieve, answer), checkpointer=InMemorySaver())


def test_a_result_has_values_that_are_loaded_when_they_are_read(
    graph: Any, store: CountingStore
) -> None:
    result = graph.invoke({"question": "?"}, thread())
    store.reads = 0

    assert result["answer"] == "3" and store.reads == 0
    assert result["docs"] == docs()
    assert isinstance(result.ref("docs"), ContentRef)
    assert make(store).hydrate({"docs": result.ref("docs")})["docs"] == docs() and store.reads > 0


def test_a_plainly_compiled_graph_gives_references_that_can_be_hydrated(
    adapter: LangGraphAdapter,
) -> None:
    result = chain(adapter, retrieve, answer).compile().invoke({"question": "?"})

    assert list(result["docs"]) == ["ropewalk_ref"]
    assert adapter.hydrate(result)["docs"] == docs()


def test_the_stream_of_values_has_values(graph: Any) -> None:
    chunks = list(graph.stream({"question": "?"}, thread(), stream_mode="values"))

    assert [sorted(chunk) for chunk in chunks][-1] == ["answer", "docs", "log", "question"]
    assert chunks[-1]["docs"] == docs()


def test_the_stream_of_updates_has_values(graph: Any) -> None:
    chunks = list(graph.stream({"question": "?"}, thread()))

    assert chunks == [{"retrieve": {"docs": docs()}}, {"answer": {"answer": "3"}}]


def test_several_streams_have_values_each_in_its_shape(graph: Any) -> None:
    chunks = list(graph.stream({"question": "?"}, thread(), stream_mode=["updates", "values"]))

    assert ("updates", {"retrieve": {"docs": docs()}}) in chunks
    assert chunks[-1] == ("values", {"question": "?", "docs": docs(), "log": [], "answer": "3"})


def test_streams_of_the_second_version_have_values(graph: Any) -> None:
    chunks = list(graph.stream({"question": "?"}, thread(), stream_mode="values", version="v2"))
    result = graph.invoke({"question": "?"}, thread(), version="v2")

    assert chunks[-1]["type"] == "values" and chunks[-1]["data"]["docs"] == docs()
    assert result.value["docs"] == docs()


def test_the_stream_of_a_graph_inside_has_values(graph: Any, adapter: LangGraphAdapter) -> None:
    builder = StateGraph(adapter.schema())
    builder.add_node("inner", adapter.wrap_node(graph))
    builder.add_edge(START, "inner")
    outer = adapter.compile(builder)
    chunks = list(outer.stream({"question": "?"}, stream_mode="updates", subgraphs=True))

    assert [sorted(chunk[1]) for chunk in chunks] == [["retrieve"], ["answer"], ["inner"]]
    assert chunks[0][1]["retrieve"]["docs"] == docs() == chunks[-1][1]["inner"]["docs"]


def test_the_streams_for_debugging_have_references(graph: Any) -> None:
    for mode in ("debug", "tasks", "checkpoints"):
        chunks = list(graph.stream({"question": "?"}, thread(mode), stream_mode=mode))

        assert "ropewalk_ref" in str(chunks)
        assert docs()[0]["text"] not in str(chunks)


def test_the_stream_of_a_writer_is_as_it_was_written(adapter: LangGraphAdapter) -> None:
    def work(state: Any, writer: StreamWriter) -> dict[str, Any]:
        writer({"docs": state["docs"]})
        return {"answer": "done"}

    graph = adapter.compile(chain(adapter, work))
    chunks = list(graph.stream({"docs": docs()}, stream_mode="custom"))

    assert chunks == [{"docs": docs()}]


@pytest.mark.parametrize("is_externalized", [False, True])
def test_tokens_of_a_model_are_streamed(is_externalized: bool) -> None:
    class Outside(AgentState):
        messages: Annotated[Externalized[list[Any]], add_messages]

    class Inside(AgentState):
        messages: Annotated[Inline[list[Any]], add_messages]

    adapter = LangGraphAdapter(Outside if is_externalized else Inside, backend=CountingStore())
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three")]))

    def reply(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = adapter.compile(chain(adapter, reply), checkpointer=InMemorySaver())
    chunks = graph.stream({"messages": [("user", "count")]}, thread(), stream_mode="messages")

    assert "".join(chunk.content for chunk, _ in chunks) == "one two three"
    assert graph.get_state(thread()).values["messages"][-1].content == "one two three"


def test_an_interrupted_result_has_values_and_interrupts(
    adapter: LangGraphAdapter, store: CountingStore
) -> None:
    def ask(state: Any) -> dict[str, Any]:
        return {"answer": interrupt("what?")}

    graph = adapter.compile(chain(adapter, retrieve, ask), checkpointer=InMemorySaver())
    store.reads = 0
    result = graph.invoke({"question": "?"}, thread())

    assert store.reads == 0
    assert result["__interrupt__"][0].value == "what?" and result["docs"] == docs()
    assert graph.invoke(Command(resume="it"), thread())["answer"] == "it"


def test_a_list_of_chunks_has_values(graph: Any) -> None:
    chunks = graph.invoke({"question": "?"}, thread(), stream_mode="updates")

    assert chunks[0] == {"retrieve": {"docs": docs()}}


def test_snapshots_have_values(graph: Any, store: CountingStore) -> None:
    graph.invoke({"question": "?"}, thread())
    store.reads = 0
    snapshot = graph.get_state(thread())
    history = list(graph.get_state_history(thread()))

    assert store.reads == 0
    assert snapshot.values["docs"] == docs() == history[0].values["docs"]
    assert "docs" not in history[-1].values


def test_values_of_a_snapshot_can_be_put_back(graph: Any) -> None:
    graph.invoke({"question": "?"}, thread())
    past = graph.get_state(thread())
    graph.update_state(thread(), {"docs": [], "question": "other"})
    graph.update_state(thread(), past.values)

    assert graph.get_state(thread()).values["docs"] == docs()


def test_events_of_the_third_version_have_values(graph: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangGraph says that they are experimental.
        run = graph.stream_events({"question": "?"}, thread(), version="v3")
        result = run.output

    assert result["docs"] == docs()


def test_the_graph_describes_its_fields_by_their_types(graph: Any) -> None:
    for described in (graph.get_input_jsonschema(), graph.get_output_jsonschema()):
        assert described["properties"]["docs"]["type"] == "array"
        assert described["properties"]["question"]["type"] == "string"


def test_a_graph_with_another_configuration_is_as_good(graph: Any) -> None:
    other = graph.with_config(tags=["other"])

    assert other.invoke({"docs": docs(1)}, thread())["docs"] == docs()
    assert other.get_state(thread()).values["docs"] == docs()


def test_everything_has_values_in_an_event_loop_too(graph: Any) -> None:
    async def run() -> None:
        given = {"question": "?"}
        assert (await graph.ainvoke(given, thread()))["docs"] == docs()
        chunks = [one async for one in graph.astream(given, thread(), stream_mode="updates")]
        assert chunks[0] == {"retrieve": {"docs": docs()}}
        assert (await graph.aget_state(thread())).values["docs"] == docs()
        history = [one async for one in graph.aget_state_history(thread())]
        assert history[0].values["docs"] == docs()
        (first, *_) = await graph.abatch([given], thread())
        assert first["docs"] == docs()
        events = [one async for one in graph.astream_events(given, thread(), version="v2")]
        assert events[-1]["event"] == "on_chain_end"

    asyncio.run(run())
