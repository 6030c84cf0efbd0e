"""Random graphs and calls: whatever InMemorySaver makes of them, so does ours."""

from __future__ import annotations

import operator
from typing import Annotated, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.conftest import SOAK
from tests.frameworks.langgraph.graphs import extend, history, thread

FEW = settings(max_examples=400 if SOAK else 30, suppress_health_check=[HealthCheck.too_slow])


class Mixed(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    table: Annotated[dict[str, Any], operator.or_]
    last: Any
    delta: Annotated[list[Any], DeltaChannel(extend, list, snapshot_frequency=3)]


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.text(max_size=8)
    | st.binary(max_size=4)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
updates = st.fixed_dictionaries(
    {},
    optional={
        "log": st.lists(values, max_size=2),
        "table": st.dictionaries(st.sampled_from("abc"), values, max_size=2),
        "last": values,
        "delta": st.lists(values, max_size=2),
    },
)
nodes = st.tuples(st.sampled_from(["plain", "asks", "sends", "fails"]), updates)
layers = st.lists(st.lists(nodes, min_size=1, max_size=2), min_size=1, max_size=3)
calls = st.lists(
    st.one_of(
        st.tuples(st.just("invoke"), updates, st.sampled_from(["sync", "async", "exit"])),
        st.tuples(st.just("resume"), values, st.just("sync")),
        st.tuples(st.just("update"), updates, st.integers(0, 6)),
        st.tuples(st.just("replay"), st.none(), st.integers(0, 6)),
    ),
    min_size=1,
    max_size=5,
)


class Failure(Exception):
    """What a node raises every other time."""


def build(spec: list[list[Any]], saver: Any) -> Any:
    """A graph of layers: all nodes of one run side by side, then those of the next."""
    builder = StateGraph(Mixed)
    names = [[f"n{depth}{at}" for at in range(len(layer))] for depth, layer in enumerate(spec)]
    beside_sent = False
    for layer, row in zip(spec, names, strict=True):
        # When one of several nodes fails, chance decides which others are stored.
        alone = len(layer) == 1 and not beside_sent
        for (kind, update), name in zip(layer, row, strict=True):
            builder.add_node(name, _node(kind if alone or kind != "fails" else "plain", update))
        beside_sent = any(kind == "sends" for kind, _ in layer)
    builder.add_node("sent", lambda state: {"log": [f"sent {state['number']}"]})
    for name in names[0]:
        builder.add_edge(START, name)
    for depth, row in enumerate(names):
        goes_on = names[depth + 1] if depth + 1 < len(names) else [END]
        for (kind, _), name in zip(spec[depth], row, strict=True):
            if kind == "sends":
                builder.add_conditional_edges(name, _sender(goes_on), [*goes_on, "sent"])
            else:
                for after in goes_on:
                    builder.add_edge(name, after)
    return builder.compile(checkpointer=saver)


def _sender(goes_on: list[str]) -> Any:
    def route(state: Any) -> list[Any]:
        return [*goes_on, *(Send("sent", {"number": number}) for number in range(2))]

    return route


def _node(kind: str, update: dict[str, Any]) -> Any:
    ran = [0]

    def node(state: Mixed) -> dict[str, Any]:
        if kind == "asks":
            return {**update, "last": interrupt("what?")}
        ran[0] += 1
        if kind == "fails" and ran[0] % 2:
            raise Failure("every other time")
        return update

    return node


def act(graph: Any, call: Any) -> Any:
    """Make one call; what it returned, or which error it ended with."""
    kind, value, how = call
    try:
        if kind == "invoke":
            return graph.invoke(value, thread(), durability=how)
        if kind == "resume":
            asked = graph.get_state(thread()).interrupts
            return graph.invoke(Command(resume={one.id: value for one in asked}), thread())
        listed = list(graph.get_state_history(thread()))
        if not listed:
            return None
        old = listed[how % len(listed)].config
        if kind == "update":
            graph.update_state(old, value, as_node="n00")
            return None
        return graph.invoke(None, old)
    except (Failure, EmptyInputError, InvalidUpdateError) as error:
        return type(error).__name__


def without_ids(result: Any) -> Any:
    """What a call returned, without the ids of its questions."""
    if isinstance(result, dict) and "__interrupt__" in result:
        return {**result, "__interrupt__": [one.value for one in result["__interrupt__"]]}
    return result


@FEW
@given(layers, calls)
def test_ours_and_langgraphs_own_agree(spec: Any, wanted: Any) -> None:
    with RopewalkSaver() as saver:
        ours, official = build(spec, saver), build(spec, InMemorySaver())
        for call in wanted:
            assert without_ids(act(ours, call)) == without_ids(act(official, call))

        assert history(ours, thread()) == history(official, thread())
