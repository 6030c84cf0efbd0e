"""Taking a LangGraph thread back: `rollback`, `undo` and `redo`, which remove no checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from ropewalk.adapters.langgraph import RopewalkSaver, export_checkpoints
from ropewalk.errors import Conflict, InvalidInput, NotFound
from tests.frameworks.langgraph.conftest import Addresses
from tests.frameworks.langgraph.engines import ENGINES, saver_at
from tests.frameworks.langgraph.graphs import (
    Log,
    asking_graph,
    delta_graph,
    history,
    line_graph,
    thread,
)

everywhere = pytest.mark.parametrize("engine", ENGINES)


def ids(graph: Any, thread_id: str = "t") -> list[str]:
    """The checkpoints of a thread, newest first."""
    found = graph.get_state_history(thread(thread_id))
    return [one.config["configurable"]["checkpoint_id"] for one in found]


def states(graph: Any) -> dict[str, Any]:
    """The state of each checkpoint of the thread, by its id."""
    found = graph.get_state_history(thread())
    return {one.config["configurable"]["checkpoint_id"]: one.values for one in found}


@everywhere
def test_a_rollback_takes_the_head_back_and_removes_nothing(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": ["in"]}, thread())
    before, earlier = states(graph), list(graph.get_state_history(thread()))[1]
    saver.timeline("t").rollback()
    head = graph.get_state(thread())
    after = states(graph)

    assert (head.values, head.next) == (earlier.values, earlier.next) == (head.values, ("n2",))
    assert head.metadata["source"] == "fork"
    assert head.parent_config == earlier.parent_config
    assert {id: after[id] for id in before} == before and len(after) == len(before) + 1


@everywhere
def test_the_graph_goes_on_from_there_and_its_tasks_run_anew(saver: RopewalkSaver) -> None:
    says = ["bad", "good"]

    def answer(state: Log) -> dict[str, Any]:
        return {"log": [says.pop(0)]}

    builder = StateGraph(Log)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"log": ["in"]}, thread())
    saver.timeline("t").rollback()
    done = graph.invoke(None, thread())

    assert done["log"] == graph.get_state(thread()).values["log"] == ["in", "good"]


def test_several_steps_or_to_any_checkpoint(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": ["one"]}, thread())
    graph.invoke({"log": ["two"]}, thread())
    found, timeline = list(graph.get_state_history(thread())), saver.timeline("t")
    timeline.rollback(4)
    back = graph.get_state(thread()).values
    timeline.rollback(to_checkpoint_id=found[0].config["configurable"]["checkpoint_id"])
    forward = graph.get_state(thread()).values
    timeline.rollback(to_checkpoint_id=timeline.history()[0].id)

    assert (back, forward) == (found[4].values, found[0].values)
    assert len(list(graph.get_state_history(thread()))) == len(found) + 2


def test_a_rollback_is_shown_as_a_branch(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": []}, thread())
    timeline = saver.timeline("t")
    left = timeline.history()
    timeline.rollback(2)
    forks = [one for one in timeline.list_branches() if one.name != "main"]

    assert [one.head for one in forks] == [left[0].id]
    assert [one.id for one in timeline.history()[1:]] == [one.id for one in left[3:]]
    assert [one.metadata["action"] for one in timeline.last_operations(1)] == ["rollback"]
    with pytest.raises(InvalidInput, match="moves its head"):
        type(timeline)("t", saver.store, branch=forks[0].name).rollback()


@everywhere
def test_undo_of_a_step_goes_back_and_removes_nothing_either(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": ["in"]}, thread())
    before, earlier = states(graph), list(graph.get_state_history(thread()))
    timeline = saver.timeline("t")
    seen = []
    for _ in range(3):
        timeline.undo()
        seen.append(graph.get_state(thread()).values)
    for _ in range(3):
        timeline.redo()
        seen.append(graph.get_state(thread()).values)
    after = states(graph)

    assert seen == [earlier[at].values for at in (1, 2, 3, 2, 1, 0)]
    assert {id: after[id] for id in before} == before
    with pytest.raises(NotFound, match="nothing to redo"):
        timeline.redo()


def test_undo_takes_back_a_rollback_and_the_graph_goes_on(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": ["in"]}, thread())
    before = history(graph, thread())
    timeline = saver.timeline("t")
    timeline.rollback(3)
    timeline.undo()
    after = history(graph, thread())
    graph.invoke({"log": ["more"]}, thread())

    assert after == before
    assert graph.get_state(thread()).values["log"] == [
        *before[0]["values"]["log"],
        "more",
        *"n0 n1 n2".split(),
    ]
    with pytest.raises(NotFound, match="nothing to redo"):
        timeline.redo()


def test_what_tasks_wrote_is_no_step(saver: RopewalkSaver) -> None:
    graph = asking_graph(saver)
    graph.invoke({"log": ["in"]}, thread())
    first = list(graph.get_state_history(thread()))[1]
    saver.timeline("t").undo()

    assert graph.get_state(thread()).next == first.next == ("__start__",)


def test_an_operation_that_is_not_the_last_step_is_not_undone(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.invoke({"log": []}, thread())
    timeline = saver.timeline("t")
    before = ids(graph)
    with pytest.raises(InvalidInput, match="not its last step"):
        timeline.undo(2)
    with pytest.raises(NotFound, match="no operation 99"):
        timeline.undo(99)

    assert ids(graph) == before


def test_the_first_step_stays(saver: RopewalkSaver) -> None:
    graph = line_graph(saver)
    graph.update_state(thread(), {"log": ["only"]}, as_node="n0")
    timeline = saver.timeline("t")
    with pytest.raises(NotFound, match="begins with operation 1"):
        timeline.undo()

    assert graph.get_state(thread()).values["log"] == ["only"]


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 11])
def test_delta_channels_go_back_too(saver: RopewalkSaver, steps: int) -> None:
    graph = delta_graph(saver)
    for turn in range(4):
        graph.invoke({"log": [f"turn {turn}"]}, thread())
    before, found = states(graph), list(graph.get_state_history(thread()))
    saver.timeline("t").rollback(steps)
    back = graph.get_state(thread())
    live = graph.invoke({"log": ["again"]}, thread())
    after = states(graph)

    assert back.values == found[steps].values and back.next == found[steps].next
    assert {id: after[id] for id in before} == before
    assert graph.get_state(thread()).values == live


def test_what_waited_for_an_answer_asks_again(saver: RopewalkSaver) -> None:
    def ask(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("how?")]}

    builder = StateGraph(Log)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"log": ["in"]}, thread())
    graph.invoke(Command(resume="badly"), thread())
    saver.timeline("t").rollback()
    asked = graph.invoke(None, thread())
    answered = graph.invoke(Command(resume="well"), thread())

    assert [one.value for one in asked["__interrupt__"]] == ["how?"]
    assert answered["log"] == ["in", "well"]


@pytest.mark.parametrize("given", [None, {"log": ["other"]}])
@pytest.mark.parametrize("turns", [1, 2])
def test_a_subgraph_with_a_memory_goes_back_too(
    saver: RopewalkSaver, turns: int, given: Any
) -> None:
    """The second time it says what it said, or would have said, the first time."""

    def run(thread_id: str, *inputs: Any) -> Any:
        for one in inputs:
            done = graph.invoke(one, thread(thread_id))
        return done

    def note(state: Log) -> dict[str, Any]:
        return {"log": [f"saw {len(state['log'])}"], "count": len(state["log"])}

    inner = StateGraph(Log)
    inner.add_node("note", note)
    inner.add_edge(START, "note")
    outer = StateGraph(Log)
    outer.add_node("inner", inner.compile(checkpointer=True))
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    before = [{"log": [f"turn {turn}"]} for turn in range(turns)]
    done = run("t", *before, {"log": ["last"]})
    # To where the subgraph runs next; and if there is a new input, to before the last one.
    saver.timeline("t").rollback(1 if given is None else 3)
    again = run("t", given)
    # To before the subgraph ever ran.
    saver.timeline("t").rollback(to_checkpoint_id=ids(graph)[-1])
    anew = run("t", {"log": ["anew"]})

    assert again == (done if given is None else run("other", *before, given))
    assert anew == run("new", {"log": ["anew"]})


def test_a_subgraph_that_asked_begins_anew(saver: RopewalkSaver) -> None:
    ran: list[str] = []

    def first(state: Log) -> dict[str, Any]:
        ran.append("first")
        return {"log": ["first"]}

    def ask(state: Log) -> dict[str, Any]:
        return {"log": [interrupt("how?")]}

    inner = StateGraph(Log)
    inner.add_node("first", first)
    inner.add_node("ask", ask)
    inner.add_edge(START, "first")
    inner.add_edge("first", "ask")
    outer = StateGraph(Log)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    graph.invoke({"log": ["in"]}, thread())
    graph.invoke(Command(resume="badly"), thread())
    saver.timeline("t").rollback()
    graph.invoke(None, thread())
    done = graph.invoke(Command(resume="well"), thread())

    assert ran == ["first", "first"]
    assert done["log"][-2:] == ["first", "well"] and "badly" not in done["log"]


def test_the_head_survives_prune_copy_and_export(
    saver: RopewalkSaver, address_of: Addresses, tmp_path: Any
) -> None:
    from langgraph.checkpoint.sqlite import SqliteSaver

    graph = delta_graph(saver)
    for turn in range(3):
        graph.invoke({"log": [f"turn {turn}"]}, thread())
    saver.timeline("t").rollback(4)
    values = graph.get_state(thread()).values
    saver.copy_thread("t", "copy")
    export_checkpoints(saver, tmp_path / "theirs.db")
    saver.prune(["t"])
    with SqliteSaver.from_conn_string(str(tmp_path / "theirs.db")) as theirs:
        given = delta_graph(theirs).get_state(thread()).values

    assert graph.get_state(thread()).values == graph.get_state(thread("copy")).values == values
    assert given == values and len(ids(graph)) == 1


@pytest.mark.parametrize("mode", ["raise", "branch"])
def test_a_run_that_was_on_its_way_loses_against_a_rollback(mode: Any) -> None:
    with RopewalkSaver(on_conflict=mode) as saver:
        graph = line_graph(saver)
        graph.invoke({"log": []}, thread())
        seen = saver.get_tuple(thread())
        assert seen is not None
        saver.timeline("t").rollback()
        back = graph.get_state(thread()).config
        late = {**seen.checkpoint, "id": "ffffffff-late"}
        try:
            saver.put(seen.config, late, seen.metadata, {})
        except Conflict:
            assert mode == "raise"

        assert graph.get_state(thread()).config == back


def test_langgraph_itself_forks_the_same_way(saver: RopewalkSaver) -> None:
    def copied(given: Any, back: Any) -> list[Any]:
        graph = line_graph(given)
        graph.invoke({"log": ["in"]}, thread())
        back(graph)
        graph.invoke(None, thread())
        return history(graph, thread())

    def theirs(graph: Any) -> None:
        old = list(graph.get_state_history(thread()))[2].config
        graph.update_state(old, None, as_node="__copy__")

    ours = copied(saver, lambda graph: saver.timeline("t").rollback(2))
    assert ours == copied(InMemorySaver(), theirs)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_it_holds_for_who_opens_the_thread_anew(engine: str, address_of: Addresses) -> None:
    address = address_of(engine)
    with saver_at(engine, address) as saver:
        graph = line_graph(saver)
        graph.invoke({"log": ["in"]}, thread())
        expected = list(graph.get_state_history(thread()))[2]
        saver.timeline("t").rollback(2)
    with saver_at(engine, address) as saver:
        found = line_graph(saver).get_state(thread())

        assert (found.values, found.next) == (expected.values, expected.next)
