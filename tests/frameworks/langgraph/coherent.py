"""What tests of `CoherentStore` have in common: agents, and graphs that count."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeAlias, TypedDict

from langgraph.store.base import BaseStore

from ropewalk.adapters.langgraph import CoherentStore

PLANNER = ("planner", "shared")
REVIEWER = ("reviewer", "shared")
PLACE = ("team", "shared")
MANY = 4
MINUTE = 60_000_000

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


def pass_time(store: CoherentStore, minutes: float) -> None:
    """Let so much time pass for the items of a store that end."""
    index = store._index
    assert index is not None
    for one in (index, index._entries._expiry):
        one.clock = partial(_later, one.clock, round(minutes * MINUTE))


def _later(clock: Callable[[], int], microseconds: int) -> int:
    return clock() + microseconds
