"""A search finds the messages that match, whatever the index knows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from threading import Event
from threading import Thread as Worker
from typing import Any

import pytest

from ropewalk.store import Move, Store
from ropewalk.store.engine import TextIndex, Within
from ropewalk.store.search_index import MemoryTextIndex
from ropewalk.threads import search
from ropewalk.threads.search import _STAMP, ALL, Part, Query, Searcher, matches
from ropewalk.tree import Edited, Map
from tests.engines import opening
from tests.store.search_indexes import NAMES, opened

SPACE = "threads/one"


class Thread:
    """Messages in a store, as texts."""

    def __init__(self, store: Store, index: TextIndex | None = None) -> None:
        self.store = store
        self.index = store.text_index() if index is None else index
        self.plain: dict[int, str] = {}
        self.root: bytes | None = None
        self._keep(Map.empty())

    def _keep(self, edited: Edited) -> None:
        move = Move("branch/main", self.root, edited.root)
        self.store.commit(SPACE, edited.objects, edited.needs, [move])
        self.root = edited.root

    @property
    def messages(self) -> Map:
        assert self.root is not None
        return Map(self.root, self.store.reader(SPACE))

    def say(self, *texts: str) -> None:
        start = max(self.plain, default=-1) + 1
        self.change(dict(enumerate(texts, start)))

    def change(self, texts: dict[int, str]) -> None:
        self._keep(self.messages.edit({at: {"text": text} for at, text in texts.items()}))
        self.plain |= texts

    def remove(self, *positions: int) -> None:
        self._keep(self.messages.edit(remove=positions))
        for at in positions:
            del self.plain[at]

    def searcher(self, root: bytes | None = None) -> Searcher[Map]:
        messages = self.messages if root is None else self.messages.version(root)
        return Searcher(
            self.index,
            SPACE,
            messages,
            lambda message: str(message["text"]),
            lambda scope, make: make(),
        )

    def find(self, query: str, part: Part = ALL) -> list[int]:
        return [at for at, _ in self.searcher().find(Query.parse(query), part)]

    def expected(self, query: str, part: Part = ALL) -> list[int]:
        found = [at for at, text in self.plain.items() if matches(text, query) and part.holds(at)]
        return sorted(found, reverse=part.newest_first)


@pytest.fixture(autouse=True)
def nothing_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the index from the second message on."""
    monkeypatch.setattr(search, "SCANNED", 0)


@pytest.fixture(params=NAMES)
def thread(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Thread]:
    with opened(request.param, request, tmp_path) as store:
        yield Thread(store)


def talk(count: int, seed: int = 1) -> list[str]:
    roll = random.Random(seed)
    common, rare = ["the", "plan", "is", "good", "Straße", "東京"], [f"rare{n}" for n in range(500)]
    return [" ".join([*roll.choices(common, k=4), roll.choice(rare)]) for _ in range(count)]


QUERIES = [
    "the",
    "t",
    "plan good",
    "rare1",
    "rare77",
    "STRASSE",
    "京",
    "nowhere",
    "",
    "?",
    "the rare4",
]


def test_what_matches_is_found_in_order(thread: Thread) -> None:
    thread.say(*talk(300))

    for query in QUERIES:
        for newest_first in (False, True):
            part = Part(newest_first=newest_first)
            assert thread.find(query, part) == thread.expected(query, part)


def test_a_part_of_the_messages_is_searched(thread: Thread) -> None:
    thread.say(*talk(300))

    for part in (
        Part(10, 20),
        Part(250),
        Part(None, 30, True),
        Part(299),
        Part(50, 51),
        Part(5, 2),
    ):
        for query in QUERIES:
            assert thread.find(query, part) == thread.expected(query, part)


def test_messages_come_with_their_positions(thread: Thread) -> None:
    thread.say("one", "two", "three")

    assert list(thread.searcher().find(Query.parse("t"))) == [
        (1, {"text": "two"}),
        (2, {"text": "three"}),
    ]


def test_what_was_added_changed_and_removed_is_seen_at_once(thread: Thread) -> None:
    thread.say(*talk(200))
    thread.find("the")
    for seed in range(8):
        thread.say(*talk(20, seed + 10))
        thread.change(dict.fromkeys(sorted(thread.plain)[seed::40], f"changed {seed} good"))
        thread.remove(*sorted(thread.plain)[seed::30])

        for query in [*QUERIES, "changed", f"changed {seed}", f"changed {seed - 1}"]:
            assert thread.find(query) == thread.expected(query)


def test_old_messages_are_searched_as_they_were(thread: Thread) -> None:
    thread.say(*talk(100))
    old, plain = thread.root, dict(thread.plain)
    thread.remove(*range(0, 100, 2))
    thread.say(*talk(100, 2))
    thread.find("the")
    found = [at for at, _ in thread.searcher(old).find(Query.parse("the"))]

    assert found == [at for at, text in plain.items() if matches(text, "the")]
    assert thread.find("the") == thread.expected("the")


def test_many_messages_are_indexed_in_several_steps(thread: Thread) -> None:
    thread.say(*talk(5_000))

    assert thread.find("rare77") == thread.expected("rare77")
    assert thread.index.state(SPACE) == _STAMP + (thread.root or b"")


