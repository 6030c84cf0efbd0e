"""Looking at values of classes that the program does not know."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import pytest

from ropewalk import MemoryStore
from ropewalk.codec import Codec, Undeclared
from ropewalk.errors import InvalidInput, UndeclaredClass
from ropewalk.tree import TreeWriter, get, load


@dataclass
class Note:
    text: str
    tags: list[str]


class Mood(enum.Enum):
    GOOD = 1


class Bits(enum.Flag):
    LOW = 1
    HIGH = 2**70


class Odd:
    pass


KNOWS = Codec(types=[Note, Mood, Bits], pickle_key=b"k" * 32)
LOOKS = Codec(classes="declared", undeclared="show")
VALUES: list[Any] = [
    {"note": Note("hello", ["a"])},
    [Mood.GOOD, Bits.LOW, Bits.HIGH],
    {Mood.GOOD: {Mood.GOOD}},
    {"odd": Odd()},
]


@pytest.mark.parametrize("value", VALUES, ids=["record", "members", "keys", "pickle"])
def test_what_is_not_known_is_shown_and_stays_what_it_was(value: Any) -> None:
    stored = KNOWS.encode(value)

    seen = LOOKS.decode(stored)
    assert LOOKS.encode(seen) == stored


def test_the_fields_can_be_seen() -> None:
    seen = LOOKS.decode(KNOWS.encode(Note("hello", ["a"])))

    assert isinstance(seen, Undeclared)
    assert seen.name.endswith("Note")
    assert seen.content == {"text": "hello", "tags": ["a"]}
    assert repr(seen).endswith("Note(text='hello', tags=['a'])")


def test_a_large_value_is_shown_too() -> None:
    store = MemoryStore()
    written = TreeWriter(KNOWS).write({"note": Note("x" * 50_000, ["y"] * 9000)})
    store.commit("team/agent", written.objects)

    seen = load(written.root, store.reader("team/agent"), LOOKS)
    assert seen["note"].content["tags"] == ["y"] * 9000
    assert get(written.root, ("note", "tags", 0), store.reader("team/agent"), LOOKS) == "y"


def test_other_codecs_refuse_it_as_before() -> None:
    with pytest.raises(UndeclaredClass):
        Codec(classes="declared").decode(KNOWS.encode(Mood.GOOD))


def test_there_are_two_ways_to_treat_it() -> None:
    with pytest.raises(InvalidInput):
        Codec(undeclared="guess")  # type: ignore[arg-type]


@pytest.mark.parametrize("classes", ["plain", "declared"])
def test_it_stays_what_it_was_in_every_codec(classes: Any) -> None:
    stored = KNOWS.encode([Note("a", []), Mood.GOOD])
    seen = LOOKS.decode(stored)

    assert Codec(classes=classes).encode(seen) == stored
