"""Typed state in graphs: schema, nodes, what is loaded and stored, limits and reducers."""

from __future__ import annotations

import json
import operator
import pickle
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from langgraph.types import CachePolicy, Command, interrupt

from ropewalk import (
    AgentState,
    Externalized,
    FileStore,
    Inline,
    InlineSizeExceeded,
    MemoryStore,
    auto_adapt,
)
from ropewalk.adapters.langgraph import LangGraphAdapter, RopewalkSaver
from ropewalk.errors import InvalidInput, MissingContent, NotStorable
from ropewalk.state import Runtime, append_items, default, prune_expired, release
from tests.frameworks.langgraph.adapting import (
    MARKER,
    CountingStore,
    RAGState,
    chain,
    docs,
    make,
    searched_saver,
    thread,
)


class Part(TypedDict):
    docs: list[dict[str, Any]]
    scratch: str


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def adapter(store: CountingStore) -> LangGraphAdapter:
    return make(store)


def retrieve(state: Any) -> dict[str, Any]:
    return {"docs": docs()}


# The schema.


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    class PageState(AgentState):
        question: Inline[str]
        docs: Externalized[list[dict[str, Any]]]
        answer: Inline[str]

    adapter = LangGraphAdapter(
        PageState,
        backend=FileStore(tmp_path / "state_blobs"),
        inline_threshold_bytes=64 * 1024,
    )

    def retrieve(state: Any) -> Any:
        docs = [{"id": "doc-1", "text": "large retrieved text"}]
        return {"docs": docs}

    def answer(state: Any) -> Any:
        return {"answer": f"Read {len(state['docs'])} document(s)."}

    graph = StateGraph(adapter.schema())
    graph.add_node("retrieve", adapter.wrap_node(retrieve))
    graph.add_node("answer", adapter.wrap_node(answer))
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "answer")
    result = graph.compile().invoke({"question": "?"})

    assert result["answer"] == "Read 1 document(s)."


def test_the_schema_is_always_the_same_one(adapter: LangGraphAdapter) -> None:
    assert adapter.schema() is adapter.schema()
    assert adapter.schema().__name__ == "RAGState"


def test_channels_and_managed_values_in_annotations_reach_langgraph() -> None:
    class State(AgentState):
        messages: Annotated[Inline[list[Any]], add_messages]
        inside: Inline[Annotated[list[int], operator.add]]
        left: Inline[RemainingSteps]
        docs: Externalized[Annotated[list[str], operator.add]]

    adapter = LangGraphAdapter(State, backend=MemoryStore())
    builder = StateGraph(adapter.schema())
    builder.add_node("one", adapter.wrap_node(_say_all))
    builder.add_node("two", adapter.wrap_node(_say_all))
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    result = adapter.compile(builder).invoke({"messages": [HumanMessage("hello", id="0")]})

    assert [one.content for one in result["messages"]] == ["hello", "said"]
    assert result["inside"] == [1, 1] and result["docs"] == ["a", "a"]


def _say_all(state: Any) -> dict[str, Any]:
    assert state["left"] > 0
    return {"messages": AIMessage("said", id="1"), "inside": [1], "docs": ["a"]}


def test_a_field_without_a_reducer_takes_one_write_a_step(adapter: LangGraphAdapter) -> None:
    builder = StateGraph(adapter.schema())
    for name in ("one", "two"):
        builder.add_node(name, adapter.wrap_node(retrieve))
        builder.add_edge(START, name)

    with pytest.raises(InvalidUpdateError, match="docs"):
        builder.compile().invoke({"question": "?"})


def test_a_field_that_nobody_set_has_no_value(adapter: LangGraphAdapter) -> None:
    seen: list[Any] = []

    def look(state: Any) -> None:
        seen.extend(("docs" in state, state.get("docs", "nothing"), state["notes"]))

    chain(adapter, look).compile().invoke({"question": "?"})

    assert seen == [False, "nothing", []]


def test_a_default_is_each_states_own(store: CountingStore) -> None:
    class State(AgentState):
        docs: Externalized[list[int]] = default([1, 2])
        step: Inline[int] = default(7)

    adapter = LangGraphAdapter(State, backend=store)

    def change(state: Any) -> dict[str, Any]:
        state["docs"].append(state["step"])
        return {"docs": state["docs"]}

    graph = adapter.compile(chain(adapter, change), checkpointer=InMemorySaver())
    first = graph.invoke({"step": 3}, thread("1"))
    second = graph.invoke({"step": 4}, thread("2"))

    assert first["docs"] == [1, 2, 3] and second["docs"] == [1, 2, 4]


