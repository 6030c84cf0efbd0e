"""Retrieval in LangGraph with its own checkpointer, whose checkpoints stay small.

    pip install '.[langgraph]'
    python examples/langgraph_rag.py

The same graph runs twice: with the documents in LangGraph's state, and with the documents
in Ropewalk and references in LangGraph's state. There is no model behind it, so that it
runs anywhere.
"""

from __future__ import annotations

import sys
from typing import Any, TypedDict

from ropewalk import AgentState, Externalized, Inline, MemoryStore

QUESTIONS = (
    "How do tides work?",
    "How does bread rise?",
    "How do bees find their way home?",
    "How do old maps lie?",
)
PASSAGES = 200
"""Documents that each question finds, of about 5 KB."""


class RAGState(AgentState):
    """What the graph knows. Documents are large, so that checkpoints keep references to them."""

    question: Inline[str]
    docs: Externalized[list[dict[str, Any]]]
    best: Inline[list[int]]
    answer: Inline[str]


class PlainState(TypedDict):
    """The same as LangGraph alone would have it."""

    question: str
    docs: list[dict[str, Any]]
    best: list[int]
    answer: str


def retrieve(state: Any) -> dict[str, Any]:
    """Find documents: a search engine would be asked here."""
    topic = state["question"].split()[-1].strip("?")
    return {"docs": [_passage(topic, number) for number in range(PASSAGES)]}


def rank(state: Any) -> dict[str, Any]:
    """Choose the best of them."""
    order = sorted(state["docs"], key=lambda doc: doc["score"], reverse=True)
    return {"best": [doc["id"] for doc in order[:3]]}


def think(state: Any) -> dict[str, Any]:
    """A step that reads no documents, and so loads none."""
    return {"answer": f"Let me see about {state['question']!r}."}


def answer(state: Any) -> dict[str, Any]:
    """Answer from the best documents: a model would be asked here."""
    quotes = [state["docs"][number]["text"][:24] for number in state["best"]]
    return {"answer": f"{len(state['docs'])} documents, best: {'; '.join(quotes)}"}


NODES = (retrieve, rank, think, answer)


def build(schema: Any, wrap: Any) -> Any:
    """The graph, with a state of this schema and with nodes wrapped like this."""
    # Here and not above: this file can be looked at where there is no LangGraph.
    from langgraph.graph import START, StateGraph

    builder = StateGraph(schema)
    for node in NODES:
        builder.add_node(node.__name__, wrap(node))
    for before, after in zip((START, *(one.__name__ for one in NODES)), NODES, strict=False):
        builder.add_edge(before, after.__name__)
    return builder


def plain_graph(saver: Any) -> Any:
    """The graph as LangGraph alone has it."""
    return build(PlainState, lambda node: node).compile(checkpointer=saver)


def adapted_graph(saver: Any, store: Any) -> Any:
    """The same graph, with documents in a store of Ropewalk."""
    from ropewalk.adapters.langgraph import LangGraphAdapter

    adapter = LangGraphAdapter(RAGState, backend=store, inline_threshold_bytes=64 * 1024)
    return adapter.compile(build(adapter.schema(), adapter.wrap_node), checkpointer=saver)


def run(graph: Any) -> list[str]:
    """Ask all questions in one thread; the answers."""
    thread = {"configurable": {"thread_id": "reader"}}
    return [graph.invoke({"question": one}, thread)["answer"] for one in QUESTIONS]


def main() -> None:
    """Run both graphs, and say what their checkpointers hold."""
    try:
        from langgraph.checkpoint.memory import InMemorySaver
    except ModuleNotFoundError:
        sys.exit("this example runs graphs of LangGraph: pip install 'ropewalk[langgraph]'")

    store = MemoryStore()
    plain, small = InMemorySaver(), InMemorySaver()
    answers = run(plain_graph(plain))
    graph = adapted_graph(small, store)
    same = run(graph) == answers
    history = list(graph.get_state_history({"configurable": {"thread_id": "reader"}}))
    oldest = next(one for one in reversed(history) if "docs" in one.values)
    for said in answers:
        print(said)
    print(f"the same answers with references: {'yes' if same else 'NO'}")
    print(f"LangGraph's checkpointer holds   {_size(plain):>12,} bytes of documents and state")
    print(
        f"beside Ropewalk it holds         {_size(small):>12,} bytes, of {len(history)} checkpoints"
    )
    print(f"and Ropewalk holds               {store.stats().stored:>12,} bytes")
    first = oldest.values["docs"][0]["text"][:24]
    print(f"the oldest of them still loads {len(oldest.values['docs'])} documents: {first}...")
    sys.exit(0 if same else 1)


def _size(saver: Any) -> int:
    """The bytes that a checkpointer in memory holds: values by version, and writes."""
    blobs = sum(len(data) for _, data in saver.blobs.values())
    writes = sum(len(one[2][1]) for each in saver.writes.values() for one in each.values())
    return blobs + writes


def _passage(topic: str, number: int) -> dict[str, Any]:
    text = " ".join(f"{topic} {number}.{line}: what is known of it" for line in range(120))
    return {"id": number, "score": (number * 7919) % 1009, "text": text}


if __name__ == "__main__":
    main()
