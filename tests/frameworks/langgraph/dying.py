"""A program whose second node kills it: `python -m tests.frameworks.langgraph.dying FOLDER WAY`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from ropewalk import FileStore
from ropewalk.adapters.langgraph import LangGraphAdapter
from tests.frameworks.langgraph.adapting import RAGState, docs, thread


def graph_in(folder: Path, saver: Any, is_deadly: bool) -> Any:
    """The graph, with documents and checkpoints in this folder."""
    adapter = LangGraphAdapter(RAGState, backend=FileStore(folder / "content"))

    def retrieve(state: Any) -> dict[str, Any]:
        return {"docs": docs(50), "log": ["retrieved"]}

    def answer(state: Any) -> dict[str, Any]:
        if is_deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"answer": f"{state['question']} {len(state['docs'])}", "log": ["answered"]}

    builder = StateGraph(adapter.schema())
    builder.add_sequence([("retrieve", adapter.wrap_node(retrieve)), ("answer", answer)])
    builder.add_edge(START, "retrieve")
    return adapter.compile(builder, checkpointer=saver)


def main() -> None:
    """Run the graph with a durability; nobody hears the end of it."""
    folder, durability = Path(sys.argv[1]), sys.argv[2]
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        graph = graph_in(folder, saver, is_deadly=True)
        graph.invoke({"question": "how many?"}, thread(), durability=durability)


if __name__ == "__main__":
    main()
