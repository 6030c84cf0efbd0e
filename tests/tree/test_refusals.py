"""What a writer refuses, where it says the trouble is, and that it goes on after it."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.errors import NotStorable
from ropewalk.tree import TreeWriter
from ropewalk.tree.nodes import KEY_MAX
from tests.sample_types import Money, Note, Open, Person, Point
from tests.tree.support import History, root_of


class Unstorable:
    pass


def _docs() -> dict[str, Any]:
    return {
        "docs": [Note("x" * 500, {"page": at, "words": ["y" * 50] * 30}) for at in range(40)],
        "index": {f"key {at}": at for at in range(2000)},
        "odd": {at: (at, [at]) for at in range(500)},
        "people": Open(**{f"person {at}": Person(name=[at]) for at in range(300)}),
    }


_PLACES: dict[str, Any] = {
    'value["docs"][3].tags["words"][7]': lambda value, bad: (
        value["docs"][3].tags["words"].__setitem__(7, bad)
    ),
    'value["docs"][39].text': lambda value, bad: setattr(value["docs"][39], "text", bad),
    'value["docs"][40]': lambda value, bad: value["docs"].append(bad),
    'value["index"]["key 7"]': lambda value, bad: value["index"].update({"key 7": bad}),
    'value["index"]["new"]': lambda value, bad: value["index"].update({"new": bad}),
    'value["odd"][250][1][0]': lambda value, bad: value["odd"][250][1].__setitem__(0, bad),
    'value["odd"][(1, 2)]': lambda value, bad: value["odd"].update({(1, 2): bad}),
    'value["people"].+person 99.name[0]': lambda value, bad: (
        value["people"].__pydantic_extra__["person 99"].name.__setitem__(0, bad)
    ),
    'value["top"]': lambda value, bad: value.update(top=bad),
}


@pytest.mark.parametrize("path", _PLACES)
def test_a_refusal_on_the_first_write_names_the_path(path: str) -> None:
    value = _docs()
    _PLACES[path](value, Unstorable())

    with pytest.raises(NotStorable, match="Unstorable") as caught:
        TreeWriter().write(value)
    assert caught.value.path == path


@pytest.mark.parametrize("path", _PLACES)
def test_a_refusal_on_a_later_write_names_the_path_and_changes_nothing(path: str) -> None:
    history = History(_docs())
    value = _docs()
    value["docs"][20].text = "also changed"
    _PLACES[path](value, Unstorable())

    with pytest.raises(NotStorable, match="Unstorable") as caught:
        history.write(value)
    assert caught.value.path == path
    assert history.write(_docs()).objects == []
    value = _docs()
    value["docs"][20].text = "changed"
    written = history.write(value)
    assert written.root == root_of(value)
    assert history.objects.load(written.root) == value


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (memoryview(b"x"), "memoryview"),
        ("\ud800", "lone surrogate"),
        ("x" * 5000 + "\ud800", "lone surrogate"),
        (lambda: None, "no exact stored form"),
        (Money(1, Unstorable()), "no exact stored form"),  # type: ignore[arg-type]
        ({float("nan"): 1, float("nan"): 2}, "same bytes"),
    ],
)
def test_what_has_no_exact_form_is_refused_beside_large_values(bad: Any, reason: str) -> None:
    history = History(["x" * 5000, [1, 2]])

    with pytest.raises(NotStorable, match=reason) as caught:
        history.write(["x" * 5000, [1, bad]])
    assert caught.value.path.startswith("value[1][1]")


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = ["x" * 5000]
    history = History(value)
    value.append({"again": value})

    with pytest.raises(NotStorable, match="contains itself"):
        history.write(value)
    del value[1]
    assert history.write(value).objects == []


@pytest.mark.parametrize("key", ["k" * (KEY_MAX + 1), ("k" * KEY_MAX, 1)])
@pytest.mark.parametrize("others", [0, 2000])
def test_a_key_that_is_too_long_is_refused(key: Any, others: int) -> None:
    value: dict[str, Any] = {"a": [Point({str(at): at for at in range(others)}, 2)]}
    history = History(value)
    value["a"][0].x[key] = 1

    for writer in (history.writer, TreeWriter()):
        with pytest.raises(NotStorable, match=f"a key takes .* the most is {KEY_MAX}") as caught:
            writer.write(value)
        assert caught.value.path.startswith('value["a"][0].x[')
        assert len(caught.value.path) < 100
    del value["a"][0].x[key]
    assert history.write(value).objects == []


def test_the_longest_key_is_stored() -> None:
    key = "k" * (KEY_MAX - 5)
    history = History({key: 1})

    assert history.objects.load(history.write({key: 2, "a": 1}).root) == {key: 2, "a": 1}


def test_large_values_that_nest_too_deeply_are_refused_with_their_path() -> None:
    value: Any = "x" * 3000
    for _ in range(120):
        value = ["y" * 3000, value]

    with pytest.raises(NotStorable, match="nested too deeply") as caught:
        TreeWriter().write({"deep": value})
    assert caught.value.path.startswith('value["deep"][1][1]')


def test_small_values_that_nest_too_deeply_are_refused_with_their_path() -> None:
    value: Any = 0
    for _ in range(400):
        value = [value]

    with pytest.raises(NotStorable, match="nested too deeply") as caught:
        TreeWriter().write({"large": "x" * 5000, "deep": value})
    assert caught.value.path.startswith('value["deep"][0][0]')
