"""Objects that nobody honest wrote: an error of ours, in bounded stack, and no value."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from ormsgpack import Ext

from fuzz.mutations import Mutator
from fuzz.trees import judge_object, tree_seeds
from ropewalk.codec import encode
from ropewalk.codec.msgpack import Code, extension, pack, unpack
from ropewalk.errors import Corrupt, FormatError, InvalidInput, MissingObjects, NotAllowed
from ropewalk.tree import Kind, ObjectId, links
from tests.conftest import SOAK
from tests.tree.edits import Editor
from tests.tree.support import Objects, stored

_ID = bytes(32)


def _link(id: bytes) -> Ext:
    return Ext(Code.LINK, id)


def _refused(objects: Objects, root: ObjectId) -> None:
    with pytest.raises(FormatError):
        objects.load(root)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x93",
        pack(1),
        pack({}),
        pack([]),
        pack([Code.LIST.value, 0]),
        pack([Code.LIST.value, 0, [], None]),
        pack([Code.LIST.value, 0, b"data"]),
        pack([Code.LIST.value, 0, {}]),
        pack([Code.LIST.value, 0, 5]),
        pack([Code.LIST.value, -1, []]),
        pack([Code.LIST.value, 33, []]),
        pack([Code.LIST.value, True, []]),
        pack([Code.LIST.value, 1.0, []]),
        pack([Code.LIST.value, 2**63, []]),
        pack([float(Code.LIST), 0, []]),
        pack([[Code.LIST.value], 0, []]),
        pack([[], 0, []]),
        pack([None, 0, []]),
        pack([{}, 0, []]),
        pack([99, 0, []]),
        pack([Code.LINK.value, 0, b"data"]),
        pack([True, 0, b"data"]),
        pack([Code.DICT.value, 0, []]),
        pack([Code.DICT.value, 0, ["lonely"], None]),
        pack([Code.DICT.value, 0, ["a", 1, "a", 2], None]),
        pack([Code.DICT.value, 0, [[], 1], None]),
        pack([Code.DICT.value, 0, ["a", 1], 5]),
        pack([Code.DICT.value, 0, ["a", 1], "a"]),
        pack([Code.DICT.value, 0, ["a", 1], {"a": 1}]),
        pack([Code.DICT.value, 0, ["a", 1], []]),
        pack([Code.DICT.value, 0, ["a", 1], ["b"]]),
        pack([Code.DICT.value, 0, ["a", 1], ["a", "a"]]),
        pack([Code.DICT.value, 0, ["a", 1], [[]]]),
        pack([Code.DICT.value, 0, [1, 1, "a", 2], ["a", True]]),
        pack([Code.SET.value, 0, [1, 1]]),
        pack([Code.SET.value, 0, [[]]]),
        pack([Code.CUSTOM.value, 0, []]),
        pack([[Code.CUSTOM.value, "sample.Money", 1], 0, [1, 2]]),
        pack([[Code.RECORD.value, "sample.Note"], 0, ["text", 1], None]),
        pack([[Code.RECORD.value, 1, 1], 0, ["text", 1], None]),
        pack([[Code.RECORD.value, "sample.Note", 1], 0, [1, 1], None]),
        pack([[Code.ARRAY.value, "<f8", [2], "C"], 0, b"short"]),
        pack([[Code.ARRAY.value, 1, 2], 0, b"data"]),
        pack([[Code.ARRAY.value, Ext(1, b""), [1], "C"], 0, b"data"]),
        pack([Code.ENUM.value, 0, b"\xc1"]),
        pack([Code.STR.value, 0, b"\xff"]),
        pack([Code.STR.value, 0, [b"short", 5]]),
        pack([Code.STR.value, 0, [_ID, 0]]),
        pack([Code.STR.value, 0, [_ID, -5]]),
        pack([Code.STR.value, 0, [_ID, True]]),
        pack([Code.STR.value, 0, [_ID]]),
        pack([Code.STR.value, 1, b"data"]),
        pack([Code.DECIMAL.value, 0, b"not a number"]),
        pack([Code.INT.value, 0, b"\x01"]),
        pack([Code.LIST.value, 0, [_link(b"short")]]),
        pack([Code.LIST.value, 0, [_link(b"short"), _link(_ID)]]),
        pack([Code.LIST.value, 1, [_ID]]),
        pack([Code.LIST.value, 1, [_ID, "many"]]),
        pack([Code.DICT.value, 1, [_ID, 1], None]),
        b"\x93" + pack(Code.LIST.value) + b"\x00" + b"\x91" * 900 + b"\x00",
        b"\x93" + pack(Code.LIST.value) + b"\x00" + b"\x91" * 5000 + b"\x00",
        b"\x94" + pack(Code.DICT.value) + b"\x00\x92\x01\x01" + b"\x91" * 900 + b"\x00",
    ],
)
def test_a_malformed_root_is_refused(payload: bytes) -> None:
    objects = Objects()

    _refused(objects, objects.put(Kind.ROOT, payload))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.VALUE, Kind.ROOT)])
def test_only_a_root_or_a_small_value_is_the_root_of_a_value(kind: Kind) -> None:
    objects = Objects()

    _refused(objects, objects.put(kind, pack([1, 2])))


@pytest.mark.parametrize("kind", list(Kind))
def test_only_a_root_stands_behind_a_link(kind: Kind) -> None:
    objects = Objects()
    inner = objects.put(kind, pack([[Code.LIST.value], 1]) if kind == Kind.ROOT else pack([1]))
    outer = objects.put(Kind.VALUE, pack([_link(inner)]))

    _refused(objects, outer)


def _tree(value: Any) -> tuple[ObjectId, Objects, list[Any]]:
    """A stored value, and the unpacked root."""
    root, objects = stored(value)
    return root, objects, unpack(objects[root].payload)


_LONG = {
    "list": [f"item {at}" for at in range(2000)],
    "dict": {f"key {at}": at for at in range(2000)},
    "text": Editor(3, 0).text(100_000),
}


@pytest.mark.parametrize("kind", _LONG)
@pytest.mark.parametrize("lie", [1, -1, 10**9, 2**62])
def test_a_count_that_lies_is_refused(kind: str, lie: int) -> None:
    _, objects, content = _tree(_LONG[kind])
    content[2][-1] += lie

    _refused(objects, objects.put(Kind.ROOT, pack(content)))


@pytest.mark.parametrize("kind", _LONG)
@pytest.mark.parametrize("height", [0, 2, 3, 32])
def test_a_height_that_lies_is_refused(kind: str, height: int) -> None:
    _, objects, content = _tree(_LONG[kind])
    if content[1] == height or (kind, height) == ("list", 0):
        # The ids and counts of its nodes are a list as good as any other.
        height = 1 + (kind == "list")

    _refused(objects, objects.put(Kind.ROOT, pack([content[0], height, *content[2:]])))


@pytest.mark.parametrize("kind", _LONG)
@pytest.mark.parametrize("wrong", list(Kind))
def test_a_node_of_the_wrong_kind_is_refused(kind: str, wrong: Kind) -> None:
    _, objects, content = _tree(_LONG[kind])
    width = 3 if kind == "dict" else 2
    node = objects[content[2][width - 2]]
    if node.kind == wrong:
        return
    content[2][width - 2] = objects.put(wrong, node.payload)

    _refused(objects, objects.put(Kind.ROOT, pack(content)))


@pytest.mark.parametrize("kind", _LONG)
def test_a_missing_object_is_named(kind: str) -> None:
    root, objects, _ = _tree(_LONG[kind])
    gone = links(objects[root])[1]
    del objects[gone]

    with pytest.raises(MissingObjects) as caught:
        objects.load(root)
    assert caught.value.ids == (gone,)


def test_a_chunk_of_another_size_is_refused() -> None:
    _, objects, content = _tree(_LONG["text"])
    content[2][0] = objects.put(Kind.CHUNK, b"short")

    _refused(objects, objects.put(Kind.ROOT, pack(content)))


def test_a_link_where_no_link_can_be_is_refused() -> None:
    objects = Objects()
    inner, _ = stored(["x" * 100] * 50)
    objects.update(stored(["x" * 100] * 50)[1])
    hidden = Ext(Code.ENUM, pack([_link(inner), 1, "RED"]))

    _refused(objects, objects.put(Kind.VALUE, pack([hidden])))
    _refused(objects, objects.put(Kind.VALUE, pack([hidden, _link(inner)])))


def test_a_chain_of_ten_thousand_roots_is_refused() -> None:
    objects = Objects()
    id = objects.put(Kind.ROOT, pack([Code.LIST.value, 0, [1]]))
    for _ in range(10_000):
        id = objects.put(Kind.ROOT, pack([Code.LIST.value, 0, [_link(id)]]))

    with pytest.raises(FormatError, match="nested too deeply"):
        objects.load(id)


def test_a_chain_of_ten_thousand_small_values_is_refused() -> None:
    objects = Objects()
    id = objects.put(Kind.VALUE, pack(1))
    for _ in range(10_000):
        id = objects.put(Kind.VALUE, pack([_link(id)]))

    _refused(objects, id)


@pytest.mark.parametrize("where", ["order", "dict", "record", "set"])
def test_chains_through_every_kind_of_container_are_refused(where: str) -> None:
    objects = Objects()
    id = objects.put(Kind.ROOT, pack([Code.LIST.value, 0, ["a"]]))
    for _ in range(500):
        content = {
            "order": [Code.DICT.value, 0, ["a", 1], _link(id)],
            "dict": [Code.DICT.value, 0, ["a", _link(id)], None],
            "record": [[Code.RECORD.value, "sample.Note", 1], 0, ["text", _link(id)], None],
            "set": [Code.FROZENSET.value, 0, [Ext(Code.TUPLE, pack([_link(id)]))]],
        }[where]
        id = objects.put(Kind.ROOT, pack(content))

    with pytest.raises(FormatError):
        objects.load(id)


def test_extensions_in_extensions_do_not_reach_the_end_of_the_stack() -> None:
    objects = Objects()
    inner = pack(_link(_ID))
    for _ in range(300):
        inner = extension(Code.TUPLE, b"\x91" * 900 + inner)
    flat = pack(_link(_ID))
    for _ in range(5000):
        flat = extension(Code.TUPLE, b"\x91" + flat)

    for payload in (inner, flat):
        _refused(objects, objects.put(Kind.VALUE, payload))
        with pytest.raises(FormatError):
            links(objects[objects.put(Kind.VALUE, payload)])


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind != Kind.CHUNK])
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        pack(5),
        pack([1]),
        pack([1, 2, 3, 4, 5, 6, 7]),
        pack({"a": 1}),
        pack([_ID[:5]] * 6),
        pack([Ext(Code.TUPLE, b"\xc1\xc7\x20\x01" + _ID)]),
    ],
)
def test_links_of_a_malformed_node_are_ids_or_refused(kind: Kind, payload: bytes) -> None:
    objects = Objects()
    try:
        found = links(objects[objects.put(kind, payload)])
    except FormatError:
        return

    assert all(type(id) is bytes and len(id) == 32 for id in found)


# Fuzzing: valid payloads, bent a little and named anew.

_SAMPLES = 1000


def _bend(payload: bytes, rolls: random.Random) -> bytes:
    bent = bytearray(payload)
    for _ in range(rolls.choice([1, 1, 1, 2, 5])):
        at = rolls.randrange(len(bent) + 1)
        turn = rolls.randrange(5)
        if turn == 0 and at < len(bent):
            bent[at] = rolls.randrange(256)
        elif turn == 1 and at < len(bent):
            bent[at] ^= 1 << rolls.randrange(8)
        elif turn == 2:
            del bent[at : at + rolls.choice([1, 2, 8])]
        elif turn == 3:
            bent[at:at] = bent[: rolls.randrange(40)]
        else:
            bent[at:at] = bytes([rolls.choice([0x90, 0x91, 0xC0, 0xC4, 0xC7, 0xD4, 0xDC, 0xDF])])
    return bytes(bent)


def _with_bent_object(objects: Objects, root: ObjectId, rolls: random.Random) -> ObjectId:
    """Bend one object, and name everything above it anew."""
    victim = rolls.choice(list(objects))
    renamed: dict[ObjectId, ObjectId] = {}
    for made in list(objects.values()):
        payload = made.payload
        for target in links(made) if made.kind != Kind.CHUNK else []:
            payload = payload.replace(target, renamed.get(target, target))
        if made.id == victim:
            payload = _bend(payload, rolls)
        if payload != made.payload:
            renamed[made.id] = objects.put(made.kind, payload)
    return renamed.get(root, root)


@pytest.mark.parametrize("seed", range(8))
def test_bent_objects_raise_nothing_but_our_errors(seed: int) -> None:
    rolls = random.Random(seed)
    value = Editor(seed, 300).start()
    value["odds"] += [Editor(seed + at, 2048).large() for at in range(12)]
    root, sound = stored(value)
    for _ in range(_SAMPLES * (50 if SOAK else 1)):
        objects = Objects(sound)
        bent = _with_bent_object(objects, root, rolls)
        # A declared class may refuse what it is given: InvalidInput.
        with contextlib.suppress(Corrupt, MissingObjects, NotAllowed, InvalidInput):
            objects.load(bent)


def test_a_sound_object_under_a_kind_that_it_is_not_is_another_object() -> None:
    objects = Objects()
    payload = encode([1, 2])

    assert objects.put(Kind.VALUE, payload) != objects.put(Kind.ITEMS, payload)


@pytest.mark.parametrize("seed", range(4))
def test_shaken_nodes_raise_nothing_but_our_errors(seed: int) -> None:
    seeds = tree_seeds()
    rolls = random.Random(seed)
    for turn in range(_SAMPLES * (50 if SOAK else 2)):
        start = rolls.choice(seeds)
        bent = Mutator(seed * 10**7 + turn, [start[1:]]).bend()
        kind = start[:1] if rolls.random() < 0.9 else bytes([rolls.choice(list(Kind))])
        judge_object(kind + bent)
