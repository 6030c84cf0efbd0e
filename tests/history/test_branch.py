"""A handle on a branch: what it commits, and how it meets what others did."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ropewalk.errors import (
    Conflict,
    InvalidInput,
    MergeConflict,
    NotFound,
    NotStorable,
    RefMoved,
    Unavailable,
    WriteIdReused,
)
from ropewalk.history import Branch, Commit, History
from ropewalk.store import Store
from ropewalk.store.engine import REMEMBERED_WRITES
from ropewalk.tree import Merger, TreeWriter, get, put, read_commit
from tests.engines import Opener
from tests.history.conftest import SPACE
from tests.history.steps import commit, state_of


class Unknown:
    """A class that nobody registered."""


# One writer.


def test_a_branch_begins_with_its_first_commit(history: History, main: Branch) -> None:
    assert main.head is None and main.seen is None
    assert history.branches() == {}
    with pytest.raises(NotFound):
        main.read()

    first = main.commit({"a": 1})

    assert first.parents == () and first.generation == 1
    assert main.head == main.seen == first
    assert history.branches() == {"main": first.id}


def test_each_commit_follows_the_one_before(main: Branch) -> None:
    made = [main.commit(number) for number in range(5)]

    assert [one.parents for one in made[1:]] == [(one.id,) for one in made[:-1]]
    assert [one.generation for one in made] == [1, 2, 3, 4, 5]


def test_equal_values_have_equal_roots_and_different_commits(main: Branch) -> None:
    first, second = main.commit({"a": [1, 2]}), main.commit({"a": [1, 2]})

    assert first.root == second.root
    assert first.id != second.id


def test_a_change_in_place_is_seen(history: History, main: Branch) -> None:
    state: dict[str, Any] = {"deep": [{"list": [1]}]}
    main.commit(state)
    state["deep"][0]["list"].append(2)
    main.commit(state)

    assert history.value() == {"deep": [{"list": [1, 2]}]}


def test_a_value_that_is_read_is_the_callers_own(history: History, main: Branch) -> None:
    main.commit({"a": [1]})
    value = main.read()
    value["a"].append(2)

    assert history.value() == {"a": [1]}
    main.commit(value)
    assert history.value() == {"a": [1, 2]}


def test_another_process_goes_on_where_the_first_stopped(main: Branch, open_store: Opener) -> None:
    first = main.commit({"n": 1})
    other = History(open_store(), SPACE).open()

    second = other.commit({**other.read(), "m": 2})

    assert second.parents == (first.id,)
    assert main.read() == {"n": 1, "m": 2}


# What is said about a step.


def test_a_commit_says_what_its_caller_says(history: History, main: Branch) -> None:
    made = main.commit(
        1, description="Began", logic_step="parse", status="failed", error="No network",
        agent="other", time=7, extension={"ours": {"deep": [1, None, 2.5, b"x"]}},
    )  # fmt: skip

    again = read_commit(history.store.reader(history.space)([made.id])[0])
    assert again == made
    assert (again.description, again.logic_step) == ("Began", "parse")
    assert (again.status, again.error) == ("failed", "No network")
    assert (again.agent, again.branch, again.time) == ("other", "main", 7)
    assert again.extension == {"ours": {"deep": [1, None, 2.5, b"x"]}}


def test_a_commit_knows_its_agent_and_its_branch(history: History) -> None:
    made = history.open("side").commit(1)

    assert (made.agent, made.branch) == ("researcher", "side")
    assert made.time > 1_600_000_000_000_000


def test_a_field_that_nobody_knows_is_refused(history: History, main: Branch) -> None:
    before = state_of(history)

    with pytest.raises(InvalidInput, match="colour"):
        main.commit(1, colour="red")  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="colour"):
        main.update(never, colour="red")  # type: ignore[call-arg]
    for wrong in ({"description": 7}, {"extension": {"x": object()}}, {"time": "now"}):
        with pytest.raises(InvalidInput):
            main.commit(1, **wrong)
    assert state_of(history) == before


def never(root: bytes | None, read: Any) -> Any:
    """An edit that is not to be made."""
    raise AssertionError


@pytest.mark.parametrize("place", ["value", "metadata", "events"])
def test_what_cannot_be_stored_leaves_everything_as_it_was(
    history: History, main: Branch, place: str
) -> None:
    main.commit({"a": 1})
    before, objects = state_of(history), len(list(history.store.scan()))
    given: dict[str, Any] = {"value": {"a": 2}, place: {"x": [Unknown()]}}

    with pytest.raises(NotStorable):
        main.commit(given.pop("value"), **given)

    assert state_of(history) == before
    assert len(list(history.store.scan())) == objects
    main.commit({"a": 3})
    assert history.value() == {"a": 3}


# Several writers.


def two(history: History, start: Any) -> tuple[Branch, Branch]:
    """Two handles that saw the same version."""
    ours, theirs = history.open(), history.open()
    ours.commit(start)
    theirs.read()
    return ours, theirs


def test_a_commit_that_meets_other_work_is_kept_and_merged(history: History) -> None:
    ours, theirs = two(history, {"a": 0, "b": 0})
    seen = ours.seen
    assert seen is not None
    first = theirs.commit({"a": 0, "b": 1})

    made = ours.commit(
        {"a": 1, "b": 0},
        description="Ours",
        logic_step="think",
        metadata={"tokens": 3},
        extension={"own": 1},
    )

    assert history.value() == {"a": 1, "b": 1}
    assert (made.description, made.logic_step, made.extension["own"]) == ("Ours", "think", 1)
    assert history.metadata(made) == {"tokens": 3}
    assert made.merged and not first.merged
    assert made.parents[0] == first.id
    mine = history.resolve(made.parents[1])
    assert mine.parents == (seen.id,) and mine.description == "Ours" and not mine.merged
    assert history.value(mine) == {"a": 1, "b": 0}
    assert ours.head == made and ours.seen == mine


def test_going_on_without_reading_takes_nothing_back(history: History) -> None:
    ours, theirs = two(history, {"ours": 0, "theirs": 0})
    for number in range(1, 5):
        theirs.commit({"ours": 0, "theirs": number})
        ours.commit({"ours": number, "theirs": 0})

        assert history.value() == {"ours": number, "theirs": number}


def test_reading_goes_on_from_both(history: History) -> None:
    ours, theirs = two(history, {"a": 0})
    theirs.commit({"a": 0, "b": 1})
    ours.commit({"a": 1})

    made = ours.commit({**ours.read(), "c": 2})

    assert len(made.parents) == 1
    assert history.value() == {"a": 1, "b": 1, "c": 2}


def test_looking_is_not_reading(history: History) -> None:
    ours, theirs = two(history, {"a": 0})
    seen, newer = ours.seen, theirs.commit({"a": 0, "b": 1})

    assert ours.refresh() == newer
    assert ours.head == newer and ours.seen == seen
    ours.commit({"a": 1})

    assert history.value() == {"a": 1, "b": 1}


def test_a_conflict_names_the_paths_and_changes_nothing(history: History) -> None:
    ours, theirs = two(history, {"a": 0})
    theirs.commit({"a": 1})
    before = state_of(history)

    for _ in range(2):
        with pytest.raises(MergeConflict) as caught:
            ours.commit({"a": 2})
        assert [one[:4] for one in caught.value.conflicts] == [(("a",), 0, 2, 1)]
    assert state_of(history) == before
    value = ours.read()
    ours.commit({"a": value["a"] + 1})

    assert history.value() == {"a": 2}


def test_mergers_settle_what_others_changed_too(history: History) -> None:
    ours, theirs = two(history, {"n": 5, "log": []})
    mergers = {"n": "add", "log": "append"}
    theirs.commit({"n": 6, "log": ["theirs"]}, mergers=mergers)

    ours.commit({"n": 6, "log": ["ours"]}, mergers=mergers)

    assert history.value() == {"n": 7, "log": ["theirs", "ours"]}


def test_what_is_published_stays_where_it_is(history: History) -> None:
    first, second = two(history, {"log": []})
    third = history.open()
    third.read()
    for handle, word in ((first, "one"), (second, "two"), (third, "three"), (first, "four")):
        value = history.open().read() if handle is first else {"log": []}
        if handle is first:
            handle.read()
        handle.commit({"log": [*value["log"], word]}, mergers={"log": "append"})

    assert history.value() == {"log": ["one", "two", "three", "four"]}


@pytest.mark.parametrize(
    ("merger", "expected"),
    [
        ("ours", "mine"),
        ("theirs", "published"),
        (lambda base, ours, theirs: (base, ours, theirs), ("start", "mine", "published")),
        (Merger(lambda base, ours, theirs: ours), "mine"),
    ],
)
def test_for_who_commits_their_own_value_is_ours(
    history: History, merger: Any, expected: Any
) -> None:
    ours, theirs = two(history, {"a": "start"})
    theirs.commit({"a": "published"})

    ours.commit({"a": "mine"}, mergers={"a": merger})

    assert history.value() == {"a": expected}


def test_what_is_no_merger_is_refused(history: History) -> None:
    ours, theirs = two(history, {"a": 0})
    theirs.commit({"a": 1})
    before = state_of(history)

    for wrong in (["a"], {"a": 7}, {"a": "guess"}, {"a": Merger(7)}):  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            ours.commit({"a": 2}, mergers=wrong)  # type: ignore[arg-type]
    assert state_of(history) == before


def test_two_who_begin_a_branch_together_are_merged(history: History) -> None:
    ours, theirs = history.open(), history.open()
    theirs.commit({"theirs": 1})

    made = ours.commit({"ours": 1})

    assert history.value() == {"theirs": 1, "ours": 1}
    assert history.resolve(made.parents[1]).parents == ()


def test_who_makes_the_same_commit_as_another_adds_to_it(history: History) -> None:
    ours, theirs = two(history, {"n": 0})
    first = theirs.commit({"n": 1}, mergers={"n": "add"}, time=7)

    made = ours.commit({"n": 1}, mergers={"n": "add"}, time=7)

    assert history.value() == {"n": 2}
    assert made.parents == (first.id,)
    ours.commit({"n": 2}, mergers={"n": "add"})
    assert history.value() == {"n": 3}


def test_a_rollback_by_somebody_else_is_honoured(history: History) -> None:
    ours, theirs = two(history, {"good": 1})
    start = theirs.seen
    assert start is not None
    bad = theirs.commit({"good": 1, "bad": 1})
    ours.read()
    history.move_branch("main", start, expected=bad)

    ours.commit({"good": 1, "bad": 1, "new": 1})

    assert history.value() == {"good": 1, "new": 1}


def test_a_branch_that_was_deleted_is_not_made_again_by_accident(history: History) -> None:
    ours, _ = two(history, 1)
    history.delete_branch("main")

    with pytest.raises(Conflict, match="removed"):
        ours.commit(2)
    assert history.branches() == {}


def test_a_conflict_with_what_was_taken_back_is_none(history: History) -> None:
    ours, theirs = two(history, {"a": 0})
    theirs.commit({"a": 1})
    ours.refresh()
    history.undo()

    ours.commit({"a": 2})

    assert history.value() == {"a": 2}


def test_a_branch_that_was_deleted_and_brought_back_can_be_written(history: History) -> None:
    ours, _ = two(history, {"a": 0})
    history.delete_branch("main")
    assert ours.refresh() is None
    history.undo()

    ours.commit({"a": 1})

    assert history.value() == {"a": 1}


def test_threads_with_a_handle_each_lose_nothing(history: History, main: Branch) -> None:
    main.commit({"n": 0, **{str(number): 0 for number in range(4)}})
    begin = threading.Barrier(4)

    def work(number: int) -> None:
        handle = history.open()
        begin.wait()
        for count in range(1, 11):
            value = handle.read()
            value["n"] += 1
            value[str(number)] = count
            handle.commit(value, mergers={"n": "add"})

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert history.value() == {"n": 40, "0": 10, "1": 10, "2": 10, "3": 10}
    assert history.store.check().ok


# Edits.


def test_an_edit_changes_one_place_of_the_newest_value(history: History) -> None:
    ours, theirs = two(history, {"a": 0, "b": 0})
    theirs.commit({"a": 0, "b": 1})

    made = ours.update(lambda root, read: put(root or b"", ("a",), 1, read), description="Edit")

    assert history.value() == {"a": 1, "b": 1}
    assert len(made.parents) == 1 and made.description == "Edit"


def test_an_edit_is_made_again_if_somebody_was_faster(
    history: History, main: Branch, open_store: Opener
) -> None:
    main.commit({"n": 0, "m": 0})
    theirs = History(open_store(), SPACE).open()
    seen: list[int] = []

    def add_one(root: bytes | None, read: Any) -> Any:
        seen.append(get(root or b"", ("n",), read))
        if len(seen) < 3:
            theirs.read()
            theirs.commit({"n": len(seen) * 10, "m": 0})
        return put(root or b"", ("n",), seen[-1] + 1, read)

    main.update(add_one)

    assert seen == [0, 10, 20]
    assert history.value() == {"n": 21, "m": 0}


def test_an_edit_can_begin_a_branch(history: History, main: Branch) -> None:
    written = TreeWriter().write({"a": 1})
    main.update(lambda root, read: put_all(root, written))

    assert history.value() == {"a": 1}


def put_all(root: bytes | None, written: Any) -> Any:
    from ropewalk.tree import Edited

    assert root is None
    return Edited(written.root, written.objects, written.needs)


def test_an_edit_gives_an_edit(history: History, main: Branch) -> None:
    main.commit({"a": 1})
    before = state_of(history)

    with pytest.raises(InvalidInput, match="put"):
        main.update(lambda root, read: {"a": 2})  # type: ignore[arg-type, return-value]
    assert state_of(history) == before


def test_a_commit_after_an_edit_of_the_same_handle_is_merged(
    history: History, main: Branch
) -> None:
    state = {"a": 0, "b": 0}
    main.commit(state)
    main.update(lambda root, read: put(root or b"", ("a",), 1, read))
    main.commit({**state, "b": 1})

    assert history.value() == {"a": 1, "b": 1}


# Write ids.


def test_the_same_call_twice_makes_one_commit(history: History, main: Branch) -> None:
    main.commit({"n": 0})
    first = main.commit({"n": 1}, write_id="step 1")

    assert main.commit({"n": 1}, write_id="step 1") == first
    assert history.open().commit({"n": 1}, write_id="step 1") == first
    assert len(history.operations()) == 2


def test_a_merge_that_is_sent_twice_is_made_once(history: History) -> None:
    ours, theirs = two(history, {"n": 0})
    theirs.commit({"n": 0, "b": 1})
    made = ours.commit({"n": 1}, write_id="step 1")

    assert ours.commit({"n": 1}, write_id="step 1") == made
    assert history.open().commit({"n": 1}, write_id="step 1") == made
    assert len(history.operations()) == 3


def test_another_value_with_the_same_write_id_is_refused(history: History, main: Branch) -> None:
    main.commit({"n": 1}, write_id="step 1")
    before = state_of(history)

    with pytest.raises(WriteIdReused):
        main.commit({"n": 2}, write_id="step 1")
    with pytest.raises(WriteIdReused):
        history.open("side").commit({"n": 1}, write_id="step 1")
    with pytest.raises(WriteIdReused):
        main.update(lambda root, read: put(root or b"", ("n",), 3, read), write_id="step 1")
    assert state_of(history) == before
    main.commit({"n": 2}, write_id="step 2")
    assert history.value() == {"n": 2}


def test_a_repeated_call_is_recognised_after_others_changed_the_same_place(
    history: History,
) -> None:
    ours, theirs = two(history, {"n": 0})
    first = history.open().commit({"n": 1}, write_id="step 1")
    theirs.read()
    theirs.commit({"n": 2})
    ours.refresh()

    assert ours.commit({"n": 1}, write_id="step 1") == first
    assert history.value() == {"n": 2}


def test_a_write_id_is_a_word(main: Branch) -> None:
    for wrong in ("", "x" * 200, "line\n"):
        with pytest.raises(InvalidInput):
            main.commit(1, write_id=wrong)


def test_a_repeated_call_is_recognised_after_many_others(history: History, main: Branch) -> None:
    first = main.commit(0, write_id="step 1")
    for _ in range(REMEMBERED_WRITES - 1):
        history.store.commit(SPACE)

    assert history.open().commit(0, write_id="step 1") == first


def test_an_edit_that_is_sent_twice_is_made_once(history: History, main: Branch) -> None:
    main.commit({"n": 0})

    def edit(root: bytes | None, read: Any) -> Any:
        return put(root or b"", ("n",), 1, read)

    first = main.update(edit, write_id="edit 1")
    main.update(lambda root, read: put(root or b"", ("m",), 5, read))

    assert main.update(edit, write_id="edit 1") == first
    assert history.open().update(edit, write_id="edit 1") == first
    assert len(history.operations()) == 3


# Beside a collection.


def test_what_was_collected_since_is_sent_again(history: History, main: Branch) -> None:
    large = {"text": "word " * 5000, "n": 0}
    start = main.commit({"n": 0})
    main.commit(large)
    main.commit({"n": 1})
    main.refresh()
    other = history.open()
    history.move_branch("main", start)
    other.read()
    other.commit({"n": 0, "other": 1})
    history.store.gc(recent=1)

    with pytest.raises(Conflict, match="collected"):
        main.commit(large)
    main.read()
    main.commit({**large, "other": 1})

    assert history.value() == {**large, "other": 1}
    assert history.store.check(read_data=True).ok


def test_a_collection_between_two_commits_harms_neither(history: History, main: Branch) -> None:
    state: dict[str, Any] = {"text": ["line"] * 3000, "n": 0}
    for number in range(6):
        history.open("side").commit({"garbage": number, "text": ["rubbish", number] * 800})
        history.delete_branch("side")
        main.commit({**state, "n": number})
        assert history.store.gc(recent=1).freed > 0

    assert history.value() == {**state, "n": 5}
    assert history.store.check(read_data=True).ok


def test_a_value_that_comes_back_after_its_objects_were_collected_is_whole(
    store: Store,
) -> None:
    history = History(store, SPACE)
    main = history.open()
    texts = [f"{letter} " * 4000 for letter in "abc"]
    start = main.commit({"text": texts[0]})
    main.commit({"text": texts[1]})
    main.commit({"text": texts[2]})
    last = main.head
    assert last is not None
    history.move_branch("main", start)
    history.create_tag("later")
    store.gc(recent=1)
    with pytest.raises(NotFound):
        history.move_branch("main", last)
    handle = history.open()
    handle.read()
    for text in (texts[1], texts[2], texts[1]):
        handle.commit({"text": text})

        assert history.value() == {"text": text}
    assert store.check(read_data=True).ok


def test_a_value_comes_back_whole_though_only_a_part_of_it_was_collected(
    history: History, main: Branch
) -> None:
    common = {f"key {at}": f"value {at}" for at in range(60)}
    large = {**common, "large": bytes(range(256)) * 300}
    main.commit(common)
    main.commit(large)
    history.undo()
    main.reset()
    main.commit({**common, "large": "gone"})  # Stored against what is undone.
    history.create_tag("later")
    history.store.gc(recent=1)

    main.commit(large)

    assert history.value() == large
    assert history.store.check(read_data=True).ok


def test_a_commit_made_by_one_handle_is_known_to_another(history: History, main: Branch) -> None:
    made: Commit = main.commit([1])

    assert history.open().head == made
    assert commit(history, [2]).parents == (made.id,)


def test_a_mistake_in_a_merger_is_told_before_there_is_a_conflict(
    history: History, main: Branch
) -> None:
    first = main.commit({"n": 1})

    with pytest.raises(InvalidInput, match="there is no merger 'addd'"):
        main.commit({"n": 2}, mergers={"n": "addd"})
    with pytest.raises(InvalidInput, match="there is no merger 'addd'"):
        history.merge("main", into="main", mergers={"n": "addd"})

    assert history.resolve() == first


def test_metadata_that_cannot_be_stored_is_named(main: Branch) -> None:
    with pytest.raises(NotStorable) as caught:
        main.commit({"n": 1}, metadata={"by": [object()]})

    assert caught.value.path == 'metadata["by"][0]'
    assert main.refresh() is None


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("error", [Interrupted, Unavailable])
@pytest.mark.parametrize("late", [True, False], ids=["after it was made", "before"])
def test_a_commit_that_was_cut_off_is_no_conflict_for_the_next(
    main: Branch, error: type[BaseException], late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    main.commit({"n": 1})
    commit = type(main.history.store).commit

    def cut_off(store: Store, *given: Any, **named: Any) -> None:
        if late:
            commit(store, *given, **named)
        raise error("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(type(main.history.store), "commit", cut_off)
        with pytest.raises(error):
            main.commit({"n": 2})

    main.commit({"n": 3})

    assert main.read() == {"n": 3}
    steps = [main.history.value(one)["n"] for one in main.history.steps()]
    assert steps == ([3, 2, 1] if late else [3, 1])


# A commit that expects to find the branch where it was seen.


def test_a_commit_that_expects_the_head_takes_its_place(history: History) -> None:
    branch = history.open()
    first = branch.commit({"a": 1})

    second = branch.commit({"a": 2}, expect=first)
    third = history.open().commit({"a": 3}, expect=second.id)

    assert branch.commit({"b": 4}, expect=third.id.hex()).parents == (third.id,)
    assert history.value() == {"b": 4}


def test_a_commit_that_expects_another_head_is_refused_and_stores_nothing(
    history: History,
) -> None:
    ours, theirs = history.open(), history.open()
    seen = ours.commit({"a": 1})
    theirs.read()
    moved = theirs.commit({"a": 1, "b": 2})
    before = len(history.operations())

    with pytest.raises(RefMoved) as refused:
        ours.commit({"a": 1, "c": 3}, expect=seen)

    assert (refused.value.expected, refused.value.actual) == (seen.id, moved.id)
    assert len(history.operations()) == before
    assert history.value() == {"a": 1, "b": 2}
    # Without an expectation both changes are kept.
    ours.commit({"a": 1, "c": 3})
    assert history.value() == {"a": 1, "b": 2, "c": 3}


def test_a_branch_that_moved_and_came_back_is_where_it_was_expected(history: History) -> None:
    ours, theirs = history.open(), history.open()
    seen = ours.commit({"a": 1})
    theirs.read()
    theirs.commit({"a": 2})
    history.undo()

    assert ours.commit({"a": 3}, expect=seen).parents == (seen.id,)


def test_a_refused_commit_is_not_taken_for_the_one_before(history: History) -> None:
    branch = history.open()
    first = branch.commit({"a": 1})
    made = branch.commit({"a": 2}, expect=first, write_id="w")

    assert branch.commit({"a": 2}, expect=first, write_id="w") == made
    assert history.open().commit({"a": 2}, expect=first, write_id="w") == made
    with pytest.raises(RefMoved):
        branch.commit({"a": 3}, expect=first, write_id="other")


def test_of_many_who_expect_the_same_head_one_wins(history: History) -> None:
    first = history.open().commit({"n": 0})

    def change(number: int) -> str:
        try:
            history.open().commit({"n": number}, expect=first)
        except RefMoved:
            return "refused"
        return "made"

    with ThreadPoolExecutor(4) as pool:
        found = sorted(pool.map(change, range(1, 9)))

    assert found == ["made"] + ["refused"] * 7
    assert len(list(history.steps())) == 2
