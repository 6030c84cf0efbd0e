"""No payload reaches a checkpoint: every way into a graph, every durability, the bytes searched."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Overwrite, Send, StateUpdate, interrupt

from ropewalk.adapters.langgraph import LangGraphAdapter
from tests.frameworks.langgraph.adapting import (
    DURABILITIES,
    MARKER,
    asynchronous_saver,
    chain,
    docs,
    make,
    searched_saver,
    thread,
)
from tests.frameworks.langgraph.dying import graph_in
from tests.frameworks.turn import ROOT

Run = Callable[[LangGraphAdapter, Any, Any], Any]
"""Does something with a graph on a saver with a durability; gives the graph."""


def note(state: Any) -> dict[str, Any]:
    return {"log": [f"{len(state.get('docs', []))} documents"]}


def retrieve(state: Any) -> dict[str, Any]:
    return {"docs": docs(), "notes": [MARKER]}


def node_output(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    graph = adapter.compile(chain(adapter, retrieve, note), checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    return graph


def node_output_of_a_plainly_compiled_graph(
    adapter: LangGraphAdapter, saver: Any, durability: Any
) -> Any:
    graph = chain(adapter, retrieve, note).compile(checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    return graph


def output_of_nodes_nobody_wrapped(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    graph = adapter.compile(chain(adapter, retrieve, note, wrap=False), checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    return graph


def graph_input(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    graph = adapter.compile(chain(adapter, note), checkpointer=saver)
    graph.invoke({"docs": docs(), "notes": [MARKER]}, thread(), durability=durability)
    return graph


def input_of_a_plainly_compiled_graph(
    adapter: LangGraphAdapter, saver: Any, durability: Any
) -> Any:
    graph = chain(adapter, note).compile(checkpointer=saver)
    graph.invoke({"docs": docs(), "notes": [MARKER]}, thread(), durability=durability)
    return graph


def streamed_input(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    graph = adapter.compile(chain(adapter, note), checkpointer=saver)
    for _ in graph.stream({"docs": docs()}, thread(), durability=durability, stream_mode="debug"):
        pass
    return graph


def input_in_a_batch(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    graph = adapter.compile(chain(adapter, note), checkpointer=saver)
    graph.batch([{"docs": docs()}], thread(), durability=durability)
    return graph


def input_that_was_externalized_by_hand(
    adapter: LangGraphAdapter, saver: Any, durability: Any
) -> Any:
    graph = chain(adapter, note).compile(checkpointer=saver)
    graph.invoke(adapter.externalize({"docs": docs()}), thread(), durability=durability)
    return graph


def update_in_a_command(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def decide(state: Any) -> Command[Literal["note"]]:
        return Command(update={"docs": docs(), "notes": [MARKER]}, goto="note")

    builder = StateGraph(adapter.schema())
    builder.add_node("decide", adapter.wrap_node(decide))
    builder.add_node("note", adapter.wrap_node(note))
    builder.add_edge(START, "decide")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    return graph


def pairs_in_a_command(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def decide(state: Any) -> Any:
        return [
            Command(update=[("notes", [MARKER]), ("notes", ["more"])]),
            Command(update=[("docs", docs())]),
        ]

    graph = chain(adapter, decide, note).compile(checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    return graph


def sends_in_a_command(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def decide(state: Any) -> Command[Literal["work"]]:
        return Command(goto=[Send("work", {"docs": [one]}) for one in docs()])

    def work(state: Any) -> dict[str, Any]:
        return {"notes": [one["text"] for one in state["docs"]]}

    builder = StateGraph(adapter.schema())
    builder.add_node("decide", adapter.wrap_node(decide))
    builder.add_node("work", adapter.wrap_node(work))
    builder.add_node("gather", adapter.wrap_node(lambda state: {"docs": state["notes"]}))
    builder.add_edge(START, "decide")
    builder.add_edge("work", "gather")
    graph = builder.compile(checkpointer=saver)
    result = graph.invoke({"question": "?"}, thread(), durability=durability)

    assert adapter.hydrate(result)["docs"] == [one["text"] for one in docs()]
    return graph


def sends_of_a_path(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def each(state: Any) -> list[Send]:
        return [Send("work", {"docs": [one]}) for one in state["docs"]]

    def work(state: Any) -> dict[str, Any]:
        return {"notes": [one["text"] for one in state["docs"]]}

    builder = StateGraph(adapter.schema())
    builder.add_node("work", work)
    builder.add_conditional_edges(START, each, ["work"])
    graph = adapter.compile(builder, checkpointer=saver)
    result = graph.invoke({"docs": docs()}, thread(), durability=durability)

    assert result["notes"] == [one["text"] for one in docs()]
    return graph


def updated_state(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    graph = adapter.compile(chain(adapter, note), checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    graph.update_state(thread(), {"docs": docs(), "notes": [MARKER]})
    graph.bulk_update_state(
        thread(), [[StateUpdate({"docs": docs(5)}, "note"), StateUpdate({"notes": ["x"]}, "note")]]
    )
    return graph


def state_updated_as_input(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    graph = adapter.compile(chain(adapter, note), checkpointer=saver)
    graph.update_state(thread(), {"docs": docs()}, as_node="__input__")
    graph.invoke(None, thread(), durability=durability)
    return graph


def copied_checkpoint(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    graph = adapter.compile(chain(adapter, note), checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    graph.update_state(thread(), [({"docs": docs()}, "note")], as_node="__copy__")
    return graph


def resumed_after_an_interrupt(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def ask(state: Any) -> dict[str, Any]:
        wanted = interrupt("how many?")
        return {"docs": docs(wanted)}

    graph = adapter.compile(chain(adapter, retrieve, ask, note), checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    graph.invoke(Command(resume=7), thread(), durability=durability)

    assert len(graph.get_state(thread()).values["docs"]) == 7
    return graph


def resumed_with_an_update(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def ask(state: Any) -> dict[str, Any]:
        return {"answer": f"{interrupt('go on?')}: {len(state['docs'])}"}

    graph = adapter.compile(chain(adapter, ask), checkpointer=saver)
    graph.invoke({"docs": []}, thread(), durability=durability)
    graph.invoke(Command(resume="yes", update={"docs": docs(4)}), thread(), durability=durability)

    assert graph.get_state(thread()).values["answer"] == "yes: 4"
    return graph


def resumed_with_a_reference(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def ask(state: Any) -> dict[str, Any]:
        found = adapter.value(interrupt("which?"))
        interrupt("sure?")  # What was answered first is now read from the checkpoint.
        return {"docs": found}

    graph = adapter.compile(chain(adapter, ask, note), checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    answer = adapter.externalize({"docs": docs()})["docs"]
    graph.invoke(Command(resume=answer), thread(), durability=durability)
    graph.invoke(Command(resume="yes"), thread(), durability=durability)

    assert graph.get_state(thread()).values["docs"] == docs()
    return graph


def overwritten_field(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def clear(state: Any) -> dict[str, Any]:
        return {"notes": Overwrite([MARKER, "only this"])}

    graph = chain(adapter, retrieve, clear, note).compile(checkpointer=saver)
    result = graph.invoke({"question": "?"}, thread(), durability=durability)

    assert adapter.hydrate(result)["notes"] == [MARKER, "only this"]
    return graph


def returned_object(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    @dataclass
    class Found:
        docs: list[dict[str, Any]]
        answer: str

    def find(state: Any) -> Any:
        return Found(docs(), "found")

    graph = chain(adapter, find, note).compile(checkpointer=saver)
    graph.invoke({"question": "?"}, thread(), durability=durability)
    return graph


def state_of_a_node_returned_whole(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def change(state: Any) -> Any:
        state["docs"].append({"id": "more", "text": MARKER})
        state["answer"] = "changed"
        del state["log"], state["notes"]  # What has a reducer would be added to itself.
        return state

    graph = chain(adapter, retrieve, note, change).compile(checkpointer=saver)
    result = adapter.hydrate(graph.invoke({"question": "?"}, thread(), durability=durability))

    assert len(result["docs"]) == 4 and result["answer"] == "changed"
    return graph


def failed_node_beside_another(adapter: LangGraphAdapter, saver: Any, durability: Any) -> Any:
    def fail(state: Any) -> None:
        raise RuntimeError("no")

    builder = StateGraph(adapter.schema())
    builder.add_node("retrieve", adapter.wrap_node(retrieve))
    builder.add_node("fail", adapter.wrap_node(fail))
    builder.add_edge(START, "retrieve")
    builder.add_edge(START, "fail")
    graph = adapter.compile(builder, checkpointer=saver)
    with pytest.raises(RuntimeError):
        graph.invoke({"docs": docs()}, thread(), durability=durability)
    return graph


ROUTES: tuple[Run, ...] = (
    node_output,
    node_output_of_a_plainly_compiled_graph,
    output_of_nodes_nobody_wrapped,
    graph_input,
    input_of_a_plainly_compiled_graph,
    streamed_input,
    input_in_a_batch,
    input_that_was_externalized_by_hand,
    update_in_a_command,
    pairs_in_a_command,
    sends_in_a_command,
    sends_of_a_path,
    updated_state,
    state_updated_as_input,
    copied_checkpoint,
    resumed_after_an_interrupt,
    resumed_with_an_update,
    resumed_with_a_reference,
    overwritten_field,
    returned_object,
    state_of_a_node_returned_whole,
    failed_node_beside_another,
)


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("route", ROUTES)
def test_no_payload_reaches_a_checkpoint(
    route: Run, durability: str, kind: str, tmp_path: Path
) -> None:
    adapter = make()
    with searched_saver(kind, tmp_path) as (saver, stored):
        route(adapter, saver, durability)
        found = stored()

    assert b"ropewalk_ref" in found
    assert MARKER.encode() not in found


@pytest.mark.parametrize("durability", DURABILITIES)
def test_no_payload_reaches_a_checkpoint_of_an_asynchronous_run(
    durability: str, tmp_path: Path
) -> None:
    adapter = make()

    async def find(state: Any) -> Any:
        return Command(update={"notes": [MARKER]}, goto=[Send("work", {"docs": docs(2)})])

    async def work(state: Any) -> dict[str, Any]:
        await state.aload("docs")
        return {"docs": state["docs"] + docs(1)}

    async def run() -> bytes:
        opened, stored = asynchronous_saver(tmp_path)
        async with opened as saver:
            builder = StateGraph(adapter.schema())
            builder.add_node("find", adapter.wrap_node(find))
            builder.add_node("work", adapter.wrap_node(work))
            builder.add_edge(START, "find")
            builder.add_edge("work", END)
            graph = adapter.compile(builder, checkpointer=saver)
            await graph.ainvoke({"docs": docs()}, thread(), durability=durability)
            await graph.aupdate_state(thread(), {"docs": docs(9)}, as_node="work")
            async for _ in graph.astream(
                Command(update={"docs": docs(8)}, goto="work"), thread(), durability=durability
            ):
                pass
            state = await graph.aget_state(thread())
            assert len(state.values["docs"]) == 9
            return stored()

    found = asyncio.run(run())

    assert b"ropewalk_ref" in found
    assert MARKER.encode() not in found


def test_a_thread_goes_on_in_another_process_after_the_first_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.frameworks.langgraph.dying", str(tmp_path), "sync"]
    ended = subprocess.run(command, cwd=ROOT, check=False)
    path = tmp_path / "checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        result = graph_in(tmp_path, saver, is_deadly=False).invoke(None, thread())
        found = b"".join(one.read_bytes() for one in tmp_path.glob("checkpoints.sqlite*"))

    assert ended.returncode == -signal.SIGKILL
    assert result["answer"] == "how many? 50" and result["log"] == ["retrieved", "answered"]
    assert result["docs"] == docs(50) and MARKER.encode() not in found


def test_the_search_would_find_a_payload(tmp_path: Path) -> None:
    adapter = make()

    for kind in ("sqlite", "memory"):
        with searched_saver(kind, tmp_path) as (saver, stored):
            graph = chain(adapter, retrieve, wrap=False).compile(checkpointer=saver)
            with pytest.warns(UserWarning, match="compile"):
                graph.invoke({"question": "?"}, thread())
            assert MARKER.encode() in stored()


def test_every_durability_of_langgraph_is_looked_at() -> None:
    from langgraph.types import Durability

    assert set(DURABILITIES) == set(get_args(Durability))