def test_who_comes_to_a_half_built_index_goes_on(thread: Thread) -> None:
    thread.say(*talk(5_000))
    searcher = thread.searcher()
    assert searcher._build(None)
    half = thread.index.state(SPACE)
    thread.say(*talk(100, 2))

    assert half is not None
    assert len(half) == len(_STAMP) + 40
    assert thread.find("rare77") == thread.expected("rare77")


def test_an_index_that_was_lost_is_made_again(thread: Thread) -> None:
    thread.say(*talk(100))
    thread.find("the")
    thread.index.drop(SPACE)

    assert thread.find("rare7") == thread.expected("rare7")


@pytest.mark.parametrize(
    "state", [b"", b"nonsense", bytes(32), *(_STAMP + b"x" * size for size in (0, 7, 32, 40))]
)
def test_a_state_that_nobody_knows_is_no_hindrance(thread: Thread, state: bytes) -> None:
    thread.say(*talk(100))
    thread.index.apply(SPACE, None, state, [(1, {"nonsense"})])

    assert thread.find("rare7") == thread.expected("rare7")


def test_messages_that_were_collected_are_no_hindrance(thread: Thread) -> None:
    thread.say(*talk(100))
    thread.find("the")
    for seed in range(3):
        thread.say(*talk(100, seed))
        thread.remove(*sorted(thread.plain)[:80])
    thread.store.gc(recent=1)

    assert thread.find("rare") == thread.expected("rare")


class Contrary(MemoryTextIndex):
    """An index that others move whenever it is asked, or that refuses everything."""

    def __init__(self, refusing: bool) -> None:
        super().__init__()
        self._refusing = refusing
        self.asked = 0

    def apply(self, scope: str, before: bytes | None, after: bytes, changes: Sequence[Any]) -> bool:
        return False if self._refusing else super().apply(scope, before, after, changes)

    def find(
        self, scope: str, state: bytes, prefixes: Sequence[str], within: Within
    ) -> list[int] | None:
        self.asked += 1
        found = super().find(scope, state, prefixes, within)
        return None if self.asked % 2 else found


@pytest.mark.parametrize("refusing", [False, True])
@pytest.mark.parametrize("newest_first", [False, True])
def test_an_index_that_cannot_help_hides_nothing(refusing: bool, newest_first: bool) -> None:
    with opening("memory", Path()) as open_one:
        thread = Thread(open_one(), Contrary(refusing))
        thread.say(*talk(300))
        part = Part(newest_first=newest_first)

        for query in QUERIES:
            assert thread.find(query, part) == thread.expected(query, part)


def test_an_index_that_is_too_small_hides_nothing() -> None:
    with opening("memory", Path()) as open_one:
        thread = Thread(open_one(), MemoryTextIndex(10_000))
        thread.say(*talk(3_000))

        assert thread.find("rare77") == thread.expected("rare77")
        assert thread.index.state(SPACE) is None


def test_the_first_hits_read_few_messages(thread: Thread) -> None:
    thread.say(*talk(3_000))
    thread.find("the")
    read: list[bytes] = []

    def counted(ids: Any) -> Any:
        read.extend(ids)
        return thread.store.reader(SPACE)(ids)

    messages = Map(thread.messages.root, counted)
    searcher = Searcher(
        thread.index,
        SPACE,
        messages,
        lambda message: str(message["text"]),
        lambda scope, make: make(),
    )
    hits = list(islice(searcher.find(Query.parse("the"), Part(newest_first=True)), 10))

    assert len(hits) == 10
    assert len(read) < 12


def test_a_campaign_of_edits_and_searches_finds_what_a_scan_finds(thread: Thread) -> None:
    roll = random.Random(7)
    for step in range(40):
        match roll.randrange(4):
            case 0 if len(thread.plain) > 20:
                thread.remove(*roll.sample(sorted(thread.plain), roll.randrange(1, 15)))
            case 1 if thread.plain:
                some = roll.sample(sorted(thread.plain), min(len(thread.plain), 5))
                thread.change(dict(zip(some, talk(5, step), strict=False)))
            case _:
                thread.say(*talk(roll.choice([1, 5, 100]), step))
        query, part = roll.choice(QUERIES), Part(newest_first=roll.random() < 0.5)

        assert thread.find(query, part) == thread.expected(query, part)


def test_who_searches_while_others_write_and_search_finds_what_was_there(thread: Thread) -> None:
    versions: list[tuple[bytes, dict[int, str]]] = []
    wrong: list[tuple[str, list[int]]] = []
    looked: set[int] = set()
    done = Event()

    def look(seed: int) -> None:
        roll = random.Random(seed)
        while not done.is_set():
            looked.add(seed)
            root, plain = roll.choice(versions[-3:])
            query = roll.choice(["plan", "rare1", "rare77", "the good"])
            found = [at for at, _ in thread.searcher(root).find(Query.parse(query))]
            if found != [at for at in sorted(plain) if matches(plain[at], query)]:
                wrong.append((query, found))

    thread.say(*talk(100))
    versions.append((thread.root or b"", dict(thread.plain)))
    lookers = [Worker(target=look, args=(seed,)) for seed in range(3)]
    for one in lookers:
        one.start()
    for step in range(8):
        thread.say(*talk(80, step))
        thread.remove(*sorted(thread.plain)[step::50])
        versions.append((thread.root or b"", dict(thread.plain)))
    done.set()
    for one in lookers:
        one.join()

    assert looked == {0, 1, 2}
    assert wrong == []
