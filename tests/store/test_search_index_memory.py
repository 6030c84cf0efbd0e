"""What stands beside history in the process takes no more room than it may."""

from __future__ import annotations

import random
import threading
import tracemalloc

import pytest

from ropewalk.store.engine import Within
from ropewalk.store.scratch import MemoryScratch
from ropewalk.store.search_index import MemoryTextIndex

ALL = Within(100_000)


def said(count: int, seed: int = 0) -> list[tuple[int, set[str]]]:
    roll = random.Random(seed)
    return [(at, {f"w{roll.randrange(5_000)}" for _ in range(20)}) for at in range(count)]


def test_the_scopes_that_were_not_used_for_longest_go_first() -> None:
    index = MemoryTextIndex(2_000_000)
    assert index.apply("kept", None, b"1", said(500))
    scopes = [f"scope {number}" for number in range(10)]
    for number, scope in enumerate(scopes):
        assert index.apply(scope, None, b"1", said(500, number))
        assert index.find("kept", b"1", ["w1"], ALL)

    assert index.state("kept") == b"1"
    assert index.state(scopes[0]) is None
    assert index.state(scopes[-1]) == b"1"


def test_a_scope_that_is_too_large_is_refused_until_it_is_dropped() -> None:
    index = MemoryTextIndex(100_000)

    assert not index.apply("scope", None, b"1", said(2_000))
    assert not index.apply("scope", None, b"1", said(1))
    assert index.state("scope") is None
    index.drop("scope")
    assert index.apply("scope", None, b"1", said(1))


def test_room_is_counted_about_as_python_takes_it() -> None:
    index = MemoryTextIndex()
    changes = said(20_000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert index.apply("scope", None, b"1", changes)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert taken / 2 < index._held < taken * 3
    index.drop("scope")
    assert index._held == 0


def test_an_index_may_be_asked_while_it_is_changed() -> None:
    index = MemoryTextIndex()
    index.apply("scope", None, b"0", [])
    wrong: list[object] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            state = index.state("scope") or b""
            found = index.find("scope", state, ["wor"], ALL)
            if found is not None and found != list(range(int(state))):
                wrong.append(found)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for one in askers:
        one.start()
    for number in range(400):
        words = {"word", f"own{number}"}
        assert index.apply("scope", b"%d" % number, b"%d" % (number + 1), [(number, words)])
    done.set()
    for one in askers:
        one.join()

    assert wrong == []


def test_positions_may_come_in_any_order() -> None:
    index = MemoryTextIndex()
    places = list(range(0, 60_000, 7))
    random.Random(1).shuffle(places)
    index.apply("scope", None, b"1", [(at, {"word"}) for at in places])
    index.apply("scope", b"1", b"2", [(at, {"word"}) for at in places[:100]])

    assert index.find("scope", b"2", ["w"], ALL) == sorted(places)


def test_values_that_were_put_first_go_first() -> None:
    scratch = MemoryScratch(lambda: 0.0, max_bytes=10_000)
    for number in range(20):
        scratch.put(f"{number:02}", bytes(1_000))
    scratch.put("large", bytes(20_000))

    assert scratch.get("large") is None
    scratch.put("small", b"")
    assert scratch.keys() == ["small"]


@pytest.mark.parametrize(("now", "expected"), [(9.9, b"value"), (10.0, None), (11.0, None)])
def test_a_value_lives_for_its_time(now: float, expected: bytes | None) -> None:
    times = iter([0.0, now, now])
    scratch = MemoryScratch(lambda: next(times))
    scratch.put("key", b"value", 10)

    assert scratch.get("key") == expected
