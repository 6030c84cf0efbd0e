"""Namespaces: parts of a state with keys of their own and the same commits."""

# ruff: noqa: PT012 - a block that raises is what is tested

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.errors import InvalidInput, InvalidName, MergeConflict
from ropewalk.state import Versioned
from tests.state.conftest import StateOpener
from tests.state.large import messages


def test_a_namespace_has_keys_of_its_own(state: Versioned, open_state: StateOpener) -> None:
    agent = state.namespace("agent")
    agent["notes"] = ["mine"]
    state["notes"] = ["of the whole"]
    agent.commit("Began")

    again = open_state()
    assert dict(again) == {"notes": ["of the whole"]}
    assert dict(again.namespace("agent")) == {"notes": ["mine"]}
    assert len(again) == 1
    assert again.namespaces() == ["agent"]
    assert again.history()[0].description == "Began"


def test_a_key_and_a_namespace_of_one_name_are_two_things(
    state: Versioned, open_state: StateOpener
) -> None:
    state["agent"] = {"a": 1}
    state.namespace("agent")["a"] = 2
    state.commit()
    del state["agent"]
    state.commit()

    assert "agent" not in open_state()
    assert open_state().namespace("agent")["a"] == 2


def test_namespaces_nest(state: Versioned, open_state: StateOpener) -> None:
    inner = state.namespace("a").namespace("b").namespace("c")
    inner["deep"] = messages(100)
    state.namespace("a")["shallow"] = 1
    state.commit()
    inner["deep"].append("in place")
    hash = state.commit() or ""

    again = open_state()
    assert again.namespaces() == ["a"]
    assert again.namespace("a").namespaces() == ["b"]
    assert again.namespace("a").namespace("b").namespaces() == ["c"]
    assert again.namespace("a").namespace("b").namespace("c")["deep"][-1] == "in place"
    past = again.checkout(hash)
    assert past.namespaces() == ["a"]
    assert past.namespace("a")["shallow"] == 1
    assert past.namespace("a").namespace("b").namespace("c")["deep"] == inner["deep"]


def test_two_views_of_one_namespace_hold_the_same_objects(state: Versioned) -> None:
    state.namespace("a")["list"] = []

    assert state.namespace("a")["list"] is state.namespace("a")["list"]
    state.namespace("a")["list"].append(1)
    assert state.namespace("a")["list"] == [1]


def test_a_namespace_is_a_mapping_in_every_way(state: Versioned, open_state: StateOpener) -> None:
    agent = state.namespace("agent")
    agent.update(a=1, b=[2], c=3)
    state["a"] = "of the whole"
    state.commit()

    assert agent.pop("a") == 1
    assert agent.setdefault("b", 0) == [2]
    assert agent.get("z") is None
    assert sorted(agent) == ["b", "c"]
    assert sorted(agent.items()) == [("b", [2]), ("c", 3)]
    agent |= {"d": 4}
    assert len(agent) == 3
    with pytest.raises(KeyError):
        agent["a"]
    with pytest.raises(KeyError):
        del agent["a"]
    state.commit()
    assert dict(open_state().namespace("agent")) == {"b": [2], "c": 3, "d": 4}
    agent.clear()
    state.commit()
    assert len(open_state().namespace("agent")) == 0
    assert dict(open_state()) == {"a": "of the whole"}


def test_an_empty_namespace_is_none(state: Versioned, open_state: StateOpener) -> None:
    agent = state.namespace("agent")

    assert len(agent) == 0
    assert state.namespaces() == []
    assert not state.dirty
    assert state.commit() is None
    agent["a"] = 1
    first = state.commit()
    del agent["a"]
    assert state.namespaces() == []
    assert state.commit() != first
    again = open_state()
    assert again.namespaces() == []
    assert dict(again.namespace("agent")) == {}
    assert again.checkout("main").namespaces() == []
    assert dict(again.checkout("main").namespace("never")) == {}


def test_a_key_set_and_removed_in_a_new_namespace_is_no_change(state: Versioned) -> None:
    state["a"] = 1
    first = state.commit()
    state.namespace("agent")["x"] = 1
    del state.namespace("agent")["x"]

    assert not state.dirty
    assert state.commit() == first


@pytest.mark.parametrize("name", ["", "x" * 201, "\ud800", 7, None, ("a",)])
def test_a_name_that_is_no_name_is_refused(state: Versioned, name: Any) -> None:
    with pytest.raises(InvalidName):
        state.namespace(name)


