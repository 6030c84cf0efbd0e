"""`view`: a state as text, within a budget, and without reading more than it shows."""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pandas
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.codec import Codec
from ropewalk.errors import InvalidInput, PathNotFound
from ropewalk.state import Live, State, Versioned, task, view
from ropewalk.state.outline import estimate
from ropewalk.store import MemoryStore
from ropewalk.testing import FaultStore

DOCS = [{"title": f"Doc {at}", "body": "word " * 20 * at, "tags": ["a", "b"]} for at in range(50)]


@pytest.fixture(params=[Live, Versioned])
def state(request: pytest.FixtureRequest) -> State:
    made: State = request.param()
    return made


def lines(state: Mapping[Any, Any], focus: Any = "full", **options: Any) -> list[str]:
    """A view without its title."""
    return view(state, focus, **options).split("\n")[1:]


# All of it.


def test_all_keys_are_shown_with_their_values(state: State) -> None:
    state["docs"] = [1, 2, 3]
    state["name"] = "Ann"

    assert lines(state) == ["docs: [1, 2, 3]", 'name: "Ann"']


@pytest.mark.parametrize("focus", ["full", "recent", "changes"])
def test_an_empty_state_can_be_viewed(state: State, focus: str) -> None:
    assert len(lines(state, focus)) == 1


def test_the_title_says_what_is_viewed() -> None:
    live, versioned = Live({"a": 1}), Versioned(name="agent")
    versioned["a"] = 1
    versioned.commit()

    assert view(live).split("\n")[0] == "Live with 1 key"
    short = str(versioned.commit_hash)[:12]
    assert view(versioned).split("\n")[0] == f"agent on main at {short}, with 1 key"


def test_namespaces_are_shown_after_the_keys(state: State) -> None:
    state["zebra"] = 1
    state.namespace("sub")["k"] = 2
    state.namespace("sub").namespace("deep")["k"] = [3]

    shown = lines(state)
    assert shown[0] == "zebra: 1"
    assert shown[1].startswith("namespace 'sub'")
    assert "k: 2" in view(state) and "k: [3]" in view(state)
    assert "ropewalk:namespaces" not in view(state)


def test_a_namespace_can_be_viewed(state: State) -> None:
    state["mine"] = 1
    state.namespace("sub")["k"] = 2

    assert lines(state.namespace("sub")) == ["k: 2"]
    assert "'sub'" in view(state.namespace("sub")).split("\n")[0]


def test_a_plain_mapping_can_be_viewed() -> None:
    assert lines({"a": 1}) == ["a: 1"]
    assert lines(UserDict({"a": 1})) == ["a: 1"]


@pytest.mark.parametrize("wrong", [None, [1], "text", 3])
def test_what_is_no_state_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="view"):
        view(wrong)


def test_changes_that_are_not_committed_are_shown() -> None:
    state = Versioned()
    state["docs"] = [1]
    state.commit()
    state["docs"].append(2)
    state["new"] = 3

    assert lines(state) == ["new: 3", "docs: [1, 2]"] or lines(state) == [
        "docs: [1, 2]",
        "new: 3",
    ]


def test_a_view_changes_nothing() -> None:
    state = Versioned()
    state["docs"] = [1]
    before = state.commit()
    view(state)
    view(state, "recent")

    assert state.commit_hash == before
    assert not state.dirty


def test_a_checkout_is_shown_as_it_was() -> None:
    state = Versioned()
    state["docs"] = [1]
    first = state.commit()
    state["docs"].append(2)
    state.commit()

    assert first is not None
    assert lines(state.checkout(first)) == ["docs: [1]"]


def test_what_cannot_be_stored_any_more_can_be_viewed() -> None:
    state = Versioned()
    state["docs"] = [1]
    state.commit()
    state["docs"].append(threading.Lock())

    assert "lock" in view(state)


# Values of all kinds.


@dataclasses.dataclass
class Point:
    x: int
    y: list[int]


class Model(pydantic.BaseModel):
    x: int


class Struct(msgspec.Struct):
    x: int


