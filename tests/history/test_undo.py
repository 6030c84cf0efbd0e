"""Undo and redo, in every order."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.errors import Conflict, InvalidInput, MissingObjects, NotFound, RefMoved
from ropewalk.history import Branch, History
from tests.history.steps import commit, forked, state_of


def refs_of(history: History) -> dict[str, bytes]:
    return {ref.name: ref.target for ref in history.store.refs(history.space)}


def test_undo_goes_back_again_and_again(history: History) -> None:
    for number in range(4):
        commit(history, number)

    for expected in (2, 1, 0):
        history.undo()
        assert history.value() == expected
    history.undo()

    assert history.branches() == {}
    with pytest.raises(NotFound, match="nothing to undo"):
        history.undo()


def test_redo_goes_forward_again_and_again(history: History) -> None:
    for number in range(4):
        commit(history, number)
    for _ in range(4):
        history.undo()

    for expected in range(4):
        history.redo()
        assert history.value() == expected
    with pytest.raises(NotFound, match="nothing to redo"):
        history.redo()


@pytest.mark.parametrize("steps", ["ur", "uur", "uurr", "urur", "uruu", "uurur", "uuururrurr"])
def test_undo_and_redo_walk_along_what_was_done(history: History, steps: str) -> None:
    for number in range(6):
        commit(history, number)
    at = 5
    for step in steps:
        (history.undo if step == "u" else history.redo)()
        at += -1 if step == "u" else 1

        assert history.value() == at


def test_new_work_after_an_undo_leaves_nothing_to_redo(history: History) -> None:
    for number in range(3):
        commit(history, number)
    history.undo()
    history.undo()
    commit(history, "new")

    with pytest.raises(NotFound):
        history.redo()
    history.undo()

    assert history.value() == 0
    history.redo()
    assert history.value() == "new"


def test_there_is_nothing_to_undo_or_redo_in_an_empty_history(history: History) -> None:
    for take_back in (history.undo, history.redo):
        with pytest.raises(NotFound):
            take_back()
    assert history.operations() == []


def test_every_kind_of_change_can_be_undone_and_redone(history: History) -> None:
    _, left, right, _ = forked(history)
    changes: list[Any] = [
        lambda: history.create_branch("new", at=left),
        lambda: history.delete_branch("side"),
        lambda: history.create_tag("tag"),
        lambda: history.delete_tag("tag"),
        lambda: history.move_branch("main", left),
        lambda: history.merge(right),
        lambda: history.pin("pin", left.root, expires_at=1),
        lambda: history.pin("pin", right.root, expires_at=2),
        history.prune_expired,
        lambda: commit(history, "last"),
    ]
    for change in changes:
        before = refs_of(history)
        change()
        after = refs_of(history)

        history.undo()
        assert refs_of(history) == before
        history.redo()
        assert refs_of(history) == after


def test_a_merge_that_moved_forward_can_be_undone(history: History) -> None:
    first = commit(history, 1)
    history.create_branch("side")
    commit(history, 2, branch="side")
    history.merge("side")

    history.undo()

    assert history.resolve() == first
    assert history.value("side") == 2


def test_an_operation_is_taken_back_by_its_number(history: History) -> None:
    commit(history, 1)
    tagged = history.create_tag("tag")
    commit(history, 2)

    history.undo(tagged.sequence)

    assert history.tags() == {}
    assert history.value() == 2


def test_an_operation_whose_refs_moved_on_stays(history: History) -> None:
    commit(history, 1)
    second = history.operations()[-1]
    commit(history, 2)
    before = state_of(history)

    with pytest.raises(RefMoved, match=r"Work went on after operation 1 \('commit'\)"):
        history.undo(second.sequence)
    assert state_of(history) == before


def test_an_undo_can_be_undone_by_its_number(history: History) -> None:
    commit(history, 1)
    commit(history, 2)
    undone = history.undo()

    history.undo(undone.sequence)
    assert history.value() == 2
    history.undo()

    assert history.value() == 1


def test_there_is_no_operation_of_an_unknown_number(history: History) -> None:
    commit(history, 1)

    for number in (0, -1, 2, 10**12):
        with pytest.raises(NotFound):
            history.undo(number)


def test_an_operation_that_moved_nothing_cannot_be_undone(history: History) -> None:
    made = commit(history, 1)
    nothing = history.store.commit(history.space, needs=[made.id])

    with pytest.raises(InvalidInput, match="moved no refs"):
        history.undo(nothing.sequence)
    history.undo()

    assert history.branches() == {}


def test_what_was_collected_cannot_be_reached_by_an_undo(history: History) -> None:
    first = commit(history, 1)
    commit(history, 2)
    history.move_branch("main", first)
    moved = history.operations()[-1]
    commit(history, 3)
    history.move_branch("main", first)
    history.store.gc(recent=1)
    before = state_of(history)

    with pytest.raises(MissingObjects):
        history.undo(moved.sequence)
    assert state_of(history) == before


def test_undo_reaches_back_over_many_operations(history: History) -> None:
    commit(history, "first")
    commit(history, "second")
    for _ in range(140):  # More than one page of the log.
        history.undo()
        history.redo()

    history.undo()

    assert history.value() == "first"


def test_a_handle_honours_an_undo_that_it_did_not_make(history: History, main: Branch) -> None:
    main.commit({"a": 0})
    main.commit({"a": 1})
    history.undo()

    main.commit({"a": 1, "b": 1})

    assert history.value() == {"a": 0, "b": 1}


def test_a_handle_on_a_branch_that_was_undone_away_must_be_opened_again(
    history: History, main: Branch
) -> None:
    main.commit(1)
    history.undo()
    before = state_of(history)

    with pytest.raises(Conflict, match="removed"):
        main.commit(2)
    with pytest.raises(NotFound):
        main.read()
    assert state_of(history) == before
    history.open().commit(3)

    assert history.value() == 3
