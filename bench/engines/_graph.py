"""Sides that are ways to hold the state of a graph beside LangGraph's own checkpointer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench._model import Engine

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
