"""Saving, going back, branching and merging: what works, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ropewalk.errors import (
    Conflict,
    InvalidInput,
    InvalidName,
    MergeConflict,
    NotFound,
    NotStorable,
    PathNotFound,
    RefMoved,
)
from ropewalk.store import MemoryStore, SqliteStore
from ropewalk.timeline import CheckpointStatus, Timeline
from tests.timeline.conftest import Opener


def steps(agent: Timeline, count: int) -> list[str]:
    """Save some steps; their ids."""
    return [
        agent.checkpoint({"step": number}, description=f"Step {number}").id
        for number in range(1, count + 1)
    ]


# Saving and reading.


def test_a_state_is_as_it_was_when_it_was_saved(agent: Timeline) -> None:
    state: dict[Any, Any] = {"docs": [{"n": 1}], ("a", 1): {1, 2}, "when": datetime.now(UTC)}
    saved = agent.checkpoint(state)
    state["docs"][0]["n"] = 2
    saved.state["docs"].clear()
    saved.metadata["x"] = 1

    assert saved.state["docs"] == [{"n": 1}]
    assert saved.state[("a", 1)] == {1, 2}
    assert saved.metadata == {}
    assert agent.get_state()["docs"] == [{"n": 1}]


def test_a_checkpoint_says_all_about_its_step(agent: Timeline) -> None:
    first = agent.checkpoint({"n": 1})
    second = agent.checkpoint({"n": 2}, {"confidence": 0.5}, "Second", "think")

    assert (second.description, second.logic_step, second.branch) == ("Second", "think", "main")
    assert (second.agent, second.metadata) == ("agent", {"confidence": 0.5})
    assert (second.parents, second.parent_id) == ((first.id,), first.id)
    assert (second.status, second.error) == (CheckpointStatus.ACTIVE, None)
    assert datetime.now(UTC) - second.time < timedelta(minutes=5)
    assert second.to_dict()["state"] == {"n": 2}
    assert agent.get(second.id) == second


def test_before_the_first_checkpoint_there_is_nothing(agent: Timeline) -> None:
    assert agent.get_state() is None
    assert agent.head is None
    assert agent.history() == []
    assert agent.list_branches() == []
    assert agent.visualize_tree() == "(no checkpoints yet)"
    for attempt in (agent.rollback, lambda: agent.branch("x"), lambda: agent.blame("x")):
        with pytest.raises(NotFound, match="no checkpoint yet"):
            attempt()


def test_a_state_that_cannot_be_stored_changes_nothing(agent: Timeline) -> None:
    steps(agent, 2)

    with pytest.raises(NotStorable) as caught:
        agent.checkpoint({"docs": [{"file": object()}]})

    assert caught.value.path == 'value["docs"][0]["file"]'
    assert agent.get_state() == {"step": 2}
    assert len(agent.history()) == 2


def test_history_is_newest_first_and_bounded(agent: Timeline) -> None:
    steps(agent, 60)

    assert [one.state["step"] for one in agent.history(limit=3)] == [60, 59, 58]
    assert len(agent.history()) == 50
    assert len(agent.history(limit=None)) == 60
    assert agent.history(limit=0) == []
    with pytest.raises(InvalidInput, match="limit"):
        agent.history(limit=-1)
    with pytest.raises(NotFound, match="'main'"):
        agent.history("nowhere")


def test_a_first_checkpoint_buries_nothing_that_was_saved_since_the_timeline_was_opened(
    open_timeline: Opener,
) -> None:
    open_timeline().checkpoint({"began": True})
    here, there = open_timeline(), open_timeline()
    there.checkpoint({"began": True, "there": 1})

    merged = here.checkpoint({"began": True, "here": 2})

    assert merged.merged
    assert here.get_state() == {"began": True, "here": 2, "there": 1}


def test_a_first_checkpoint_that_cannot_be_merged_is_refused(open_timeline: Opener) -> None:
    here, there = open_timeline(), open_timeline()
    there.checkpoint({"goal": "there"})

    with pytest.raises(MergeConflict, match="goal"):
        here.checkpoint({"goal": "here"})

    assert there.get_state() == {"goal": "there"}
    assert len(there.history()) == 1


def test_a_new_branch_and_an_undo_are_where_the_next_checkpoint_begins(
    open_timeline: Opener,
) -> None:
    here = open_timeline()
    for number in range(2):
        here.checkpoint({"step": number})
    here.branch("plan")
    there = open_timeline(branch="plan")
    there.checkpoint({"step": 1, "there": 1})
    assert here.checkpoint({"step": 1, "here": 1}).merged
    here.undo()
    there.get_state()
    there.checkpoint({"step": 1, "there": 2})

    assert here.checkpoint({"step": 1, "there": 1, "here": 2}).merged
    assert here.get_state() == {"step": 1, "there": 2, "here": 2}


def test_another_process_goes_on_where_the_last_one_stopped(
    agent: Timeline, open_timeline: Opener
) -> None:
    ids = steps(agent, 3)
    agent.rollback()
    agent.branch("other")
    agent.checkpoint({"step": 9})

    again = open_timeline()
    assert again.current_branch == "other"
    assert again.get_state() == {"step": 9}
    assert again.list_branches() == agent.list_branches()
    assert again.visualize_tree() == agent.visualize_tree()
    assert again.metrics == agent.metrics
    assert again.get(ids[2]).status == CheckpointStatus.ROLLED_BACK
    assert again.get(ids[1]).status == CheckpointStatus.ACTIVE


def test_two_timelines_of_one_store_do_not_meet(agent: Timeline) -> None:
    other = Timeline("other", agent.store)
    agent.checkpoint({"mine": 1})
    other.checkpoint({"yours": 1})

    assert agent.get_state() == {"mine": 1}
    assert other.get_state() == {"yours": 1}


# Going back.


def test_a_rollback_keeps_everything(agent: Timeline) -> None:
    ids = steps(agent, 4)

    assert agent.rollback(2).id == ids[1]

    assert agent.get_state() == {"step": 2}
    assert agent.get(ids[3]).state == {"step": 4}
    assert agent.get(ids[3]).status == CheckpointStatus.ROLLED_BACK
    assert agent.get(ids[0]).status == CheckpointStatus.ACTIVE
    agent.checkpoint({"step": "new"})
    assert [one.state["step"] for one in agent.history()] == ["new", 2, 1]


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "2"])
def test_a_rollback_goes_back_by_one_step_or_more(agent: Timeline, count: Any) -> None:
    steps(agent, 3)

    with pytest.raises(InvalidInput, match="1 step or more"):
        agent.rollback(count)

    assert agent.get_state() == {"step": 3}


@pytest.mark.parametrize("count", [3, 10**12])
def test_a_rollback_past_the_first_step_goes_to_the_first_and_warns(
    agent: Timeline, count: int
) -> None:
    ids = steps(agent, 3)

    with pytest.warns(UserWarning, match="'main' .* by 2 step"):
        assert agent.rollback(count).id == ids[0]

    assert agent.get_state() == {"step": 1}
    agent.undo()
    assert agent.get_state() == {"step": 3}


def test_a_rollback_from_the_first_step_does_nothing_and_warns(agent: Timeline) -> None:
    ids = steps(agent, 1)

    with pytest.warns(UserWarning, match="by 0 step"):
        assert agent.rollback().id == ids[0]
    assert [one.metadata["action"] for one in agent.operations()] == ["commit"]


def test_a_rollback_to_an_unknown_id_or_another_branch_is_refused(agent: Timeline) -> None:
    ids = steps(agent, 2)
    agent.branch("other", ids[0])
    elsewhere = agent.checkpoint({"step": "elsewhere"})
    agent.switch_branch("main")

    with pytest.raises(NotFound):
        agent.rollback(to_checkpoint_id="0123456789")
    with pytest.raises(InvalidInput, match="give one of them"):
        agent.rollback(2, to_checkpoint_id=ids[0])
    with pytest.raises(InvalidInput, match="number of an operation"):
        agent.undo("last")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="does not come from"):
        agent.rollback(to_checkpoint_id=elsewhere.id)

    assert agent.get_state() == {"step": 2}


def test_everything_can_be_undone_one_after_the_other(agent: Timeline) -> None:
    steps(agent, 2)
    agent.tag("v1")
    agent.rollback()
    agent.branch("other")
    agent.checkpoint({"step": "other"})

    agent.undo()
    assert agent.get_state() == {"step": 1}
    agent.undo()
    assert (agent.current_branch, agent.get_state()) == ("main", {"step": 1})
    agent.undo()
    assert agent.get_state() == {"step": 2}
    agent.undo()
    assert agent.tags() == {}
    agent.redo()
    assert list(agent.tags()) == ["v1"]


def test_an_undo_and_a_redo_name_the_operation_that_they_are_about(agent: Timeline) -> None:
    steps(agent, 3)
    agent.rollback()
    (rollback,) = agent.last_operations(1)

    undone, redone = agent.undo(), agent.redo()

    assert undone.metadata["undoes"] == redone.metadata["redoes"] == rollback.sequence
    assert (undone.metadata["action"], redone.metadata["action"]) == ("undo", "redo")
    assert agent.get_state() == {"step": 2}


def test_an_id_may_be_shortened_as_long_as_it_is_unique(agent: Timeline) -> None:
    (id,) = steps(agent, 1)

    assert agent.get(id[:4]).id == agent.get(id[:12]).id == agent.get(id).id == id
    assert agent.diff(id[:6], id[:8]).changes == ()
    with pytest.raises(NotFound):
        agent.get(id[:3])
    with pytest.raises(NotFound):
        agent.get("not hex at all")


def test_a_beginning_that_several_share_is_refused(agent: Timeline) -> None:
    from ropewalk.timeline import search

    ids = steps(agent, 40)
    shared = next(id[:1] for id in ids if sum(one[:1] == id[:1] for one in ids) > 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(search, "SHORTEST", 1)
        with pytest.raises(InvalidInput, match="several"):
            agent.get(shared)


# Branches and merges.


def test_a_branch_begins_at_the_head_or_at_a_checkpoint(agent: Timeline) -> None:
    ids = steps(agent, 3)

    assert agent.branch("at head").head == ids[2]
    assert agent.branch("earlier", ids[0]).checkpoint_count == 1

    assert agent.get_state() == {"step": 1}
    assert [one.name for one in agent.list_branches()] == ["at head", "earlier", "main"]
    assert [one.name for one in agent.list_branches() if one.is_current] == ["earlier"]


def test_a_branch_that_exists_is_switched_to(agent: Timeline) -> None:
    steps(agent, 1)

    assert agent.branch("other").created
    other = agent.checkpoint({"step": "other"})
    agent.switch_branch("main")
    found = agent.branch("other")

    assert (found.created, found.head, found.checkpoint_count) == (False, other.id, 2)
    assert agent.get_state() == {"step": "other"}
    assert not agent.branch("other").created
    with pytest.raises(Conflict, match="already"):
        agent.branch("other", other.id)
    assert agent.head == other


def test_a_branch_that_two_make_at_once_is_made_by_one(open_timeline: Opener) -> None:
    steps(open_timeline(), 1)
    agents = [open_timeline() for _ in range(4)]
    together = threading.Barrier(len(agents))

    def make(agent: Timeline) -> bool:
        together.wait()
        return agent.branch("idea").created

    with ThreadPoolExecutor(len(agents)) as pool:
        made = list(pool.map(make, agents))

    assert sorted(made) == [False, False, False, True]
    assert {agent.current_branch for agent in agents} == {"idea"}


def test_a_branch_that_is_unknown_or_the_current_one_is_refused(agent: Timeline) -> None:
    steps(agent, 1)
    agent.branch("other")

    with pytest.raises(NotFound, match="'main', 'other'"):
        agent.switch_branch("nowhere")
    with pytest.raises(InvalidInput, match="current branch"):
        agent.delete_branch("other")

    assert agent.current_branch == "other"


def test_a_branch_that_somebody_removed_is_no_empty_one(open_timeline: Opener) -> None:
    steps(open_timeline(), 1)
    open_timeline().branch("idea")
    agent = open_timeline()
    agent.checkpoint({"step": "idea"})
    other = open_timeline()
    other.switch_branch("main")
    other.delete_branch("idea")

    for call in (agent.get_state, lambda: agent.checkpoint({"step": "more"})):
        for _ in range(2):
            with pytest.raises(Conflict, match=r"'idea' .* was removed"):
                call()
    assert [one.name for one in agent.list_branches()] == ["main"]
    agent.switch_branch("main")
    assert agent.branch("idea").created
    assert agent.get_state() == {"step": 1}


def test_a_timeline_that_somebody_undid_to_its_beginning_can_begin_anew(
    open_timeline: Opener,
) -> None:
    agent = open_timeline()
    steps(agent, 1)
    open_timeline().undo()

    with pytest.raises(Conflict, match=r"'main' .* was removed"):
        agent.get_state()
    agent.switch_branch("main")
    assert agent.get_state() is None
    agent.checkpoint({"step": "new"})
    assert agent.get_state() == {"step": "new"}


def diverged(agent: Timeline) -> None:
    agent.checkpoint({"x": 0, "y": 0, "cfg": {"a": 1, "keep": "main"}})
    agent.branch("side")
    agent.checkpoint({"x": 1, "y": 0, "cfg": {"a": 2, "keep": "main"}}, {"confidence": 0.9})
    agent.switch_branch("main")
    agent.checkpoint({"x": 0, "y": 1, "cfg": {"a": 1, "keep": "main", "b": 3}}, {"confidence": 0.4})


def test_a_merge_keeps_what_each_side_changed(agent: Timeline) -> None:
    diverged(agent)

    merged = agent.merge("side")

    assert merged.state == {"x": 1, "y": 1, "cfg": {"a": 2, "keep": "main", "b": 3}}
    assert len(merged.parents) == 2


@pytest.mark.parametrize(
    ("strategy", "winner"),
    [
        ("ours", "main"),
        ("theirs", "side"),
        ("prefer_source", "side"),
        ("prefer_higher_confidence", "side"),
    ],
)
def test_a_strategy_settles_conflicts(agent: Timeline, strategy: str, winner: str) -> None:
    diverged(agent)
    agent.checkpoint({"x": "main", "y": 1}, {"confidence": 0.1})

    merged = agent.merge("side", strategy)

    assert merged.state["x"] == {"main": "main", "side": 1}[winner]
    assert merged.state["y"] == 1


def test_a_conflict_is_reported_and_changes_nothing(agent: Timeline) -> None:
    agent.checkpoint({"x": 0})
    agent.branch("side")
    agent.checkpoint({"x": 1})
    agent.switch_branch("main")
    before = agent.checkpoint({"x": 2})

    for strategy in ("combine", "prefer_higher_confidence"):
        with pytest.raises(MergeConflict) as caught:
            agent.merge("side", strategy)
        (conflict,) = caught.value.conflicts
        assert (conflict.path, conflict.base, conflict.ours, conflict.theirs) == (("x",), 0, 2, 1)

    assert agent.head == before
    assert agent.merge("side", mergers={"x": "add"}).state == {"x": 3}


def test_an_unknown_strategy_or_source_is_refused(agent: Timeline) -> None:
    diverged(agent)

    with pytest.raises(InvalidInput, match="combine, ours"):
        agent.merge("side", "cleverly")
    with pytest.raises(NotFound):
        agent.merge("nowhere")


def test_one_step_is_picked_or_reverted(agent: Timeline) -> None:
    agent.checkpoint({"a": 0, "b": 0})
    picked = agent.checkpoint({"a": 1, "b": 0})
    agent.checkpoint({"a": 1, "b": 1})

    assert agent.revert(picked.id).state == {"a": 0, "b": 1}
    agent.branch("other", agent.history()[-1].id)
    assert agent.cherry_pick(picked.id).state == {"a": 1, "b": 0}
    with pytest.raises(InvalidInput, match="first step"):
        agent.revert(agent.history(limit=None)[-1].id)


def test_a_fork_shares_what_is_stored_and_goes_its_own_way(agent: Timeline) -> None:
    agent.checkpoint({"text": "long " * 10_000})
    first = agent.checkpoint({"text": "long " * 10_000, "n": 1})
    before = sum(one.length for one in agent.store.scan())

    forked = agent.fork("forked", first.id)
    forked.checkpoint({"text": "long " * 10_000, "n": 2})

    assert sum(one.length for one in agent.store.scan()) - before < 3000
    assert agent.get_state()["n"] == 1
    assert [one.state.get("n") for one in forked.history()] == [2, 1, None]
    assert forked.get(first.id[:8]) == first
    with pytest.raises(Conflict):
        agent.fork("forked")


# The past.


def test_blame_finds_the_step_that_last_wrote_a_place(agent: Timeline) -> None:
    agent.checkpoint({"a": 1, "b": {"c": 1}})
    wrote = agent.checkpoint({"a": 1, "b": {"c": 2}})
    agent.checkpoint({"a": 2, "b": {"c": 2}})
    agent.branch("side", wrote.id)
    on_side = agent.checkpoint({"a": 1, "b": {"c": 2}, "d": 1})
    agent.switch_branch("main")
    agent.merge("side")

    assert agent.blame(("b", "c")) == wrote
    assert agent.blame("d") == on_side
    with pytest.raises(PathNotFound):
        agent.blame("nowhere")


def test_bisect_looks_at_few_steps(agent: Timeline) -> None:
    steps(agent, 100)
    looked: list[int] = []

    def is_late(state: Any) -> bool:
        looked.append(state["step"])
        return bool(state["step"] >= 37)

    assert agent.bisect(is_late).state == {"step": 37}

    assert len(looked) <= 8
    with pytest.raises(NotFound):
        agent.bisect(lambda state: False)


def test_the_past_is_seen_by_id_by_tag_and_by_time(agent: Timeline) -> None:
    first = agent.checkpoint({"n": 1, "deep": {"x": [1, 2]}})
    agent.tag("start")
    agent.checkpoint({"n": 2})

    assert agent.at("start").state == first.state
    assert agent.at(first.short).get(("deep", "x", 1)) == 2
    assert agent.at(first.time).checkpoint == first
    assert agent.at(datetime.now(UTC) + timedelta(days=1)).state == {"n": 2}
    with pytest.raises(NotFound, match="no checkpoint yet at that time"):
        agent.at(0.0)


def test_a_diff_is_deep_and_shown_for_people(agent: Timeline) -> None:
    old = agent.checkpoint({"a": 1, "gone": 1, "text": "one\ntwo\nthree", "list": [1, 2, 3, 4]})
    new = agent.checkpoint({"a": 2, "text": "one\n2\nthree", "list": [1, 3, 4, 5], "new": {}})

    found = agent.diff(old.id, new.id)

    assert found.added == {("list", 3): 5, ("new",): {}}
    assert found.removed == {("gone",): 1, ("list", 1): 2}
    assert found.changed == {("a",): (1, 2), ("text",): ("one\ntwo\nthree", "one\n2\nthree")}
    assert '- state["gone"]: 1' in str(found)
    assert "    -two\n    +2" in str(found)
    reordered = agent.checkpoint({"new": {}, "list": [1, 3, 4, 5], "text": "one\n2\nthree", "a": 2})
    assert agent.diff(new.id, reordered.id).reordered == [()]


# Names, threads, processes.


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "x/../y", "/etc", "..\\x", "a\x00b", "x" * 10_000, "\ud800"],
)
def test_a_hostile_name_is_refused(name: str) -> None:
    with MemoryStore() as store, pytest.raises(InvalidName):
        Timeline(name, store)


@pytest.mark.parametrize("name", ["a/b", "a..b", "C:\\x", "Ünï 💡", "%2e"])
def test_a_strange_name_is_just_a_name(open_timeline: Opener, name: str) -> None:
    open_timeline(name).checkpoint({"n": 1})

    assert open_timeline(name).get_state() == {"n": 1}
    open_timeline(name).branch(name)
    assert open_timeline(name).current_branch == name


def test_a_store_is_named_once() -> None:
    with MemoryStore() as store, pytest.raises(InvalidInput, match="give one of them"):
        Timeline("x", store, storage_backend=store)


def test_two_handles_on_one_branch_lose_nothing(agent: Timeline, open_timeline: Opener) -> None:
    agent.checkpoint({"a": 0, "b": 0})
    other = open_timeline()
    other.get_state()

    agent.checkpoint({"a": 1, "b": 0})
    merged = other.checkpoint({"a": 0, "b": 1})

    assert merged.state == {"a": 1, "b": 1}
    agent.checkpoint({"a": 2, "b": 0})
    with pytest.raises(MergeConflict) as caught:
        other.checkpoint({"a": 3, "b": 1})
    assert [conflict.path for conflict in caught.value.conflicts] == [("a",)]
    assert other.get_state() == {"a": 2, "b": 1}


def test_many_threads_on_one_timeline_lose_nothing(agent: Timeline) -> None:
    def save(number: int) -> None:
        for turn in range(10):
            agent.checkpoint({"thread": number, "turn": turn})

    threads = [threading.Thread(target=save, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    saved = [(one.state["thread"], one.state["turn"]) for one in agent.history(limit=None)]
    assert sorted(saved) == [(number, turn) for number in range(8) for turn in range(10)]


def test_every_verb_has_an_asynchronous_twin(agent: Timeline) -> None:
    async def work() -> None:
        first = await agent.acheckpoint({"n": 1})
        await agent.abranch("other")
        await agent.acheckpoint({"n": 2})
        await agent.aswitch_branch("main")
        await agent.amerge("other")
        assert await agent.aget_state() == {"n": 2}
        await agent.arollback()
        assert (await agent.ahistory())[0] == first
        await agent.aundo()
        assert (await agent.adiff(first.id)).changed == {("n",): (1, 2)}

    asyncio.run(work())


def test_a_session_is_one_file_and_comes_back_whole(agent: Timeline, tmp_path: Any) -> None:
    diverged(agent)
    agent.merge("side")
    agent.tag("v1")
    agent.rollback()
    with pytest.raises(ZeroDivisionError):
        agent.safe_execute(lambda state: 1 / 0, {"n": 1}, "divide", max_retries=1)

    size = agent.export_session(tmp_path / "session")
    with MemoryStore() as store:
        copy = Timeline.import_session(tmp_path / "session", store)

        assert 0 < size < 20_000
        assert copy.name == agent.name
        assert copy.visualize_tree() == agent.visualize_tree()
        assert copy.metrics == agent.metrics
        assert copy.get_state() == agent.get_state()
        copy.undo()
        assert store.check(read_data=True).ok
        with pytest.raises(Conflict):
            Timeline.import_session(tmp_path / "session", store)
    with pytest.raises(Conflict, match="exists already"):
        agent.export_session(tmp_path / "session")


def test_a_session_that_is_none_or_torn_is_refused(agent: Timeline, tmp_path: Any) -> None:
    steps(agent, 30)
    agent.export_session(tmp_path / "session")
    whole = (tmp_path / "session").read_bytes()
    bad = tmp_path / "bad"

    for data in (b"", b"garbage", whole[:-20], whole[:60] + b"\x00" * 8 + whole[68:]):
        bad.write_bytes(data)
        with MemoryStore() as store, pytest.raises(ValueError, match="bad"):
            Timeline.import_session(bad, store)
        with MemoryStore() as store:
            assert store.spaces() == []
    bad.write_bytes(whole[:6] + b"\x63" + whole[7:])
    with MemoryStore() as store, pytest.raises(Exception, match="newer Ropewalk"):
        Timeline.import_session(bad, store)
    with MemoryStore() as store, pytest.raises(NotFound):
        Timeline.import_session(tmp_path / "nowhere", store)


def test_the_branch_that_others_find_as_the_current_one_is_not_removed() -> None:
    store = MemoryStore()
    agent = Timeline("agent", store)
    agent.checkpoint({"a": 1})
    agent.branch("idea")

    with pytest.raises(InvalidInput, match="is the current branch"):
        Timeline("agent", store, branch="main").delete_branch("idea")
    assert Timeline("agent", store).get_state() == {"a": 1}


def test_a_timeline_whose_current_branch_is_gone_opens_on_main() -> None:
    store = MemoryStore()
    agent = Timeline("agent", store)
    agent.checkpoint({"a": 1})
    agent.branch("idea")
    agent._history.delete_branch("idea")

    opened = Timeline("agent", store)

    assert (opened.current_branch, opened.get_state()) == ("main", {"a": 1})


def test_a_fork_stays_with_its_tenant_however_that_is_named() -> None:
    agent = Timeline("one", MemoryStore(), tenant="team: a/b")
    agent.checkpoint({"n": 1})
    agent.fork("two")

    assert Timeline.agents(agent.store, tenant="team: a/b") == ["one", "two"]


def test_a_fork_never_goes_into_a_timeline_that_is_there() -> None:
    store = MemoryStore()
    agent = Timeline("agent", store)
    agent.checkpoint({"a": 1})
    other = Timeline("other", store)
    other.checkpoint({"b": 1})
    other.branch("idea")
    other.delete_branch("main")

    with pytest.raises(Conflict, match="a timeline 'other' already"):
        agent.fork("other")
    assert [branch.name for branch in other.list_branches()] == ["idea"]


@pytest.mark.parametrize("metadata", [[1], "ab", 3])
def test_metadata_that_is_no_dict_is_refused(agent: Timeline, metadata: Any) -> None:
    with pytest.raises(InvalidInput, match="metadata is a dict"):
        agent.checkpoint({"a": 1}, metadata=metadata)


def test_a_checkpoint_that_expects_another_head_is_refused(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store") as store:
        agent, other = Timeline("agent", store), Timeline("agent", store)
        first = agent.checkpoint({"a": 1})
        assert other.get_state() == {"a": 1}
        second = agent.checkpoint({"a": 2}, expect=first)

        with pytest.raises(RefMoved, match="Nothing was stored"):
            other.checkpoint({"a": 1, "b": 3}, expect=first.id)

        assert [one.id for one in agent.history()] == [second.id, first.id]
        assert other.checkpoint({"b": 3}, expect=second.short).parent_id == second.id
        assert agent.get_state() == {"b": 3}
