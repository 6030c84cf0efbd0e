"""Values are compared in pieces, and a change anywhere in a piece is found."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.codec import default_codec
from ropewalk.tree import TreeWriter
from ropewalk.tree.change_detection import PIECE_MAX, Budget, Digest, starts_of, take
from ropewalk.tree.mirrors import SequenceMirror
from tests.tree.edits import Editor
from tests.tree.support import History, root_of, small_nodes


def _text(length: int, seed: int) -> str:
    return Editor(seed, 0).text(length)


# Cutting.


@given(
    sizes=st.lists(st.integers(0, 300), max_size=60),
    width=st.sampled_from([1, 2]),
    guess=st.integers(1, 60),
    live=st.booleans(),
)
def test_pieces_hold_every_value_once(sizes: list[int], width: int, guess: int, live: bool) -> None:
    values = ["x" * size for size in sizes[: len(sizes) // width * width]]
    with small_nodes():
        taken = take(default_codec, values, Budget(), live=live, width=width, guess=guess)
        pieces = [piece for _, piece in taken]
    starts = starts_of(pieces)

    assert starts[-1] == len(values) // width
    for piece, (start, stop) in zip(pieces, pairwise(starts), strict=True):
        held = values[start * width : stop * width]
        assert piece.plain == default_codec.encode(held) or (piece.plain, piece.length) == (None, 1)
        assert piece.plain is None or len(piece.plain) <= 400 or piece.length == 1


def test_pieces_of_a_long_list_are_neither_long_nor_many() -> None:
    values = [_text(100, seed) for seed in range(5000)]
    pieces = [piece for _, piece in take(default_codec, values, Budget(), live=True)]
    sizes = [len(piece.plain or b"") for piece in pieces]

    assert max(sizes) <= PIECE_MAX
    assert len(pieces) <= 40


def test_pieces_stay_few_while_a_list_grows() -> None:
    history, value = History(list(range(3000))), list(range(3000))
    for number in range(300):
        value.append(number)
        history.write(value)
    assert history.writer.root is not None
    mirror = history.writer._mirrors[history.writer.root]

    assert isinstance(mirror, SequenceMirror)
    assert len(mirror.pieces) <= 12


# Changes in place, at every position: also where one piece ends and the next begins.


def _changed_everywhere(value: list[Any], change: Any, at: range) -> None:
    history = History(value)
    for index in at:
        change(value, index)
        written = history.write(value)

        assert written.root == root_of(value), index
        assert written.objects, index


def test_a_change_in_place_is_found_at_every_index_of_a_list() -> None:
    value = [{"role": "user", "text": _text(900, at), "tags": ["a", "b"]} for at in range(120)]

    _changed_everywhere(value, lambda held, at: held[at]["tags"].append("c"), range(120))


def test_a_change_in_place_is_found_at_every_index_of_a_list_of_large_values() -> None:
    value = [
        {"at": at, "notes": [_text(4000, at * 9 + one) for one in range(6)]} for at in range(9)
    ]

    _changed_everywhere(value, lambda held, at: held[at]["notes"].append("c"), range(9))


def test_a_change_in_place_is_found_in_a_value_that_is_longer_than_any_piece() -> None:
    value = [{"notes": [{"text": _text(900, at)} for at in range(70)]} for _ in range(3)]

    def change(held: list[Any], at: int) -> None:
        held[1]["notes"][at]["text"] += "."

    _changed_everywhere(value, change, range(0, 70, 3))


_ALIKE: dict[str, tuple[Any, Any]] = {
    "one and true": (1, True),
    "one and one point zero": (1, 1.0),
    "true and one point zero": (True, 1.0),
    "zero and minus zero": (0.0, -0.0),
    "empty bytes and an empty bytearray": (b"", bytearray()),
    "bytes and a bytearray": (b"abc", bytearray(b"abc")),
    "a list and a tuple": ([1, 2], (1, 2)),
    "a dict in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "a set and a frozenset": ({1, 2}, frozenset({1, 2})),
}


@pytest.mark.parametrize("alike", _ALIKE)
@pytest.mark.parametrize("deep", [False, True], ids=["in the list", "in a dict in it"])
def test_what_only_looks_alike_is_told_apart(alike: str, deep: bool) -> None:
    one, other = _ALIKE[alike]
    rolls = random.Random(3)
    value: list[Any] = [{"text": _text(300, at), "held": one} for at in range(400)]
    history = History(value)
    for index in rolls.sample(range(400), 12):
        if deep:
            value[index]["held"] = other
        else:
            value[index] = other
        written = history.write(value)

        assert written.root == root_of(value)
        assert written.objects


def test_one_object_in_two_pieces_changes_in_both() -> None:
    shared: dict[str, Any] = {"text": "shared", "tags": ["a"]}
    value: list[Any] = [{"text": _text(900, at), "tags": []} for at in range(150)]
    value[3] = value[75] = value[149] = shared
    history = History(value)
    shared["tags"].append("b")
    written = history.write(value)

    assert written.root == root_of(value)
    assert history.objects.load(written.root)[75]["tags"] == ["a", "b"]


def test_a_dict_is_compared_in_pieces_too() -> None:
    value: dict[str, Any] = {f"key {at}": {"text": _text(900, at), "tags": []} for at in range(150)}
    history = History(value)
    for at in range(0, 150, 7):
        value[f"key {at}"]["tags"].append("a")
        if at % 2:
            del value[f"key {at + 1}"]
            value[f"another {at}"] = {"text": _text(60_000, at), "tags": []}

        assert history.write(value).root == root_of(value)


def test_items_taken_out_and_put_in_anywhere_are_found() -> None:
    value = [{"text": _text(700, at)} for at in range(200)]
    history, rolls = History(value), random.Random(5)
    for step in range(60):
        low = rolls.randrange(len(value))
        value[low : low + rolls.randrange(9)] = [
            {"text": _text(700, 1000 * step + at)} for at in range(rolls.randrange(9))
        ]

        assert history.write(value).root == root_of(value)


def test_values_that_can_be_stored_only_one_by_one_are_compared_one_by_one() -> None:
    deep: Any = "x"
    for _ in range(250):
        deep = [deep]
    value = [deep, *[_text(900, at) for at in range(20)]]
    history = History(value)
    value[7] = "changed"
    written = history.write(value)

    assert written.root == TreeWriter().write(value).root


# Digests.


@given(st.binary(), st.binary())
def test_a_digest_is_equal_to_the_bytes_that_it_was_made_of_and_to_no_others(
    one: bytes, other: bytes
) -> None:
    made = Digest(one)

    assert made == one and one == made
    assert (made == other) == (one == other) == (other == made)
    assert (made != other) == (one != other) == (other != made)
    assert made == Digest(one) and (made == Digest(other)) == (one == other)
    assert hash(made) == hash(Digest(one)) and len(made) == len(one)