def test_a_partial_input_schema_gets_its_fields_only(adapter: LangGraphAdapter) -> None:
    seen: list[Any] = []

    def look(state: Part) -> dict[str, Any]:
        seen.append((sorted(state), len(state["docs"])))
        return {"scratch": "kept for the next node"}

    def read(state: Part) -> dict[str, Any]:
        return {"answer": state["scratch"]}

    result = chain(adapter, retrieve, look, read).compile().invoke({"question": "?"})

    assert seen == [(["docs"], 3)] and result["answer"] == "kept for the next node"


def test_a_node_may_name_the_state_class(adapter: LangGraphAdapter) -> None:
    def look(state: RAGState) -> dict[str, Any]:
        return {"answer": f"{state['question']} {len(state['docs'])}"}

    result = chain(adapter, retrieve, look).compile().invoke({"question": "how many?"})

    assert result["answer"] == "how many? 3"


def test_a_graph_with_channels_of_its_own_is_refused(adapter: LangGraphAdapter) -> None:
    class State(TypedDict):
        docs: list[dict[str, Any]]

    with pytest.raises(InvalidInput, match=r"StateGraph\(adapter.schema\(\)\)"):
        adapter.compile(StateGraph(State))
    with pytest.raises(InvalidInput, match="StateGraph"):
        adapter.compile("a graph")


def test_the_frameworks_own_adapter_is_found() -> None:
    assert isinstance(auto_adapt(RAGState, "langgraph", backend=MemoryStore()), LangGraphAdapter)


# What is loaded, and what is stored.


def test_a_node_that_does_not_read_a_field_does_not_load_it(
    adapter: LangGraphAdapter, store: CountingStore
) -> None:
    def count(state: Any) -> dict[str, Any]:
        assert "docs" in state and len(state) and "docs" in list(state)
        return {"answer": "not read"}

    graph = adapter.compile(chain(adapter, count, retrieve), checkpointer=InMemorySaver())
    given = adapter.externalize({"docs": docs(), "question": "?"})
    store.reads = store.commits = 0
    graph.invoke(given, thread(), durability="sync", interrupt_before=["retrieve"])

    assert (store.reads, store.commits) == (0, 0)


def test_a_value_that_is_read_is_loaded_once(
    adapter: LangGraphAdapter, store: CountingStore
) -> None:
    reads: list[int] = []

    def read(state: Any) -> dict[str, Any]:
        before = store.reads
        assert state["docs"] == docs() and state["docs"] is state["docs"]
        reads.append(store.reads - before)
        before = store.reads
        assert [dict(state)["docs"], {**state}["docs"], state.get("docs")] == [docs()] * 3
        reads.append(store.reads - before)
        return {}

    given = make(store).externalize({"docs": docs(), "question": "?"})
    chain(adapter, read).compile().invoke(given)

    assert reads[0] > 0 and reads[1] == 0


def test_the_next_node_reads_what_a_node_returned_without_loading_it(
    adapter: LangGraphAdapter, store: CountingStore
) -> None:
    seen: list[Any] = []

    def change_in_place(state: Any) -> dict[str, Any]:
        state["docs"].append("not returned")
        state["docs"][0]["text"] = "not returned either"
        return {}

    def read(state: Any) -> dict[str, Any]:
        seen.append(state["docs"])
        return {}

    chain(adapter, retrieve, change_in_place, read).compile().invoke({"question": "?"})

    assert seen == [docs()] and store.reads == 0


def test_deleted_content_is_not_read_from_the_memory_of_an_adapter(
    adapter: LangGraphAdapter, store: CountingStore
) -> None:
    update = adapter.externalize({"docs": docs()})
    view = adapter.hydrate(update)
    ref = view.ref("docs")
    assert ref is not None and release(ref, store)
    store.gc(recent=0)

    with pytest.raises(MissingContent):
        view["docs"]


def test_a_value_that_was_not_changed_is_not_stored_again(
    adapter: LangGraphAdapter, store: CountingStore
) -> None:
    commits: list[int] = []

    def mark(state: Any) -> None:
        commits.append(store.commits)

    def hand_on(state: Any) -> Any:
        return {"docs": state["docs"]}

    def hand_on_all(state: Any) -> Any:
        return state

    graph = chain(adapter, retrieve, mark, hand_on, hand_on_all).compile()
    result = graph.invoke({"question": "?"})

    assert store.commits == commits[0]
    assert adapter.hydrate(result)["docs"] == docs()


