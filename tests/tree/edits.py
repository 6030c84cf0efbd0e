"""Edits in place of nested values, chosen by a random number generator."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ropewalk.codec import Field, Path, encode, format_path
from tests.sample_types import Item, Money, Note, Person, Point, Slim
from tests.tree.support import MAPPINGS, SEQUENCES, parts_of

_WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa".split()
_RECORDS = (Note, Slim, Person, Item)
_GROWING = (list, deque, *MAPPINGS)


class Slot(NamedTuple):
    """A place in a mutable container that holds a part."""

    path: Path
    holder: Any
    step: Any

    @property
    def part(self) -> Any:
        if isinstance(self.holder, _RECORDS):
            return getattr(self.holder, self.step)
        return self.holder[self.step]

    def put(self, part: Any) -> None:
        if isinstance(self.holder, _RECORDS):
            setattr(self.holder, self.step, part)
        else:
            self.holder[self.step] = part


def places(value: Any) -> list[tuple[Path, Any]]:
    """Every place in a value with its path, from the top."""
    found: list[tuple[Path, Any]] = []
    pending: list[tuple[Path, Any]] = [((), value)]
    while pending:
        path, one = pending.pop()
        found.append((path, one))
        record = type(one) not in (*SEQUENCES, *MAPPINGS)
        for step, part in parts_of(one):
            pending.append(((*path, Field(step) if record else step), part))
    return found


def slots(value: Any) -> list[Slot]:
    """Every place that can be filled anew."""
    return [
        Slot((*path, Field(step) if isinstance(one, _RECORDS) else step), one, step)
        for path, one in places(value)
        if type(one) in (list, deque, *MAPPINGS) or isinstance(one, _RECORDS)
        for step, _ in parts_of(one)
    ]


def paths_of(value: Any, wanted: Any) -> set[str]:
    """The paths under which one object stands."""
    return {format_path(path) for path, one in places(value) if one is wanted}


class Editor:
    """Makes and edits values; `scale` is the size at which a part becomes large."""

    def __init__(self, seed: int, scale: int) -> None:
        self._random = random.Random(seed)
        self._scale = scale

    # New values.

    def text(self, length: int) -> str:
        words = self._random.choices(_WORDS, k=length // 6 + 1)
        return " ".join(words)[:length]

    def atom(self) -> Any:
        roll = self._random
        return roll.choice(
            [0, 1, True, 1.0, -0.0, 0.0, None, "1", b"1", float("nan"), 2**70, (1,), (True,)]
        )

    def key(self) -> Any:
        roll = self._random
        odd = [0, 1, True, 1.0, False, None, b"k", (1, "a"), (True, "a"), frozenset({1})]
        return roll.choice(odd) if roll.random() < 0.3 else f"key {roll.randrange(60)}"

    def large(self) -> Any:
        """A part around or above the size at which it leaves its parent."""
        roll, size = self._random, self._scale
        wide = roll.choice([size // 2, size - 3, size - 2, size, size + 1, 2 * size, 8 * size])
        count = max(wide // 8, 1)
        made: list[Callable[[], Any]] = [
            lambda: self.text(wide),
            lambda: self.text(wide).encode(),
            lambda: bytearray(self.text(wide).encode()),
            lambda: [self.text(roll.randrange(12)) for _ in range(count)],
            lambda: tuple(range(count)),
            lambda: {f"key {number}": number for number in range(count)},
            lambda: {self.key(): number for number in range(count)},
            lambda: set(range(count)),
            lambda: frozenset(self.text(9) for _ in range(count)),
            lambda: Note(self.text(wide), list(range(count))),
            lambda: OrderedDict((self.key(), number) for number in range(count)),
            lambda: Counter({f"key {number}": number for number in range(count)}),
            lambda: defaultdict(list, {f"key {number}": [] for number in range(count)}),
            lambda: deque(range(count), roll.choice([None, count, 2 * count])),
            lambda: Money(count, self.text(wide)),
            lambda: np.arange(count, dtype="<u4"),
            lambda: 1 << (8 * wide),
        ]
        return roll.choice(made)()

    def small(self) -> Any:
        roll = self._random
        made: list[Callable[[], Any]] = [
            self.atom,
            lambda: self.text(roll.randrange(30)),
            lambda: [self.atom() for _ in range(roll.randrange(4))],
            lambda: {self.key(): self.atom() for _ in range(roll.randrange(4))},
            lambda: Note(self.atom()),
            lambda: Slim(self.atom(), []),
            lambda: Person(name=self.atom()),
            lambda: Item(self.atom(), {}),
            lambda: Point(self.atom(), [1]),
            lambda: {1, "a"},
            lambda: OrderedDict(b=1, a=self.atom()),
            lambda: Counter(a=1),
            lambda: defaultdict(None, {1: self.atom()}),
            lambda: deque([self.atom()], roll.choice([None, 2])),
        ]
        return roll.choice(made)()

    def part(self) -> Any:
        return self.large() if self._random.random() < 0.25 else self.small()

    def start(self) -> dict[str, Any]:
        """A value with a long list, a long dict, a long text, and odds and ends."""
        size = self._scale
        return {
            "messages": [{"role": "user", "text": self.text(20)} for _ in range(size // 8)],
            "index": {f"key {number}": number for number in range(size // 4)},
            "text": self.text(10 * size),
            "note": Note(self.text(9), [self.large()]),
            "odds": [self.part() for _ in range(4)],
        }

    # Edits in place. Each does nothing where there is nothing to edit.

    def _pick(self, value: Any, *kinds: type) -> Any:
        # The top stays a dict with its first parts, so that there is always something.
        found = [one for path, one in places(value) if type(one) in kinds and path]
        return self._random.choice(found) if found else kinds[0]()

    def edit_list(self, value: Any) -> None:
        roll, items = self._random, self._pick(value, list)
        at = roll.randrange(len(items) + 1)
        until = min(at + roll.choice([1, 2, 30]), len(items))
        edits: list[Callable[[], Any]] = [
            lambda: items.append(self.part()),
            lambda: items.insert(at, self.part()),
            lambda: items.__setitem__(slice(at, until), [self.small() for _ in range(3)]),
            lambda: items.__delitem__(slice(at, until)),
            items.reverse,
            lambda: items.sort(key=encode),
            lambda: items.extend(items[:20]) if len(items) < 500 else None,
            lambda: items.__setitem__(slice(at, at + 2), items[at : at + 2][::-1]),
            lambda: roll.random() < 0.1 and items.clear(),
        ]
        roll.choice(edits)()

    def edit_dict(self, value: Any) -> None:
        roll, held = self._random, self._pick(value, *MAPPINGS)
        keys = list(held)
        key = roll.choice(keys) if keys else "none"
        edits: list[Callable[[], Any]] = [
            lambda: held.__setitem__(self.key(), self.part()),
            lambda: _add(held, [(self.text(6), self.atom()) for _ in range(5)]),
            lambda: held.pop(key, None),
            lambda: held.__setitem__(key, held.pop(key, None)),
            lambda: _refill(held, list(reversed(held.items()))),
            lambda: _refill(held, sorted(held.items(), key=lambda pair: repr(pair[0]))),
            lambda: [held.pop(one) for one in keys[:30]],
            lambda: _refill(held, [(_twin_key(one), part) for one, part in held.items()]),
        ]
        roll.choice(edits)()

    def edit_deque(self, value: Any) -> None:
        roll, items = self._random, self._pick(value, deque)
        edits: list[Callable[[], Any]] = [
            lambda: items.append(self.part()),
            lambda: items.appendleft(self.part()),
            lambda: items and items.popleft(),
            lambda: items and items.__setitem__(-1, self.small()),
            lambda: items.rotate(1),
            items.reverse,
        ]
        roll.choice(edits)()

    def edit_set(self, value: Any) -> None:
        roll, members = self._random, self._pick(value, set)
        members.discard(roll.choice(sorted(members, key=encode)) if members else 0)
        members.add(self.key())

    def edit_text(self, value: Any) -> None:
        """Change a text or bytes at the start, in the middle or at the end."""
        found = [slot for slot in slots(value) if type(slot.part) in (str, bytes, bytearray)]
        if not found:
            return
        slot = self._random.choice(found)
        kept = slot.part
        at = self._random.choice([0, len(kept), self._random.randrange(len(kept) + 1)])
        gone = self._random.choice([0, 0, 1, 2, 100])
        fresh = self.text(self._random.choice([0, 1, 2, 50]))
        middle = fresh if type(kept) is str else type(kept)(fresh.encode())
        slot.put(kept[:at] + middle + kept[at + gone :])

    def edit_bytes_in_place(self, value: Any) -> None:
        found = [one for _, one in places(value) if type(one) in (bytearray, np.ndarray)]
        for one in found[:1]:
            if len(one):
                one[self._random.randrange(len(one))] ^= 1

    def edit_field(self, value: Any) -> None:
        found = [slot for slot in slots(value) if isinstance(slot.holder, _RECORDS)]
        if found:
            self._random.choice(found).put(self.part())

    def replace(self, value: Any) -> None:
        """Put another part into a place, deep down or near the top."""
        found = [slot for slot in slots(value) if len(slot.path) > 1]
        if found:
            self._random.choice(found).put(self.part())

    def convert(self, value: Any) -> None:
        """Turn a part into its twin of another type, which may compare as equal."""
        found = [slot for slot in slots(value) if len(slot.path) > 1]
        if found:
            slot = self._random.choice(found)
            slot.put(_twin(slot.part))

    def convert_large(self, value: Any) -> None:
        found = [
            slot
            for slot in slots(value)
            if type(slot.part) in _TWINS and _length(slot.part) > self._scale // 4
        ]
        if found:
            slot = self._random.choice(found)
            if len(slot.path) > 1:
                slot.put(_twin(slot.part))

    def share(self, value: Any) -> None:
        """Let one mutable object stand in two places."""
        found = slots(value)
        source, target = self._random.choice(found), self._random.choice(found)
        inside = {id(one) for _, one in places(source.part)}
        if id(target.holder) not in inside and len(target.path) > 1 and len(inside) < 200:
            target.put(source.part)

    def shrink(self, value: Any, most: int) -> None:
        """Keep a value from growing without end, as far as it can be emptied."""
        while len(places(value)) > most:
            holder = max(
                [one for path, one in places(value) if type(one) in _GROWING and path], key=len
            )
            if not holder:
                return
            if type(holder) is list:
                del holder[len(holder) // 3 :]
            elif type(holder) is deque:
                for _ in range(len(holder) - len(holder) // 3):
                    holder.pop()
            else:
                _refill(holder, list(holder.items())[::3][: len(holder) // 3])


def _refill(held: dict[Any, Any], pairs: list[tuple[Any, Any]]) -> None:
    held.clear()
    _add(held, pairs)


def _add(held: dict[Any, Any], pairs: list[tuple[Any, Any]]) -> None:
    for key, part in pairs:
        held.__setitem__(key, part)  # update of a Counter would count.


def _length(part: Any) -> int:
    return len(part) if hasattr(part, "__len__") else 0


_TWINS: dict[type, Callable[[Any], Any]] = {
    int: lambda part: True if part == 1 else float(part) if abs(part) < 2**50 else part,
    bool: lambda part: 1.0 if part else 0.0,
    float: lambda part: int(part) if part == part else None,
    str: lambda part: part.encode(),
    bytes: bytearray,
    bytearray: bytes,
    list: tuple,
    tuple: list,
    deque: list,
    OrderedDict: lambda part: defaultdict(None, part),
    defaultdict: OrderedDict,
    Counter: dict,
    set: frozenset,
    frozenset: set,
}


def _twin(part: Any) -> Any:
    return _TWINS.get(type(part), lambda same: same)(part)


def _twin_key(key: Any) -> Any:
    return _twin(key) if type(key) in (int, bool, float) else key
