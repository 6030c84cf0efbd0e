"""One handle that threads share: what any of them changed is in a commit, whole and once."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

import pytest

from ropewalk.codec import Codec, Registry
from ropewalk.state import Versioned
from ropewalk.store import MemoryStore
from tests.conftest import SOAK
from tests.state.large import messages, sentence

ROUNDS = 10 if SOAK else 1
THREADS = 8


@dataclass
class Entry:
    word: str
    tags: list[Any] = field(default_factory=list)


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*works: Callable[[], None]) -> None:
    """Run work in threads that begin at the same moment; raises what one of them raised."""
    gate, failures = threading.Barrier(len(works)), []

    def run(work: Callable[[], None]) -> None:
        try:
            gate.wait()
            work()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def void(_: object) -> None:
    """Give nothing."""


def until(done: threading.Event, call: Callable[[], object]) -> Callable[[], None]:
    """Work that calls again and again until others are done, and once more."""

    def work() -> None:
        while not done.is_set():
            call()
        call()

    return work


def after_all(done: threading.Event, works: list[Callable[[], None]]) -> list[Callable[[], None]]:
    """The same works; the last of them to end says so."""
    left, lock = [len(works)], threading.Lock()

    def wrapped(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            finally:
                with lock:
                    left[0] -= 1
                    if not left[0]:
                        done.set()

        return run

    return [wrapped(work) for work in works]


def test_threads_with_keys_of_their_own_keep_all_of_them() -> None:
    state = Versioned()

    def work(thread: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(40 * ROUNDS):
                state[f"{thread}/{number}"] = {"by": thread, "list": [number]}
                if number % 3 == 0:
                    state.commit()
                if number % 5 == 0:
                    del state[f"{thread}/{number}"]

        return run

    together(*[work(thread) for thread in range(THREADS)])
    state.commit()

    expected = {
        f"{thread}/{number}": {"by": thread, "list": [number]}
        for thread in range(THREADS)
        for number in range(40 * ROUNDS)
        if number % 5
    }
    assert dict(state) == expected
    assert dict(Versioned(state.store)) == expected


def test_one_thread_writes_and_another_commits_and_nothing_is_lost() -> None:
    state, done = Versioned(), threading.Event()

    def write() -> None:
        for number in range(800 * ROUNDS):
            state[str(number)] = number

    together(*after_all(done, [write]), until(done, state.commit))

    assert dict(Versioned(state.store)) == {str(n): n for n in range(800 * ROUNDS)}


MAKERS: dict[str, Callable[[int, int], Any]] = {
    "plain": lambda thread, number: {"id": [thread, number], "text": sentence(number, 200)},
    "hooks": lambda thread, number: {
        "id": (thread, number),
        "when": datetime(2026, 1, 1),
        "set": {number},
    },
    "objects": lambda thread, number: Entry(f"{thread}/{number}", [(number,)]),
}


@pytest.mark.parametrize("begin", [0, 500])
@pytest.mark.parametrize("make", list(MAKERS))
def test_what_threads_append_in_place_while_others_commit_is_all_there_once(
    begin: int, make: str
) -> None:
    state, done = Versioned(types=[Entry]), threading.Event()
    state["log"] = [MAKERS[make](-1, number) for number in range(begin)]
    state.commit()

    def appender(thread: int) -> Callable[[], None]:
        def run() -> None:
            log = state["log"]
            for number in range(60 * ROUNDS):
                log.append(MAKERS[make](thread, number))

        return run

    works = after_all(done, [appender(thread) for thread in range(THREADS - 2)])
    together(*works, until(done, state.commit), until(done, state.commit))

    stored = Versioned(state.store, types=[Entry])["log"]
    assert stored == state["log"]
    assert len(stored) == begin + 60 * ROUNDS * (THREADS - 2)
    assert len({repr(one) for one in stored}) == len(stored)
    assert not state.dirty


@pytest.mark.parametrize("size", [10, 2_000])
def test_a_nested_dict_that_threads_change_while_others_commit_is_stored_as_it_ends(
    size: int,
) -> None:
    state, done = Versioned(types=[Entry]), threading.Event()
    state["deep"] = {
        "texts": {str(n): sentence(n, 60) for n in range(size)},
        "lists": [[sentence(n, 40)] for n in range(size)],
        "numbers": {n: n for n in range(size)},
        "long": sentence(1, 100_000),
        "raw": bytearray(sentence(1, 100_000).encode()),
        "entry": Entry("a", messages(100)),
    }
    state.commit()

    def change(thread: int) -> Callable[[], None]:
        def run() -> None:
            deep = state["deep"]
            for number in range(60 * ROUNDS):
                place = (number * 37 + thread * 11) % size
                deep["texts"][str(place)] = f"{thread}.{number}"
                deep["texts"][f"new {thread}.{number}"] = {"by": thread}
                deep["texts"].pop(f"new {thread}.{number - 3}", None)
                deep["lists"][place].append((thread, number))
                deep["numbers"][thread * 10_000 + number] = {thread}
                deep["long"] = sentence(number, 70_000)
                deep["raw"][place] = number % 256
                deep["entry"].tags.append(f"{thread}.{number}")
                if number % 7 == 0:
                    deep["entry"].tags.pop(0)

        return run

    works = after_all(done, [change(thread) for thread in range(THREADS - 1)])
    together(*works, until(done, state.commit))

    stored = Versioned(state.store, types=[Entry])["deep"]
    assert stored == state["deep"]
    assert sum(map(len, stored["lists"])) == size + 60 * ROUNDS * (THREADS - 1)
    assert not state.dirty
    state["deep"]["lists"][size // 2].append("the last")
    state.commit()
    assert Versioned(state.store, types=[Entry])["deep"] == state["deep"]


def test_threads_that_shrink_lists_while_they_are_committed_harm_nothing() -> None:
    # A list of objects that need a hook once crashed the interpreter here.
    state, done = Versioned(), threading.Event()
    state["list"] = [{"pair": (n, datetime(2026, 1, 1))} for n in range(300)]
    state["inner"] = {"list": [(n, n) for n in range(30)]}
    state.commit()

    def churn() -> None:
        items, inner = state["list"], state["inner"]
        for number in range(100 * ROUNDS):
            del items[number % 50 :]
            items.extend([{"pair": (n, str(n))} for n in range(300)])
            inner["list"] = [(n, "x" * n) for n in range(10)]
            inner["list"].clear()

    together(*after_all(done, [churn, churn]), until(done, state.commit))

    assert dict(Versioned(state.store)) == {"list": state["list"], "inner": state["inner"]}


def test_every_commit_among_threads_holds_whole_items() -> None:
    state, done = Versioned(), threading.Event()
    state["pairs"] = [{"left": 0, "right": [0]} for _ in range(300)]
    state.commit()

    def replace() -> None:
        pairs = state["pairs"]
        for number in range(1, 200 * ROUNDS):
            pairs[number % 300] = {"left": number, "right": [number]}

    together(*after_all(done, [replace]), until(done, state.commit))

    for commit in state.history():
        pairs = state.checkout(commit.id.hex())["pairs"]
        assert len(pairs) == 300
        assert all(pair["right"] == [pair["left"]] for pair in pairs)


@pytest.mark.parametrize("how", ["commit", "refresh"])
def test_what_is_appended_while_the_work_of_others_comes_in_is_kept(how: str) -> None:
    rules = {"log": "append", "n": "add"}
    store = MemoryStore()
    state, other = Versioned(store, mergers=rules), Versioned(store.another(), mergers=rules)
    state.update(log=[], n=0, plan={})
    state.commit()
    done = threading.Event()
    held = state["log"]

    def append() -> None:
        plan = state["plan"]
        for number in range(150 * ROUNDS):
            held.append(f"in place {number}")
            plan[str(number)] = [number]

    def others() -> None:
        other.refresh()
        for number in range(30 * ROUNDS):
            other["log"].append(f"other {number}")
            other["n"] += 1
            other.commit()

    call = state.commit if how == "commit" else state.refresh
    together(*after_all(done, [append, others]), until(done, call))
    state.commit()
    state.refresh()  # A commit of nothing does not look what others did.

    stored = Versioned(store)
    expected = Counter(
        [f"in place {number}" for number in range(150 * ROUNDS)]
        + [f"other {number}" for number in range(30 * ROUNDS)]
    )
    assert Counter(stored["log"]) == expected
    assert stored["log"] == state["log"] == held
    assert stored["n"] == 30 * ROUNDS
    assert stored["plan"] == {str(number): [number] for number in range(150 * ROUNDS)}


def test_a_transaction_keeps_other_threads_waiting_and_none_of_it_is_seen_early() -> None:
    state = Versioned()
    state["n"] = 0
    state.commit()

    def add() -> None:
        for _ in range(25 * ROUNDS):
            with state.transaction():
                state["n"] += 1
                state["twice"] = state["n"] * 2

    together(*[add for _ in range(THREADS)])

    assert state["n"] == 25 * ROUNDS * THREADS
    for commit in state.history(limit=50)[:-1]:
        past = state.checkout(commit.id.hex())
        assert past.get("twice", 0) == past["n"] * 2


# One interleaving after another, made to happen.


class Meddler:
    """An object whose encoding lets somebody else change the state at that moment."""

    act: ClassVar[Callable[[], None] | None] = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Meddler)

    def __hash__(self) -> int:
        return 1


def meddling_codec() -> Codec:
    def encode(value: Meddler) -> int:
        if Meddler.act is not None:
            Meddler.act()
        return 0

    registry = Registry()
    registry.register(Meddler, name="Meddler", encode=encode, decode=lambda _: Meddler())
    return Codec(registry)


SHAPES: dict[str, tuple[Callable[[], Any], Callable[[Any, int], object]]] = {
    "list, appended": (
        lambda: [Meddler(), *messages(200), Meddler()],
        lambda value, number: value.append(number),
    ),
    "list, item changed before": (
        lambda: [*messages(200), Meddler()],
        lambda value, number: value[0].update(content=str(number)),
    ),
    "list, item changed behind": (
        lambda: [Meddler(), *messages(200)],
        lambda value, number: value[-1].update(content=str(number)),
    ),
    "list, item beside": (
        lambda: [*messages(100), [Meddler(), 0], *messages(100)],
        lambda value, number: value[100].append(number),
    ),
    "dict, value changed": (
        lambda: {**{str(n): [sentence(n)] for n in range(300)}, "m": Meddler()},
        lambda value, number: value["7"].append(number),
    ),
    "dict, key added": (
        lambda: {**{str(n): [sentence(n)] for n in range(300)}, "m": Meddler()},
        lambda value, number: value.update({f"n{number}": number}),
    ),
    "dict, order changed": (
        lambda: {**{str(n): [sentence(n)] for n in range(300)}, "m": Meddler()},
        lambda value, number: value.update({"9": value.pop("9")}),
    ),
    "numbers as keys": (
        lambda: {**{n: [sentence(n)] for n in range(300)}, "m": Meddler()},
        lambda value, number: value[7].append(number),
    ),
    "set beside": (
        lambda: {"set": set(range(2000)), "m": [Meddler(), *messages(100)]},
        lambda value, number: value["set"].add(-number),
    ),
    "long text beside": (
        lambda: {"text": sentence(1, 50_000), "m": [Meddler()]},
        lambda value, number: value.update(text=sentence(number, 50_000)),
    ),
    "bytes beside": (
        lambda: [bytearray(50_000), Meddler()],
        lambda value, number: value[0].__setitem__(number, 1),
    ),
    "large parts in a small list": (
        lambda: [messages(200), Meddler(), messages(200)],
        lambda value, number: (value[0].append(number), value[2].append(number)),
    ),
    "small value": (
        lambda: [Meddler(), [0]],
        lambda value, number: value[1].append(number),
    ),
}


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("loaded", [False, True])
def test_a_change_at_any_moment_of_a_commit_is_in_that_commit_or_in_the_next(
    shape: str, loaded: bool
) -> None:
    moments = 0
    while meddled(moments, *SHAPES[shape], loaded):
        moments += 1

    assert moments > 0


def meddled(
    moment: int, make: Callable[[], Any], change: Callable[[Any, int], object], loaded: bool
) -> bool:
    """Commit while somebody changes the value at one moment; whether there was such a moment."""
    codec = meddling_codec()
    state = Versioned(codec=codec)
    state["x"] = make()
    state.commit()
    if loaded:
        state = state.session()
    value, moments = state["x"], itertools.count()
    change(value, 1)

    def act() -> None:
        if next(moments) == moment:
            together(lambda: void(change(value, 2)))

    with_another_thread(act, state.commit)
    for number in (3, 4):
        with_another_thread(None, state.commit)
        assert codec.encode(Versioned(state.store, codec=codec)["x"]) == codec.encode(value)
        change(value, number)
    return next(moments) > moment


def with_another_thread(act: Callable[[], None] | None, call: Callable[[], object]) -> None:
    """Call while there is another thread, which is what makes a state careful."""
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    Meddler.act = act
    try:
        call()
    finally:
        Meddler.act = None
        ended.set()
        other.join()
