"""Paths as people type them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.codec import Field, parse_path, spell_path
from ropewalk.errors import InvalidInput

STEPS = st.one_of(
    st.text(max_size=8), st.integers(), st.none(), st.booleans(), st.binary(max_size=4)
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("docs[3].title", ("docs", 3, "title")),
        ('["a b"].x', ("a b", "x")),
        ("a-b[-1]", ("a-b", -1)),
        ("[None][(1, 'x]')]", (None, (1, "x]"))),
        ("a.3", ("a", "3")),
        ("", ()),
    ],
)
def test_a_text_spells_a_path(text: str, path: tuple[Any, ...]) -> None:
    assert parse_path(text) == path
    assert parse_path(spell_path(path)) == path


@pytest.mark.parametrize("text", ["state", 'state["docs"][3].meta', "state.docs"])
def test_state_at_the_beginning_is_the_whole_value(text: str) -> None:
    assert parse_path(text) == tuple(step for step in ("docs", 3, "meta") if f"{step}" in text)


def test_a_key_of_that_name_is_quoted() -> None:
    assert spell_path(("state", "x")) == '["state"].x'
    assert parse_path('["state"].x') == ("state", "x")


@pytest.mark.parametrize(
    "text", ["a b", "a..b", "a[", "a[]", "a]", "[x]", 'a"b"', "[1]x", ".", "a.", "[...]", "[{}]"]
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_path(text)


def test_a_field_is_spelled_as_a_name() -> None:
    assert spell_path((Field("meta"), 0)) == "meta[0]"


@given(st.lists(STEPS, max_size=5))
def test_every_path_comes_back(steps: list[Any]) -> None:
    path = tuple(steps)

    assert parse_path(spell_path(path)) == path
