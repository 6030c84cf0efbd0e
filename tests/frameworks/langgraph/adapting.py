"""What tests of the adapter share: a state, a store that counts, savers to be searched."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph

from ropewalk import AgentState, Externalized, Inline, MemoryStore
from ropewalk.adapters.langgraph import LangGraphAdapter
from ropewalk.store import Store
from ropewalk.tree import Object

MARKER = "a payload that no checkpoint may hold"
DURABILITIES = ("sync", "async", "exit")


class RAGState(AgentState):
    question: Inline[str]
    docs: Externalized[list[dict[str, Any]]]
    notes: Annotated[Externalized[list[str]], operator.add]
    log: Annotated[Inline[list[str]], operator.add]
    answer: Inline[str]


class CountingStore(MemoryStore):
    """A store that counts the objects that are read from it, and the commits."""

    reads = 0
    commits = 0

    def read(self, ids: Any) -> list[Object]:
        wanted = list(ids)
        self.reads += len(wanted)
        return super().read(wanted)

    def commit(self, *arguments: Any, **keywords: Any) -> Any:
        self.commits += 1
        return super().commit(*arguments, **keywords)


def docs(count: int = 3) -> list[dict[str, Any]]:
    """Documents that a search finds again wherever their text is."""
    return [{"id": at, "text": f"{MARKER}, {at}"} for at in range(count)]


def make(store: Store | None = None, **options: Any) -> LangGraphAdapter:
    return LangGraphAdapter(RAGState, backend=store or CountingStore(), **options)


def chain(adapter: LangGraphAdapter, *nodes: Callable[..., Any], wrap: bool = True) -> Any:
    """A builder with nodes that follow one another, each under its name."""
    builder = StateGraph(adapter.schema())
    before = START
    for node in nodes:
        builder.add_node(node.__name__, adapter.wrap_node(node) if wrap else node)
        builder.add_edge(before, node.__name__)
        before = node.__name__
    return builder


def thread(name: str = "1") -> Any:
    return {"configurable": {"thread_id": name}}


@contextmanager
def searched_saver(kind: str, folder: Path) -> Iterator[tuple[Any, Callable[[], bytes]]]:
    """A saver of LangGraph, and all bytes that it has stored."""
    if kind == "memory":
        memory = InMemorySaver()
        yield memory, lambda: _bytes_of(memory)
        return
    path = folder / "checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        yield saver, lambda: _file_of(saver.conn, path)


def asynchronous_saver(folder: Path) -> tuple[Any, Callable[[], bytes]]:
    path = folder / "asynchronous.sqlite"
    return AsyncSqliteSaver.from_conn_string(str(path)), lambda: b"".join(
        one.read_bytes() for one in folder.glob(f"{path.name}*")
    )


def _file_of(connection: Any, path: Path) -> bytes:
    connection.commit()
    return b"".join(one.read_bytes() for one in path.parent.glob(f"{path.name}*"))


def _bytes_of(saver: InMemorySaver) -> bytes:
    plain = (
        {key: {ns: dict(held) for ns, held in one.items()} for key, one in saver.storage.items()},
        {key: dict(held) for key, held in saver.writes.items()},
        dict(saver.blobs),
    )
    return pickle.dumps(plain)
