"""Graphs whose states are plain, of AgentRef, or ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypedDict

from bench._model import Engine, EngineInfo, Place, our_engine, ours

Build = Callable[[Any, Callable[[Any], Any]], Any]
"""Makes a builder of a schema, with nodes wrapped by a function."""


class GraphSide(Engine):
    """Compiles graphs whose fields are large or small, always with an `InMemorySaver`."""

    def compiled(self, build: Build, large: Mapping[str, Any], small: Mapping[str, Any]) -> Any:
        """The graph."""
        raise NotImplementedError

    def commit(self, value: Any) -> None:
        """Keep a value as the large field of a graph of one step."""
        self._state["value"] = self._kept(value)

    def read(self) -> Any:
        """The newest value."""
        return self._state["value"]

    def _kept(self, value: Any) -> Any:
        from langgraph.graph import START, StateGraph

        def build(schema: Any, wrap: Callable[[Any], Any]) -> Any:
            builder: Any = StateGraph(schema)
            builder.add_node("keep", wrap(lambda state: {"value": value}))
            builder.add_node("look", wrap(lambda state: {"seen": state["value"] == value}))
            builder.add_edge(START, "keep")
            builder.add_edge("keep", "look")
            return builder

        graph = self.compiled(build, {"value": object}, {"seen": bool})
        told = {"configurable": {"thread_id": "bench"}}
        return value if graph.invoke({"seen": False}, told)["seen"] else None


def saver() -> Any:
    """The checkpointer of all sides."""
    from langgraph.checkpoint.memory import InMemorySaver

    return InMemorySaver()


def graph_side(engine: Engine) -> GraphSide:
    """The engine, which must be such a side."""
    assert isinstance(engine, GraphSide), f"{type(engine).__name__} compiles no graphs"
    return engine


class PlainGraph(GraphSide):
    """One channel for each field."""

    def __init__(self, place: Place) -> None:
        super().__init__()

    def compiled(self, build: Build, large: Mapping[str, Any], small: Mapping[str, Any]) -> Any:
        make: Any = TypedDict
        schema = make("PlainState", {**large, **small}, total=False)
        return build(schema, lambda node: node).compile(checkpointer=saver())


class AgentRefGraph(GraphSide):
    """Each large field is externalized, all nodes are wrapped."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._agentref = import_module("agentref")
        self._content = import_module("agentref.storage").FilesystemCAS(str(place.folder))

    def compiled(self, build: Build, large: Mapping[str, Any], small: Mapping[str, Any]) -> Any:
        fields = {name: self._agentref.Externalized[one] for name, one in large.items()}
        fields |= {name: self._agentref.Inline[one] for name, one in small.items()}
        named = {"__annotations__": fields, "__module__": __name__}
        state = type("GraphState", (self._agentref.AgentRefState,), named)
        adapters = import_module("agentref.adapters.langgraph")
        adapter = adapters.LangGraphAdapter(state, backend=self._content)
        return build(adapter.schema(), adapter.wrap_node).compile(checkpointer=saver())


ENGINES = (
    EngineInfo(
        name="graph-plain",
        label="LangGraph alone",
        open=PlainGraph,
        environment="peers",
        package="langgraph",
        imports="langgraph.graph",
        note="with its InMemorySaver",
    ),
    EngineInfo(
        name="graph-agentref",
        label="LangGraph with AgentRef",
        open=AgentRefGraph,
        environment="peers",
        package="agent-checkpoint-cas",
        imports="agentref.adapters.langgraph",
        note="its adapter with FilesystemCAS, beside LangGraph's InMemorySaver",
    ),
    our_engine(
        name="graph-ropewalk",
        label="LangGraph with Ropewalk",
        open=lambda place: ours("langgraph").RopewalkGraph(place),
        environment="peers",
        imports="ropewalk.adapters.langgraph",
        note="LangGraphAdapter on the embedded store, beside LangGraph's InMemorySaver",
    ),
)
