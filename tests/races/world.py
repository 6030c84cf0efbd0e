"""A value that other threads change all the time, and what always holds of it.

Each container has a rule that every change keeps, because a change is one call that
nothing can interrupt. So whatever moment a container is stored as of, its rule holds; if
one is stored half before a change and half after it, the rule shows that.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

ROWS = 120
PRICES = 80
FILL = "what makes it larger, so that it becomes a tree of several nodes " * 2


@dataclass
class Box:
    """Its fields are changed together."""

    one: int
    other: Any


@dataclass(slots=True)
class Slotted:
    """`one` is changed first, then `other`."""

    one: int
    other: int


TYPES = (Box, Slotted)


def new_world() -> dict[str, Any]:
    """A value with all sorts of containers."""
    return {
        "pair": {"a": 0, "b": 0},
        "prices": {f"p{n}": Decimal(0) for n in range(PRICES)},
        "run": [(0, Decimal(0))] * 5,
        "rows": [{"g": 0, "h": 0, "at": Decimal(0), "fill": FILL} for _ in range(ROWS)],
        "boxes": [Box(0, [0]) for _ in range(20)],
        "slotted": Slotted(0, 0),
        "members": {0, 1_000_000},
        "bytes": bytearray(5000),
        "raw": [bytes(8), bytearray(8)],
        "numbers": dict.fromkeys(range(200), 0),
        "tuples": {(n, "x"): Decimal(0) for n in range(100)},
        "tail": [(n, {"n": n}) for n in range(300)],
        "words": {f"w{n}": {"n": n} for n in range(100)},
        "deep": {"a": {"b": [{"c": {"g": 0, "h": 0, "t": (0, 0)}}] * 3}},
        "swapped": {"x": [1, 1]},
    }


class World:
    """Changes a value, a little at a time."""

    def __init__(self, seed: int) -> None:
        self.value = new_world()
        self._chance = random.Random(seed)
        self._next = 0
        self.changes = 0

    def change(self) -> None:
        """One change of one container."""
        self._next += 1
        self.changes += 1
        value: Any = self._chance.choice(_CHANGES)
        value(self.value, self._next, self._chance)


def _pair(world: Any, n: int, chance: random.Random) -> None:
    world["pair"].update({"a": n, "b": n})


def _prices(world: Any, n: int, chance: random.Random) -> None:
    world["prices"].update({f"p{i}": Decimal(n) for i in range(PRICES)})


def _run(world: Any, n: int, chance: random.Random) -> None:
    world["run"][:] = [(n, Decimal(n))] * chance.choice((0, 1, 5, 80, 400))


def _row(world: Any, n: int, chance: random.Random) -> None:
    rows = world["rows"]
    rows[chance.randrange(ROWS)].update({"g": n, "h": n, "at": Decimal(n)})


def _new_row(world: Any, n: int, chance: random.Random) -> None:
    world["rows"][chance.randrange(ROWS)] = {"g": n, "h": n, "at": Decimal(n), "fill": FILL}


def _box(world: Any, n: int, chance: random.Random) -> None:
    chance.choice(world["boxes"]).__dict__.update({"one": n, "other": [n]})


def _slotted(world: Any, n: int, chance: random.Random) -> None:
    world["slotted"].one = n
    world["slotted"].other = n


def _members(world: Any, n: int, chance: random.Random) -> None:
    members = world["members"]
    (old,) = (one for one in list(members) if one < 1_000_000)
    if n < 1_000_000:
        members ^= {old, old + 1_000_000} ^ {n, n + 1_000_000}


def _bytes(world: Any, n: int, chance: random.Random) -> None:
    world["bytes"][:] = bytes([n % 256]) * chance.choice((10, 3000, 9000))


def _raw(world: Any, n: int, chance: random.Random) -> None:
    # Each time the one is bytes and the other a bytearray, so that both never look alike.
    plain, other = bytes([n % 256]) * 8, bytearray([n % 256]) * 8
    world["raw"][:] = [plain, other] if n % 2 else [other, plain]


def _numbers(world: Any, n: int, chance: random.Random) -> None:
    world["numbers"].update(dict.fromkeys(range(200), n))


def _tuples(world: Any, n: int, chance: random.Random) -> None:
    world["tuples"].update({(i, "x"): Decimal(n) for i in range(100)})


def _longer(world: Any, n: int, chance: random.Random) -> None:
    tail = world["tail"]
    last = tail[-1][0]
    tail += [(i, {"n": i}) for i in range(last + 1, last + chance.randint(2, 40))]


def _shorter(world: Any, n: int, chance: random.Random) -> None:
    tail = world["tail"]
    del tail[: max(0, len(tail) - chance.choice((20, 100, 300)))]


def _word(world: Any, n: int, chance: random.Random) -> None:
    world["words"][f"w{n}"] = {"n": n}


def _no_word(world: Any, n: int, chance: random.Random) -> None:
    words = world["words"]
    for key in list(words)[: max(0, len(words) - 60)]:
        words.pop(key)


def _deep(world: Any, n: int, chance: random.Random) -> None:
    world["deep"]["a"]["b"][0]["c"].update({"g": n, "h": n, "t": (n, n)})


def _deeper(world: Any, n: int, chance: random.Random) -> None:
    world["deep"]["a"] = {"b": [{"c": {"g": n, "h": n, "t": (n, n)}}] * chance.randint(1, 60)}


def _swapped(world: Any, n: int, chance: random.Random) -> None:
    """Another type in the same place."""
    kinds: tuple[Any, ...] = ([n, n], (n, n), {n: n}, Box(n, [n]), [{"d": Decimal(n)}] * 300)
    world["swapped"]["x"] = chance.choice(kinds)


_CHANGES: tuple[Callable[[Any, int, random.Random], None], ...] = (
    _pair,
    _prices,
    _run,
    _row,
    _row,
    _new_row,
    _box,
    _slotted,
    _members,
    _bytes,
    _raw,
    _numbers,
    _tuples,
    _longer,
    _shorter,
    _word,
    _word,
    _no_word,
    _deep,
    _deeper,
    _swapped,
)


def check_world(world: Any) -> None:
    """Assert that each container is as it was at one moment."""
    pair = world["pair"]
    assert pair["a"] == pair["b"], pair
    _same(world["prices"].values())
    assert len(world["prices"]) == PRICES
    for number, price in world["run"]:
        assert number == price
    _same(world["run"])
    assert len(world["rows"]) == ROWS
    for row in world["rows"]:
        assert row["g"] == row["h"] == row["at"], row
    for box in world["boxes"]:
        assert [box.one] == box.other or len(box.other) == 1, box
    slotted = world["slotted"]
    assert slotted.one >= slotted.other, slotted
    members = world["members"]
    assert len(members) == 2 and max(members) == min(members) + 1_000_000, members
    _same(world["bytes"])
    assert {type(one) for one in world["raw"]} == {bytes, bytearray}, world["raw"]
    _same(map(bytes, world["raw"]))
    _same(world["numbers"].values())
    assert list(world["numbers"]) == list(range(200))
    _same(world["tuples"].values())
    tail = [number for number, _ in world["tail"]]
    assert tail == list(range(tail[0], tail[0] + len(tail)))
    for number, about in world["tail"]:
        assert about == {"n": number}
    words = [int(key[1:]) for key in world["words"]]
    assert words == [one["n"] for one in world["words"].values()]
    assert len(set(words)) == len(words)
    for one in world["deep"]["a"]["b"]:
        found = one["c"]
        assert found["t"] == (found["g"], found["h"]) and found["g"] == found["h"], found
    _check_swapped(world["swapped"]["x"])


def _check_swapped(found: Any) -> None:
    match found:
        case Box():
            assert [found.one] == found.other
        case [dict(), *_]:
            assert len(found) == 300
            _same(one["d"] for one in found)
        case dict():
            ((key, one),) = found.items()
            assert key == one
        case _:
            assert found[0] == found[1] and len(found) == 2


def _same(values: Any) -> None:
    assert len(set(values)) <= 1, "torn"


@contextmanager
def changing(world: World) -> Iterator[None]:
    """While another thread changes a value."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                world.change()
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures
