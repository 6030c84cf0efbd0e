"""Bytes follow the change: what is written after an edit, counted in objects."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ropewalk.tree import Kind, Object, TreeWriter, Written
from tests.sample_types import Note, Person
from tests.tree.edits import Editor
from tests.tree.support import History, size_of


def _text(length: int, seed: int = 0) -> str:
    return Editor(seed, 0).text(length)


def _messages(count: int) -> list[dict[str, str]]:
    return [{"role": "user", "text": _text(1000, seed)} for seed in range(count)]


def _nested() -> dict[str, Any]:
    """About 10 MB: projects, with documents, with pages, with words."""
    rolls = random.Random(7)
    return {
        f"project {number}": {
            "owner": Person(name=f"owner {number}"),
            "documents": [
                Note(
                    f"document {at}",
                    [
                        {"page": page, "text": _text(900, rolls.getrandbits(30))}
                        for page in range(10)
                    ],
                )
                for at in range(100)
            ],
        }
        for number in range(11)
    }


_VALUES: dict[str, Any] = {
    "list": lambda: list(range(50_000)),
    "dict": lambda: {f"key {at}": at for at in range(20_000)},
    "dict of numbers": lambda: {at: str(at) for at in range(20_000)},
    "set": lambda: set(range(20_000)),
    "text": lambda: _text(500_000),
    "bytes": lambda: random.Random(1).randbytes(500_000),
    "array": lambda: np.arange(60_000),
    "messages": lambda: _messages(200),
}


@pytest.mark.parametrize("kind", _VALUES)
def test_an_unchanged_value_makes_no_objects(kind: str) -> None:
    history = History(_VALUES[kind]())
    written = history.write(_VALUES[kind]())

    assert written.objects == []
    assert written.needs == [written.root]


def _edited(value: Any, edit: Any) -> Written:
    history = History(value)
    return history.write(edit(value) or value)


_EDITS: dict[str, tuple[str, Any]] = {
    "an item appended": ("list", lambda items: items.append(1)),
    "an item inserted at the start": ("list", lambda items: items.insert(0, 1)),
    "an item inserted in the middle": ("list", lambda items: items.insert(25_000, 1)),
    "an item removed": ("list", lambda items: items.pop(30_000)),
    "an item replaced": ("list", lambda items: items.__setitem__(777, "x")),
    "a run replaced": ("list", lambda items: items.__setitem__(slice(9, 30), [0, 0])),
    "a value replaced": ("dict", lambda held: held.update({"key 500": None})),
    "a value of a number replaced": ("dict of numbers", lambda held: held.update({500: None})),
    "a member added": ("set", lambda members: members.add(-1)),
    "a member removed": ("set", lambda members: members.discard(777)),
    "a text continued": ("text", lambda text: text + "and so on"),
    "a text begun anew": ("text", lambda text: "x" + text),
    "a text changed in the middle": ("text", lambda text: text[:250_000] + "x" + text[250_009:]),
    "a text cut off": ("text", lambda text: text[:400_000]),
    "bytes changed in the middle": ("bytes", lambda data: data[:99_999] + b"x" + data[99_999:]),
    "an element changed": ("array", lambda array: array.__setitem__(30_000, -1)),
    "a message changed in place": ("messages", lambda items: items[100].update(text="x")),
}


@pytest.mark.parametrize("edit", _EDITS)
def test_one_edit_makes_few_objects(edit: str) -> None:
    kind, change = _EDITS[edit]
    written = _edited(_VALUES[kind](), change)

    assert 1 <= len(written.objects) <= 8
    assert size_of(written) <= 60_000


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.update({"a new key": 1}),
        lambda held: held.pop("key 500"),
        lambda held: held.update({"key 500": held.pop("key 500")}),
    ],
    ids=["a key added", "a key removed", "a key moved to the end"],
)
def test_a_change_of_keys_makes_few_objects(change: Any) -> None:
    value = {f"key {at}": at for at in reversed(range(20_000))}
    history = History(value)
    change(value)
    written = history.write(value)

    assert len(written.objects) <= 12
    assert size_of(written) <= 60_000


def test_an_append_to_a_long_list_makes_a_handful_of_objects() -> None:
    value = _messages(500)
    history = History(value)
    value.append({"role": "user", "text": "one more"})
    written = history.write(value)

    assert len(written.objects) <= 3


def test_objects_grow_in_a_line_with_appends() -> None:
    history, value, counts = History([]), [], []
    for message in _messages(400):
        value.append(message)
        counts.append(len(history.write(value).objects))

    assert max(counts) <= 4
    assert sum(counts[200:]) <= 1.3 * sum(counts[:200])


def test_a_field_deep_in_ten_megabytes_costs_little() -> None:
    value = _nested()
    history = History(value)
    assert sum(len(made.payload) for made in history.objects.values()) > 9_000_000
    value["project 5"]["documents"][50].tags[3]["page"] = "another"
    written = history.write(value)

    assert size_of(written) <= 32_768
    assert len(written.objects) <= 12


def test_a_part_that_moves_is_not_stored_again() -> None:
    value = _nested()
    history = History(value)
    value["archive"] = value.pop("project 5")
    written = history.write(value)

    assert size_of(written) <= 32_768


def test_a_value_that_comes_back_is_not_stored_again() -> None:
    first, second = _messages(50), ["something else"]
    history = History(first, second)
    written = history.write(first)

    assert written.objects == []


def test_equal_parts_are_stored_once() -> None:
    written = TreeWriter().write([_messages(20) for _ in range(30)])

    assert size_of(written) < 2 * size_of(TreeWriter().write(_messages(20)))


# Bases: which older object a new one resembles.


def _one(written: Written, kind: Kind) -> Object:
    (found,) = [made for made in written.objects if made.kind == kind]
    return found


# What a writer remembers.


def test_what_was_not_accepted_is_written_again() -> None:
    history = History(_messages(20))
    value = _messages(25)
    first, second = history.writer.write(value), history.writer.write(value)

    assert [made.id for made in first.objects] == [made.id for made in second.objects]


def test_a_writer_that_forgot_writes_everything() -> None:
    history = History(_messages(20))
    everything = len(history.objects)
    history.writer.forget()
    written = history.writer.write(_messages(20))

    assert history.writer.root is None
    assert (len(written.objects), written.needs) == (everything, [])


def test_a_writer_does_not_remember_versions_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.tree.writer._STALE", 50)
    history, value = History(), {"messages": _messages(20), "text": ""}
    for step in range(200):
        value["text"] = _text(20_000, step)
        history.write(value)

    assert history.writer.held < 500_000
    assert history.write(value).objects == []
    value["text"] = "end"
    assert len(history.write(value).objects) == 1
