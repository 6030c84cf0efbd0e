"""Objects that nobody honest wrote, where only a part of them is read or changed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from ormsgpack import Ext

from fuzz.mutations import Mutator
from fuzz.trees import SOUND, tree_seeds
from ropewalk.codec import Field
from ropewalk.codec.msgpack import Code, pack
from ropewalk.errors import FormatError, RopewalkError
from ropewalk.tree import (
    Kind,
    Map,
    ObjectId,
    diff,
    get,
    insert,
    make_object,
    merge,
    put,
    remove,
)
from ropewalk.tree.nodes import Root
from tests.conftest import SOAK
from tests.sample_types import Money, Note, Open, Person
from tests.tree.edits import Editor
from tests.tree.support import Objects, small_nodes, stored
from tests.tree.test_hostile import _with_bent_object

_LARGE = ["x" * 50] * 300


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc7",
        b"\xc1",
        b"\xd5\x11\x91\x05",
        b"\xd4\x11\x05",
        b"\xd4\x02\x05",
        b"\xd4\x05\xc1",
        pack(Ext(Code.RECORD, pack([]))),
        pack(Ext(Code.RECORD, pack([{}]))),
        pack(Ext(Code.RECORD, pack(["sample.Note", 1, [5], {"a": 1}]))),
        pack(Ext(Code.RECORD, pack([["a"], 1, {"a": 1}]))),
        pack(Ext(Code.DICT, pack([1]))),
    ],
)
def test_a_malformed_value_is_refused_by_whatever_looks_into_it(payload: bytes) -> None:
    objects = Objects()
    bent, sound = objects.put(Kind.VALUE, payload), objects.put(Kind.VALUE, pack({"a": 1}))
    other = objects.put(Kind.VALUE, pack({"a": 2}))
    read = objects.read
    attempts: list[Callable[[], object]] = [
        lambda: get(bent, ("a",), read),
        lambda: put(bent, ("a",), 1, read),
        lambda: remove(bent, ("a",), read),
        lambda: insert(bent, ("a", 0), 1, read),
        lambda: list(diff(sound, bent, read)),
        lambda: merge(sound, other, bent, read),
        lambda: merge(sound, bent, other, read),
        lambda: Map(bent, read)["a"],
    ]

    for attempt in attempts:
        with pytest.raises(FormatError):
            attempt()


@pytest.mark.parametrize(
    "content",
    [
        [Code.LIST.value, 1, []],
        [Code.DICT.value, 3, [], None],
        [[Code.LIST.value, 5], 0, [1]],
        [Code.RECORD.value, 0, ["a", 1], None],
        [[Code.RECORD.value, [], 1], 0, ["a", 1], None],
        [[Code.RECORD.value, "sample.Note", 1, 5], 0, ["a", 1], None],
        [Code.LIST.value, 1, [bytes(32), 2**63, bytes(32), 2**63]],
    ],
)
def test_a_malformed_root_is_refused_by_whatever_looks_into_it(content: list[Any]) -> None:
    objects = Objects()
    bent = objects.put(Kind.ROOT, pack(content))

    for step in (0, "a"):
        with pytest.raises(FormatError):
            get(bent, (step,), objects.read)
        with pytest.raises(FormatError):
            put(bent, (step,), 1, objects.read)


def test_an_order_that_names_other_keys_is_refused_when_the_dict_becomes_small() -> None:
    objects = Objects()
    content = [Code.DICT.value, 0, ["a", 1, "b", 2, "c", "x" * 5000], ["c", "z", "b"]]
    bent = objects.put(Kind.ROOT, pack(content))

    with pytest.raises(FormatError, match="order"):
        put(bent, ("c",), 3, objects.read)


def test_a_key_that_cannot_be_hashed_is_refused() -> None:
    objects = Objects()
    content = [Code.DICT.value, 0, ["a", 1, [1], 2], None]
    bent = objects.put(Kind.ROOT, pack(content))
    lost = objects.put(Kind.ROOT, pack([Code.MAP.value, 0, ["a", 1, [1], 2], None]))

    with pytest.raises(FormatError):
        put(bent, (1.5,), 1, objects.read)
    with pytest.raises(FormatError):
        dict(Map(lost, objects.read))


@pytest.mark.parametrize("inside", [b"\xc1", pack([5]), pack({})])
@pytest.mark.parametrize("code", [Code.RECORD, Code.TUPLE, Code.LIST])
def test_a_malformed_part_can_be_replaced(inside: bytes, code: Code) -> None:
    inner, objects = stored(_LARGE)
    link = Ext(Code.LINK, inner)
    new = [_LARGE, Note("n"), tuple(_LARGE)]

    for old in ([link, Ext(code, inside), Ext(code, inside)], Ext(code, inside)):
        bent = objects.put(Kind.VALUE, pack({"a": old}))
        edited = put(bent, ("a",), new, objects.read)

        assert edited.root == stored({"a": new})[0]


# Fuzzing: sound values, of which one object is bent.


def _steps(value: Any, rolls: random.Random) -> tuple[Any, ...]:
    """A way down a value, as far as the dice go."""
    path: tuple[Any, ...] = ()
    while rolls.random() < 0.85:
        if isinstance(value, dict) and value:
            step = rolls.choice(list(value))
            value = value[step]
        elif isinstance(value, list | tuple) and value:
            step = rolls.randrange(len(value))
            value = value[step]
        elif isinstance(value, set | frozenset) and value:
            step, value = rolls.choice(sorted(value, key=repr)), None
        elif isinstance(value, Note | Person | Open):
            step = Field(rolls.choice(list(vars(value))))
            value = getattr(value, step)
        else:
            break
        path = (*path, step)
    return path


def _attempts(
    roots: tuple[ObjectId, ObjectId, ObjectId], read: Any, path: tuple[Any, ...], new: Any
) -> Iterable[Callable[[], object]]:
    bent, sound, other = roots
    return (
        lambda: get(bent, path, read),
        lambda: put(bent, path, new, read),
        lambda: put(bent, (*path, "new key"), new, read),
        lambda: remove(bent, path, read),
        lambda: insert(bent, (*path[:-1], 0), new, read),
        lambda: [(one.old, one.new, repr(one)) for one in diff(sound, bent, read)],
        lambda: [(one.old, one.new, repr(one)) for one in diff(bent, other, read)],
        lambda: merge(sound, bent, other, read, mergers={(...,): "ours", list: "append"}),
        lambda: merge(bent, sound, other, read),
        lambda: merge(None, other, bent, read, mergers={(): "union"}),
    )


def _judge(attempts: Iterable[Callable[[], object]]) -> None:
    for attempt in attempts:
        with contextlib.suppress(RopewalkError):
            attempt()


@pytest.mark.parametrize("seed", range(4))
def test_edits_of_bent_objects_raise_nothing_but_our_errors(seed: int) -> None:
    rolls = random.Random(seed)
    editor = Editor(seed, 300)
    with small_nodes():
        value = editor.start()
        value["more"] = [Editor(seed + at, 200).large() for at in range(6)]
        value["odds"] += [Note("n" * 70, {1, 2.5, "x" * 70}), Money(1, "y" * 70), {2: 1, 1: 2}]
        value["odds"] += [Open(known={"a": ["z" * 70]}), (1, frozenset([(2, "s" * 80), b"t"]))]
        root, sound = stored(value)
        other, more = stored({**value, "odds": value["odds"][::-1], "added": 1, 5: value["more"]})
        sound.update(more)
        for _ in range(100 * (50 if SOAK else 1)):
            objects = Objects(sound)
            bent = _with_bent_object(objects, root, rolls)
            new = rolls.choice([1, _LARGE, value["odds"], {"a": [_LARGE]}])
            path = _steps(value, rolls)
            _judge(_attempts((bent, root, other), objects.read, path, new))


@pytest.mark.parametrize("seed", range(4))
def test_edits_of_shaken_nodes_raise_nothing_but_our_errors(seed: int) -> None:
    seeds, rolls = tree_seeds(), random.Random(seed)
    ids = list(SOUND)
    for turn in range(400 * (50 if SOAK else 1)):
        objects = Objects(SOUND)
        start = rolls.choice(seeds)
        payload = Mutator(seed * 10**7 + turn, [start[1:]]).bend()
        kind = Kind(start[0]) if start[0] in (Kind.VALUE, Kind.ROOT) else Kind.VALUE
        bent = objects.put(kind, payload)
        path = rolls.choice([(0,), ("key 1",), (5,), ("text",), (0, Field("text")), (-1, 0)])
        roots = bent, make_object(Kind(start[0]), start[1:]).id, rolls.choice(ids)
        _judge(_attempts(roots, objects.read, path, rolls.choice([1, _LARGE])))


@pytest.mark.parametrize("seed", range(2))
def test_maps_of_bent_objects_raise_nothing_but_our_errors(seed: int) -> None:
    rolls = random.Random(seed)
    with small_nodes():
        objects = Objects()
        objects.add(Map.empty())  # type: ignore[arg-type]
        edited = Map(Map.empty().root, objects.read).edit(
            {f"key {at}": [at] * 9 for at in range(60)} | {1: "one", 2.5: {"a": "b" * 90}}
        )
        objects.add(edited)  # type: ignore[arg-type]
        for _ in range(300 * (50 if SOAK else 1)):
            held = Objects({id: objects[id] for id in (made.id for made in edited.objects)})
            bent = Map(_with_bent_object(held, edited.root, rolls), held.read)
            key = rolls.choice(["key 3", "key 59", 1, 2.5, "absent"])
            _judge(_of_map(bent, key))


def _of_map(bent: Map, key: Any) -> Iterable[Callable[[], object]]:
    return (
        lambda: bent[key],
        lambda: len(bent),
        lambda: dict(bent),
        lambda: key in bent,
        lambda: bent == {"a": 1},
        lambda: bent.edit({key: "new", "new": 1}),
        lambda: bent.edit(remove=[key]),
    )


def test_a_map_says_how_many_keys_it_has_only_if_it_is_one() -> None:
    root = Root(Code.LIST, (), 0, [])
    objects = Objects()

    with pytest.raises(FormatError, match="holds a value, not a map; use load or get"):
        len(Map(objects.put(Kind.ROOT, root.encode()), objects.read))
