"""Diff, merge and edits on plain Python values, as simple as they can be said."""

from __future__ import annotations

import copy
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import msgspec
import pydantic

from ropewalk.codec import Field, Path, default_codec
from ropewalk.tree import ABSENT, Change, Edited, ObjectId, links, make_object
from ropewalk.tree.changes import Overlap, Step, combine, hunks_of, new_items, single
from tests.sample_types import Item, Note, Person, Point, Slim, Spot
from tests.tree.support import MAPPINGS, SEQUENCES, Objects, like


def keep(objects: Objects, edited: Edited) -> ObjectId:
    """Store what an edit or a merge made, and check that all it points to is there."""
    assert all(needed in objects for needed in edited.needs), "a need is not stored"
    for made in edited.objects:
        assert make_object(made.kind, made.payload).id == made.id
        assert all(target in objects for target in links(made)), "a child comes too late"
        objects[made.id] = made
    assert edited.root in objects
    return edited.root


Token = tuple[bytes, ...]
encode = default_codec.encode


def token(path: Path) -> Token:
    """A path as bytes, so that 1, 1.0 and True are three steps."""
    return tuple(
        encode(str(step)) + b" field" if type(step) is Field else encode(step) for step in path
    )


def identical(a: Any, b: Any) -> bool:
    """Whether two values, or absences, are one and the same value."""
    return a is b if a is ABSENT or b is ABSENT else encode(a) == encode(b)


