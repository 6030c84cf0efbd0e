"""Merging branches: what both sides changed, and what they both know."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.errors import InvalidInput, MergeConflict
from ropewalk.history import History
from tests.history.steps import commit, forked, state_of


def test_a_merge_has_both_changes_and_both_parents(history: History) -> None:
    _, left, right, merged = forked(history)

    assert merged.parents == (left.id, right.id)
    assert merged.agent == "researcher" and merged.branch == "main"
    assert history.value() == {"a": 1, "b": 1}
    assert history.value("side") == {"a": 0, "b": 1}


def test_a_branch_without_work_of_its_own_moves_forward(history: History) -> None:
    commit(history, 1)
    history.create_branch("side")
    ahead = commit(history, 2, branch="side")

    assert history.merge("side") == ahead

    assert history.resolve() == ahead


def test_merging_what_is_there_does_nothing(history: History) -> None:
    start, _, _, merged = forked(history)
    before = state_of(history)

    assert history.merge("side") == merged
    assert history.merge(start) == merged

    assert state_of(history) == before


def test_a_conflict_names_every_path_and_changes_nothing(history: History) -> None:
    commit(history, {"a": 0, "b": {"c": 0}})
    history.create_branch("side")
    commit(history, {"a": 1, "b": {"c": 1}})
    commit(history, {"a": 2, "b": {"c": 2}}, branch="side")
    before = state_of(history)

    with pytest.raises(MergeConflict) as caught:
        history.merge("side")

    conflicts = {one.path: one[1:4] for one in caught.value.conflicts}
    assert conflicts == {("a",): (0, 1, 2), ("b", "c"): (0, 1, 2)}
    assert state_of(history) == before


def test_mergers_settle_what_both_changed(history: History) -> None:
    commit(history, {"n": 1, "log": ["x"], "who": "nobody"})
    history.create_branch("side")
    commit(history, {"n": 2, "log": ["x", "ours"], "who": "us"})
    commit(history, {"n": 2, "log": ["x", "theirs"], "who": "them"}, branch="side")

    history.merge("side", mergers={"n": "add", "log": "append", "who": "theirs"})

    assert history.value() == {"n": 3, "log": ["x", "ours", "theirs"], "who": "them"}


def test_what_has_no_common_ancestor_can_be_merged(history: History) -> None:
    commit(history, {"a": 1})
    foreign = commit(history, {"b": 2}, branch="unrelated")

    merged = history.merge(foreign)

    assert history.value() == {"a": 1, "b": 2}
    assert foreign.id in merged.parents


def test_a_merge_says_what_its_caller_says(history: History) -> None:
    commit(history, {"a": 0})
    history.create_branch("side")
    commit(history, {"a": 0, "b": 0})
    commit(history, {"a": 0, "c": 0}, branch="side")

    merged = history.merge("side", description="Both", agent="editor", extension={"k": [1]})

    assert (merged.description, merged.agent) == ("Both", "editor")
    assert merged.extension == {"k": [1]}
    with pytest.raises(InvalidInput, match="colour"):
        history.merge("side", colour="red")  # type: ignore[call-arg]


# Branches that took each other's work at the same time have two nearest common ancestors.


def cross(history: History, start: Any, ours: Any, theirs: Any, **how: Any) -> None:
    """Two branches, main and side, each with the other's first step merged into it."""
    commit(history, start)
    history.create_branch("side")
    left = commit(history, ours)
    right = commit(history, theirs, branch="side")
    history.merge(right, into="main", **how)
    history.merge(left, into="side", **how)


def test_branches_that_merged_each_other_merge_again(history: History) -> None:
    cross(history, {"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 0, "b": 1})
    commit(history, {"a": 1, "b": 1, "c": 1})
    commit(history, {"a": 1, "b": 1, "d": 1}, branch="side")

    history.merge("side")

    assert history.value() == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_the_same_merge_base_is_always_chosen(history: History) -> None:
    cross(history, {"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 0, "b": 1})

    base = history.merge_base("main", "side")

    assert base is not None
    assert history.merge_base("side", "main") == base


@pytest.mark.parametrize("key", ["a", "b"])
def test_what_one_side_took_back_after_both_had_it_stays_taken_back(
    history: History, key: str
) -> None:
    cross(history, {"a": 0, "b": 0}, {"a": 1, "b": 0}, {"a": 0, "b": 1})
    commit(history, {"a": 1, "b": 1, key: 0})
    commit(history, {"a": 1, "b": 1, "c": 1}, branch="side")

    history.merge("side")

    assert history.value() == {"a": 1, "b": 1, "c": 1, key: 0}


def test_what_both_have_is_not_added_twice(history: History) -> None:
    adding = {"n": "add"}
    cross(history, {"n": 0}, {"n": 1}, {"n": 10}, mergers=adding)
    assert history.value("main") == history.value("side") == {"n": 11}
    commit(history, {"n": 111})
    commit(history, {"n": 1011}, branch="side")

    history.merge("side", mergers=adding)

    assert history.value() == {"n": 1111}


def test_what_was_settled_differently_on_both_sides_is_a_conflict(history: History) -> None:
    commit(history, {"a": 0, "log": ["x"]})
    history.create_branch("side")
    left = commit(history, {"a": 1, "log": ["x"]})
    right = commit(history, {"a": 2, "log": ["x"]}, branch="side")
    history.merge(right, into="main", mergers={"a": lambda *_: 0})
    history.merge(left, into="side", mergers={"a": "ours"})

    with pytest.raises(MergeConflict) as caught:
        history.merge("side")
    assert [one.path for one in caught.value.conflicts] == [("a",)]
    merged = history.merge("side", mergers={"a": "ours"})

    assert history.value(merged) == {"a": 0, "log": ["x"]}


def test_branches_that_merge_each_other_again_and_again_stay_together(history: History) -> None:
    adding = {"n": "add"}
    commit(history, {"n": 0})
    history.create_branch("side")
    for _ in range(12):
        left = commit(history, {"n": history.value()["n"] + 1})
        right = commit(history, {"n": history.value("side")["n"] + 1}, branch="side")
        history.merge(right, into="main", mergers=adding)
        history.merge(left, into="side", mergers=adding)

    assert history.value("main") == history.value("side") == {"n": 24}
