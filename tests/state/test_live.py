"""`Live`: a state in process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import MutableMapping

import pytest

from ropewalk.errors import InvalidInput, InvalidName
from ropewalk.state import Live, State


def test_a_live_state_is_a_mutable_mapping() -> None:
    state = Live({"a": 1})
    state["b"] = 2
    del state["a"]
    state.update(c=3)

    assert isinstance(state, MutableMapping) and isinstance(state, State)
    assert dict(state) == {"b": 2, "c": 3}
    assert state == {"b": 2, "c": 3}
    assert "b" in state and "a" not in state and len(state) == 2
    assert state.pop("b") == 2 and state.pop("b", None) is None


def test_a_key_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Live()["absent"]


def test_it_holds_anything_and_copies_nothing() -> None:
    with sqlite3.connect(":memory:") as connection:
        lock = threading.Lock()
        docs: list[int] = []
        state = Live({"db": connection, "lock": lock, "docs": docs})
        docs.append(1)

        assert state["db"] is connection and state["lock"] is lock
        assert state["docs"] is docs and state["docs"] == [1]
    connection.close()


def test_what_it_was_made_from_is_not_changed() -> None:
    given = {"a": 1}
    state = Live(given)
    state["b"] = 2

    assert given == {"a": 1}


@pytest.mark.parametrize("values", [3, "text", None])
def test_only_a_mapping_is_taken(values: object) -> None:
    with pytest.raises(InvalidInput, match="mapping"):
        Live(values)  # type: ignore[arg-type]


def test_a_namespace_has_keys_of_its_own() -> None:
    state = Live({"a": 1})
    state.namespace("a")["x"] = 2

    assert state["a"] == 1
    assert list(state) == ["a"]
    assert dict(state.namespace("a")) == {"x": 2}


def test_one_name_leads_to_one_namespace() -> None:
    state = Live()
    state.namespace("a").namespace("b")["x"] = 1

    assert state.namespace("a").namespace("b")["x"] == 1
    assert "x" not in state.namespace("b")
    assert state.namespace("a").namespace("b").place == ("a", "b")


def test_the_namespaces_that_hold_something_are_listed() -> None:
    state = Live()
    state.namespace("z")["x"] = 1
    state.namespace("a").namespace("deep")["x"] = 1
    state.namespace("empty")

    assert state.namespaces() == ["a", "z"]
    assert state.namespace("a").namespaces() == ["deep"]


@pytest.mark.parametrize("name", ["a/b", "..", " ", "名", "x" * 200])
def test_a_namespace_may_have_any_text_as_its_name(name: str) -> None:
    state = Live()
    state.namespace(name)["x"] = 1

    assert state.namespaces() == [name]


@pytest.mark.parametrize("name", ["", "x" * 201, None, 3, b"bytes"])
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidName):
        Live().namespace(name)  # type: ignore[arg-type]


def test_records_come_newest_first() -> None:
    state = Live()
    for number in range(3):
        state.note({"number": number})

    assert [one.record["number"] for one in state.records()] == [2, 1, 0]
    assert [one.record["number"] for one in state.records(limit=1)] == [2]
    assert {(one.before, one.after) for one in state.records()} == {(None, None)}


def test_a_namespace_gives_the_records_that_were_noted_inside_it() -> None:
    state = Live()
    state.note({"at": "top"})
    state.namespace("a").namespace("b").note({"at": "a/b"})
    state.namespace("c").note({"at": "c"})

    assert [one.record["at"] for one in state.records()] == ["c", "a/b", "top"]
    assert [one.record["at"] for one in state.namespace("a").records()] == ["a/b"]


def test_a_record_that_was_noted_does_not_change() -> None:
    state = Live()
    record = {"number": 1}
    state.note(record)
    record["number"] = 2

    assert [one.record["number"] for one in state.records()] == [1]


def test_iterating_goes_over_the_keys_that_were_there() -> None:
    state = Live({"a": 1, "b": 2})
    for key in state:
        state[f"{key}{key}"] = 3

    assert list(state) == ["a", "b", "aa", "bb"]


def test_threads_may_share_one() -> None:
    state = Live()

    def work(number: int) -> None:
        for at in range(200):
            state[number, at] = at
            state.note({"number": number})
            list(state)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(state) == 800
    assert len(list(state.records())) == 800


def test_it_shows_itself_in_short() -> None:
    state = Live({"text": "x" * 10_000})

    assert repr(state) == "<Live with 1 key>"
    assert repr(state.namespace("sub")) == "<Live of 'sub' with 0 keys>"


def test_of_many_events_the_newest_are_kept() -> None:
    state = Live()
    for number in range(10_500):
        state.note({"number": number})

    kept = [one.record["number"] for one in state.records()]
    assert len(kept) == 10_000
    assert kept[0] == 10_499
