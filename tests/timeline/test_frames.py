"""Frames and containers on every face, and what a change of one column costs."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from fractions import Fraction
from ipaddress import ip_network
from pathlib import Path
from re import compile as pattern
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings

from ropewalk.coherence import CoherenceCore
from ropewalk.state import AgentState, Externalized, Inline, Versioned, create_runtime
from ropewalk.store import MemoryStore, SqliteStore
from ropewalk.threads import Message, ThreadCheckpointer
from ropewalk.timeline import Timeline
from tests.frames import wide_frame, wide_polars
from tests.strategies import same, storable_keys, storable_values


class Holder(AgentState):
    inside: Inline[Any]
    outside: Externalized[Any]


def _timeline(value: Any) -> Any:
    store = MemoryStore()
    Timeline("agent", store=store).checkpoint({"value": value})
    return Timeline("agent", store=store).get_state()["value"]


def _versioned(value: Any) -> Any:
    store = MemoryStore()
    state = Versioned(store)
    state["value"] = value
    state.commit()
    return Versioned(store)["value"]


def _thread(value: Any) -> Any:
    store, config = MemoryStore(), {"thread_id": "t"}
    ThreadCheckpointer(store).put_state(config, {"value": value})
    found: Any = ThreadCheckpointer(store).get_state(config)
    return found["value"]


def _message(value: Any) -> Any:
    store, config = MemoryStore(), {"thread_id": "t"}
    sent = Message(role="user", content="x", metadata={"value": value})
    ThreadCheckpointer(store).put_messages(config, [sent])
    (found,) = ThreadCheckpointer(store).list_messages(config)
    return found.metadata["value"]


def _shared(value: Any) -> Any:
    store = MemoryStore()
    CoherenceCore(store).write("a", "x", value)
    return CoherenceCore(store).read("b", "x").value


def _shared_in_memory(value: Any) -> Any:
    core = CoherenceCore()
    core.write("a", "x", value)
    return core.read("b", "x").value


def _outside(value: Any) -> Any:
    store = MemoryStore()
    told = Holder(backend=store, inside=1, outside=value).to_checkpoint_dict()
    return Holder.from_checkpoint_dict(told, backend=store).outside


def _inside(value: Any) -> Any:
    runtime = create_runtime(backend=MemoryStore(), inline_threshold_bytes=1 << 24)
    told = Holder(runtime=runtime, inside=value, outside=1).to_checkpoint_dict()
    return Holder.from_checkpoint_dict(told, runtime=runtime).inside


FACES: dict[str, Callable[[Any], Any]] = {
    "a timeline": _timeline,
    "a versioned state": _versioned,
    "the state of a thread": _thread,
    "a message of a thread": _message,
    "a shared artifact": _shared,
    "a shared artifact in memory": _shared_in_memory,
    "an externalized field": _outside,
    "an inline field": _inside,
}
VALUES: dict[str, Any] = {
    "containers": [
        *(deque([1, (2,)], 5), OrderedDict(b=1, a=2), Counter("abca"), defaultdict(list, x=[1])),
        *(range(10**30), Fraction(3, 4), pattern("a|b"), ip_network("10.0.0.0/8")),
    ],
    "large containers": {
        "deque": deque([f"item {at}" for at in range(2_000)], 3_000),
        "ordered": OrderedDict((f"key {-at}", at) for at in range(2_000)),
        "counter": Counter({at: at for at in range(2_000)}),
        "default": defaultdict(dict, {f"key {at}": {"n": at} for at in range(2_000)}),
    },
    "keys": {range(3): 1, Fraction(1, 2): 2, pattern("x"): 3, ip_network("::/8"): 4, 1 + 2j: 5},
    "members": {range(3), Fraction(1, 2), pattern("x"), ip_network("::/8"), 1 + 2j},
    "frames": [wide_frame(), wide_polars(), wide_frame()["text"], wide_frame().index],
    "a large frame": pd.DataFrame({f"c{at}": np.arange(3_000.0) * at for at in range(8)}),
}


@pytest.mark.parametrize("face", FACES.values(), ids=FACES.keys())
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_it_comes_back_on_every_face(face: Callable[[Any], Any], value: Any) -> None:
    assert same(face(value), value)


@settings(max_examples=max(settings().max_examples // 10, 5))
@given(storable_values(), storable_keys())
def test_any_value_comes_back_on_every_face(value: Any, key: Any) -> None:
    whole = [value, {key: 1, "other": key}, frozenset({key})]
    for face in FACES.values():
        assert same(face(whole), whole)


def test_it_comes_back_without_blocking_an_event_loop() -> None:
    async def trip() -> Any:
        agent = Timeline("agent", store=MemoryStore())
        await agent.acheckpoint(VALUES["large containers"])
        return await agent.aget_state() if hasattr(agent, "aget_state") else agent.get_state()

    assert same(asyncio.run(trip()), VALUES["large containers"])


def _folder(path: Path) -> int:
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_that_changed_costs_that_column(tmp_path: Path, library: str) -> None:
    numbers = np.random.default_rng(7)
    columns = {f"c{at}": numbers.random(20_000) for at in range(10)}  # 160 KB each
    sizes = []
    for _ in range(2):
        frame = pd.DataFrame(columns) if library == "pandas" else pl.DataFrame(columns)
        with SqliteStore(tmp_path / "store") as store:
            Timeline("agent", store=store).checkpoint({"frame": frame, "note": "x"})
        sizes.append(_folder(tmp_path / "store"))
        columns["c3"] = numbers.random(20_000)

    assert sizes[0] > 10 * 140_000  # Such numbers do not compress.
    assert sizes[1] - sizes[0] < 2 * 160_000


def test_a_diff_names_the_key_inside_a_large_ordered_dict() -> None:
    agent = Timeline("agent", store=MemoryStore())
    table: OrderedDict[str, Any] = OrderedDict((f"key {-at}", at) for at in range(3_000))
    first = agent.checkpoint({"table": table})
    table["key -7"] = "new"
    second = agent.checkpoint({"table": table})

    found = list(agent.diff(first.id, second.id))
    assert "key -7" in str(found)
    assert type(agent.get_state()["table"]) is OrderedDict