def is_record(value: Any) -> bool:
    return (
        hasattr(type(value), "_fields")
        or hasattr(type(value), "__dataclass_fields__")
        or attrs.has(type(value))
        or isinstance(value, msgspec.Struct | pydantic.BaseModel)
    )


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of an object under the names by which they are stored."""
    if isinstance(value, pydantic.BaseModel):
        extra = {f"+{name}": held for name, held in (value.__pydantic_extra__ or {}).items()}
        return dict(value.__dict__) | extra | (value.__pydantic_private__ or {})
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if attrs.has(type(value)):
        return {one.name: getattr(value, one.name) for one in attrs.fields(type(value))}
    names = getattr(value, "_fields", None) or type(value).__dataclass_fields__
    return {name: getattr(value, name) for name in names}


def with_fields(value: Any, fields: dict[str, Any]) -> Any:
    """The same object with these values in its fields."""
    if isinstance(value, tuple):
        return type(value)(**fields)
    made = copy.copy(value)
    if isinstance(made, pydantic.BaseModel):
        return _with_model_fields(made, fields)
    for name, held in fields.items():
        if isinstance(made, msgspec.Struct):
            msgspec.structs.force_setattr(made, name, held)
        else:
            object.__setattr__(made, name, held)
    return made


def _with_model_fields(made: Any, fields: dict[str, Any]) -> Any:
    extra = {name[1:]: held for name, held in fields.items() if name.startswith("+")}
    private = {name: held for name, held in fields.items() if name.startswith("_")}
    for name in made.__dict__:
        if not identical(made.__dict__[name], fields[name]):
            made.__pydantic_fields_set__.add(name)
        made.__dict__[name] = fields[name]
    if made.__pydantic_extra__ is not None:
        made.__pydantic_extra__ = extra
    if made.__pydantic_private__ is not None:
        made.__pydantic_private__ = private
    return made


def content(value: Any) -> Any:
    """What a value holds, without the order of its dicts and which fields were set."""
    if value is ABSENT:
        return "absent"
    if type(value) in MAPPINGS:
        pairs = sorted([(encode(key), content(held)) for key, held in value.items()])
        return type(value).__name__, pairs, getattr(value, "default_factory", None)
    if type(value) in SEQUENCES:
        return type(value).__name__, [content(item) for item in value], _most(value)
    if is_record(value):
        return type(value).__name__, sorted((k, content(v)) for k, v in fields_of(value).items())
    return encode(value)


def alike(one: Any, other: Any) -> bool:
    """Whether two values are containers of one type that may hold the same."""
    factories = [getattr(value, "default_factory", None) for value in (one, other)]
    same_kind = factories[0] is factories[1] and _most(one) == _most(other)
    return type(one) is type(other) and same_kind


def _most(value: Any) -> int | None:
    return value.maxlen if type(value) is deque else None


# Diff.


def diff_kinds(old: Any, new: Any, path: Path = ()) -> list[tuple[Token, str]]:
    """Where two values without lists differ, and how."""
    if identical(old, new):
        return []
    if alike(old, new) and type(old) in MAPPINGS:
        return _diff_dicts(old, new, path)
    if type(old) is type(new) and is_record(old):
        ours, theirs = ({Field(k): v for k, v in fields_of(one).items()} for one in (old, new))
        return _diff_dicts(ours, theirs, path) or [(token(path), "changed")]
    if type(old) is type(new) and type(old) in (set, frozenset):
        before, after = ({encode(member) for member in members} for members in (old, new))
        return [((*token(path), gone), "removed") for gone in before - after] + [
            ((*token(path), fresh), "added") for fresh in after - before
        ]
    return [(token(path), "changed")]


def _diff_dicts(old: dict[Any, Any], new: dict[Any, Any], path: Path) -> list[tuple[Token, str]]:
    before, after = ({token((key,)): key for key in one} for one in (old, new))
    found: list[tuple[Token, str]] = []
    for at in {**before, **after}:
        if at not in after:
            found.append((token(path) + at, "removed"))
        elif at not in before:
            found.append((token(path) + at, "added"))
        else:
            found += diff_kinds(old[before[at]], new[after[at]], (*path, after[at]))
    if [at for at in before if at in after] != [at for at in after if at in before]:
        found.append((token(path), "reordered"))
    return found


def apply_changes(value: Any, changes: Iterable[Change]) -> Any:
    """What changes make of a value, up to the places of new keys."""
    return _apply(value, [(change.path, change) for change in changes])


def _apply(value: Any, changes: list[tuple[Path, Change]]) -> Any:
    for path, change in changes:
        if not path and change.kind == "changed":
            assert len(changes) == 1
            return change.new
    if type(value) in SEQUENCES:
        return like(value, _apply_to_list(list(value), changes))
    if type(value) in MAPPINGS:
        return like(value, _apply_to_dict(value, changes))
    if type(value) in (set, frozenset):
        gone = [encode(path[0]) for path, change in changes if change.kind == "removed"]
        fresh = [path[0] for path, change in changes if change.kind == "added"]
        return type(value)([one for one in value if encode(one) not in gone] + fresh)
    if not changes:
        return value
    assert is_record(value)
    fields = _apply_to_dict(fields_of(value), changes)
    return with_fields(value, fields)


def _key(step: Any) -> bytes:
    return encode(str(step)) if type(step) is Field else encode(step)


def _inside(changes: list[tuple[Path, Change]], step: Any) -> list[tuple[Path, Change]]:
    at = _key(step)
    return [
        (path[1:], change)
        for path, change in changes
        if path
        and _key(path[0]) == at
        and (len(path) > 1 or change.kind in ("changed", "reordered"))
    ]


def _apply_to_list(items: list[Any], changes: list[tuple[Path, Change]]) -> list[Any]:
    gone = {path[0] for path, change in changes if len(path) == 1 and change.kind == "removed"}
    made = [item for at, item in enumerate(items) if at not in gone]
    for path, change in changes:
        if len(path) == 1 and change.kind == "added":
            made.insert(path[0], change.new)
    return [_apply(item, _inside(changes, at)) for at, item in enumerate(made)]


def _apply_to_dict(held: dict[Any, Any], changes: list[tuple[Path, Change]]) -> dict[Any, Any]:
    gone = {
        _key(path[0]) for path, change in changes if len(path) == 1 and change.kind == "removed"
    }
    made = {
        key: _apply(part, _inside(changes, key))
        for key, part in held.items()
        if encode(key) not in gone
    }
    for path, change in changes:
        if len(path) == 1 and change.kind == "added":
            made[str(path[0]) if type(path[0]) is Field else path[0]] = change.new
    for path, change in changes:
        if not path:
            assert change.kind == "reordered"
            assert {encode(key) for key in change.new} == {encode(key) for key in made}
            by_token = {encode(key): key for key in made}
            made = {by_token[encode(key)]: made[by_token[encode(key)]] for key in change.new}
    return made


# Merge.


class NaiveMerge:
    """A three-way merge without mergers; conflicts are gathered by path."""

    def __init__(self) -> None:
        self.conflicts: list[Token] = []

    def merge(self, base: Any, ours: Any, theirs: Any, path: Path = ()) -> Any:
        if identical(ours, theirs) or identical(base, theirs):
            return ours
        if identical(base, ours):
            return theirs
        if alike(ours, theirs):
            before: Any = base if alike(base, ours) else ABSENT
            if type(ours) in MAPPINGS:
                start = {} if before is ABSENT else before
                return like(ours, self._dicts(start, ours, theirs, path))
            if type(ours) in (set, frozenset):
                return _merged_sets(type(ours)() if before is ABSENT else before, ours, theirs)
            if type(ours) in SEQUENCES and before is not ABSENT:
                return self._lists(before, ours, theirs, path)
            if is_record(ours):
                return self._records(before, ours, theirs, path)
        self.conflicts.append(token(path))
        return ours

    def _dicts(
        self, base: dict[Any, Any], ours: dict[Any, Any], theirs: dict[Any, Any], path: Path
    ) -> dict[Any, Any]:
        first, second = (theirs, ours) if list(base) == list(ours) else (ours, theirs)
        merged = {}
        for key in [*first, *(key for key in second if key not in first)]:
            parts = [one.get(key, ABSENT) for one in (base, ours, theirs)]
            part = self.merge(parts[0], parts[1], parts[2], (*path, key))
            if part is not ABSENT:
                merged[key] = part
        return merged

    def _records(self, base: Any, ours: Any, theirs: Any, path: Path) -> Any:
        old = {} if base is ABSENT else fields_of(base)
        our, their = fields_of(ours), fields_of(theirs)
        fields = {
            name: self.merge(old.get(name, ABSENT), our[name], their[name], (*path, Field(name)))
            for name in our
        }
        merged = with_fields(ours, fields)
        if isinstance(merged, pydantic.BaseModel):
            merged.__pydantic_fields_set__ |= theirs.__pydantic_fields_set__
        return merged

    def _lists(self, base: Any, ours: Any, theirs: Any, path: Path) -> Any:
        old, left, right = ([encode(item) for item in one] for one in (base, ours, theirs))
        values = {encode(item): item for one in (base, ours, theirs) for item in one}
        known = len(self.conflicts)

        try:
            steps = combine(single(hunks_of(old, left)), single(hunks_of(old, right)))
            for step in reversed(steps):
                items = self._items(step, values, (*path, step.start))
                left[step.start : step.stop] = items
            if type(ours) is deque and ours.maxlen is not None and len(left) > ours.maxlen:
                raise Overlap
        except Overlap:
            del self.conflicts[known:]
            self.conflicts.append(token(path))
            return ours
        return like(ours, [values[item] for item in left])

    def _items(self, step: Step, values: dict[bytes, Any], path: Path) -> list[bytes]:
        our, their = step.ours, step.theirs
        if our is None or not len(our.old) == len(our.new) == len(their.new) == 1:
            return new_items(step)
        base, ours, theirs = (values[run[0]] for run in (our.old, our.new, their.new))
        merged = self.merge(base, ours, theirs, path)
        values[encode(merged)] = merged
        return [encode(merged)]


def _merged_sets(base: Any, ours: Any, theirs: Any) -> Any:
    return type(ours)((ours | theirs) - (base - ours) - (base - theirs))


# Random values and edits, in which no two items of a list are alike.


class Maker:
    """Makes values and changed copies of them from a seed."""

    def __init__(self, seed: int, lists: bool = True) -> None:
        self.random = random.Random(seed)
        self._lists = lists
        self._count = 0

    def fresh(self) -> str:
        """A text that was not there before."""
        self._count += 1
        return f"{self._count} {self.random.getrandbits(40):x}"

    def atom(self) -> Any:
        odd: list[Any] = [0, 1, True, 1.0, None, b"bytes", -0.0, 10**30, (), frozenset()]
        return self.random.choice([self.fresh(), self.fresh(), self.random.choice(odd)])

    def key(self) -> str:
        return f"key {self.random.randrange(40)}"

    def value(self, depth: int = 3) -> Any:
        if depth == 0 or self.random.random() < 0.2:
            return self.atom()
        size = self.random.choice([0, 1, 2, 3, 5, 20])
        made: list[Callable[[], Any]] = [
            lambda: {self.key(): self.value(depth - 1) for _ in range(size)},
            lambda: {self.key(): self.atom() for _ in range(size)},
            lambda: OrderedDict((self.key(), self.value(depth - 1)) for _ in range(size)),
            lambda: Counter([self.key() for _ in range(size)]),
            lambda: defaultdict(list, {self.key(): self.atom() for _ in range(size)}),
            lambda: {self.fresh() for _ in range(size)},
            lambda: frozenset(self.fresh() for _ in range(size)),
            lambda: Note(self.value(depth - 1), self.atom()),
            lambda: Spot(self.value(depth - 1), self.atom()),
            lambda: Slim(self.atom(), self.value(depth - 1)),
            lambda: Item(self.value(depth - 1), self.atom()),
            lambda: Person(name=self.value(depth - 1)),
            lambda: Point(self.value(depth - 1), self.atom()),
            lambda: self.random.choice(_TEXTS) * self.random.choice([1, 30]),
        ]
        if self._lists:
            made += [
                lambda: [self.value(depth - 1) for _ in range(size)],
                lambda: [self.fresh() for _ in range(size * 3)],
                lambda: tuple(self.fresh() for _ in range(size)),
                lambda: deque([self.fresh() for _ in range(size)], self.random.choice([None, 6])),
            ] * 2
        return self.random.choice(made)()

    def changed(self, value: Any, times: int = 1) -> Any:
        """A copy of a value with some edits, each somewhere in it."""
        for _ in range(times):
            value = self._changed(value)
        return value

    def _changed(self, value: Any) -> Any:
        deeper = self.random.random() < 0.7
        if type(value) in MAPPINGS and value:
            return like(value, self._changed_dict(dict(value), deeper))
        if type(value) in SEQUENCES and value:
            return like(value, self._changed_list(list(value), deeper))
        if type(value) in (set, frozenset):
            kept = sorted(value, key=encode)[self.random.choice([0, 0, 1]) :]
            return type(value)([*kept, self.fresh()])
        if is_record(value):
            fields = fields_of(value)
            name = self.random.choice(sorted(fields))
            return with_fields(value, fields | {name: self._changed(fields[name])})
        return self.value(1)

    def _changed_dict(self, value: dict[Any, Any], deeper: bool) -> dict[Any, Any]:
        key = self.random.choice(list(value))
        if deeper:
            return value | {key: self._changed(value[key])}
        edits: list[Callable[[], Any]] = [
            lambda: value | {self.key(): self.value(1)},
            lambda: {at: part for at, part in value.items() if at != key},
            lambda: {key: value[key]} | value,
            lambda: dict(reversed(value.items())),
        ]
        made: dict[Any, Any] = self.random.choice(edits)()
        return made

    def _changed_list(self, value: list[Any], deeper: bool) -> list[Any]:
        at = self.random.randrange(len(value))
        if deeper:
            return [*value[:at], self._changed(value[at]), *value[at + 1 :]]
        fresh = [self.fresh() for _ in range(self.random.choice([0, 1, 1, 2]))]
        return [*value[:at], *fresh, *value[at + self.random.choice([0, 0, 1, 2]) :]]


_TEXTS = ["", "a", "some words "]
