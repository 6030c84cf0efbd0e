"""The graph of the tests in agentflow."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentflow.core.graph import StateGraph, ToolNode
from agentflow.core.state import AgentState, Message, ToolCallBlock
from agentflow.storage.checkpointer import BaseCheckpointer
from agentflow.utils import END, interrupt
from agentflow.utils.thread_info import ThreadInfo
from injectq import InjectQ
from pydantic import Field

from ropewalk.adapters.agentflow import RopewalkCheckpointer
from tests.frameworks.trip import Plan, Stage, answer, plan

__all__ = ["BaseCheckpointer", "RopewalkCheckpointer", "ThreadInfo", "TripState", "Undeclared"]


class TripState(AgentState):
    visited: list[str] = Field(default_factory=list)
    plans: dict[str, Plan] = Field(default_factory=dict)
    stage: Stage = Stage.ASKED
    notes: Any = None


class Undeclared(AgentState):
    secret: str = ""


def approve(state: Any, config: dict[str, Any]) -> Any:
    """A node that asks somebody, and waits for the answer in a later run."""
    state.notes = interrupt({"places": list(state.plans)}, message="Book it?")
    return []


def charge(config: dict[str, Any], tool_call_id: str) -> str:
    """A tool that must run once. It writes down that it did."""
    with Path(config["receipts"]).open("a") as receipts:
        receipts.write(f"{tool_call_id}\n")
    return "charged"


async def confirm(config: dict[str, Any]) -> str:
    """A tool that ends the process, once `charge` is known to have run."""
    if config.get("dies"):
        checkpointer = InjectQ.get_instance().get(BaseCheckpointer)
        # The engine records a result without telling anybody.
        while await checkpointer.aget_tool_result(config, "ask:call-charge") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        os._exit(42)
    return "confirmed"


def ask_for_tools(state: Any, config: dict[str, Any]) -> Any:
    """A node like a model that asks for both tools."""
    calls: list[dict[str, Any]] = [
        {"id": f"call-{name}", "name": name, "args": {}} for name in ("charge", "confirm")
    ]
    function = [
        {"id": one["id"], "type": "function", "function": {"name": one["name"], "arguments": "{}"}}
        for one in calls
    ]
    blocks = [ToolCallBlock(**one) for one in calls]
    return Message(role="assistant", content=blocks, tools_calls=function, message_id="ask")


def build(
    checkpointer: Any, *, approval: bool = False, tools: bool = False, **interrupts: Any
) -> Any:
    """The compiled graph: `plan`, perhaps `approve` or `ask` and `tools`, then `answer`."""
    # Each in a container of its own: graphs that share one share a checkpointer.
    graph = StateGraph(TripState(), container=InjectQ())
    nodes: list[tuple[str, Any]] = [("plan", plan)]
    nodes += [("approve", approve)] * approval
    nodes += [("ask", ask_for_tools), ("tools", ToolNode([charge, confirm]))] * tools
    nodes += [("answer", answer)]
    for name, node in nodes:
        graph.add_node(name, node)
    graph.set_entry_point("plan")
    for (name, _), (following, _) in pairwise(nodes):
        graph.add_edge(name, following)
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=checkpointer, **interrupts)