@pytest.mark.parametrize("name", ["a/b", "a.b", "ropewalk:namespaces", "ü", " ", "x" * 200])
def test_any_text_is_a_name(state: Versioned, open_state: StateOpener, name: str) -> None:
    state.namespace(name)["a"] = 1
    state.commit()

    assert open_state().namespaces() == [name]
    assert open_state().namespace(name)["a"] == 1
    assert dict(open_state()) == {}


def test_the_reserved_key_is_reserved_in_namespaces_too(state: Versioned) -> None:
    with pytest.raises(InvalidInput, match="reserved"):
        state.namespace("a")["ropewalk:namespaces"] = 1


def test_namespaces_that_two_writers_made_at_once_are_merged(open_state: StateOpener) -> None:
    one, two = open_state(), open_state()
    one["first"] = 1
    one.commit()
    two.refresh()
    one.namespace("one")["a"] = 1
    one.namespace("both")["from one"] = 1
    two.namespace("two")["b"] = 2
    two.namespace("both")["from two"] = 2
    two.namespace("both").namespace("inner")["c"] = 3
    one.commit()
    two.commit()
    one.refresh()

    for handle in (one, two, open_state()):
        assert handle.namespaces() == ["both", "one", "two"]
        assert dict(handle.namespace("both")) == {"from one": 1, "from two": 2}
        assert handle.namespace("both").namespace("inner")["c"] == 3


def test_two_first_commits_with_one_namespace_are_merged(open_state: StateOpener) -> None:
    one, two = open_state(), open_state()
    one.namespace("both")["a"] = 1
    two.namespace("both")["b"] = 2
    one.commit()
    two.commit()

    assert dict(two.namespace("both")) == {"a": 1, "b": 2}


def test_mergers_of_a_namespace_are_for_paths_inside_it(open_state: StateOpener) -> None:
    rules: dict[Any, Any] = {"n": "add", ("deep", ...): "theirs", "log": "append"}
    first = open_state()
    first.namespace("a").namespace("b").update(n=0, deep={"x": 0}, log=[])
    first["n"] = 0
    first.commit()
    handles = [open_state(), open_state()]
    for number, handle in enumerate(handles):
        inner = handle.namespace("a").namespace("b", mergers=rules)
        inner["n"] += 1
        inner["deep"]["x"] = f"by {number}"
        inner["log"].append(number)
        handle.commit()
    merged = handles[1].namespace("a").namespace("b")

    assert (merged["n"], merged["deep"], merged["log"]) == (2, {"x": "by 0"}, [0, 1])
    for handle in handles:
        handle.refresh()
        handle["n"] = handle["n"] + 1 if handle is handles[0] else 7
    handles[0].commit()
    with pytest.raises(MergeConflict):  # Those of a namespace are not for the whole.
        handles[1].commit()


def test_a_type_is_merged_by_its_merger_in_namespaces_too(open_state: StateOpener) -> None:
    first = open_state()
    first.namespace("a")["tags"] = {0}
    first.commit()
    handles = [open_state(mergers={set: "union"}) for _ in range(2)]
    for number, handle in enumerate(handles, 1):
        handle.namespace("a")["tags"].add(number)
        handle.commit()

    assert handles[1].namespace("a")["tags"] == {0, 1, 2}


def test_a_type_is_no_path_inside_a_namespace(state: Versioned) -> None:
    with pytest.raises(InvalidInput):
        state.namespace("a", mergers={set: "union"})


def test_a_namespace_takes_part_in_transactions_events_and_resets(state: Versioned) -> None:
    agent = state.namespace("agent")
    agent["list"] = [1]
    first = state.commit() or ""
    with pytest.raises(ZeroDivisionError), agent.transaction():
        agent["list"].append(2)
        agent["new"] = 1
        raise ZeroDivisionError

    assert dict(agent) == {"list": [1]}
    with agent.transaction("Step"):
        agent["list"].append(3)
        agent.note({"kind": "step"})
    assert agent["list"] == [1, 3]
    assert [one.record for one in agent.records()] == [{"kind": "step"}]
    state.reset(first)
    assert agent["list"] == [1]


def test_held_objects_of_a_namespace_are_brought_up_to_date(open_state: StateOpener) -> None:
    one = open_state()
    one.namespace("a")["list"] = held = [1]
    one.commit()
    two = open_state()
    two.namespace("a")["list"].append(2)
    two.namespace("a")["gone"] = 1
    two.commit()
    one.namespace("a")["own"] = 1
    one.refresh()

    assert held == [1, 2]
    assert one.namespace("a")["list"] is held
    assert dict(one.namespace("a")) == {"list": [1, 2], "gone": 1, "own": 1}
