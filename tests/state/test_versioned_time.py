"""Going back and looking: checkouts, histories, differences, branches, merges and events."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.errors import (
    Conflict,
    InvalidInput,
    MergeConflict,
    NotFound,
    NotStorable,
    StoreClosed,
)
from ropewalk.state import Checkout, Versioned
from ropewalk.store import SqliteStore, Store
from tests.engines import Opener
from tests.state.conftest import StateOpener
from tests.state.large import messages

# Checkouts.


def test_a_checkout_shows_the_state_as_it_was(state: Versioned) -> None:
    state.update(a=[1], b=messages(100))
    first = state.commit() or ""
    state["a"].append(2)
    state["b"].clear()
    del state["a"]
    state["c"] = 1
    state.commit()
    past = state.checkout(first)

    assert dict(past) == {"a": [1], "b": messages(100)}
    assert len(past) == 2
    assert "c" not in past
    assert past.get("c", 7) == 7
    assert past.commit_hash == first
    with pytest.raises(KeyError):
        past["c"]


def test_a_checkout_is_read_only(state: Versioned, open_state: StateOpener) -> None:
    state["a"] = {"list": [1]}
    first = state.commit() or ""
    state["a"]["list"].append(2)
    second = state.commit()
    past = state.checkout(first)

    writing = {"__setitem__", "__delitem__", "__ior__", "reset", "update", "pop", "clear", "merge"}
    assert writing.isdisjoint(dir(past))
    with pytest.raises(TypeError):
        past["a"] = 1  # type: ignore[index]
    past["a"]["list"].append("nowhere")
    past["a"].clear()
    assert past["a"] == {"list": [1]}
    assert state["a"] == {"list": [1, 2]}
    assert not state.dirty
    assert open_state().commit_hash == second
    assert isinstance(past, Checkout)


def test_a_checkout_of_a_newer_commit_works_from_an_older_handle(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = 1
    state.commit()
    older = open_state()
    state["a"] = 2
    newer = state.commit() or ""

    assert older.checkout(newer)["a"] == 2
    assert older["a"] == 1


def test_a_commit_of_another_branch_can_be_checked_out(state: Versioned) -> None:
    state["a"] = 1
    state.commit()
    other = state.branch("other")
    other["a"] = "other"
    hash = other.commit() or ""

    assert state.checkout(hash)["a"] == "other"
    assert state.checkout("other")["a"] == "other"
    assert state.checkout("main")["a"] == 1


def test_a_commit_that_the_branch_left_can_be_checked_out(state: Versioned) -> None:
    state["a"] = 1
    first = state.commit() or ""
    state["a"] = 2
    second = state.commit() or ""
    state.reset(first)

    assert state.checkout(second)["a"] == 2


@pytest.mark.parametrize("name", ["no such branch", "0" * 64, "abc", ""])
def test_a_checkout_of_nothing_is_an_error_and_never_an_empty_state(
    state: Versioned, name: str
) -> None:
    state["a"] = 1
    state.commit()

    with pytest.raises((NotFound, InvalidInput)):
        state.checkout(name)


# Histories.


def test_history_lists_commits_newest_first_with_what_was_said_about_them(
    state: Versioned,
) -> None:
    assert state.history() == []
    state["a"] = 1
    state.commit("First", logic_step="parse", metadata={"model": "m"})
    state["a"] = 2
    state.commit("Second", status="failed", error="TimeoutError")

    newest, oldest = state.history()
    assert (oldest.description, oldest.logic_step) == ("First", "parse")
    assert (newest.description, newest.status, newest.error) == ("Second", "failed", "TimeoutError")
    assert state.history(limit=1) == [newest]
    assert state.history(limit=0) == []
    assert newest.id.hex() == state.commit_hash
    with pytest.raises(InvalidInput):
        state.history(limit=-1)


def test_metadata_alone_makes_a_commit(state: Versioned) -> None:
    state["a"] = 1
    first = state.commit()

    assert state.commit(metadata={"tokens": 7}) != first
    with pytest.raises(NotStorable, match="metadata"):
        state.commit(metadata=object())


def test_a_diff_names_the_paths_that_changed(state: Versioned) -> None:
    state.update(a={"x": 1, "y": [1, 2]}, b=messages(100), gone=1)
    first = state.commit() or ""
    state["a"]["y"].append(3)
    state["b"][50]["content"] = "edited"
    del state["gone"]
    state["new"] = 1
    second = state.commit() or ""

    paths = {("a", "y", 2), ("b", 50, "content"), ("gone",), ("new",)}
    assert {one.path for one in state.diff(first)} == paths
    assert {one.path for one in state.diff(first, second)} == paths
    assert {one.path for one in state.diff(second, first)} == paths
    assert state.diff(second) == []


def test_changes_are_what_is_not_committed(state: Versioned) -> None:
    state["a"] = {"x": 1}
    assert [one.path for one in state.changes()] == [("a",)]
    state.commit()
    assert state.changes() == []
    state["a"]["y"] = 2
    state.namespace("n")["z"] = 3
    paths = {one.path[-1] for one in state.changes()}

    assert "y" in paths
    assert len(state.changes()) == 2
    assert state.dirty


# Resets.


def test_a_reset_drops_what_was_not_committed(state: Versioned) -> None:
    held: list[Any] = [1]
    state["a"] = held
    first = state.commit()
    held.append(2)
    state["b"] = 1
    del state["a"]
    state.note({"kind": "dropped"})
    assert state.reset() == first

    assert dict(state) == {"a": [1]}
    assert list(state.records()) == []
    assert not state.dirty
    held.append("no longer followed")
    assert not state.dirty


def test_a_reset_before_the_first_commit_leaves_nothing(state: Versioned) -> None:
    state["a"] = 1

    assert state.reset() is None
    assert len(state) == 0


def test_a_reset_to_a_commit_moves_the_branch_for_everybody(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = 1
    first = state.commit() or ""
    state["a"] = 2
    second = state.commit() or ""
    state.reset(first)

    assert state["a"] == 1
    assert open_state()["a"] == 1
    assert state.reset(second) == second
    assert open_state()["a"] == 2
    with pytest.raises((NotFound, InvalidInput)):
        state.reset("0" * 64)
    assert state.commit_hash == second


def test_work_goes_on_after_a_reset(state: Versioned, open_state: StateOpener) -> None:
    state["a"] = messages(100)
    first = state.commit() or ""
    state["a"].append("x")
    state.commit()
    state.reset(first)
    state["a"].append("y")
    state.commit()

    assert open_state()["a"] == [*messages(100), "y"]


def test_a_handle_that_stands_where_the_branch_was_keeps_its_changes(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = 1
    first = state.commit() or ""
    state["b"] = 1
    state.commit()
    other = open_state()
    other["mine"] = 1
    state.reset(first)
    other.commit()

    assert dict(open_state()) == {"a": 1, "mine": 1}


@pytest.mark.parametrize("read", [True, False])
def test_a_handle_whose_commit_was_left_and_collected_is_told(
    open_state: StateOpener, store: Store, read: bool
) -> None:
    state = Versioned(store)
    state.update(x=messages(200), y=1)
    first = state.commit() or ""
    state["x"].append("left")
    state.commit()
    other = open_state()
    other["mine"] = [1]
    if read:
        other["x"].append("mine")
    state.reset(first)
    for _ in range(3):
        state["y"] += 1
        state.commit()
    store.gc(recent=1)

    try:  # What it saw is gone; it may still know enough of it to merge.
        other.commit()
    except Conflict:
        with pytest.raises(Conflict, match="reset"):
            other.commit()
    else:
        assert dict(open_state())["y"] == 4
        return
    assert other["mine"] == [1]
    other.reset()
    other["mine"] = [2]
    other.commit()
    assert dict(open_state()) == {"x": messages(200), "y": 4, "mine": [2]}
    assert store.check(read_data=True).problems == ()


# Branches and merges.


def test_a_branch_begins_where_its_maker_stands(state: Versioned) -> None:
    state["a"] = [1]
    state.commit()
    state["a"].append("not committed")
    other = state.branch("other")

    assert dict(other) == {"a": [1]}
    assert other.branch_name == "other"
    other["a"].append("other")
    other.commit()
    assert state["a"] == [1, "not committed"]
    assert sorted(state.branches()) == ["main", "other"]
    assert state.branches()["other"] == other.commit_hash
    assert dict(state.branch("other")) == {"a": [1, "other"]}


def test_a_branch_begins_at_any_commit(state: Versioned) -> None:
    state["a"] = 1
    first = state.commit() or ""
    state["a"] = 2
    state.commit()

    assert state.branch("old", at=first)["a"] == 1
    with pytest.raises(Conflict):
        state.branch("old", at=first)
    with pytest.raises((NotFound, InvalidInput)):
        state.branch("new", at="nowhere")


def test_a_branch_of_a_state_without_commits_is_empty(state: Versioned) -> None:
    other = state.branch("other")
    other["a"] = 1
    other.commit()

    assert state.branches() == {"other": other.commit_hash}
    assert len(state) == 0
    state.merge("other")
    assert dict(state) == {"a": 1}


def test_a_merge_brings_both_sides_together(state: Versioned, open_state: StateOpener) -> None:
    state.update(a=1, list=[1], n=0)
    state.commit()
    other = state.branch("other")
    other["b"] = 2
    other["list"].append("other")
    other["n"] = 5
    other.commit()
    state["c"] = 3
    held = state["list"]
    state.commit()
    hash = state.merge(other)

    assert dict(state) == {"a": 1, "b": 2, "c": 3, "list": [1, "other"], "n": 5}
    assert state["list"] is held
    assert open_state().commit_hash == hash
    assert len(state.history()[0].parents) == 2


def test_a_merge_conflict_changes_nothing(state: Versioned, open_state: StateOpener) -> None:
    state["a"] = 1
    state.commit()
    other = state.branch("other")
    other["a"] = "other"
    other.commit()
    state["a"] = "main"
    before = state.commit()

    with pytest.raises(MergeConflict):
        state.merge("other")
    assert state.commit_hash == open_state().commit_hash == before
    state.merge("other", mergers={"a": "theirs"})
    assert state["a"] == "other"


def test_a_merge_with_uncommitted_changes_is_refused(state: Versioned) -> None:
    state["a"] = [1]
    state.commit()
    other = state.branch("other")
    state["a"].append(2)

    with pytest.raises(InvalidInput):
        state.merge(other)
    with pytest.raises(InvalidInput):
        state.merge(Versioned())
    assert state["a"] == [1, 2]


# Events.


def test_events_are_kept_with_the_commit_and_know_what_it_stands_between(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = 1
    first = state.commit()
    state.note({"kind": "one"})
    state.note({"kind": "two"})
    pending = list(state.records())
    state["a"] = 2
    second = state.commit()

    assert [(one.record["kind"], one.before, one.after) for one in pending] == [
        ("two", first, None),
        ("one", first, None),
    ]
    stored = list(open_state().records())
    assert [(one.record["kind"], one.before, one.after) for one in stored] == [
        ("two", first, second),
        ("one", first, second),
    ]
    assert [one.record["kind"] for one in open_state().records(limit=1)] == ["two"]
    assert list(state.checkout(first or "").records()) == []


def test_an_event_alone_makes_a_commit(state: Versioned) -> None:
    state.note({"kind": "one"})
    first = state.commit()

    assert first is not None
    assert state.commit() == first
    assert [one.after for one in state.records()] == [first]


def test_an_event_is_kept_as_it_was_when_it_was_noted(state: Versioned) -> None:
    event: dict[str, Any] = {"kind": "one", "list": [1]}
    state.note(event)
    event["list"].append(object())
    state.commit()

    assert next(state.records()).record == {"kind": "one", "list": [1]}


def test_an_event_that_cannot_be_stored_is_refused_at_once(state: Versioned) -> None:
    with pytest.raises(NotStorable, match='event\\["x"\\]'):
        state.note({"x": object()})

    assert list(state.records()) == []


# Life.


def test_a_state_that_opened_its_store_closes_it(memory_folder: Any) -> None:
    with Versioned(memory_folder / "state") as state:
        state["a"] = 1
        state.commit()
    with pytest.raises(StoreClosed):
        state.store.spaces()

    with Versioned(str(memory_folder / "state")) as again:
        assert again["a"] == 1


def test_a_store_that_was_handed_over_stays_open(store: Store) -> None:
    with Versioned(store) as state:
        state["a"] = 1
        state.commit()

    assert Versioned(store)["a"] == 1


def test_a_store_that_a_state_could_not_begin_on_is_closed_if_it_is_its_own(
    memory_folder: Any,
) -> None:
    with pytest.raises(InvalidInput):
        Versioned(memory_folder / "state", branch="")

    with SqliteStore(memory_folder / "state") as store:
        assert dict(Versioned(store)) == {}


def test_what_was_not_committed_is_not_there_when_it_is_opened_again(
    open_store: Opener,
) -> None:
    with Versioned(open_store()) as state:
        state["a"] = 1
        state.commit()
        state["b"] = 2

    assert dict(Versioned(open_store())) == {"a": 1}
