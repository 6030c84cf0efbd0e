"""The views of a store in Postgres, asked with nothing but psql."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from ropewalk import Timeline
from ropewalk.store import Move, PostgresStore
from ropewalk.store.packer import pack
from ropewalk.testing.helpers import MAIN
from ropewalk.tree import Commit, TreeWriter, make_commit
from tests.postgres import program

SPACE = "agents/researcher"


def asked(url: str, question: str) -> list[list[str]]:
    """The answer that any person gets who knows SQL."""
    done = subprocess.run(
        [program("psql"), url, "--no-psqlrc", "--csv", "--tuples-only", "--command",
         "SET search_path TO ropewalk", "--command", question],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.split(",") for line in done.stdout.splitlines() if line != "SET"]


def commit(
    store: PostgresStore, before: Commit | None, when: datetime, agent: str, status: str
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
def url(request: pytest.FixtureRequest, postgres_url: str) -> str:
    """Steps of two agents, on Sunday and on Monday."""
    monday = datetime(2026, 11, 16, 9, tzinfo=UTC)
    steps = [("ann", "failed", -1), ("ann", "completed", 0), ("ann", "failed", 1)]
    steps += [("bob", "failed", 2), ("ann", "failed", 3)]
    with PostgresStore(postgres_url) as store:
        before = None
        for agent, status, days in steps:
            before = commit(store, before, monday + timedelta(days=days), agent, status)
        if request.param == "segments":
            pack(store, SPACE, whole=True)
    return postgres_url


def test_all_failed_steps_of_an_agent_since_monday(url: str) -> None:
    found = asked(
        url,
        "SELECT number, time, agent, status, step, description FROM steps "
        "WHERE status = 'failed' AND agent = 'ann' AND time >= '2026-11-16' ORDER BY time",
    )

    assert found == [
        ["3", "2026-11-17 09:00:00.000", "ann", "failed", "ann failed", "a step"],
        ["5", "2026-11-19 09:00:00.000", "ann", "failed", "ann failed", "a step"],
    ]


def test_a_step_has_the_id_by_which_the_library_finds_it(url: str) -> None:
    (row,) = asked(url, "SELECT id, space, branch, parent FROM steps WHERE number = 3")
    id, space, branch, parent = row
    with PostgresStore(url) as store:
        (made,) = store.reader(SPACE)([bytes.fromhex(id)])

    assert made.id.hex() == id
    assert (space, branch, parent) == (SPACE, "main", "2")


def test_branches_say_where_they_are(url: str) -> None:
    ((newest, when),) = asked(url, "SELECT id, time FROM steps WHERE number = 5")

    found = asked(url, "SELECT space, branch, id, number, time FROM branches")

    # A ref was moved when the operation was made, which says its own time.
    assert found == [[SPACE, "main", newest, "5", when]]


def test_operations_are_all_there(url: str) -> None:
    found = asked(url, "SELECT space, number, action FROM operations ORDER BY number")

    assert found == [[SPACE, str(number), "commit"] for number in range(1, 6)]


def test_an_agent_without_frameworks_is_seen(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        agent = Timeline("researcher", store)
        agent.checkpoint({"n": 1}, description="Began")
        agent.branch("idea")
        agent.checkpoint({"n": 2}, description="Tried")

    steps = asked(postgres_url, "SELECT branch, description FROM steps ORDER BY number")
    branches = asked(postgres_url, "SELECT branch FROM branches ORDER BY branch")
    assert steps == [["main", "Began"], ["idea", "Tried"]]
    assert branches == [["idea"], ["main"]]


def test_threads_say_when_they_began_and_changed(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        for number in range(3):
            store.commit("langgraph/a")
            store.commit("threads/b", operation={"n": number})
        store.commit("agents/c")

    found = asked(postgres_url, "SELECT space, steps, began <= changed FROM threads ORDER BY 1")

    assert found == [["langgraph/a", "3", "t"], ["threads/b", "3", "t"]]


def test_the_views_are_for_reading(url: str) -> None:
    with (
        psycopg.connect(url) as db,
        pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot update view"),
    ):
        db.execute("UPDATE ropewalk.steps SET status = 'completed'")
