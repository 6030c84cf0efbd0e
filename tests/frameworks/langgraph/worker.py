"""What tests run in other processes: `python -m tests.frameworks.langgraph.worker TASK ...`."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from ropewalk.adapters.langgraph import RopewalkSaver
from ropewalk.errors import ThreadConflict
from tests.frameworks.langgraph.engines import open_store
from tests.frameworks.langgraph.graphs import chat_graph, thread

ROOT = Path(__file__).parent.parent.parent.parent


class Round(TypedDict):
    number: int
    log: Annotated[list[str], operator.add]


def round_graph(saver: Any, runs: Path, limit: int) -> Any:
    """Rounds of two nodes beside each other and one after them; each tells `runs` that it runs."""

    def tell(line: str) -> None:
        with runs.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def beside(name: str) -> Any:
        def node(state: Round) -> dict[str, Any]:
            tell(f"{name} {state['number']}")
            return {"log": [f"{name} {state['number']}"]}

        return node

    def close(state: Round) -> dict[str, Any]:
        tell(f"close {state['number']}")
        return {"log": [f"close {state['number']}"], "number": state["number"] + 1}

    def again(state: Round) -> list[str]:
        return ["left", "right"] if state["number"] < limit else [END]

    builder = StateGraph(Round)
    builder.add_node("left", beside("left"))
    builder.add_node("right", beside("right"))
    builder.add_node("close", close)
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    # Not joined: with durability async LangGraph hands the set of what a joined edge waits for
    # to a checkpointer and goes on changing it, whichever checkpointer that is.
    builder.add_edge("left", "close")
    builder.add_edge("right", "close")
    builder.add_conditional_edges("close", again, ["left", "right", END])
    return builder.compile(checkpointer=saver)


def go_round(engine: str, address: str, runs: str, limit: str, durability: str) -> None:
    """Begin rounds, or go on with them; until the limit, or until the process is killed."""
    with open_store(engine, address) as store, RopewalkSaver(store) as saver:
        graph = round_graph(saver, Path(runs), int(limit))
        begun = graph.get_state(thread()).created_at is not None
        given = None if begun else {"number": 0, "log": []}
        graph.invoke(given, thread(recursion_limit=100_000), durability=durability)


def take_turns(engine: str, address: str, name: str, count: str) -> None:
    """Say something in a conversation that others are in, so often as is wanted."""
    with open_store(engine, address) as store, RopewalkSaver(store, on_conflict="raise") as saver:
        graph = chat_graph(saver)
        own = thread(f"of {name}")
        for turn in range(int(count)):
            message = HumanMessage(f"{name} {turn}", id=f"{name}-{turn}")
            graph.invoke({"messages": [message]}, own)
            while True:
                try:
                    graph.invoke({"messages": [message]}, thread("shared"))
                    break
                except ThreadConflict:
                    continue


TASKS: dict[str, Callable[..., None]] = {"round": go_round, "turns": take_turns}


def start(task: str, *arguments: Any) -> subprocess.Popen[bytes]:
    """Begin a task in another process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.frameworks.langgraph.worker", task, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


if __name__ == "__main__":
    TASKS[sys.argv[1]](*sys.argv[2:])
