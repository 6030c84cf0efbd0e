"""A small graph without a model, the same for every framework that can run it.

A program that has no framework may import this: what a framework brings is handed over.
"""

from __future__ import annotations

import enum
import sys
from typing import Any, TypeAlias

from pydantic import BaseModel

WAITING = "in the first node"


class Stage(enum.Enum):
    ASKED = "asked"
    PLANNED = "planned"


class Plan(BaseModel):
    place: str
    days: int = 1


Kit: TypeAlias = Any
"""What the module `graph` of a framework brings: the classes, a state, and `build`."""


def plan(state: Any, config: dict[str, Any]) -> Any:
    """The first node. If the config says so, it waits until it is told to go on."""
    if config.get("waits"):
        print(WAITING, flush=True)
        sys.stdin.readline()
    wish = [message for message in state.context if message.role == "user"][-1]
    place = wish.text().split()[-1]
    state.visited = [*state.visited, "plan"]
    state.plans = {**state.plans, place: Plan(place=place, days=len(state.plans) + 1)}
    state.stage = Stage.PLANNED
    return type(wish).text_message(f"A plan for {place}", role="assistant")


def answer(state: Any, config: dict[str, Any]) -> Any:
    """The second node."""
    state.visited = [*state.visited, "answer"]
    said = type(state.context[0])
    return said.text_message(f"Enjoy {', '.join(state.plans)}!", role="assistant")
