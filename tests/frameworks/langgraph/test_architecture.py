"""The picture of a superstep in ARCHITECTURE.md shows the modules that one really passes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from langgraph.graph import START, StateGraph

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.frameworks.langgraph.graphs import Log, thread
from tests.tracing import Passed, check_picture

FIRST, LAST = 5, 9


class Watched(Passed):
    """Passed by LangGraph's threads; the packer of the store has one of its own."""

    on = False

    def note(self, frame: Any, event: str, value: Any) -> None:
        if self.on and not threading.current_thread().name.startswith("ropewalk"):
            super().note(frame, event, value)


def test_the_picture_of_a_superstep_names_what_a_superstep_passes(tmp_path: Path) -> None:
    passed = Watched()

    def node(state: Log) -> Log:
        passed.on = FIRST <= state["count"] < LAST
        return {"count": state["count"] + 1}

    builder = StateGraph(Log)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_conditional_edges(
        "node", lambda state: "node" if state["count"] < LAST + 2 else "__end__"
    )

    threading.setprofile(passed.note)
    try:
        with RopewalkSaver(str(tmp_path / "store")) as saver:
            graph = builder.compile(checkpointer=saver)
            graph.invoke({"count": 0}, thread(recursion_limit=50), durability="sync")
    finally:
        threading.setprofile(None)

    check_picture("A superstep", passed.modules)
