"""What a user of pyagenity meets when a run is interrupted or stopped, and how to go on.

These are ways of the engine, whatever the checkpointer. Each test also shows the way out that
docs/frameworks/pyagenity.md names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyagenity.state.execution_state import StopRequestStatus

from ropewalk import MemoryStore
from tests.frameworks.pyagenity import graph
from tests.frameworks.turn import (
    finish,
    start,
    take_turn,
    turn_in_another_process,
    wait_for_the_first_node,
)

CONFIG = {"thread_id": "trip"}


def new(store: Any) -> Any:
    return graph.RopewalkCheckpointer(store, types=[graph.TripState])


def test_a_second_turn_begins_at_the_last_node_unless_it_is_told_where() -> None:
    checkpointer = new(MemoryStore())
    take_turn(graph, checkpointer, CONFIG, "go to Rome")

    assert take_turn(graph, checkpointer, CONFIG, "go to Oslo")["ran"] == ["answer"]


@pytest.mark.parametrize("interrupts", [{"before": ["answer"]}, {"after": ["plan"]}], ids=str)
def test_an_interrupted_run_goes_on_in_another_process_where_it_is_told_to(
    tmp_path: Path, interrupts: dict[str, Any]
) -> None:
    lists = {f"interrupt_{when}": nodes for when, nodes in interrupts.items()}
    first = turn_in_another_process(
        graph, tmp_path, config=CONFIG, say="go to Rome", interrupts=lists
    )
    second = turn_in_another_process(
        graph, tmp_path, config=CONFIG, given={"state": {"current_node": "answer"}}
    )

    assert first["interrupted"] and first["ran"] == ["plan"] and first["plans"] == {"Rome": 1}
    assert not second["interrupted"] and second["ran"] == ["answer"]
    assert second["said"] == ["go to Rome", "Enjoy Rome!"]


def test_a_run_is_stopped_from_another_process_and_goes_on_in_a_third(tmp_path: Path) -> None:
    running = start(graph, tmp_path, config={**CONFIG, "waits": True}, say="go to Rome")
    wait_for_the_first_node(running)
    checkpointer = new(tmp_path)
    answer = graph.build(checkpointer).stop(dict(CONFIG))
    told = finish(running)
    stopped = checkpointer.get_state(CONFIG)
    # The engine never takes the request back.
    stopped.execution_meta.stop_current_execution = StopRequestStatus.NONE
    checkpointer.put_state(CONFIG, stopped)
    checkpointer.release()
    later = turn_in_another_process(
        graph, tmp_path, config=CONFIG, given={"state": {"current_node": "plan"}}
    )

    assert answer == {"ok": True, "running": True}
    assert told["interrupted"] and "answer" not in told["ran"]
    assert later["ran"] == ["plan", "answer"] and later["said"][-1] == "Enjoy Rome!"