def test_a_state_that_is_returned_whole_is_not_loaded(
    adapter: LangGraphAdapter, store: CountingStore
) -> None:
    def hand_on(state: Any) -> Any:
        return state

    given = adapter.externalize({"docs": docs(), "question": "?"})
    store.reads = store.commits = 0
    result = chain(adapter, hand_on).compile().invoke(given)

    assert (store.reads, store.commits) == (0, 0)
    assert result["docs"] == given["docs"]


def test_a_change_in_place_is_an_update_only_if_it_is_returned(adapter: LangGraphAdapter) -> None:
    seen: list[int] = []

    def change(state: Any) -> None:
        state["docs"].append({"id": "lost"})

    def look(state: Any) -> Any:
        seen.append(len(state["docs"]))
        state["docs"].append({"id": "kept"})
        return {"docs": state["docs"]}

    def look_again(state: Any) -> None:
        seen.append(len(state["docs"]))

    chain(adapter, retrieve, change, look, look_again).compile().invoke({"question": "?"})

    assert seen == [3, 4]


def test_what_a_node_changes_in_place_changes_no_checkpoint(adapter: LangGraphAdapter) -> None:
    def change(state: Any) -> dict[str, Any]:
        state["docs"].append({"id": "leak"})
        state["docs"][0]["text"] = "leak"
        return {"answer": "changed what was only mine"}

    graph = adapter.compile(chain(adapter, retrieve, change), checkpointer=InMemorySaver())
    first = graph.invoke({"question": "?"}, thread())
    first["docs"].clear()
    history = list(graph.get_state_history(thread()))
    history[0].values["docs"].clear()

    assert [one.values["docs"] for one in history[1:] if "docs" in one.values] == [docs()]
    assert graph.get_state(thread()).values["docs"] == docs()


def test_what_was_externalized_twice_is_externalized_once(adapter: LangGraphAdapter) -> None:
    once = adapter.externalize({"docs": docs(), "question": "?"})

    assert adapter.externalize(once) == once
    assert adapter.hydrate(adapter.externalize(adapter.hydrate(once)))["docs"] == docs()


def test_a_value_that_looks_like_the_inside_of_a_reference_is_a_value(
    adapter: LangGraphAdapter,
) -> None:
    lookalike = {"hash": "x", "backend_id": "y", "type_name": "bytes", "size_bytes": 1}

    def give(state: Any) -> Any:
        return {"docs": lookalike}

    result = adapter.compile(chain(adapter, give)).invoke({"question": "?"})

    assert result["docs"] == lookalike


def test_only_what_changed_of_a_large_value_is_stored(store: CountingStore) -> None:
    adapter = make(store)
    large = [{"id": at, "text": f"{at} " * 500} for at in range(200)]
    sizes: list[int] = []

    def fill(state: Any) -> Any:
        return {"docs": large}

    def mark(state: Any) -> None:
        sizes.append(_stored(store))

    def change(state: Any) -> Any:
        state["docs"][100] = {"id": 100, "text": "other"}
        return {"docs": state["docs"]}

    def measure(state: Any) -> None:
        sizes.append(_stored(store))

    chain(adapter, fill, mark, change, measure).compile().invoke({"question": "?"})

    assert sizes[1] - sizes[0] < sizes[0] / 10


def _stored(store: MemoryStore) -> int:
    return store.stats().payload


def test_old_checkpoints_load_their_values(adapter: LangGraphAdapter) -> None:
    def grow(state: Any) -> Any:
        return {"docs": [*state["docs"], {"id": len(state["docs"])}]}

    builder = chain(adapter, grow)
    builder.add_conditional_edges("grow", lambda state: END if len(state["docs"]) > 3 else "grow")
    graph = adapter.compile(builder, checkpointer=InMemorySaver())
    graph.invoke({"docs": []}, thread())
    history = list(graph.get_state_history(thread()))
    forked = graph.invoke(None, history[2].config)

    assert [len(one.values["docs"]) for one in history if "docs" in one.values] == [4, 3, 2, 1, 0]
    assert len(forked["docs"]) == 4


