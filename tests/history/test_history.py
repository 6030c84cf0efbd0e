"""A history: naming commits, reading them, and moving branches, tags and pins."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ropewalk.errors import (
    Conflict,
    InvalidInput,
    InvalidName,
    MissingObjects,
    NotFound,
    RefMoved,
)
from ropewalk.history import At, Branch, History, Pin
from ropewalk.store import Store
from ropewalk.tree import Map, ObjectId, TreeWriter, load
from tests.engines import Opener
from tests.history.conftest import SPACE
from tests.history.steps import commit, forked, state_of

HOSTILE = ["", ".", "..", "a\0b", "line\nbreak", "\ud800", "x" * 513, "\u00fc" * 300]


# Opening.


def test_a_history_is_in_a_store(store: Store) -> None:
    with pytest.raises(InvalidInput, match="Store"):
        History("folder", SPACE)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="name"):
        History(store, SPACE, agent=7)  # type: ignore[arg-type]


def test_a_hostile_name_of_a_space_is_refused_at_once(store: Store) -> None:
    for name in ["", "one", "a/b/c", "../x", "a/\n"]:
        with pytest.raises(InvalidName):
            History(store, name)


def test_two_spaces_of_a_store_know_nothing_of_each_other(store: Store) -> None:
    one, two = History(store, "test/one"), History(store, "test/two")
    commit(one, 1)

    assert two.branches() == {}
    assert two.operations() == []
    with pytest.raises(NotFound):
        two.value()


def test_it_says_what_it_is(history: History, main: Branch) -> None:
    assert SPACE in repr(history)
    assert "nothing yet" in repr(main)

    made = main.commit(1)

    assert made.short in repr(main)


# Naming commits.


def test_a_commit_is_named_by_itself_its_id_its_hex_a_branch_or_a_tag(history: History) -> None:
    made = commit(history, {"a": 1})
    history.create_tag("first")

    for name in (made, made.id, made.id.hex(), "main", "first"):
        assert history.resolve(name) == made
    assert history.resolve() == made


def test_a_branch_goes_before_a_tag_of_the_same_name(history: History) -> None:
    first = commit(history, 1)
    second = commit(history, 2)
    history.create_tag("both", at=first)
    history.create_branch("both", at=second)

    assert history.resolve("both") == second


def test_an_unknown_name_is_not_found(history: History) -> None:
    commit(history, 1)

    names: list[At] = ["other", "ab" * 32, b"\0" * 32, "main "]
    for name in names:
        with pytest.raises(NotFound):
            history.resolve(name)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_not_found_and_cannot_be_made(history: History, name: str) -> None:
    commit(history, 1)
    before = state_of(history)

    with pytest.raises(NotFound):
        history.resolve(name)
    for change in (history.create_branch, history.create_tag, history.open):
        with pytest.raises(InvalidName):
            change(name)
    assert state_of(history) == before


def test_what_is_no_name_is_refused(history: History) -> None:
    for name in [7, None, ["main"], b"short"]:
        with pytest.raises(InvalidInput):
            history.resolve(name)  # type: ignore[arg-type]


def test_an_object_that_is_no_commit_is_not_found(history: History) -> None:
    made = commit(history, {"a": 1})

    with pytest.raises(NotFound, match="not a commit"):
        history.resolve(made.root)


def test_names_may_hold_any_text(history: History) -> None:
    made = commit(history, 1, branch="a/b %2F \u2603")
    history.create_tag("v1.0 (final)", at=made)

    assert history.branches() == {"a/b %2F \u2603": made.id}
    assert history.tags() == {"v1.0 (final)": made.id}


# Reading.


def test_every_version_stays_readable(history: History, main: Branch) -> None:
    state: dict[str, Any] = {"found": []}
    made = []
    for number in range(20):
        state["found"].append(number)
        made.append(main.commit(state))

    assert [history.value(one)["found"] for one in made] == [
        list(range(number + 1)) for number in range(20)
    ]


def test_metadata_and_events_are_values_of_the_step(history: History, main: Branch) -> None:
    plain = main.commit(1)
    events = [{"tool": "search", "took": 0.5}]
    rich = main.commit(2, metadata={"confidence": 0.9}, events=events)

    assert history.metadata(plain) is None
    assert history.events(plain) is None
    assert history.metadata(rich) == {"confidence": 0.9}
    assert history.events("main") == events


def test_a_map_reads_only_what_is_asked_for(history: History) -> None:
    def begin(root: object, read: object) -> Any:
        return Map.empty()

    main = history.open()
    main.update(begin)
    main.update(lambda root, read: Map(root or b"", read).edit({"a": 1, "b": [2]}))

    assert dict(history.map()) == {"a": 1, "b": [2]}
    assert history.map()["b"] == [2]


def test_a_diff_names_the_paths_that_differ(history: History, main: Branch) -> None:
    old = main.commit({"a": 1, "b": {"c": 2}, "d": 3})
    main.commit({"a": 1, "b": {"c": 5}, "e": 4})

    found = {
        change.path: (change.kind, change.old, change.new) for change in history.diff(old, "main")
    }
    assert found[("b", "c")][1:] == (2, 5)
    assert set(found) == {("b", "c"), ("d",), ("e",)}
    assert history.diff(old, old) == []


# Where commits come from.


def test_ancestors_come_each_once_and_after_their_children(history: History) -> None:
    start, left, right, merged = forked(history)

    found = list(history.ancestors())

    assert found[0] == merged and found[-1] == start
    assert sorted(one.id for one in found[1:3]) == sorted([left.id, right.id])
    assert list(history.ancestors(limit=1)) == [merged]
    assert list(history.ancestors(left)) == [left, start]


def test_steps_are_what_one_branch_did(history: History) -> None:
    start, left, right, merged = forked(history)

    assert list(history.steps()) == [merged, left, start]
    assert list(history.steps("side")) == [right, start]
    assert list(history.steps(limit=2)) == [merged, left]


def test_the_merge_base_is_the_nearest_common_ancestor(history: History) -> None:
    start, left, right, merged = forked(history)
    other = commit(history, "other", branch="unrelated")

    assert history.merge_base(left, right) == start
    assert history.merge_base(merged, right) == right
    assert history.merge_base(left, left) == left
    assert history.merge_base(left, other) is None


def test_both_parents_of_a_merge_are_its_ancestors(history: History) -> None:
    start, left, right, merged = forked(history)

    assert all(history.is_ancestor(one, merged) for one in (start, left, right, merged))
    assert not history.is_ancestor(left, right)
    assert not history.is_ancestor(right, left)
    assert not history.is_ancestor(merged, left)


# Branches.


def test_a_branch_is_made_at_any_commit(history: History) -> None:
    first = commit(history, 1)
    second = commit(history, 2)

    history.create_branch("here")
    history.create_branch("there", at=first)

    assert history.branches() == {"here": second.id, "main": second.id, "there": first.id}


def test_a_branch_or_tag_that_exists_is_not_made_again(history: History) -> None:
    first = commit(history, 1)
    commit(history, 2)
    history.create_tag("tag")
    before = state_of(history)

    with pytest.raises(Conflict, match="already"):
        history.create_branch("main", at=first)
    with pytest.raises(Conflict, match="already"):
        history.create_tag("tag", at=first)
    assert state_of(history) == before


def test_what_does_not_exist_is_not_deleted_moved_or_merged(history: History) -> None:
    commit(history, 1)
    before = state_of(history)

    for change in (
        lambda: history.delete_branch("other"),
        lambda: history.delete_tag("other"),
        lambda: history.unpin("other"),
        lambda: history.move_branch("other", "main"),
        lambda: history.move_branch("main", "other"),
        lambda: history.merge("other"),
        lambda: history.merge("main", into="other"),
        lambda: history.create_branch("new", at="other"),
    ):
        with pytest.raises(NotFound):
            change()
    assert state_of(history) == before


def test_a_deleted_branch_leaves_its_commits(history: History) -> None:
    made = commit(history, {"a": 1})

    history.delete_branch("main")

    assert history.branches() == {}
    assert history.value(made) == {"a": 1}


def test_a_branch_moves_forward_and_back(history: History) -> None:
    first, second = commit(history, 1), commit(history, 2)

    history.move_branch("main", first)
    assert history.value() == 1
    history.move_branch("main", second.id.hex())

    assert history.value() == 2


def test_a_branch_moves_only_from_where_it_is_expected(history: History) -> None:
    first, second = commit(history, 1), commit(history, 2)
    before = state_of(history)

    with pytest.raises(RefMoved):
        history.move_branch("main", first, expected=first)
    assert state_of(history) == before
    history.move_branch("main", first, expected=second)

    assert history.value() == 1


# Tags and pins.


def test_a_tag_stays_where_it_is(history: History) -> None:
    first = commit(history, 1)
    history.create_tag("one", at=first)
    commit(history, 2)

    assert history.tags() == {"one": first.id}
    assert history.value("one") == 1
    history.delete_tag("one")
    assert history.tags() == {}
    with pytest.raises(NotFound):
        history.value("one")


def pin(history: History, name: str, value: Any, expires_at: int | None = None) -> ObjectId:
    """Keep a value that nothing else has."""
    written = TreeWriter().write(value)
    history.pin(name, written.root, written.objects, written.needs, expires_at=expires_at)
    return written.root


def test_a_pin_keeps_a_value_that_no_branch_needs(history: History) -> None:
    root = pin(history, "kept", ["large"] * 1000)
    pin(history, "dropped", "other")
    history.unpin("dropped")

    history.store.gc(recent=1)

    assert history.pins() == [Pin("kept", root, None)]
    assert load(root, history.read) == ["large"] * 1000


def test_a_pin_takes_the_place_of_the_one_before(history: History) -> None:
    pin(history, "kept", "old")
    new = pin(history, "kept", "new", expires_at=7)

    assert history.pins() == [Pin("kept", new, 7)]


def test_a_pin_of_what_is_not_there_is_refused(history: History) -> None:
    written = TreeWriter().write("never sent")

    with pytest.raises(MissingObjects):
        history.pin("kept", written.root)
    assert history.pins() == []


def test_the_time_of_a_pin_is_a_whole_number(history: History) -> None:
    for time in ["tomorrow", 1.5, True]:
        with pytest.raises(InvalidInput, match="microseconds"):
            pin(history, "kept", "value", expires_at=time)  # type: ignore[arg-type]
    assert history.pins() == []


def test_only_pins_whose_time_is_over_are_pruned(history: History) -> None:
    pin(history, "a", 1, expires_at=10)
    pin(history, "b", 2, expires_at=11)
    pin(history, "c", 3)
    done = len(history.operations())

    assert history.prune_expired(now=9) == []
    assert len(history.operations()) == done
    assert history.prune_expired(now=10) == ["a"]
    assert history.prune_expired() == ["b"]
    assert [one.name for one in history.pins()] == ["c"]


# Operations.


def test_every_change_is_an_operation_that_says_what_it_was(history: History) -> None:
    _, left, _, _ = forked(history)
    history.move_branch("main", left)
    history.create_tag("tag")
    history.delete_tag("tag")
    pin(history, "pin", 1, expires_at=1)
    history.prune_expired()
    history.undo()

    done = history.operations()

    assert [one.metadata["action"] for one in done] == [
        "commit", "create-branch", "commit", "commit", "merge", "move", "create-tag",
        "delete-tag", "pin", "prune", "undo",
    ]  # fmt: skip
    assert [one.sequence for one in done] == list(range(1, 12))
    assert history.operations(after=9, limit=1) == [done[9]]


def test_a_watch_yields_what_others_do_from_now_on(history: History, open_store: Opener) -> None:
    commit(history, 1)
    watching = history.watch(timeout=30)
    other = History(open_store(), SPACE)

    worker = threading.Thread(target=lambda: commit(other, 2))
    worker.start()
    seen = next(watching)
    worker.join()

    assert seen == history.operations()[-1]
    assert seen.sequence == 2
    assert [one.sequence for one in history.watch(after=0, timeout=0)] == [1, 2]
