"""Values of classes that a saver does not know: it may move them, and never changes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot as Snapshot

from ropewalk import MemoryStore
from ropewalk.adapters.langgraph import RopewalkSaver, UnknownTypeWarning, import_checkpoints
from tests.frameworks.langgraph.checkpoints import (
    checkpoint_of,
    config_of,
    metadata_of,
    put,
    written,
)
from tests.frameworks.langgraph.official import sqlite_saver

pytestmark = pytest.mark.filterwarnings("error")


@dataclass
class Plan:
    """What nobody declared."""

    steps: list[int]


def test_writes_that_are_added_leave_those_that_are_there() -> None:
    store = MemoryStore()
    config = put(RopewalkSaver(store), config_of())
    RopewalkSaver(store).put_writes(config, [("plan", Plan([1])), ("m", AIMessage("x"))], "task")
    RopewalkSaver(store).put_writes(config, [("__resume__", "yes")], "task")

    found = [value for _, _, value in written(RopewalkSaver(store, types=[Plan]), config)]

    assert found == ["yes", Plan([1]), AIMessage("x")]


def test_pruning_keeps_what_delta_channels_are_made_of() -> None:
    store = MemoryStore()
    first = RopewalkSaver(store)
    config: Any = config_of()
    for step, values in enumerate([{"log": Snapshot([Plan([0])])}, {}, {}]):
        made = checkpoint_of(values, version=step + 1)
        about = {**metadata_of(step), "counters_since_delta_snapshot": {"log": [step, step]}}
        config = first.put(config, made, about, dict(made["channel_versions"]))
        first.put_writes(config, [("log", Plan([step]))], "task")
    RopewalkSaver(store).prune(["t"])

    asking = RopewalkSaver(store, types=[Plan])
    found: Any = asking.get_delta_channel_history(config=config, channels=["log"])["log"]

    assert len(list(asking.list(config_of()))) == 1
    assert found["seed"] == Snapshot([Plan([0])])
    assert [value for _, _, value in found["writes"]] == [Plan([0]), Plan([1])]


def test_what_is_taken_over_is_equal_also_where_a_task_wrote_much(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with sqlite_saver(path) as old:
        config = put(old, config_of())
        old.put_writes(config, [("a", Plan([1])), ("b", Plan([2])), ("c", Plan([3]))], "task")
    ours = RopewalkSaver()

    done = import_checkpoints(path, ours, verify=True)

    assert (done.is_whole, done.verified) == (True, 1)
    with pytest.warns(UnknownTypeWarning, match="Plan"):
        assert [value for _, _, value in written(ours, config)] == [
            {"steps": [1]},
            {"steps": [2]},
            {"steps": [3]},
        ]