def test_content_of_checkpoints_lives_while_nodes_run_and_ends_when_its_time_is_over() -> None:
    store = CountingStore()
    runtime = Runtime(store, default_ttl_seconds=1000)
    adapter = LangGraphAdapter(RAGState, runtime=runtime)

    def look(state: Any) -> None:
        assert state["question"] == "?"

    graph = adapter.compile(chain(adapter, retrieve, look), checkpointer=InMemorySaver())
    graph.invoke({"question": "?"}, thread())
    (first,) = _expiries(store)
    later = LangGraphAdapter(RAGState, runtime=Runtime(store, default_ttl_seconds=10000))
    again = later.compile(chain(later, look), checkpointer=graph.checkpointer)
    again.invoke({"question": "?"}, thread())
    (second,) = _expiries(store)

    assert second - first > 8000 * 1_000_000
    assert len(graph.get_state(thread()).values["docs"]) == 3
    assert len(prune_expired(store, now=second + 1)) == 1


def _expiries(store: MemoryStore) -> list[int]:
    from ropewalk.history import History
    from ropewalk.store.reserved import CONTENT_SPACE

    return [one.expires_at or 0 for one in History(store, CONTENT_SPACE).pins()]


def test_content_that_is_gone_is_said(adapter: LangGraphAdapter) -> None:
    graph = adapter.compile(chain(adapter, retrieve), checkpointer=InMemorySaver())
    graph.invoke({"question": "?"}, thread())
    elsewhere = make(CountingStore())
    found = elsewhere.hydrate(dict(graph.get_state(thread()).values.view._values))

    with pytest.raises(MissingContent):
        found["docs"]


def test_a_thread_from_before_the_adapter_goes_on(
    adapter: LangGraphAdapter, tmp_path: Path
) -> None:
    class Before(TypedDict):
        question: str
        docs: list[dict[str, Any]]
        answer: str

    before = StateGraph(Before)
    before.add_node("retrieve", retrieve)
    before.add_edge(START, "retrieve")

    def answer(state: Any) -> Any:
        return {"answer": f"{len(state['docs'])}"}

    with searched_saver("sqlite", tmp_path) as (saver, _):
        before.compile(checkpointer=saver).invoke({"question": "?"}, thread())
        graph = adapter.compile(chain(adapter, answer), checkpointer=saver)
        result = graph.invoke({"question": "now?"}, thread())
        checkpoint = saver.get_tuple(thread()).checkpoint

    assert result["answer"] == "3" and result["docs"] == docs()
    assert MARKER not in str(checkpoint["channel_values"])


def test_values_that_other_stores_change_come_back_as_they_were(adapter: LangGraphAdapter) -> None:
    exact = [{1: "a", None: (1, 2), 2.5: {3}, "bytes": bytearray(b"x"), ("t",): True}]

    def give(state: Any) -> Any:
        return {"docs": exact}

    result = adapter.compile(chain(adapter, give)).invoke({"question": "?"})

    assert result["docs"] == exact
    assert type(result["docs"][0][None]) is tuple and type(result["docs"][0]["bytes"]) is bytearray


def test_none_and_empty_values_are_values(adapter: LangGraphAdapter) -> None:
    def give(state: Any) -> Any:
        return {"docs": None}

    def look(state: Any) -> Any:
        return {"answer": repr(state["docs"]), "docs": []}

    result = adapter.compile(chain(adapter, give, look)).invoke({"question": "?"})

    assert result["answer"] == "None" and result["docs"] == []


def test_what_cannot_be_stored_fails_at_the_node_and_says_where(adapter: LangGraphAdapter) -> None:
    def give(state: Any) -> Any:
        return {"docs": [{"id": 1, "open": object()}]}

    with pytest.raises(NotStorable, match=r'state.docs\[0\]\["open"\]'):
        chain(adapter, give).compile().invoke({"question": "?"})


@pytest.mark.parametrize("saver", [InMemorySaver, RopewalkSaver])
def test_a_thread_goes_on_with_any_checkpointer(saver: Any, adapter: LangGraphAdapter) -> None:
    def ask(state: Any) -> dict[str, Any]:
        return {"docs": [*state["docs"], interrupt("what?")], "notes": ["asked"]}

    builder = chain(adapter, retrieve, ask)
    builder.add_node("beside", adapter.wrap_node(lambda state: {"notes": ["beside"]}))
    builder.add_edge("retrieve", "beside")
    checkpointer = saver()
    adapter.compile(builder, checkpointer=checkpointer).invoke({"question": "?"}, thread())
    # Another program: what is pending is read from the checkpointer.
    again = make(adapter.backend)
    graph = again.compile(_rebuilt(again, builder), checkpointer=checkpointer)
    result = graph.invoke(Command(resume="this"), thread())

    assert result["docs"] == [*docs(), "this"] and sorted(result["notes"]) == ["asked", "beside"]


