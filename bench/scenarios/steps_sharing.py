"""One document in a hundred threads, a copy, a fork and two states: what the store takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict

from bench._clock import folder_bytes
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench._text import Noise, Text
from bench.scenarios._sides import OUR_SAVER

_TEXTS = {"random": Noise, "text": Text}


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The bytes of all with each text, and of one thread alone."""
    figures = {}
    for name, source in _TEXTS.items():
        document = source(4).prose(size["bytes"])
        for key, threads in ((f"{name}_mb", size["threads"]), (f"{name}_one_mb", 0)):
            with TemporaryDirectory() as folder:
                _hold(Path(folder), document, threads)
                figures[key] = folder_bytes(Path(folder)) / 1e6
                _check(Path(folder), document, threads)
    return Measured(figures)


def _hold(folder: Path, document: str, threads: int) -> None:
    """One thread with the document; and if there are to be more, all others that hold it."""
    from bench._typed import State
    from ropewalk import Timeline, create_runtime

    with _saver(folder) as saver:
        graph = _graph(saver)
        for number in range(threads or 1):
            graph.invoke({"document": document, "seen": 0}, _config(f"thread-{number}"))
        if not threads:
            return
        saver.copy_thread("thread-0", "copy")
        timeline = Timeline("agent", saver.store)
        timeline.checkpoint({"document": document})
        timeline.fork("forked")
        for _ in range(2):
            State(runtime=create_runtime(backend=saver.store), value=document).to_checkpoint_dict()


def _check(folder: Path, document: str, threads: int) -> None:
    from ropewalk import Timeline

    with _saver(folder) as saver:
        graph = _graph(saver)
        for name in ("thread-0", "copy", f"thread-{threads - 1}") if threads else ("thread-0",):
            values = graph.get_state(_config(name)).values
            assert values == {"document": document, "seen": 1}, f"{name} did not read back"
        if threads:
            assert Timeline("forked", saver.store).get_state() == {"document": document}


def _saver(folder: Path) -> Any:
    from ropewalk.adapters.langgraph import RopewalkSaver

    return RopewalkSaver(str(folder / "agent.ropewalk"))


def _graph(saver: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    schema: Any = TypedDict("schema", {"document": str, "seen": int})
    builder: Any = StateGraph(schema)
    builder.add_node("look", lambda state: {"seen": state["seen"] + 1})
    builder.add_edge(START, "look")
    builder.add_edge("look", END)
    return builder.compile(checkpointer=saver)


def _config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


SCENARIO = Scenario(
    name="steps-sharing",
    title="A document of 1 MB in 100 threads of a graph, a copy, a fork and two states",
    run=run,
    engines=(OUR_SAVER,),
    metrics=(
        Metric("random_mb", "random base64: folder after close", "MB", 2),
        Metric("random_one_mb", "of one thread alone", "MB", 2),
        Metric("text_mb", "text: folder after close", "MB", 2),
        Metric("text_one_mb", "of one thread alone", "MB", 2),
    ),
    size={"bytes": 1_000_000, "threads": 100},
    quick={"bytes": 1_000_000, "threads": 5},
    targets=(Target("random_mb", 1.2, "all that hold the same random text", side=OUR_SAVER),),
    notes=(
        "In one store: the threads, of two supersteps each; a copy of a thread; a timeline whose "
        "state holds the document, and a fork of it; and two `AgentState`s with it as a field.",
    ),
    order=27,
    repeat=1,
    environment="python-3.12",
)
