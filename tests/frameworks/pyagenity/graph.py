"""The graph of the tests in pyagenity."""

from __future__ import annotations

from typing import Any

from injectq import InjectQ
from pyagenity.checkpointer import BaseCheckpointer
from pyagenity.graph import StateGraph
from pyagenity.state import AgentState
from pyagenity.utils import END
from pyagenity.utils.thread_info import ThreadInfo
from pydantic import Field

from ropewalk.adapters.pyagenity import RopewalkCheckpointer
from tests.frameworks.trip import Plan, Stage, answer, plan

__all__ = ["BaseCheckpointer", "RopewalkCheckpointer", "ThreadInfo", "TripState", "Undeclared"]


class TripState(AgentState):
    visited: list[str] = Field(default_factory=list)
    plans: dict[str, Plan] = Field(default_factory=dict)
    stage: Stage = Stage.ASKED
    notes: Any = None


class Undeclared(AgentState):
    secret: str = ""


def build(checkpointer: Any, **interrupts: Any) -> Any:
    """The compiled graph."""
    # Each in a container of its own: graphs that share one share a checkpointer.
    graph = StateGraph(TripState(), container=InjectQ())
    graph.add_node("plan", plan)
    graph.add_node("answer", answer)
    graph.set_entry_point("plan")
    graph.add_edge("plan", "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=checkpointer, **interrupts)