def _rebuilt(adapter: LangGraphAdapter, builder: Any) -> Any:
    """The same graph, with the channels of another adapter."""
    made = StateGraph(adapter.schema())
    for name, spec in builder.nodes.items():
        made.add_node(name, adapter.wrap_node(spec.runnable))
    for start, end in builder.edges:
        made.add_edge(start, end)
    return made


def test_a_serializer_that_allows_known_types_only_takes_references(
    adapter: LangGraphAdapter,
) -> None:
    serde = JsonPlusSerializer(allowed_msgpack_modules=[])
    saver = InMemorySaver(serde=serde)
    graph = adapter.compile(chain(adapter, retrieve), checkpointer=saver)
    graph.invoke({"docs": docs(1)}, thread())

    assert graph.get_state(thread()).values["docs"] == docs()


def test_a_result_that_is_cached_is_used_again(adapter: LangGraphAdapter) -> None:
    calls: list[int] = []

    def work(state: Any) -> dict[str, Any]:
        calls.append(len(state["docs"]))
        return {"docs": [*state["docs"], {"id": "worked"}]}

    builder = StateGraph(adapter.schema())
    builder.add_node("work", adapter.wrap_node(work), cache_policy=CachePolicy())
    builder.add_edge(START, "work")
    graph = adapter.compile(builder, cache=InMemoryCache())
    results = [graph.invoke({"docs": docs(count)})["docs"] for count in (3, 3, 2)]

    assert calls == [3, 2] and [len(one) for one in results] == [4, 4, 3]


# References are followed in the places of fields only.


def test_a_reference_in_somebodys_text_is_not_followed(adapter: LangGraphAdapter) -> None:
    stolen = json.loads(json.dumps(adapter.externalize({"docs": docs()})["docs"]))

    def repeat(state: Any) -> Any:
        return {"docs": [{"text": stolen}], "answer": str(stolen)}

    result = adapter.compile(chain(adapter, repeat)).invoke({"question": str(stolen)})

    assert result["docs"] == [{"text": stolen}] and result["answer"] == str(stolen)


@pytest.mark.parametrize("way", ["input", "output", "update"])
def test_a_reference_as_the_value_of_a_field_is_refused_from_outside(
    way: str, adapter: LangGraphAdapter
) -> None:
    stolen = json.loads(json.dumps(adapter.externalize({"docs": docs()})["docs"]))

    def repeat(state: Any) -> Any:
        return {"docs": stolen} if way == "output" else {}

    graph = adapter.compile(chain(adapter, repeat), checkpointer=InMemorySaver())

    def run() -> None:
        graph.invoke({"docs": stolen} if way == "input" else {"question": "?"}, thread())
        graph.update_state(thread(), {"docs": stolen})

    with pytest.raises(InvalidInput, match="ContentRef"):
        run()


def test_a_reference_that_the_program_made_is_taken(adapter: LangGraphAdapter) -> None:
    made = RAGState(backend=adapter.backend, docs=docs())

    def give(state: Any) -> Any:
        return {"docs": made.ref("docs")}

    def give_all(state: Any) -> Any:
        return made

    for node in (give, give_all):
        assert adapter.compile(chain(adapter, node)).invoke({"question": "?"})["docs"] == docs()


# Limits.


@pytest.mark.parametrize("way", ["output", "input", "update", "reducer"])
def test_an_inline_value_over_the_threshold_is_refused(way: str) -> None:
    adapter = make(inline_threshold_bytes=1000)

    def say(state: Any) -> Any:
        return {"answer": "x" * 5000} if way == "output" else {"log": ["y" * 400]}

    graph = adapter.compile(chain(adapter, say), checkpointer=InMemorySaver())

    def run() -> None:
        graph.invoke({"answer": "x" * 5000} if way == "input" else {"question": "?"}, thread())
        if way == "update":
            graph.update_state(thread(), {"answer": "x" * 5000})
        for _ in range(3):
            graph.invoke({"question": "?"}, thread())

    with pytest.raises(InlineSizeExceeded) as caught:
        run()
    assert caught.value.field == ("log" if way == "reducer" else "answer")
    assert caught.value.size > caught.value.limit == 1000


