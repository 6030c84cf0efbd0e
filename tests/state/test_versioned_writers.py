"""Several handles on one branch: what each did is kept, and what is held is brought up to date."""

from __future__ import annotations

import datetime
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy
import pydantic
import pytest

from ropewalk.errors import Conflict, InvalidInput, MergeConflict, WriteIdReused
from ropewalk.history import History
from ropewalk.state import Versioned, task
from ropewalk.tree import Merger
from tests.sample_types import Color
from tests.state.conftest import StateOpener
from tests.state.large import messages

KEY = b"k" * 32


class Profile(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str = ""
    tags: list[str] = []
    note: str = ""


@dataclass
class Plan:
    stage: str
    steps: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Fixed:
    stage: str


@dataclass(slots=True)
class Slotted:
    stage: str
    steps: list[str]


TYPES = [Profile, Plan, Fixed, Slotted]


@pytest.fixture
def pair(open_state: StateOpener) -> tuple[Versioned, Versioned]:
    """Two handles that stand at one commit and hold nothing."""
    rules = {"n": "add", "log": "append", "seen": "union", "page": "text"}
    begin = open_state(types=TYPES, pickle_key=KEY)
    begin.update(n=0, log=[], seen={0}, page="first\n", chat=messages(200), plan={"a": 1, "b": 2})
    begin.commit()
    ours, theirs = (open_state(types=TYPES, pickle_key=KEY, mergers=rules) for _ in range(2))
    return ours, theirs


def set_up(pair: tuple[Versioned, Versioned], value: Any) -> tuple[Any, Any]:
    """A value under `x` in both; the objects that they hold."""
    ours, theirs = pair
    ours["x"] = value
    ours.commit()
    theirs.refresh()
    return ours["x"], theirs["x"]


def test_disjoint_keys_of_two_handles_are_all_kept(pair: tuple[Versioned, Versioned]) -> None:
    ours, theirs = pair
    for number in range(10):
        ours[f"ours {number}"] = number
        theirs[f"theirs {number}"] = number
        ours.commit()
        theirs.commit()
    ours.refresh()

    assert {key: ours[key] for key in ours} == {key: theirs[key] for key in theirs}
    assert len(ours) == 26


def test_equal_additions_and_appends_of_two_handles_both_count(
    pair: tuple[Versioned, Versioned],
) -> None:
    for handle in pair:
        handle["n"] += 1
        handle["log"].append("same")
        handle["seen"].add(len(handle["seen"]))
    for handle in pair:
        handle.commit()

    assert pair[1]["n"] == 2
    assert pair[1]["log"] == ["same", "same"]
    assert pair[1]["seen"] == {0, 1}


def test_what_both_changed_is_a_conflict_and_nothing_is_lost(
    pair: tuple[Versioned, Versioned],
) -> None:
    ours, theirs = pair
    plan = ours["plan"]
    plan["a"] = "ours"
    ours["mine"] = 1
    theirs["plan"]["a"] = "theirs"
    hash = theirs.commit()

    with pytest.raises(MergeConflict) as caught:
        ours.commit()
    with pytest.raises(MergeConflict):
        ours.refresh()
    (conflict,) = caught.value.conflicts
    assert (conflict.path, conflict.base) == (("plan", "a"), 1)
    assert (conflict.ours, conflict.theirs) == ("ours", "theirs")
    assert ours["plan"] is plan
    assert plan == {"a": "ours", "b": 2}
    assert theirs.checkout("main").commit_hash == hash
    ours.commit(mergers={("plan", "a"): "ours"})
    theirs.refresh()
    assert theirs["plan"] == {"a": "ours", "b": 2}
    assert theirs["mine"] == 1


def test_refresh_shows_what_others_did_and_keeps_own_changes(
    pair: tuple[Versioned, Versioned],
) -> None:
    ours, theirs = pair
    ours["log"].append("mine")
    ours["own"] = 1
    del ours["page"]
    theirs["log"].append("theirs")
    theirs["chat"].append("theirs")
    theirs["new"] = 2
    theirs.commit()
    ours.refresh()

    assert ours["log"] == ["theirs", "mine"]
    assert (ours["own"], ours["new"], "page" in ours) == (1, 2, False)
    assert ours["chat"][-1] == "theirs"
    assert ours.dirty
    assert {one.path for one in ours.changes()} == {("log", 1), ("own",), ("page",)}
    ours.commit()
    theirs.refresh()
    assert theirs["log"] == ["theirs", "mine"]
    assert "page" not in theirs


def test_a_refresh_without_own_changes_leaves_nothing_to_commit(
    pair: tuple[Versioned, Versioned],
) -> None:
    ours, theirs = pair
    assert ours["chat"] and ours["plan"]
    theirs["chat"][3]["content"] = "edited"
    del theirs["plan"]
    hash = theirs.commit()

    assert ours.refresh() == hash
    assert not ours.dirty
    assert "plan" not in ours
    assert ours.commit() == hash


@pytest.mark.parametrize("how", ["commit", "refresh", "refresh with changes"])
def test_held_objects_are_brought_up_to_date_in_place(
    pair: tuple[Versioned, Versioned], how: str
) -> None:
    ours, theirs = pair
    set_up(pair, {"chat": messages(200), "deep": {"list": [{"a": 1}, {"b": 2}]}, "t": ([1], 2)})
    whole, chat, late = ours["x"], ours["x"]["chat"], ours["x"]["chat"][-1]
    inner, member = ours["x"]["deep"]["list"][1], ours["x"]["t"][0]
    theirs["x"]["chat"].insert(0, "first")
    theirs["x"]["deep"]["list"][1]["c"] = 3
    theirs["x"]["t"][0].append("in a tuple")
    theirs.commit()
    if how != "refresh":
        ours["own"] = 1
    ours.commit() if how == "commit" else ours.refresh()

    assert ours["x"] is whole
    assert whole["chat"] is chat
    assert chat[-1] is late
    assert (chat[0], len(chat)) == ("first", 201)
    assert inner == {"b": 2, "c": 3}
    assert member == [1, "in a tuple"]
    late["mine"] = inner["mine"] = 1
    member.append("mine")
    ours.commit()
    theirs.refresh()
    assert theirs["x"] == ours["x"] == whole
    assert theirs["x"]["chat"][-1]["mine"] == 1
    assert theirs["x"]["deep"]["list"][1] == {"b": 2, "c": 3, "mine": 1}
    assert theirs["x"]["t"] == ([1, "in a tuple", "mine"], 2)


def test_a_held_object_stays_followed_through_every_kind_of_round(
    pair: tuple[Versioned, Versioned],
) -> None:
    ours, theirs = pair
    mine, other = ours["log"], theirs["log"]
    for number in range(6):
        mine.append(f"ours {number}")
        other.append(f"theirs {number}")
        if number % 3 == 0:
            ours.refresh()
        theirs.commit()
        if number % 3 == 1:
            ours.refresh()
        ours.commit()
    theirs.refresh()

    assert ours["log"] is mine
    assert theirs["log"] is other
    assert mine == other
    assert Counter(mine) == Counter(
        f"{who} {number}" for who in ("ours", "theirs") for number in range(6)
    )


def test_one_object_in_two_places_takes_no_change_back(pair: tuple[Versioned, Versioned]) -> None:
    ours, theirs = pair
    shared = [1]
    ours["x"] = {"left": shared, "right": shared}
    ours.commit()
    theirs.refresh()
    theirs["x"]["left"].append("left")
    theirs["x"]["right"].append("right")
    theirs.commit()
    ours.refresh()

    assert ours["x"] == {"left": [1, "left"], "right": [1, "right"]}
    assert not ours.dirty


def test_one_object_under_two_keys_takes_no_change_back(
    pair: tuple[Versioned, Versioned],
) -> None:
    ours, theirs = pair
    ours["x"] = ours["y"] = [1]
    ours.commit()
    theirs.refresh()
    theirs["x"].append("x")
    theirs["y"].append("y")
    theirs.commit()
    ours.refresh()

    assert (ours["x"], ours["y"]) == ([1, "x"], [1, "y"])
    assert not ours.dirty


def test_a_model_is_brought_up_to_date_with_its_extra_fields_and_marks(
    pair: tuple[Versioned, Versioned],
) -> None:
    ours, theirs = pair
    mine, other = set_up(pair, Profile(name="a"))
    other.tags.append("theirs")
    other.extra = "more"
    other.note = ""  # The default, but set.
    theirs.commit()
    ours.refresh()

    assert ours["x"].model_dump() == {"name": "a", "tags": ["theirs"], "note": "", "extra": "more"}
    assert ours["x"].model_fields_set == other.model_fields_set
    assert ours["x"] is mine
    assert not ours.dirty
    ours["x"].tags.append("ours")
    ours.commit()
    theirs.refresh()
    assert theirs["x"] == ours["x"]
    assert theirs["x"].tags == ["theirs", "ours"]


@pytest.mark.parametrize("make", [Plan, Slotted])
def test_a_dataclass_is_brought_up_to_date(
    pair: tuple[Versioned, Versioned], make: type[Any]
) -> None:
    ours, theirs = pair
    mine, other = set_up(pair, make("a", ["one"]))
    other.stage = "b"
    other.steps.append("two")
    theirs.commit()
    ours.refresh()

    assert ours["x"] == make("b", ["one", "two"])
    assert ours["x"] is mine
    assert not ours.dirty
    ours["x"].steps.append("three")
    ours.commit()
    theirs.refresh()
    assert theirs["x"] == make("b", ["one", "two", "three"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Fixed("a"), Fixed("b")),
        (Color.RED, Color.GREEN),
        (UUID(int=1), UUID(int=2)),
        (Path("a"), Path("b")),
        (datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_never_changes_is_replaced_and_not_changed(
    pair: tuple[Versioned, Versioned], before: Any, after: Any
) -> None:
    ours, theirs = pair
    set_up(pair, {"in": before, "list": [before]})
    mine, shown = ours["x"]["in"], repr(before)
    theirs["x"]["in"] = theirs["x"]["list"][0] = after
    theirs.commit()
    ours.refresh()

    assert ours["x"] == {"in": after, "list": [after]}
    assert repr(mine) == repr(before) == shown
    assert not ours.dirty


@pytest.mark.parametrize(
    "value",
    [
        Counter("aab"),
        OrderedDict(a=1),
        defaultdict(int, a=1),
        deque([1, 2, 3]),
        numpy.arange(6.0),
        numpy.arange(20_000),
    ],
    ids=["Counter", "OrderedDict", "defaultdict", "deque", "array", "large array"],
)
def test_other_objects_are_brought_up_to_date(
    pair: tuple[Versioned, Versioned], value: Any
) -> None:
    ours, theirs = pair
    set_up(pair, value)
    mine = ours["x"]
    if isinstance(value, numpy.ndarray | deque):
        theirs["x"][0] = 7
    else:
        theirs["x"]["a"] = 7
        theirs["x"]["z"] = 1
    theirs.commit()
    ours.refresh()

    assert repr(ours["x"]) == repr(theirs["x"])
    assert type(ours["x"]) is type(value)
    assert ours["x"] is mine
    assert not ours.dirty


class Odd:
    """Something that only a pickle can say, with more inside than its attributes show."""

    __slots__ = ("__dict__", "hidden")

    def __init__(self, hidden: int) -> None:
        self.hidden = hidden
        self.shown = 0


def test_what_an_object_hides_from_its_attributes_is_brought_up_to_date(
    pair: tuple[Versioned, Versioned],
) -> None:
    ours, theirs = pair
    set_up(pair, Odd(1))
    theirs["x"].hidden = 2
    theirs.commit()
    ours.refresh()

    assert ours["x"].hidden == 2
    assert not ours.dirty


@pytest.mark.parametrize("size", [3, 6_000])
def test_a_list_of_equal_items_is_brought_up_to_date(
    pair: tuple[Versioned, Versioned], size: int
) -> None:
    ours, theirs = pair
    set_up(pair, [0] * size)
    theirs["x"].append(1)
    theirs["x"].insert(0, 1)
    theirs["x"][size // 2] = 2
    theirs.commit()
    ours.refresh()

    assert ours["x"] == theirs["x"]
    assert not ours.dirty


def test_what_others_removed_and_we_changed_is_a_conflict(
    pair: tuple[Versioned, Versioned],
) -> None:
    ours, theirs = pair
    ours["plan"]["a"] = 5
    del theirs["plan"]
    theirs.commit()

    with pytest.raises(MergeConflict):
        ours.commit()
    assert ours["plan"]["a"] == 5


def test_a_key_that_both_removed_is_gone(pair: tuple[Versioned, Versioned]) -> None:
    for handle in pair:
        del handle["plan"]
        handle["n"] += 1
    for handle in pair:
        handle.commit()

    assert "plan" not in pair[1]
    assert pair[1]["n"] == 2


def test_a_commit_that_was_merged_keeps_its_own_words(pair: tuple[Versioned, Versioned]) -> None:
    one, two = pair
    one["mine"], two["yours"] = 1, 2
    one.commit("Mine", logic_step="first")
    two.commit("Yours", logic_step="second", metadata={"tokens": 3})

    second, first = two.history(2)
    assert (first.description, first.logic_step, first.merged) == ("Mine", "first", False)
    assert (second.description, second.logic_step, second.merged) == ("Yours", "second", True)
    assert two.checkout(second).metadata == {"tokens": 3}
    two["yours"] = 3
    two.commit("Alone")
    assert not two.history(1)[0].merged


def test_two_first_commits_are_merged(open_state: StateOpener) -> None:
    one, two = open_state(), open_state()
    one["a"] = 1
    two["b"] = 2
    one.commit()
    two.commit()

    assert dict(two) == {"a": 1, "b": 2}


def test_a_change_without_a_first_commit_is_kept_over_a_refresh(open_state: StateOpener) -> None:
    one, two = open_state(mergers={"log": "append"}), open_state(mergers={"log": "append"})
    one["log"] = ["one"]
    one.commit()
    two["log"] = mine = ["two"]
    two["b"] = 2
    two.refresh()

    assert two["log"] is mine
    assert mine == ["one", "two"]
    two.commit()
    assert dict(open_state()) == {"log": ["one", "two"], "b": 2}


def test_mergers_are_for_a_key_a_path_a_prefix_a_type_or_a_function(
    open_state: StateOpener,
) -> None:
    def longest(base: Any, ours: Any, theirs: Any) -> Any:
        return max(ours, theirs, key=len)

    rules: dict[Any, Any] = {
        "n": "add",
        ("plan", "stage"): "theirs",
        ("deep", ...): "ours",
        set: "union",
        "name": longest,
        "twice": Merger(lambda base, ours, theirs: [base, ours, theirs], on_equal=True),
    }
    begin: dict[str, Any] = {
        "n": 1,
        "plan": {"stage": "a"},
        "deep": {"er": {"x": 1}},
        "tags": {1},
        "name": "",
        "twice": 0,
    }
    first = open_state(mergers=rules)
    first.update(begin)
    first.commit()
    ours, theirs = open_state(mergers=rules), open_state(mergers=rules)
    for handle, who in ((theirs, "theirs"), (ours, "ours!")):
        handle["n"] += 5
        handle["plan"]["stage"] = who
        handle["deep"]["er"]["x"] = who
        handle["tags"].add(who)
        handle["name"] = who
        handle["twice"] = 3
    theirs.commit()
    ours.commit()

    assert dict(ours) == {
        "n": 11,
        "plan": {"stage": "theirs"},
        "deep": {"er": {"x": "ours!"}},
        "tags": {1, "ours!", "theirs"},
        "name": "theirs",
        "twice": [0, 3, 3],
    }


def test_mergers_of_one_commit_go_before_those_of_the_handle(
    pair: tuple[Versioned, Versioned],
) -> None:
    pair[0]["n"] += 1
    pair[1]["n"] += 2
    pair[0].commit()
    pair[1].commit(mergers={"n": lambda base, ours, theirs: 50})

    assert pair[1]["n"] == 50
    with pytest.raises(InvalidInput):
        pair[1].commit(mergers={"n": "no such"})


def test_a_merger_that_fails_leaves_everything_as_it_was(
    pair: tuple[Versioned, Versioned],
) -> None:
    def fail(base: Any, ours: Any, theirs: Any) -> Any:
        raise ZeroDivisionError

    pair[0]["n"] += 1
    pair[1]["n"] += 2
    pair[0].commit()
    for call in (pair[1].commit, pair[1].refresh):
        with pytest.raises(ZeroDivisionError):
            call(mergers={"n": fail})

    assert pair[1]["n"] == 2
    pair[1].commit()
    assert pair[1]["n"] == 3


def test_a_write_id_that_is_sent_twice_is_one_commit(open_state: StateOpener) -> None:
    rules = {"n": "add"}
    begin = open_state(mergers=rules)
    begin["n"] = 0
    begin.commit()
    first = open_state(mergers=rules)
    again = open_state(mergers=rules)  # The same program, started once more.
    first["n"] += 1
    hash = first.commit(write_id="job 1")
    again["n"] += 1

    assert again.commit(write_id="job 1") == hash
    assert open_state()["n"] == 1
    assert again["n"] == 1


def test_a_write_id_that_is_sent_again_after_others_went_on_is_still_one_commit(
    open_state: StateOpener,
) -> None:
    begin = open_state()
    begin["x"] = 0
    begin.commit()
    first, again, other = open_state(), open_state(), open_state()
    first["x"] = 1
    hash = first.commit(write_id="job 1")
    other.refresh()
    other["x"] = 2
    other.commit()
    again["x"] = 1

    assert again.commit(write_id="job 1") == hash
    assert open_state()["x"] == 2
    assert len(open_state().history()) == 3


def test_a_write_id_that_stands_for_another_change_is_refused(open_state: StateOpener) -> None:
    first, again = open_state(), open_state()
    first["x"] = 1
    first.commit(write_id="job 1")
    again["x"] = "another"

    with pytest.raises((WriteIdReused, MergeConflict)):
        again.commit(write_id="job 1")
    assert again["x"] == "another"
    assert open_state()["x"] == 1


def test_a_session_has_changes_and_objects_of_its_own(state: Versioned) -> None:
    state["a"] = [1]
    state.commit()
    other = state.session()
    other["a"].append("other")

    assert other["a"] is not state["a"]
    assert state["a"] == [1]
    assert not state.dirty
    other.commit()
    state.refresh()
    assert state["a"] == [1, "other"]


# A branch that somebody removed.


@pytest.fixture
def orphan(open_state: StateOpener) -> Versioned:
    """A handle with a change on a branch that somebody else has removed."""
    state = open_state()
    state["a"] = 1
    state.commit()
    side = open_state().branch("side")
    side["b"] = 2
    side.commit()
    side["c"] = 3
    History(state.store, "states/default").delete_branch("side")
    return side


def in_transaction(state: Versioned) -> None:
    with state.transaction():
        state["d"] = 4


@pytest.mark.parametrize(
    "call",
    [
        lambda state: state.commit(),
        lambda state: state.merge("main"),
        lambda state: state.refresh(),
        lambda state: state.reset(),
        lambda state: state.reset(state.commit_hash),
        lambda state: state.session(),
        in_transaction,
    ],
    ids=["commit", "merge", "refresh", "reset", "reset to", "session", "transaction"],
)
def test_a_removed_branch_is_said_to_be_removed_and_nothing_held_is_lost(
    orphan: Versioned, open_state: StateOpener, call: Callable[[Versioned], Any]
) -> None:
    for _ in range(2):
        with pytest.raises(Conflict, match=r"branch 'side' .* was removed"):
            call(orphan)

    assert dict(orphan) == {"a": 1, "b": 2, "c": 3}
    assert list(open_state().branches()) == ["main"]


def test_a_task_does_not_run_on_a_removed_branch(orphan: Versioned) -> None:
    ran = []

    @task
    def work() -> None:
        ran.append(1)

    del orphan["c"]  # Nothing is left to commit before the call.
    with pytest.raises(Conflict, match=r"branch 'side' .* was removed"):
        work(state=orphan)

    assert ran == []
    assert list(orphan.branches()) == ["main"]


def test_a_removed_branch_begins_anew_where_its_handle_stands(orphan: Versioned) -> None:
    again = orphan.branch("side")

    assert dict(again) == {"a": 1, "b": 2}
