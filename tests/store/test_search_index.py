"""What stands beside history does the same on every engine."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ropewalk.errors import StoreClosed
from ropewalk.store import Store
from ropewalk.store.engine import Scratch, TextIndex, Within
from tests.store.search_indexes import NAMES, opened

ALL = Within(1_000_000)


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture
def index(store: Store) -> TextIndex:
    return store.text_index()


@pytest.fixture
def scratch(store: Store) -> Scratch:
    return store.scratch()


def found(index: TextIndex, state: bytes, *prefixes: str, within: Within = ALL) -> list[int]:
    positions = index.find("scope", state, prefixes, within)
    assert positions is not None
    assert len(positions) <= within.limit
    assert positions == sorted(set(positions), reverse=within.newest_first)
    return positions


# The index.


def test_a_scope_that_was_never_indexed_has_no_state(index: TextIndex) -> None:
    assert index.state("scope") is None
    assert index.find("scope", b"1", ["a"], ALL) is None
    assert not index.apply("scope", b"1", b"2", [(0, {"a"})])


def test_words_are_found_by_how_they_begin(index: TextIndex) -> None:
    index.apply("scope", None, b"1", [(0, {"alpha", "beta"}), (1, {"alps"}), (2, {"beta"})])

    assert index.state("scope") == b"1"
    assert found(index, b"1", "al") == [0, 1]
    assert found(index, b"1", "alpha") == [0]
    assert found(index, b"1", "alphabet") == []
    assert found(index, b"1", "lpha") == []


def test_what_has_a_word_for_every_prefix_is_not_missed(index: TextIndex) -> None:
    said = [(at, {"all", "even" if at % 2 == 0 else "odd", f"own{at}"}) for at in range(500)]
    index.apply("scope", None, b"1", said)

    assert set(range(0, 500, 2)) <= set(found(index, b"1", "a", "ev"))
    assert 77 in found(index, b"1", "own77", "o", "a")
    assert found(index, b"1", "o", "nowhere") == []


def test_words_are_of_every_script(index: TextIndex) -> None:
    said = ["straße", "東", "हिन्दी", "👍", "привет", "i\u0331", "x" * 50, "𝒳" * 50, "café", "3"]
    index.apply("scope", None, b"1", [(at, {word}) for at, word in enumerate(said)])

    for at, word in enumerate(said):
        assert found(index, b"1", word) == [at]
        assert found(index, b"1", word[0]) == [at]


def test_a_scope_goes_from_state_to_state(index: TextIndex) -> None:
    index.apply("scope", None, b"1", [(0, {"old"})])

    assert not index.apply("scope", b"0", b"2", [(1, {"new"})])
    assert index.apply("scope", b"1", b"2", [(1, {"new"})])
    assert index.state("scope") == b"2"
    assert index.find("scope", b"1", ["old"], ALL) is None
    assert found(index, b"2", "old") == [0]
    assert found(index, b"2", "new") == [1]


def test_what_changed_is_found_by_its_new_words(index: TextIndex) -> None:
    index.apply("scope", None, b"1", [(at, {"old", f"word{at}"}) for at in range(10)])
    index.apply("scope", b"1", b"2", [(3, {"new"}), (5, None), (11, {"old"})])
    index.apply("scope", b"2", b"3", [(3, {"newest"}), (5, {"back"})])

    assert 3 in found(index, b"3", "newest")
    assert found(index, b"3", "back") == [5]
    assert {0, 11} <= set(found(index, b"3", "old"))
    assert index.state("scope") == b"3"


def test_a_scope_begins_anew(index: TextIndex) -> None:
    index.apply("scope", None, b"1", [(0, {"old"}), (7, {"old"})])
    index.apply("scope", None, b"2", [(0, {"new"})])

    assert found(index, b"2", "old") == []
    assert found(index, b"2", "new") == [0]


def test_a_scope_is_dropped_and_others_are_not(index: TextIndex) -> None:
    index.apply("scope", None, b"1", [(0, {"word"})])
    index.apply("other", None, b"1", [(0, {"word"})])
    index.drop("other")
    index.drop("never")

    assert index.state("other") is None
    assert found(index, b"1", "word") == [0]


def test_scopes_do_not_see_each_other(index: TextIndex) -> None:
    for number, scope in enumerate(["scope", "a/b", "a/b%2F", "ü", "scope2"]):
        index.apply(scope, None, b"1", [(number, {"word", f"own{number}"})])

    assert found(index, b"1", "word") == [0]
    assert index.find("ü", b"1", ["word"], ALL) == [3]
    assert index.find("ü", b"1", ["own0"], ALL) == []


def test_positions_come_in_order_and_within_bounds(index: TextIndex) -> None:
    roll = random.Random(1)
    said = {at: set(roll.sample(["aa", "ab", "b", "c"], 2)) for at in range(0, 40_000, 5)}
    index.apply("scope", None, b"1", list(said.items()))

    for _ in range(60):
        prefixes = roll.choice([["a"], ["b"], ["a", "c"], ["aa", "ab"], ["z"]])
        after, before = roll.choice([None, roll.randrange(40_000)]), roll.choice([None, 39_000])
        within = Within(roll.choice([1, 7, 100_000]), after, before, roll.random() < 0.5)
        expected = [
            at
            for at in sorted(said, reverse=within.newest_first)
            if within.holds(at) and all(any(w.startswith(p) for w in said[at]) for p in prefixes)
        ]
        positions = found(index, b"1", *prefixes, within=within)
        if len(positions) == within.limit:
            last = positions[-1]
            expected = [
                at for at in expected if (at >= last if within.newest_first else at <= last)
            ]
        assert set(expected) <= set(positions)
        if len(prefixes) == 1:
            assert positions == expected


def test_pages_follow_each_other_without_gaps(index: TextIndex) -> None:
    said = [(at, {"even" if at % 2 else "odd", "all"}) for at in range(0, 30_000, 3)]
    index.apply("scope", None, b"1", said)
    index.apply("scope", b"1", b"2", [(9, {"all", "changed"}), (27_000, {"all"})])
    seen: list[int] = []
    within = Within(999, newest_first=True)
    while page := found(index, b"2", "al", within=within):
        seen += page
        within = within._replace(before=page[-1])

    assert seen == list(range(29_997, -1, -3))


def test_a_position_may_have_many_words_or_none(index: TextIndex) -> None:
    many = {f"{number:x}word" for number in range(60_000)}
    index.apply("scope", None, b"1", [(0, set()), (1, many), (2, {"few"})])

    assert found(index, b"1", "ea5fword") == [1]
    assert 2 in found(index, b"1", "few")
    assert 0 not in found(index, b"1", "few")


def test_a_change_of_a_scope_happens_once(index: TextIndex) -> None:
    index.apply("scope", None, b"start", [])
    done: list[int] = []

    def race(number: int) -> None:
        if index.apply("scope", b"start", b"%d" % number, [(number, {"word"})]):
            done.append(number)

    racers = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for one in racers:
        one.start()
    for one in racers:
        one.join()

    assert len(done) == 1
    assert found(index, b"%d" % done[0], "word") == done


def test_store_objects_give_one_index_and_one_scratch(store: Store) -> None:
    assert store.text_index() is store.text_index()
    assert store.scratch() is store.scratch()


def test_a_closed_store_has_nothing_beside_it(store: Store) -> None:
    store.close()

    with pytest.raises(StoreClosed):
        store.text_index()
    with pytest.raises(StoreClosed):
        store.scratch()


# Small values.


def test_a_value_comes_back(scratch: Scratch) -> None:
    scratch.put("key", b"\x00value")
    scratch.put("ü/%", b"", 60)

    assert scratch.get("key") == b"\x00value"
    assert scratch.get("ü/%") == b""
    assert scratch.get("other") is None


def test_a_value_takes_the_place_of_another(scratch: Scratch) -> None:
    scratch.put("key", b"one", 0.000001)
    scratch.put("key", b"two")

    assert scratch.get("key") == b"two"


def test_a_value_whose_time_is_over_is_gone(scratch: Scratch) -> None:
    scratch.put("key", b"value", 0)
    scratch.put("other", b"value", 3600)

    assert scratch.get("key") is None
    assert scratch.get("other") == b"value"
    assert scratch.keys() == ["other"]


def test_a_value_is_removed(scratch: Scratch) -> None:
    scratch.put("key", b"value")
    scratch.remove("key")
    scratch.remove("never")

    assert scratch.get("key") is None


def test_keys_are_listed_by_how_they_begin(scratch: Scratch) -> None:
    for key in ("b/2", "a", "b/1", "b", "b%", "B/3", "b*", "b?x", "b[1]"):
        scratch.put(key, b"")

    assert scratch.keys("b/") == ["b/1", "b/2"]
    assert scratch.keys("b%") == ["b%"]
    assert scratch.keys("b*") == ["b*"]
    assert scratch.keys("b[1") == ["b[1]"]
    assert len(scratch.keys()) == 9


def test_a_large_value_comes_back_or_is_gone(scratch: Scratch) -> None:
    value = random.Random(1).randbytes(3_000_000)
    scratch.put("large", value)

    assert scratch.get("large") in (value, None)
