"""Objects of trees to start from, and the verdict about objects from anywhere."""

from __future__ import annotations

import contextlib

from fuzz.mutations import EXPECTED
from ropewalk.codec.msgpack import Code, pack, unpack
from ropewalk.errors import FormatError, InvalidInput, MissingObjects
from ropewalk.tree import Kind, ObjectId, TreeWriter, links
from tests.sample_types import Money, Note, Open
from tests.tree.support import Objects, small_nodes

_CONTAINERS = {
    Kind.ITEMS: (Code.LIST, 1),
    Kind.ITEMS_INDEX: (Code.LIST, 2),
    Kind.PAIRS: (Code.DICT, 1),
    Kind.PAIRS_INDEX: (Code.DICT, 2),
    Kind.CHUNKS_INDEX: (Code.STR, 1),
}


def sound_objects() -> Objects:
    """The objects of small values that are tall trees."""
    values = [
        [f"item {at}" for at in range(60)],
        {f"key {at}": at for at in range(40)},
        {at: [at] * 20 for at in reversed(range(20))},
        {"text": "".join(f"word {at} " for at in range(400)), "data": bytes(500)},
        (Note("n" * 70, {1, 2, "x" * 70}), Money(1, "y" * 70), Open(known={"a": ["z" * 70]})),
    ]
    objects = Objects()
    with small_nodes():
        for value in values:
            objects.add(TreeWriter().write(value))
    return objects


SOUND = sound_objects()


def tree_seeds() -> list[bytes]:
    """Each sound object as its kind and its payload."""
    return [bytes([made.kind]) + made.payload for made in SOUND.values()]


def judge_object(data: bytes) -> None:
    """Read an object from anywhere: its first byte is its kind; raises if that goes wrong."""
    if not data or data[0] not in list(Kind):
        return
    objects = Objects(SOUND)
    id = objects.put(Kind(data[0]), data[1:])
    with contextlib.suppress(FormatError):
        assert all(len(target) == 32 for target in links(objects[id]))
    root = _rooted(objects, id)
    # A declared class may refuse what it is given.
    with contextlib.suppress(*EXPECTED, MissingObjects, InvalidInput):
        objects.load(root)


def _rooted(objects: Objects, id: ObjectId) -> ObjectId:
    """A root that leads to a node, with a count that fits if there is one."""
    kind, payload = objects[id].kind, objects[id].payload
    if kind not in _CONTAINERS:
        return id
    code, height = _CONTAINERS[kind]
    keys, order = (["key"], [None]) if code == Code.DICT else ([], [])
    entries = [*keys, id, _count(kind, payload)]
    return objects.put(Kind.ROOT, pack([code.value, height, entries, *order]))


def _count(kind: Kind, payload: bytes) -> int:
    try:
        content = unpack(payload)
        if kind in (Kind.ITEMS, Kind.PAIRS):
            return max(len(content) // (1 + (kind == Kind.PAIRS)), 1)
        width = 3 if kind == Kind.PAIRS_INDEX else 2
        return int(max(sum(content[width - 1 :: width]), 1)) % 2**63
    except (ValueError, TypeError, LookupError, ArithmeticError):
        return 1
