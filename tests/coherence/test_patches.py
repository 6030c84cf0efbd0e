"""Patches of texts and of data: exact, whatever the two sides are."""

from __future__ import annotations

import difflib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.coherence.conditional_read import sections_of
from ropewalk.coherence.patches import (
    Shown,
    apply,
    apply_json_patch,
    apply_unified_diff,
    json_patch,
    json_text,
    patch,
    shown,
    unified_diff,
)
from ropewalk.errors import InvalidInput

LINES = st.lists(st.sampled_from(["", "a", "b", "-c", "+d", " e", "@@ -1 +1 @@", "f\r", "\x0c"]))
TEXTS = LINES.map("\n".join) | st.text()
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(["a", "b", "a/b", "~1", "", "0"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(TEXTS, TEXTS)
def test_a_unified_diff_gives_the_other_text(base: str, new: str) -> None:
    assert apply_unified_diff(base, unified_diff(base, new)) == new


@given(PLAIN, PLAIN)
def test_a_json_patch_gives_the_other_value(base: Any, new: Any) -> None:
    made = apply_json_patch(json.loads(json.dumps(base)), json_patch(base, new))

    assert json_text(made) == json_text(new)


def test_a_number_a_truth_and_a_fraction_are_three_values() -> None:
    assert json_patch({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]
    assert json_patch([1.0], [1]) == [{"op": "replace", "path": "/0", "value": 1}]
    assert json_patch({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) == []


def test_the_hunks_are_those_that_patch_knows(tmp_path: Path) -> None:
    base = "".join(f"line {number}\n" for number in range(40))
    new = base.replace("line 7\n", "line seven\n").replace("line 30\n", "").replace("line 0\n", "")
    (tmp_path / "text").write_text(base, encoding="utf-8")
    change = "--- text\n+++ text\n" + unified_diff(base, new) + "\n"

    subprocess.run(["patch", "text"], input=change, text=True, cwd=tmp_path, check=True)

    assert (tmp_path / "text").read_text(encoding="utf-8") == new


def test_a_diff_is_as_small_as_that_of_difflib() -> None:
    base = "\n".join(f"line {number}" for number in range(100))
    new = base.replace("line 50", "another").replace("line 52", "more")

    theirs = list(difflib.unified_diff(base.split("\n"), new.split("\n"), lineterm="", n=1))[2:]

    assert unified_diff(base, new).split("\n") == theirs


def test_a_patch_that_is_not_smaller_is_none() -> None:
    assert patch(shown("one"), shown("two")) is None
    assert patch(shown("one" * 50), shown([1, 2, 3])) is None


@pytest.mark.parametrize("base", ["other\ntext", ""])
def test_a_patch_of_another_base_is_refused(base: str) -> None:
    change = unified_diff("a\nb\nc\nd", "a\nb\nx\nd")

    with pytest.raises(InvalidInput):
        apply_unified_diff(base, change)
    with pytest.raises(InvalidInput):
        apply(Shown("[1]", True), '[{"op":"remove","path":"/3"}]')


def test_what_json_cannot_say_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidInput, match=r"value\['a'\]\[1\] is a set"):
        shown({"a": [1, {2}]})
    with pytest.raises(InvalidInput):
        shown({1: "a key that is a number"})
    with pytest.raises(InvalidInput):
        shown(float("nan"))


@given(TEXTS)
def test_the_sections_of_a_text_are_the_whole_of_it(text: str) -> None:
    assert "\n".join(one.text for one in sections_of(shown(text))) == text


def test_sections_are_named_by_headings_lines_keys_and_items() -> None:
    headed = sections_of(shown("before\n# One\na\n## Two\nb\n# One\nc"))
    long = sections_of(shown("\n".join("x" * 100)))

    assert [one.name for one in headed] == ["(beginning)", "One", "Two", "One (2)"]
    assert [one.name for one in long] == ["lines 1-80", "lines 81-100"]
    assert sections_of(shown({"b": 1, "a": [2]})) == [("a", "[2]"), ("b", "1")]
    assert [one.name for one in sections_of(shown(list(range(100))))][:2] == [
        "items 0-2",
        "items 3-5",
    ]
    assert sections_of(shown(7)) == [("value", "7")]
