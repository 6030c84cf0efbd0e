"""Sides that are checkpointers of LangGraph: the scenarios compile graphs with them."""

from __future__ import annotations

from typing import Any

from bench._model import Engine


class Saver(Engine):
    """What keeps the checkpoints of graphs. This one keeps none."""

    delta = False
    """Whether the graphs keep what grows in a DeltaChannel."""
    lasting = True
    """Whether another process can read what was kept."""

    def checkpointer(self) -> Any:
        """What a graph is compiled with. Threads that run at once ask for one each."""
        return None

    def commit(self, value: Any) -> None:
        """Keep a value as the state of a graph of one step."""
        from bench._graphs import THREAD

        self._graph().invoke({"value": value}, THREAD, durability="sync")

    def read(self) -> Any:
        """The newest value."""
        from bench._graphs import THREAD

        return self._graph().get_state(THREAD).values["value"]

    def _graph(self) -> Any:
        from langgraph.graph import END, START, StateGraph

        builder: Any = StateGraph(dict)
        builder.add_node("keep", lambda state: state)
        builder.add_edge(START, "keep")
        builder.add_edge("keep", END)
        return builder.compile(checkpointer=self.checkpointer())


def saver(engine: Engine) -> Saver:
    """The engine, which must be a checkpointer."""
    assert isinstance(engine, Saver), f"{type(engine).__name__} is no checkpointer"
    return engine
