"""The files of deep agents: edits of one word in a large file, and searches among many.

    python -m bench.frameworks.deepagents_files [EDITS]

Writes for each side, as JSON: CPU and bytes written of an edit, bytes on disk after all of
them, and CPU of a glob and a grep over 500 files, the first time and again. `state` is a graph
with `StateBackend` and `SqliteSaver`, of which only the edits are measured.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deepagents.backends import FilesystemBackend, StateBackend, StoreBackend
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.store.sqlite import SqliteStore

from bench._text import Text
from ropewalk.adapters.deepagents import RopewalkBackend

SIZE, FILES = 200_000, 500


def _durable(database: sqlite3.Connection) -> sqlite3.Connection:
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    return database


@contextmanager
def ours(folder: Path) -> Iterator[Any]:
    """`RopewalkBackend` on the embedded store."""
    backend = RopewalkBackend(folder / "files.ropewalk")
    yield backend
    backend.close()


@contextmanager
def store(folder: Path) -> Iterator[Any]:
    """`StoreBackend` on LangGraph's `SqliteStore`."""
    path = folder / "store.sqlite"
    database = _durable(sqlite3.connect(path, check_same_thread=False, isolation_level=None))
    made = SqliteStore(database)
    made.setup()
    yield StoreBackend(store=made, namespace=lambda _: ("files",))
    database.close()


@contextmanager
def disk(folder: Path) -> Iterator[Any]:
    """`FilesystemBackend`: no versions, and it syncs nothing."""
    yield FilesystemBackend(root_dir=folder, virtual_mode=True)


@contextmanager
def state(folder: Path) -> Iterator[Any]:
    """`StateBackend` in a graph with `SqliteSaver`: each edit is a run of one node."""
    database = sqlite3.connect(folder / "threads.sqlite", check_same_thread=False)
    saver = SqliteSaver(database)
    saver.setup()
    database.execute("PRAGMA synchronous = FULL")
    yield _InGraph(saver)
    database.close()


class _InGraph:
    def __init__(self, saver: Any) -> None:
        self._call: Callable[[Any], Any] = lambda backend: None

        def node(given: Any) -> None:
            self._result = self._call(StateBackend())

        builder: Any = StateGraph(_files_state())
        builder.add_node("node", node)
        builder.add_edge(START, "node")
        self._graph = builder.compile(checkpointer=saver)

    def _run(self, call: Callable[[Any], Any]) -> Any:
        self._call = call
        config: Any = {"configurable": {"thread_id": "files"}}
        self._graph.invoke({"messages": []}, config, durability="sync")
        return self._result

    def write(self, path: str, content: str) -> Any:
        return self._run(lambda backend: backend.write(path, content))

    def edit(self, path: str, old: str, new: str) -> Any:
        return self._run(lambda backend: backend.edit(path, old, new))


def _files_state() -> type:
    from deepagents.graph import DeepAgentState
    from deepagents.middleware.filesystem import FilesystemState

    class Files(FilesystemState, DeepAgentState):  # type: ignore[misc]
        """Messages and files."""

    return Files


def _written() -> int:
    return int(Path("/proc/self/io").read_text().split()[3])


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def _cpu(call: Callable[[], Any]) -> float:
    before = time.process_time()
    call()
    return round((time.process_time() - before) * 1000, 2)


def edits(count: int) -> tuple[str, list[tuple[str, str]]]:
    """A text of 200 KB, and words of it that become others."""
    text = Text(5)
    lines = [f"<{at}> {text.prose(70)}" for at in range(SIZE // 77)]
    numbers = [at * 7919 % len(lines) for at in range(count)]
    return "\n".join(lines), [(f"<{at}>", f"[{at}]") for at in numbers]


def measured(side: Callable[[Path], Any], count: int) -> dict[str, float]:
    """The figures of one side."""
    said: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text, changes = edits(count)
        with side(folder) as backend:
            backend.write("/large.txt", text)
            written, disk_before = _written(), _size(folder)

            def run() -> None:
                for old, new in changes:
                    assert backend.edit("/large.txt", old, new).error is None

            said["edit_cpu_ms"] = round(_cpu(run) / count, 2)
            said["edit_written"] = (_written() - written) // count
        said["edit_disk"] = (_size(folder) - disk_before) // count
    if side is state:
        return said
    with tempfile.TemporaryDirectory() as place:
        words = Text(6)
        files = [(f"/src/m{at % 20}/f{at}.py", words.prose(8000).encode()) for at in range(FILES)]
        with side(Path(place)) as backend:
            said["upload_cpu_ms"] = _cpu(lambda: backend.upload_files(files))
        with side(Path(place)) as backend:
            for name, call in (
                ("glob", lambda: backend.glob("f1*.py")),
                ("grep", lambda: backend.grep("qqq")),
            ):
                said[f"{name}_first_cpu_ms"] = _cpu(call)
                said[f"{name}_again_cpu_ms"] = min(_cpu(call) for _ in range(5))
    return said


def main(count: int = 500) -> None:
    """Measure every side."""
    for side in (ours, store, disk, state):
        print(json.dumps({"side": side.__name__, **measured(side, count)}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
