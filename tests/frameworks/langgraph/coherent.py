"""What tests of `CoherentStore` have in common: agents, and graphs that count."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, TypedDict

from langgraph.store.base import BaseStore

from ropewalk.adapters.langgraph import CoherentStore

PLANNER = ("planner", "shared")
REVIEWER = ("reviewer", "shared")
PLACE = ("team", "shared")
MANY = 4

Open: TypeAlias = Callable[..., CoherentStore]


class Work(TypedDict, total=False):
    done: Annotated[list[bool], operator.add]


class Counting(TypedDict, total=False):
    seen: int


def number_in(store: BaseStore) -> int:
    found: Any = store.get(PLACE, "n")
    return int(found.value["n"])


def add_one(value: dict[str, int]) -> dict[str, int]:
    return {"n": value["n"] + 1}
