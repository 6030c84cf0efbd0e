"""What programs that look at timelines need: names, branches, lines, operations."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ropewalk import MemoryStore
from ropewalk.errors import FormatError, Full, NotAllowed, NotFound, RopewalkError
from ropewalk.store.record import Node, Place
from ropewalk.timeline import CheckpointStatus, Timeline, sessions
from ropewalk.tree import ObjectId
from tests.store.memory import lose


@pytest.fixture
def agent() -> Timeline:
    agent = Timeline("worker", MemoryStore())
    agent.checkpoint({"n": 0}, description="Began")
    agent.branch("other")
    agent.checkpoint({"n": 1}, description="Elsewhere")
    agent.switch_branch("main")
    return agent


def test_a_store_lists_its_timelines(agent: Timeline) -> None:
    Timeline("a/b c", agent.store).checkpoint({})
    Timeline("only opened", agent.store)

    assert Timeline.agents(agent.store) == ["a/b c", "worker"]
    assert Timeline.agents(agent.store, tenant="others") == []


def test_listing_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Timeline.agents(tmp_path / "none")

    assert list(tmp_path.iterdir()) == []


def test_a_timeline_can_begin_on_another_branch_and_leave_the_current_one(
    agent: Timeline,
) -> None:
    elsewhere = Timeline("worker", agent.store, branch="other")

    assert elsewhere.get_state() == {"n": 1}
    elsewhere.checkpoint({"n": 2})
    assert Timeline("worker", agent.store).current_branch == "main"
    assert [one.checkpoint_count for one in agent.list_branches()] == [1, 3]


def test_a_branch_that_is_not_there_is_said(agent: Timeline) -> None:
    with pytest.raises(NotFound, match="it has 'main', 'other'"):
        Timeline("worker", agent.store, branch="nowhere")


def test_the_last_operations_come_first(agent: Timeline) -> None:
    told = [one.metadata["action"] for one in agent.last_operations(limit=3)]

    assert told == ["switch", "commit", "branch"]
    assert len(agent.last_operations(limit=None)) == len(agent.operations())


def test_a_tree_can_be_had_line_by_line(agent: Timeline) -> None:
    agent.tag("v1")
    first, second = agent.tree()

    assert (first.description, first.branches, first.is_current, first.tags) == (
        "Began",
        ("main",),
        True,
        ("v1",),
    )
    assert second.status is CheckpointStatus.ACTIVE
    assert second.names == ["other"]
    assert agent.visualize_tree() == f"{first}\n{second}"


def test_long_work_on_a_session_tells_how_far_it_is(
    agent: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_TOLD_AFTER", 1)
    told: list[tuple[str, int]] = []
    file = tmp_path / "session"

    agent.export_session(file, progress=lambda *step: told.append(step))
    Timeline.import_session(file, MemoryStore(), progress=lambda *step: told.append(step))
    assert {step for step, _ in told} >= {"writing", "reading"}


def test_a_session_that_cannot_be_written_says_why(agent: Timeline, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no folder"):
        agent.export_session(tmp_path / "none" / "session")


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, Full), (errno.EROFS, NotAllowed)])
def test_a_session_for_which_there_is_no_room_leaves_nothing(
    agent: Timeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    error: type[Exception],
) -> None:
    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(error):
        agent.export_session(tmp_path / "session")

    assert list(tmp_path.iterdir()) == []


def test_every_flipped_byte_of_a_session_is_noticed(agent: Timeline, tmp_path: Path) -> None:
    agent.export_session(tmp_path / "session")
    whole = (tmp_path / "session").read_bytes()
    bad = tmp_path / "bad"

    for place in range(0, len(whole), 7):
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises((FormatError, NotAllowed)):
            Timeline.import_session(bad, MemoryStore())


def test_a_long_timeline_is_drawn_and_listed_with_few_reads() -> None:
    store = MemoryStore()
    agent = Timeline("worker", store)
    for number in range(1500):
        agent.checkpoint({"n": number}, description=f"Step {number}")
    reads: list[ObjectId] = []
    node = store._node

    def counted(space: str, id: ObjectId, place: Place) -> Node | None:
        reads.append(id)
        return node(space, id, place)

    store._node = counted  # type: ignore[method-assign]
    again = Timeline("worker", store)

    assert len(again.tree()) < 20
    assert len([step.status for step in again.history(limit=50)]) == 50
    assert len(reads) < 100


def test_a_whole_history_is_the_same_as_its_parts() -> None:
    agent = Timeline("worker", MemoryStore())
    for number in range(450):
        agent.checkpoint({"n": number, "kept": "x"})
    again = Timeline("worker", agent.store)

    steps = again.history(limit=None)
    assert [step.state["n"] for step in steps[::50]] == list(range(449, -1, -50))
    assert again.history(limit=300) == steps[:300]
    assert again.blame("kept") == steps[-1]
    assert again.blame("n") == steps[0]


def test_a_value_that_came_by_a_merge_is_blamed_on_who_wrote_it() -> None:
    agent = Timeline("worker", MemoryStore())
    agent.checkpoint({"a": 0, "b": 0})
    agent.branch("other")
    wrote = agent.checkpoint({"a": 0, "b": 1})
    agent.switch_branch("main")
    agent.checkpoint({"a": 1, "b": 0})
    agent.merge("other")
    agent.checkpoint({"a": 2, "b": 1})

    assert agent.blame("b") == wrote


def test_a_thousand_failures_do_not_hide_the_rest() -> None:
    agent = Timeline("worker", MemoryStore())

    def fail(state: object) -> object:
        raise ValueError("no")

    for number in range(300):
        with pytest.raises(ValueError, match="no"):
            agent.safe_execute(fail, {"n": number}, "call", max_retries=2)

    folded = next(line for line in agent.tree() if line.hidden)
    assert len(agent.tree()) < 80
    assert (folded.hidden, folded.hidden_failures) == (274, 548)
    assert "274 more steps, 548 failed attempt(s)" in agent.visualize_tree()
    assert len(agent.tree(fold=None)) == 900


def test_a_thousand_tries_at_one_step_do_not_hide_the_rest() -> None:
    agent = Timeline("worker", MemoryStore())
    agent.checkpoint({"n": -1})
    for number in range(1000):
        agent.checkpoint({"n": number})
        agent.checkpoint({"n": number, "more": True})
        agent.rollback(steps=2)

    lines = agent.tree()
    shown = sum(line.id is not None for line in lines)
    assert len(lines) < 40
    assert shown + sum(line.hidden for line in lines) == 2001
    assert len(agent.tree(fold=None)) == 2001


def test_a_thousand_failures_at_one_step_do_not_hide_the_rest() -> None:
    agent = Timeline("worker", MemoryStore())

    def fail(state: object) -> object:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        agent.safe_execute(fail, {"n": 1}, "call", max_retries=1000)

    assert len(agent.tree()) == 8
    assert "⋮ 994 more failed attempt(s)" in agent.visualize_tree()


def test_the_path_that_goes_on_from_a_failed_attempt_is_drawn_straight() -> None:
    agent = Timeline("worker", MemoryStore())

    def fail(state: object) -> object:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        agent.safe_execute(fail, {"n": 1}, "call", max_retries=1)
    (failed,) = agent.failures()
    agent.branch("again", failed.id)
    agent.checkpoint({"n": 2}, description="Went on")

    assert [(line.prefix, line.status) for line in agent.tree()] == [
        ("", CheckpointStatus.ACTIVE),
        ("", CheckpointStatus.FAILED),
        ("", CheckpointStatus.ACTIVE),
    ]


@pytest.mark.parametrize("which", ["a step", "a merge", "the head of a branch"])
def test_a_tree_is_not_drawn_without_a_step_that_is_missing(which: str) -> None:
    store = MemoryStore()
    agent = Timeline("agent", store=store)
    first = agent.checkpoint({"n": 1})
    agent.branch("idea")
    agent.checkpoint({"n": 1, "idea": True})
    idea = agent.checkpoint({"n": 1, "idea": False})
    agent.switch_branch("main")
    agent.checkpoint({"n": 2})
    merged = agent.merge("idea")
    assert merged is not None
    id = {"a step": first.id, "a merge": merged.id, "the head of a branch": idea.id}[which]
    lose(store, bytes.fromhex(id))

    with pytest.raises(RopewalkError, match=id[:8]):
        Timeline("agent", store=store.another()).visualize_tree()