def test_a_threshold_of_the_adapter_may_be_above_that_of_others() -> None:
    adapter = make(inline_threshold_bytes=10_000_000)

    def say(state: Any) -> Any:
        return {"answer": "x" * 1_000_000}

    assert len(chain(adapter, say).compile().invoke({"question": "?"})["answer"]) == 1_000_000


def test_an_inline_value_that_only_memory_can_hold_is_left_to_langgraph(
    adapter: LangGraphAdapter,
) -> None:
    held = object()

    def give(state: Any) -> Any:
        return {"answer": held}

    assert chain(adapter, give).compile().invoke({"question": "?"})["answer"] is held


# Reducers.


def test_a_reducer_of_an_externalized_field_gets_values(store: CountingStore) -> None:
    def longest(left: list[str], right: list[str]) -> list[str]:
        return max(left, right, key=len)

    class State(AgentState):
        docs: Annotated[Externalized[list[str]], longest]

    adapter = LangGraphAdapter(State, backend=store)
    builder = StateGraph(adapter.schema())
    for name, count in (("one", 2), ("two", 5), ("three", 3)):
        builder.add_node(
            name, adapter.wrap_node(lambda state, count=count: {"docs": ["x"] * count})
        )
        builder.add_edge(START, name)
    result = adapter.compile(builder).invoke({"docs": ["x"]})

    assert result["docs"] == ["x"] * 5


@pytest.mark.parametrize("reducer", [operator.add, append_items])
def test_parts_are_appended_without_loading_what_is_there(
    reducer: Any, store: CountingStore
) -> None:
    class State(AgentState):
        notes: Annotated[Externalized[list[str]], reducer]

    adapter = LangGraphAdapter(State, backend=store)
    long = [f"{at} " * 200 for at in range(2000)]
    whole = _loading(adapter, store, long)
    builder = StateGraph(adapter.schema())
    for name in ("one", "two", "three"):
        builder.add_node(name, adapter.wrap_node(lambda state, name=name: {"notes": [name]}))
        builder.add_edge(START, name)
    graph = builder.compile()
    given = adapter.externalize({"notes": long})
    store.reads = 0
    result = graph.invoke(given)

    assert store.reads < whole / 4
    assert adapter.hydrate(result)["notes"] == [*long, "one", "three", "two"]


def _loading(adapter: LangGraphAdapter, store: CountingStore, value: Any) -> int:
    """How many objects are read to load a value."""
    given = LangGraphAdapter(adapter.state_cls, backend=store).externalize({"notes": value})
    store.reads = 0
    assert adapter.hydrate(given)["notes"] == value
    return store.reads


def test_messages_can_be_externalized(adapter: LangGraphAdapter) -> None:
    class State(AgentState):
        messages: Annotated[Externalized[list[Any]], add_messages]

    adapter = LangGraphAdapter(State, backend=MemoryStore())

    def reply(state: Any) -> Any:
        return {"messages": [AIMessage(f"{len(state['messages'])}", id="2")]}

    graph = adapter.compile(chain(adapter, reply), checkpointer=InMemorySaver())
    graph.invoke({"messages": [HumanMessage("hello", id="1")]}, thread())
    result = graph.invoke({"messages": [("user", "again")]}, thread())

    assert [one.content for one in result["messages"]] == ["hello", "3", "again"]
    assert isinstance(result["messages"][0], HumanMessage)


# The dict that nodes and callers get.


def test_a_state_is_a_dict_in_every_way_that_loads(adapter: LangGraphAdapter) -> None:
    given = adapter.externalize({"docs": docs(1), "question": "?"})

    def fresh() -> Any:
        return adapter.hydrate(given)

    expected = {"docs": docs(1), "question": "?"}
    assert fresh() == expected and expected == fresh()
    assert dict(fresh()) == expected and {**fresh()} == expected
    assert list(fresh().values()) == list(expected.values())
    assert list(fresh().items()) == list(expected.items()) and list(fresh().keys()) == [
        "docs",
        "question",
    ]
    assert fresh() | {"a": 1} == {**expected, "a": 1} == {"a": 1} | fresh()
    assert json.loads(json.dumps(fresh())) == expected
    assert pickle.loads(pickle.dumps(fresh())) == expected
    assert fresh().copy() == expected and fresh().pop("docs") == docs(1)
    assert fresh().setdefault("docs", []) == docs(1)
    assert isinstance(fresh(), dict) and "..." in repr(fresh())
    match fresh():
        case {"docs": [found]}:
            assert found == docs(1)[0]
        case _:
            raise AssertionError
    with pytest.raises(KeyError):
        fresh()["answer"]