Pair = namedtuple("Pair", "left right")


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        (1.5, "1.5"),
        ("a\tb", '"a\\tb"'),
        ("名前", '"名前"'),
        (b"ab", "b'ab'"),
        ((), "()"),
        ((1,), "(1)"),
        ({3, 1, 2}, "{1, 2, 3}"),
        ([], "[]"),
        ({}, "{}"),
        ({"a": {"b": [1]}, 2: "x"}, '{a: {b: [1]}, 2: "x"}'),
        ({"two words": 1}, '{"two words": 1}'),
        (Point(1, [2]), "Point(x=1, y=[2])"),
        (Pair(1, 2), "Pair(left=1, right=2)"),
        (Model(x=1), "Model(x=1)"),
        (Struct(x=1), "Struct(x=1)"),
        (Path("/tmp"), "PosixPath('/tmp')"),
        (deque([1, 2], 9), "deque[1, 2]"),
        (Counter("aab"), "Counter{a: 2, b: 1}"),
        (
            pandas.DataFrame({"a": [1, 2], "b": [3, 4]}),
            "DataFrame of 2 rows and 2 columns: a, b",
        ),
        (range(10**30), f"range(0, {10**30})"),
        pytest.param(1 << 100_000, "a number of 100,001 bits", id="long number"),
    ],
)
def test_a_small_value_is_one_line(value: Any, shown: str) -> None:
    assert lines(Live({"key": value})) == [f"key: {shown}"]


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (deque(range(5_000), 9_000), "deque of 5,000 items"),
        (OrderedDict.fromkeys(map(str, range(5_000))), "OrderedDict of 5,000 keys"),
        (defaultdict(list, {at: [at] for at in range(5_000)}), "defaultdict of 5,000 keys"),
    ],
    ids=["deque", "OrderedDict", "defaultdict"],
)
def test_a_large_container_is_named_by_its_type(state: State, value: Any, label: str) -> None:
    state["key"] = value
    if isinstance(state, Versioned):
        state.commit()

    assert label in view(state, max_tokens=300)


def test_an_object_that_cannot_show_itself_is_named() -> None:
    (shown,) = lines(Live({"key": Rude()}))

    assert "Rude" in shown and "RuntimeError" in shown


def test_a_value_that_contains_itself_can_be_viewed() -> None:
    value: list[Any] = [1]
    value.append(value)

    assert estimate(view(Live({"key": value}), max_tokens=500)) <= 500


def test_text_of_several_lines_is_shown_as_lines(state: State) -> None:
    state["text"] = f"first {'x' * 80}\nsecond"

    assert lines(state) == ["text:", f"  first {'x' * 80}", "  second"]


def test_what_would_steer_a_terminal_is_escaped(state: State) -> None:
    state["text"] = f"\x1b[31mred\x9b {'x' * 80}\nnext"

    assert "\x1b" not in view(state) and "\x9b" not in view(state)
    assert "\\x1b" in view(state)


def test_text_that_is_no_valid_unicode_can_be_printed() -> None:
    view(Live({"text": "a\ud800", "b\ud800": 1})).encode()


def test_an_object_of_a_class_that_is_not_declared_is_shown_by_its_fields() -> None:
    with MemoryStore() as store:
        writer = Versioned(store, codec=Codec(types=[Point]))
        writer["point"] = Point(1, [2])
        writer["large"] = Point(1, list(range(10_000)))
        writer["name"] = "Ann"
        writer.commit()

        reader = Versioned(store)
        shown = view(reader)
        assert shown.count("Point (by its fields)") == 2 and "x" in shown
        assert 'name: "Ann"' in shown


# The budget.


@pytest.mark.parametrize("budget", [1, 2, 5, 10, 30, 100, 300, 1000, 4096])
@pytest.mark.parametrize("focus", ["full", "changes", "docs", "docs[3]", "text"])
def test_a_view_is_within_its_budget(state: State, budget: int, focus: str) -> None:
    state["docs"] = DOCS
    state["text"] = "x" * 100_000
    state["字"] = "漢字" * 10_000
    state["bytes"] = b"\x00\x01" * 10_000
    state.namespace("sub")["k"] = DOCS

    assert estimate(view(state, focus, max_tokens=budget)) <= budget


@pytest.mark.parametrize("budget", [10, 100, 1000])
def test_tokens_can_be_counted_exactly(state: State, budget: int) -> None:
    state["docs"] = DOCS

    def count(text: str) -> int:
        return len(text)  # One token for every character.

    assert count(view(state, max_tokens=budget, count=count)) <= budget


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=30,
)


@given(values=st.dictionaries(st.text(), VALUES), budget=st.integers(1, 200))
def test_any_state_is_within_any_budget(values: dict[str, Any], budget: int) -> None:
    assert estimate(view(values, max_tokens=budget)) <= budget


