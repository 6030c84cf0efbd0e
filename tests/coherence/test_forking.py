"""A client in a forked process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ropewalk import SqliteStore
from ropewalk.coherence import STRATEGIES, CoherenceCore


def in_child(work: Callable[[], bool]) -> bool:
    """Whether a function gives True in a child of this process."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(0 if work() else 1)
        except BaseException:  # noqa: BLE001 - nothing else may run in the child
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_child_works_on_the_same_artifacts(strategy: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store", durability="relaxed")
    core = CoherenceCore(store, strategy=strategy, tick_seconds=0.5)
    core.write("planner", "plan", {"n": 1})
    core.read("reviewer", "plan")

    def work() -> bool:
        core.write("child", "other", 1)
        core.edit("child", "plan", lambda value: {"n": value["n"] + 1})
        with core.hold("child", "plan"):
            core.write("child", "plan", {"n": 3})
        return bool(core.read("reviewer", "plan").value == {"n": 3})

    done = in_child(work)
    found = core.edit("planner", "plan", lambda value: {"n": value["n"] + 1}).value
    core.close()
    store.close()

    assert done
    assert found == {"n": 4}


def test_a_child_without_a_store_has_artifacts_of_its_own() -> None:
    core = CoherenceCore()
    core.write("planner", "plan", 1)

    def work() -> bool:
        core.write("child", "plan", 2)
        return bool(core.read("planner", "plan").value == 2)

    assert in_child(work)
    assert core.read("reviewer", "plan").value == 1
