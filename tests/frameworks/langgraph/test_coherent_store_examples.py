"""The page about `CoherentStore`, and what the project that it follows shows of its store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.coherence import CrashRecoveryConfig
from ropewalk.errors import InvalidInput
from tests.frameworks.turn import ROOT
from tests.pages import run_page


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run_page(ROOT / "docs/frameworks/langgraph-coherent-store.md", monkeypatch)


def test_one_import_changes() -> None:
    store = CoherentStore(strategy="lazy")
    store.put(("style_reviewer", "files"), "main.py", {"text": "x = 1"})

    assert store.get(("security_reviewer", "files"), "main.py").value == {"text": "x = 1"}  # type: ignore[union-attr]
    assert [one.key for one in store.search(("synthesizer", "files"))] == ["main.py"]


def test_the_quick_start() -> None:
    store = CoherentStore(strategy="lazy")

    # planner writes
    store.put(("planner", "shared"), "plan", {"step": 1})

    # reviewer reads: same artifact, version 1
    item = store.get(("reviewer", "shared"), "plan")

    assert item is not None and (item.value, item.version) == ({"step": 1}, 1)


@pytest.mark.parametrize("strategy", ["lazy", "eager", "lease", "access_count", "broadcast"])
def test_every_strategy_serves_the_fresh_version_on_the_next_read(strategy: str) -> None:
    store = CoherentStore(strategy=strategy)
    for step in range(5):
        store.put(("planner", "shared"), "plan", {"step": step})

        assert store.get(("reviewer", "shared"), "plan").value == {"step": step}  # type: ignore[union-attr]


def test_crash_recovery() -> None:
    current_tick = 3
    store = CoherentStore(
        strategy="lazy",
        crash_recovery=CrashRecoveryConfig(
            enabled=True,
            heartbeat_timeout_ticks=10,
            max_hold_ticks=1000,
        ),
    )

    # Heartbeats piggyback on every read/write/batch automatically.
    # After a process restart, call recover() to flush stale cache:
    store.recover(agent_name="planner", now_tick=current_tick)
    store.heartbeat("planner", current_tick + 1)
    store.put(("planner", "shared"), "plan", {"step": 1})

    assert store.get(("reviewer", "shared"), "plan").value == {"step": 1}  # type: ignore[union-attr]
    store.close()


def test_a_lease_that_outlives_the_longest_hold_is_refused_at_start() -> None:
    with pytest.raises(InvalidInput):
        CoherentStore(
            "lease",
            lease_ttl_ticks=1000,
            crash_recovery=CrashRecoveryConfig(
                enabled=True, heartbeat_timeout_ticks=10, max_hold_ticks=1000
            ),
        )


def test_logs_of_states_and_contents() -> None:
    states: list[Any] = []
    contents: list[Any] = []
    with CoherentStore(state_log=states.append, content_audit_log=contents.append) as store:
        store.put(("planner", "shared"), "plan", {"step": 1})
        store.get(("reviewer", "shared"), "plan")
    told = [one for one in contents if "source" in one]

    assert [(one["agent_name"], one["artifact_id"], one["version"]) for one in told] == [
        ("planner", "shared/plan", 1),
        ("reviewer", "shared/plan", 1),
    ]
    assert told[0]["content_hash"] == told[1]["content_hash"]
    assert {one["agent_name"] for one in states if "trigger" in one} == {"planner", "reviewer"}


def test_the_reads_that_went_stale_for_ever_do_not() -> None:
    store = CoherentStore()
    store.put(("A", "shared"), "plan", {"v": 1})
    for number in range(500):
        store.put(("B", "other"), "k", {"i": number})
    store.put(("B", "shared"), "plan", {"v": 2})

    assert store.get(("A", "shared"), "plan").value == {"v": 2}  # type: ignore[union-attr]