@pytest.mark.parametrize("wrong", [0, -1, 1.5, None, True])
def test_a_budget_is_a_number_of_tokens(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="max_tokens"):
        view(Live(), max_tokens=wrong)


def test_every_key_gets_a_line_before_any_gets_more(state: State) -> None:
    state["docs"] = DOCS
    state["text"] = "x" * 100_000
    for at in range(20):
        state[f"key{at:02}"] = at

    shown = lines(state, max_tokens=150)
    for at in range(20):
        assert f"key{at:02}: {at}" in shown
    assert any(line.startswith("docs: list of 50 items") for line in shown)
    assert any(line.startswith("text: ") for line in shown)


def test_small_values_leave_their_room_to_large_ones(state: State) -> None:
    for at in range(9):
        state[f"small{at}"] = at
    state["large"] = "x" * 100_000

    assert estimate(view(state, max_tokens=1000)) > 900


def test_large_values_share_what_is_left(state: State) -> None:
    state["one"], state["two"] = "x" * 100_000, "y" * 100_000

    one, two = lines(state, max_tokens=1000)
    assert 0.8 < len(one) / len(two) < 1.25


def test_a_long_text_loses_its_middle(state: State) -> None:
    state["text"] = "begin" + "x" * 100_000 + "end"

    (shown,) = lines(state, max_tokens=100)
    assert shown.startswith('text: "begin') and shown.endswith('end"')
    assert "characters left out" in shown


def test_a_large_collection_shows_its_beginning_its_end_and_a_count(state: State) -> None:
    state["numbers"] = [f"number {at}" for at in range(10_000)]

    shown = lines(state, max_tokens=200)
    assert shown[0] == "numbers: list of 10,000 items"
    assert shown[1] == '  [0]: "number 0"'
    assert shown[-1] == '  [9999]: "number 9999"'
    (gap,) = [line for line in shown if "more" in line]
    count = int(gap.split()[1].replace(",", ""))
    assert count + len(shown) - 2 == 10_000


def test_many_keys_show_the_first_and_the_last(state: State) -> None:
    for at in range(5_000):
        state[f"key{at:04}"] = at

    shown = lines(state, max_tokens=100)
    assert shown[0] == "key0000: 0" and shown[-1] == "key4999: 4999"
    assert sum("more" in line for line in shown) == 1


# Where to look.


@pytest.mark.parametrize("focus", ["docs[3].title", 'docs[3]["title"]', ("docs", 3, "title")])
def test_a_path_shows_that_part(state: State, focus: Any) -> None:
    state["docs"] = DOCS

    assert lines(state, focus) == ['"Doc 3"']
    assert view(state, focus).split("\n")[0].endswith('state["docs"][3]["title"]')


def test_a_path_leads_through_objects() -> None:
    assert lines(Live({"p": Point(1, [2])}), "p.y[0]") == ["2"]
    state = Versioned(types=[Point])
    state["p"] = Point(1, [2])
    assert lines(state, "p.y[0]") == ["2"]


@pytest.mark.parametrize("focus", ["state", ()])
def test_the_path_of_the_whole_shows_all(state: State, focus: Any) -> None:
    state["a"] = 1
    state.namespace("sub")["k"] = 2

    assert view(state, focus) == view(state)


@pytest.mark.parametrize(
    "focus", ["absent", ("ropewalk:namespaces",), "docs[99]", "docs[0].absent", "docs.absent"]
)
def test_a_path_that_leads_nowhere_is_not_found(state: State, focus: Any) -> None:
    state["docs"] = DOCS
    state.namespace("sub")["k"] = 1

    with pytest.raises(PathNotFound, match="does not exist"):
        view(state, focus)


def test_a_key_that_is_called_like_a_focus_is_reached_by_a_tuple(state: State) -> None:
    state["full"] = "mine"

    assert lines(state, ("full",)) == ['"mine"']


@pytest.mark.parametrize("focus", [None, 3, "[", "a b"])
def test_a_focus_that_is_none_is_refused(state: State, focus: Any) -> None:
    with pytest.raises((InvalidInput, PathNotFound)):
        view(state, focus)


# What changed.


