"""Runs that are interrupted, stopped or killed, and go on in other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.agentflow import graph
from tests.frameworks.turn import (
    finish,
    start,
    turn_in_another_process,
    wait_for_the_first_node,
)

CONFIG = {"thread_id": "trip"}


@pytest.mark.parametrize("interrupts", [{"before": ["answer"]}, {"after": ["plan"]}], ids=str)
def test_an_interrupted_run_goes_on_in_another_process(
    tmp_path: Path, interrupts: dict[str, Any]
) -> None:
    lists = {f"interrupt_{when}": nodes for when, nodes in interrupts.items()}
    first = turn_in_another_process(
        graph, tmp_path, config=CONFIG, say="go to Rome", interrupts=lists
    )
    second = turn_in_another_process(graph, tmp_path, config=CONFIG, interrupts=lists)

    assert first["interrupted"] and first["ran"] == ["plan"]
    assert not second["interrupted"] and second["ran"] == ["answer"]
    assert second["said"] == ["go to Rome", "A plan for Rome", "Enjoy Rome!"]


def test_a_question_is_answered_in_another_process(tmp_path: Path) -> None:
    built = {"approval": True}
    asked = turn_in_another_process(
        graph, tmp_path, config=CONFIG, say="go to Rome", interrupts=built
    )
    answered = turn_in_another_process(
        graph, tmp_path, config=CONFIG, given={"resume": {"approved": True}}, interrupts=built
    )

    assert asked["interrupted"] and asked["ran"] == ["plan"] and asked["notes"] is None
    assert answered["notes"] == {"approved": True} and answered["ran"] == ["answer"]


def test_a_run_is_stopped_from_another_process_and_goes_on_in_a_third(tmp_path: Path) -> None:
    running = start(graph, tmp_path, config={**CONFIG, "waits": True}, say="go to Rome")
    wait_for_the_first_node(running)
    checkpointer: Any = graph.RopewalkCheckpointer(tmp_path)
    answer = graph.build(checkpointer).stop(CONFIG)
    told = finish(running)
    checkpointer.release()
    later = turn_in_another_process(graph, tmp_path, config=CONFIG)

    assert answer == {"ok": True, "running": True}
    assert told["interrupted"] and "answer" not in told["ran"]
    assert later["ran"] == ["plan", "answer"] and later["said"][-1] == "Enjoy Rome!"


def test_a_tool_that_ran_before_a_process_died_is_not_run_again(tmp_path: Path) -> None:
    receipts, folder = tmp_path / "receipts", tmp_path / "store"
    config = {**CONFIG, "receipts": str(receipts)}
    wanted = {"say": "go to Rome", "interrupts": {"tools": True}}
    finish(start(graph, folder, config={**config, "dies": True}, **wanted), expected=42)
    told = turn_in_another_process(graph, folder, config=config, interrupts={"tools": True})

    assert receipts.read_text() == "call-charge\n"
    assert told["ran"][-1] == "answer" and "confirmed" in told["said"]
