"""Versioned as a mapping: a dict in every way, whose changes are found wherever they are made."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

from ropewalk.errors import InvalidInput, InvalidName, NotStorable, PathNotFound
from ropewalk.state import Versioned
from tests.state.conftest import StateOpener
from tests.state.large import messages, sentence

# The mapping.


def test_a_new_state_is_empty_and_has_no_commit(state: Versioned) -> None:
    assert len(state) == 0
    assert list(state) == []
    assert state.commit_hash is None
    assert not state.dirty


def test_what_was_set_is_there_before_and_after_the_commit(
    state: Versioned, open_state: StateOpener
) -> None:
    state["plan"] = {"stage": "search"}

    assert state["plan"] == {"stage": "search"}
    assert state.dirty
    hash = state.commit()
    assert not state.dirty
    assert state.commit_hash == hash
    assert dict(open_state()) == {"plan": {"stage": "search"}}


def test_a_key_that_is_not_there_is_a_key_error(state: Versioned) -> None:
    with pytest.raises(PathNotFound, match="'docs'"):
        state["docs"]
    with pytest.raises(KeyError):
        del state["docs"]
    with pytest.raises(KeyError):
        state.pop("docs")
    assert state.get("docs", 7) == 7
    assert state.pop("docs", 8) == 8


def test_keys_are_counted_with_what_is_not_committed(state: Versioned) -> None:
    state.update({"a": 1, "b": 2, "c": 3})
    state.commit()
    del state["a"]
    state["d"] = 4
    state["b"] = 5

    assert len(state) == 3
    assert sorted(state) == ["b", "c", "d"]
    assert "a" not in state
    assert "d" in state
    assert sorted(state.items()) == [("b", 5), ("c", 3), ("d", 4)]
    assert sorted(state.values()) == [3, 4, 5]


@pytest.mark.parametrize("committed", [True, False])
def test_a_state_has_the_methods_of_a_dict(
    state: Versioned, open_state: StateOpener, committed: bool
) -> None:
    state.update(a=1, b=2)
    state.update([("c", 3)])
    if committed:
        state.commit()

    assert state.pop("a") == 1
    assert state.setdefault("b", 9) == 2
    assert state.setdefault("e", []) == []
    state["e"].append("in place")
    state |= {"f": 6}
    state |= [("g", 7)]
    assert state == {"b": 2, "c": 3, "e": ["in place"], "f": 6, "g": 7}
    state.commit()
    assert open_state() == {"b": 2, "c": 3, "e": ["in place"], "f": 6, "g": 7}


def test_popitem_takes_every_key_once(state: Versioned) -> None:
    state.update({str(number): number for number in range(20)})
    state.commit()

    taken = [state.popitem() for _ in range(20)]
    assert sorted(taken) == sorted((str(number), number) for number in range(20))
    with pytest.raises(KeyError):
        state.popitem()


def test_a_cleared_state_is_empty_for_everybody(state: Versioned, open_state: StateOpener) -> None:
    state.update({str(number): number for number in range(50)})
    state.namespace("agent")["kept"] = 1
    state.commit()
    state["new"] = 1
    state.clear()

    assert len(state) == 0
    state.commit()
    assert dict(open_state()) == {}
    assert open_state().namespace("agent")["kept"] == 1


def test_keys_may_be_changed_while_they_are_iterated_over(state: Versioned) -> None:
    state.update({str(number): number for number in range(50)})
    state.commit()

    for key in state:
        del state[key]
        state[f"{key} again"] = 1
    assert len(state) == 50
    assert all(key.endswith("again") for key in state)


def test_a_value_removed_while_items_are_iterated_over_is_never_made_up(state: Versioned) -> None:
    state.update({"a": 1, "b": 2})
    state.commit()

    items = iter(state.items())
    first, _ = next(items)
    del state["b" if first == "a" else "a"]
    with pytest.raises(KeyError):
        next(items)


KEYS: list[Any] = [
    "text",
    "",
    "a/b.c%",
    1,
    1.0,
    True,
    0,
    0.0,
    -0.0,
    False,
    None,
    b"1",
    (1, "a"),
    (1.0, "a"),
    (),
    frozenset({1, 2}),
    2**70,
    math.inf,
    math.nan,
    1j,
]


def test_every_key_is_a_key_of_its_own_whatever_python_takes_for_equal(
    state: Versioned, open_state: StateOpener
) -> None:
    for number, key in enumerate(KEYS):
        state[key] = number
    state.commit()
    again = open_state()

    assert len(again) == len(KEYS)
    assert [again[key] for key in KEYS] == list(range(len(KEYS)))
    assert sorted(map(repr, again)) == sorted(map(repr, KEYS))
    del again[1.0]
    again[True] = "changed"
    again.commit()
    assert 1.0 not in again
    assert (again[1], again[True]) == (KEYS.index(1), "changed")


@pytest.mark.parametrize("key", [[1], {}, {1}, bytearray(b"x"), (1, [2])], ids=repr)
def test_a_key_that_cannot_be_hashed_is_refused_and_nothing_is_kept(
    state: Versioned, key: Any
) -> None:
    state["a"] = 1

    with pytest.raises(TypeError):
        state[key] = 1
    assert list(state) == ["a"]
    state.commit()
    assert list(state) == ["a"]


def test_a_key_that_cannot_be_stored_is_refused(state: Versioned) -> None:
    with pytest.raises(NotStorable):
        state[object()] = 1
    with pytest.raises(NotStorable):
        state["\ud800"] = 1

    assert object() not in state
    assert list(state) == []


def test_a_huge_key_is_refused_and_a_long_one_is_not(
    state: Versioned, open_state: StateOpener
) -> None:
    state["k" * 1000] = 1
    with pytest.raises(NotStorable, match="the most is"):
        state["k" * 100_000] = 1
    state.commit()

    assert "k" * 100_000 not in state
    assert state.get("k" * 100_000) is None
    assert list(open_state()) == ["k" * 1000]


def test_the_key_that_holds_the_namespaces_is_reserved(state: Versioned) -> None:
    state.namespace("agent")["a"] = 1
    state.commit()

    for reserved in ["ropewalk:namespaces"]:
        with pytest.raises(InvalidInput, match="reserved"):
            state[reserved] = 1
        with pytest.raises(KeyError):
            state[reserved]
        with pytest.raises(KeyError):
            del state[reserved]
        assert reserved not in state
        past = state.checkout(state.commit_hash or "")
        assert reserved not in past
        assert past.get(reserved) is None
        assert list(past) == []
        assert len(past) == 0


def test_two_states_of_one_store_know_nothing_of_each_other(open_state: StateOpener) -> None:
    one, two = open_state(name="one"), open_state(name="two")
    one["a"] = 1
    one.commit()
    two["b"] = 2
    two.commit()

    assert dict(open_state(name="one")) == {"a": 1}
    assert dict(open_state(name="two")) == {"b": 2}
    with pytest.raises(InvalidName):
        open_state(name="")


def test_an_unknown_argument_is_an_error(state: Versioned) -> None:
    with pytest.raises(TypeError):
        state.commit(desciption="typo")  # type: ignore[call-arg]
    with pytest.raises(InvalidInput):
        Versioned(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        Versioned(codec=state.codec, types=[int])
    with pytest.raises(InvalidInput):
        Versioned(mergers={"a": "no such merger"})


# Changes are found.


def test_the_second_get_gives_the_same_object(state: Versioned, open_state: StateOpener) -> None:
    state["x"] = []
    state.commit()
    again = open_state()
    again["x"].append(1)
    again["x"].append(2)

    again.commit()
    assert again["x"] is again["x"]
    assert open_state()["x"] == [1, 2]


def test_what_a_second_name_changes_is_found(state: Versioned, open_state: StateOpener) -> None:
    state["x"] = {"items": []}
    state.commit()
    again = open_state()
    first, second = again["x"], again.get("x")
    assert first is second
    second["items"].append("by the second")

    again.commit()
    assert open_state()["x"] == {"items": ["by the second"]}


@pytest.mark.parametrize("size", [0, 40, 400])
def test_an_object_held_over_commits_is_followed(
    state: Versioned, open_state: StateOpener, size: int
) -> None:
    held: list[Any] = messages(size)
    state["x"] = held
    for number in range(5):
        state.commit()
        held.append({"late": number})
        if number == 3:
            held[0]["changed"] = True

    hash = state.commit()
    assert state["x"] is held
    assert open_state()["x"] == held
    assert state.checkout(hash or "")["x"] == held


def test_an_object_inside_that_is_held_over_commits_is_followed(
    state: Versioned, open_state: StateOpener
) -> None:
    state["x"] = {"chat": messages(300), "notes": {"deep": {"deeper": [1]}}}
    state.commit()
    message, deeper = state["x"]["chat"][150], state["x"]["notes"]["deep"]["deeper"]
    for number in range(4):
        message["edited"] = number
        deeper.append(number)
        state.commit()

    assert open_state()["x"]["chat"][150]["edited"] == 3
    assert open_state()["x"]["notes"]["deep"]["deeper"] == [1, 0, 1, 2, 3]


def test_items_and_values_give_the_objects_that_are_followed(
    state: Versioned, open_state: StateOpener
) -> None:
    state.update({"a": [1], "b": [2]})
    state.commit()
    again = open_state()
    for _key, value in again.items():  # noqa: PERF102 - values() follows
        value.append("by items")
    for value in again.values():
        value.append("by values")

    again.commit()
    assert dict(open_state()) == {
        "a": [1, "by items", "by values"],
        "b": [2, "by items", "by values"],
    }


def test_a_removal_alone_is_committed(state: Versioned, open_state: StateOpener) -> None:
    state.update(a=1, b=2)
    first = state.commit()
    del state["a"]

    assert state.dirty
    assert state.commit() != first
    assert dict(open_state()) == {"b": 2}


@pytest.mark.parametrize("read_first", [True, False])
def test_a_committed_key_that_is_set_and_removed_does_not_come_back(
    state: Versioned, open_state: StateOpener, read_first: bool
) -> None:
    state.update(a="old", b=2)
    state.commit()
    again = open_state()
    if read_first:
        assert again["a"] == "old"
    again["a"] = "new"
    del again["a"]

    assert "a" not in again
    assert again.get("a") is None
    again.commit()
    assert "a" not in again
    assert dict(open_state()) == {"b": 2}


def test_a_key_removed_and_set_again_has_the_new_value(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = messages(100)
    state.commit()
    del state["a"]
    state["a"] = "new"
    state.commit()
    assert open_state()["a"] == "new"
    del state["a"]
    state.commit()
    state["a"] = "newer"
    state.commit()

    assert open_state()["a"] == "newer"


def test_an_object_that_was_replaced_is_no_longer_followed(
    state: Versioned, open_state: StateOpener
) -> None:
    old = state["a"] = [1]
    state.commit()
    state["a"] = [2]
    old.append("unseen")
    state.commit()

    assert open_state()["a"] == [2]


def test_one_object_under_two_keys_is_stored_under_both(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = state["b"] = shared = [1]
    state.commit()
    shared.append(2)
    state.commit()

    assert dict(open_state()) == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    "value",
    [7, "text", [1, 2], {"b": 1, "a": 2}, {1, 2, 3}, messages(100), sentence(1, 20_000), math.nan],
    ids=["int", "text", "list", "dict", "set", "messages", "long text", "nan"],
)
def test_an_equal_value_makes_no_commit(
    state: Versioned, open_state: StateOpener, value: Any
) -> None:
    state["a"] = value
    first = state.commit()
    state["a"] = copy.deepcopy(value)

    assert not state.dirty
    assert state.commit() == first
    again = open_state()
    again["a"] = copy.deepcopy(value)
    assert again.commit() == first


def test_sets_of_text_make_no_commit_in_whatever_order_they_are(state: Versioned) -> None:
    words = [sentence(number) for number in range(200)]
    state["a"] = set(words)
    first = state.commit()
    state["a"] = {*words[100:], *words[:100]}

    assert state.commit() == first


def test_reading_everything_makes_no_commit(state: Versioned, open_state: StateOpener) -> None:
    state.update(a=messages(100), b={1: 2.5}, c={"x"}, d=(1,))
    first = state.commit()
    again = open_state()

    assert len(list(again.items())) == 4
    assert not again.dirty
    assert again.commit() == first


def test_a_change_of_type_that_python_takes_for_equal_is_a_change(
    state: Versioned, open_state: StateOpener
) -> None:
    state["a"] = [1, 0.0]
    state.commit()
    state["a"][0] = True
    state["a"][1] = -0.0

    assert state.dirty
    state.commit()
    assert repr(open_state()["a"]) == "[True, -0.0]"


def test_a_change_that_is_taken_back_is_none(state: Versioned) -> None:
    state["a"] = messages(100)
    first = state.commit()
    state["a"].append("x")
    assert state.dirty
    state["a"].pop()

    assert not state.dirty
    assert state.commit() == first


def test_the_order_of_a_dict_is_a_change(state: Versioned, open_state: StateOpener) -> None:
    state["a"] = {"x": 1, "y": 2}
    state.commit()
    state["a"]["x"] = state["a"].pop("x")

    assert state.dirty
    state.commit()
    assert list(open_state()["a"]) == ["y", "x"]


# What cannot be stored.


def test_what_cannot_be_stored_is_refused_when_it_is_assigned(state: Versioned) -> None:
    state["a"] = 1

    with pytest.raises(NotStorable) as caught:
        state["a"] = {"deep": [1, {"x": object()}]}
    assert caught.value.path == 'state["a"]["deep"][1]["x"]'
    assert state["a"] == 1


@pytest.mark.parametrize("size", [0, 300])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda value: value["list"].append(object()),
        lambda value: value.__setitem__("self", value),
        lambda value: value.__setitem__("bad", "\udcff"),
    ],
    ids=["object", "cycle", "surrogate"],
)
def test_a_value_changed_into_something_unstorable_is_refused_and_nothing_is_lost(
    state: Versioned, open_state: StateOpener, size: int, spoil: Callable[[Any], None]
) -> None:
    state["a"] = {"list": messages(size)}
    first = state.commit()
    state["other"] = "not committed"
    spoil(state["a"])

    for _ in range(2):
        with pytest.raises(NotStorable) as caught:
            state.commit()
        assert caught.value.path.startswith('state["a"]')
    assert state.commit_hash == first
    assert state["other"] == "not committed"
    assert dict(open_state()) == {"a": {"list": messages(size)}}
    state["a"].pop("self", None)
    state["a"].pop("bad", None)
    state["a"]["list"] = [*messages(size), "corrected"]
    state.commit()
    assert dict(open_state()) == {
        "a": {"list": [*messages(size), "corrected"]},
        "other": "not committed",
    }