def changed() -> tuple[Versioned, str]:
    state = Versioned()
    state["docs"] = [{"title": "A"}, {"title": "B"}]
    state["name"] = "Ann"
    state["gone"] = [1, 2]
    state.namespace("sub")["k"] = 1
    first = state.commit("first")
    assert first is not None
    state["docs"][1]["title"] = "C"
    state["docs"].append({"title": "D"})
    state["name"] = "Bob"
    del state["gone"]
    state.namespace("sub")["j"] = 2
    return state, first


CHANGES = {
    '~ docs[1].title: "B" -> "C"',
    '+ docs[2]: {title: "D"}',
    '~ name: "Ann" -> "Bob"',
    "- gone: list of 2 items",
    "+ sub/j: 2",
}


def test_changes_are_what_is_not_committed() -> None:
    state, _ = changed()

    assert set(lines(state, "changes")) == CHANGES
    state.commit()
    assert lines(state, "changes") == ["(nothing)"]


def test_changes_of_a_checkout_are_those_of_its_commit() -> None:
    state, first = changed()
    second = state.commit("second")

    assert second is not None
    assert set(lines(state.checkout(second), "changes")) == CHANGES
    assert '+ name: "Ann"' in lines(state.checkout(first), "changes")


def test_changes_of_a_namespace_are_its_own() -> None:
    state, first = changed()

    assert lines(state.namespace("sub"), "changes") == ["+ j: 2"]
    assert lines(state.checkout(first).namespace("sub"), "changes") == ["+ k: 1"]


def test_recent_shows_the_last_commits_newest_first() -> None:
    state, _ = changed()
    state.commit("second")

    shown = lines(state, "recent")
    heads = [line for line in shown if not line.startswith(" ")]
    assert ["second" in heads[0], "first" in heads[1]] == [True, True]
    assert {line.strip() for line in shown} >= CHANGES


def test_recent_of_a_namespace_shows_the_commits_that_changed_it() -> None:
    state, _ = changed()
    state.commit("second")
    state["name"] = "Cid"
    state.commit("third")

    heads = [line for line in lines(state.namespace("sub"), "recent") if line[0] != " "]
    assert ["second" in heads[0], "first" in heads[1]] == [True, True]
    assert "+ j: 2" in view(state.namespace("sub"), "recent")


def test_recent_shows_that_a_step_failed() -> None:
    @task
    def doomed() -> None:
        raise ValueError("x")

    state = Versioned()
    with pytest.raises(ValueError, match="x"):
        doomed(state=state)

    assert "failed doomed" in view(state, "recent")


def test_a_live_state_says_that_it_keeps_no_commits() -> None:
    assert "no commits" in view(Live({"a": 1}), "recent")


# Reading.


def reads(store: FaultStore, act: Callable[[], object]) -> int:
    """How often a store is asked for objects."""
    before = len(store.calls)
    act()
    return len(store.calls) - before


def test_of_many_keys_only_those_shown_are_read() -> None:
    with FaultStore(MemoryStore()) as store:
        writer = Versioned(store)
        for at in range(20_000):
            writer[f"key{at:05}"] = {"number": at, "text": f"value {at}" * 10}
        writer.commit()
        state = Versioned(store)

        assert reads(store, lambda: view(state, max_tokens=500)) < 40
        assert not state._working_copy.cached.places(), "a view holds nothing"


def test_of_a_large_value_only_what_is_shown_is_read() -> None:
    with FaultStore(MemoryStore()) as store:
        writer = Versioned(store)
        writer["text"] = "".join(f"line {at}\n" for at in range(500_000))
        writer["items"] = [{"number": at} for at in range(100_000)]
        writer.commit()
        state = Versioned(store)

        assert reads(store, lambda: view(state, max_tokens=300)) < 40
        assert reads(store, lambda: view(state, "recent", max_tokens=300)) < 40
        assert "line 499999" in view(state, "text", max_tokens=300)


def test_what_changed_in_a_large_value_is_found_without_reading_it() -> None:
    with FaultStore(MemoryStore()) as store:
        writer = Versioned(store)
        writer["items"] = [{"number": at} for at in range(100_000)]
        writer.commit()
        writer["items"][50_000]["number"] = -1
        writer.commit("second")
        state = Versioned(store)

        def look() -> None:
            shown = view(state, "recent", max_tokens=300)
            assert "~ items[50000].number: 50000 -> -1" in shown

        assert reads(store, look) < 100


def test_a_view_needs_no_network(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a view opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    state["docs"] = DOCS

    assert view(state) and view(state, "recent")
