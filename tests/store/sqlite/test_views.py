"""The views of an embedded store, asked with nothing but the sqlite3 module."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ropewalk import Timeline
from ropewalk.store import Move, SqliteStore
from ropewalk.store.packer import pack
from ropewalk.testing.helpers import MAIN
from ropewalk.tree import Commit, TreeWriter, make_commit

SPACE = "agents/researcher"


def asked(folder: Path, question: str, *values: object) -> list[tuple[Any, ...]]:
    """The answer that any program gets that knows SQL."""
    with closing(sqlite3.connect(f"file:{folder / 'store.db'}?mode=ro", uri=True)) as db:
        return db.execute(question, values).fetchall()


def commit(
    store: SqliteStore, before: Commit | None, when: datetime, agent: str, status: str
) -> Commit:
    """A step that was made at some time."""
    written = TreeWriter().write({"by": agent})
    step, made = make_commit(
        written.root,
        () if before is None else (before.id,),
        generation=1 if before is None else before.generation + 1,
        time=int(when.timestamp() * 1_000_000),
        agent=agent,
        status=status,
        branch="main",
        logic_step=f"{agent} {status}",
        description="a step",
    )
    move = Move(MAIN, None if before is None else before.id, step.id)
    needs = () if before is None else (before.id,)
    store.commit(
        SPACE, [*written.objects, made], needs, [move], operation={"action": "commit"}, step=step
    )
    return step


@pytest.fixture(params=["tail", "segments"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Steps of two agents, on Sunday and on Monday."""
    monday = datetime(2026, 11, 16, 9, tzinfo=UTC)
    steps = [("ann", "failed", -1), ("ann", "completed", 0), ("ann", "failed", 1)]
    steps += [("bob", "failed", 2), ("ann", "failed", 3)]
    with SqliteStore(tmp_path / "store") as store:
        before = None
        for agent, status, days in steps:
            before = commit(store, before, monday + timedelta(days=days), agent, status)
        if request.param == "segments":
            pack(store, SPACE, whole=True)
    return tmp_path / "store"


def test_all_failed_steps_of_an_agent_since_monday(folder: Path) -> None:
    found = asked(
        folder,
        "SELECT number, time, agent, status, step, description FROM steps "
        "WHERE status = 'failed' AND agent = ? AND time >= '2026-11-16' ORDER BY time",
        "ann",
    )

    assert found == [
        (3, "2026-11-17 09:00:00.000", "ann", "failed", "ann failed", "a step"),
        (5, "2026-11-19 09:00:00.000", "ann", "failed", "ann failed", "a step"),
    ]


def test_a_step_has_the_id_by_which_the_library_finds_it(folder: Path) -> None:
    (row,) = asked(folder, "SELECT id, space, branch, parent FROM steps WHERE number = 3")
    id, space, branch, parent = row
    with SqliteStore(folder) as store:
        (made,) = store.reader(SPACE)([bytes.fromhex(id)])

    assert made.id.hex() == id
    assert (space, branch, parent) == (SPACE, "main", 2)


def test_branches_say_where_they_are(folder: Path) -> None:
    (newest,) = asked(folder, "SELECT id, time FROM steps WHERE number = 5")

    found = asked(folder, "SELECT space, branch, id, number FROM branches")

    assert found == [(SPACE, "main", newest[0], 5)]


def test_operations_are_all_there(folder: Path) -> None:
    found = asked(folder, "SELECT space, number, action FROM operations ORDER BY number")

    assert found == [(SPACE, number, "commit") for number in range(1, 6)]


def test_an_agent_without_frameworks_is_seen(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store:
        agent = Timeline("researcher", store)
        agent.checkpoint({"n": 1}, description="Began")
        agent.branch("idea")
        agent.checkpoint({"n": 2}, description="Tried")

        steps = asked(store.path, "SELECT branch, description FROM steps ORDER BY number")
        branches = asked(store.path, "SELECT branch FROM branches ORDER BY branch")

    assert steps == [("main", "Began"), ("idea", "Tried")]
    assert branches == [("idea",), ("main",)]


def test_threads_say_when_they_began_and_changed(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store:
        for number in range(3):
            store.commit("langgraph/a")
            store.commit("threads/b", operation={"n": number})
        store.commit("agents/c")

        found = asked(store.path, "SELECT space, steps, began <= changed FROM threads ORDER BY 1")

    assert found == [("langgraph/a", 3, 1), ("threads/b", 3, 1)]


def test_the_views_are_for_reading(folder: Path) -> None:
    with (
        closing(sqlite3.connect(folder / "store.db")) as db,
        pytest.raises(sqlite3.OperationalError, match="cannot modify"),
    ):
        db.execute("UPDATE steps SET status = 'completed'")
