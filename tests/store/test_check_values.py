"""What `check` finds out about values that are sound piece by piece, but not together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ropewalk import MemoryStore, RopewalkError
from ropewalk.codec import encode
from ropewalk.codec.msgpack import Code, close_sequence
from ropewalk.errors import UndeclaredClass
from ropewalk.store import Move, ref_name, space_name
from ropewalk.store.record import Node, Place
from ropewalk.tree import (
    Kind,
    Object,
    ObjectId,
    TreeWriter,
    load,
    make_commit,
    make_object,
    read_commit,
)
from ropewalk.tree.nodes import ITEMS, PAIRS, Entry, Root, index_entry

SPACE = space_name("test", "values")
MAIN = ref_name("branch", "main")
TEXTS = [f"key {number:03}" for number in range(300)]


def stored(objects: Sequence[Object], root: ObjectId) -> MemoryStore:
    store = MemoryStore()
    commit, made = make_commit(root)
    store.commit(SPACE, [*objects, made], moves=[Move(MAIN, None, commit.id)])
    return store


def changed_root(value: Any, change: Callable[[Root], Root]) -> MemoryStore:
    """A store of a value whose top says something else."""
    written = TreeWriter().write(value)
    (top,) = (one for one in written.objects if one.id == written.root)
    made = make_object(Kind.ROOT, change(Root.decode(top.payload)).encode())
    return stored([*written.objects, made], made.id)


def with_order(keys: Sequence[Any]) -> Callable[[Root], Root]:
    return lambda root: root._replace(order=close_sequence(Code.LIST, (), list(map(encode, keys))))


def large_dict() -> dict[str, Any]:
    return {key: {"text": "x" * 50} for key in reversed(TEXTS)}


def order_twice() -> MemoryStore:
    return changed_root(large_dict(), with_order([*TEXTS[:-1], TEXTS[0]]))


def order_lacks() -> MemoryStore:
    return changed_root(large_dict(), with_order(TEXTS[:-1]))


def order_names_another() -> MemoryStore:
    return changed_root(large_dict(), with_order([*TEXTS[:-1], "another"]))


def order_names_more() -> MemoryStore:
    return changed_root(large_dict(), with_order([*TEXTS, "another"]))


def one_node(code: Code, entries: list[Entry], head: tuple[Any, ...] = ()) -> MemoryStore:
    made = make_object(Kind.ROOT, Root(code, head, 0, entries).encode())
    return stored([made], made.id)


def two_nodes(code: Code, first: list[Entry], second: list[Entry]) -> MemoryStore:
    layout = PAIRS if code == Code.DICT else ITEMS
    nodes = [make_object(layout.leaf, layout.encode(0, one)) for one in (first, second)]
    entries = [
        index_entry(layout, node.id, one) for node, one in zip(nodes, (first, second), strict=True)
    ]
    made = make_object(Kind.ROOT, Root(code, (), 1, entries).encode())
    return stored([*nodes, made], made.id)


def pairs(*keys: Any) -> list[Entry]:
    return [Entry(encode(key), encode("value")) for key in keys]


def items(*values: Any) -> list[Entry]:
    return [Entry(b"", encode(value)) for value in values]


def equal_keys() -> MemoryStore:
    return one_node(Code.DICT, pairs(1, True, Decimal(2)))


def keys_that_do_not_ascend() -> MemoryStore:
    return two_nodes(Code.DICT, pairs("c", "d"), pairs("a", "b"))


def the_same_key_in_two_nodes() -> MemoryStore:
    return two_nodes(Code.DICT, pairs("a", "b"), pairs("b", "c"))


def a_member_twice() -> MemoryStore:
    return two_nodes(Code.SET, items("a", "b"), items("b", "c"))


def no_text() -> MemoryStore:
    made = make_object(Kind.ROOT, Root(Code.STR, (), 0, [], None, b"\xff" * 3000).encode())
    return stored([made], made.id)


def a_text_that_ends_inside_a_letter() -> MemoryStore:
    data = ("äöüß" * 50_000).encode()
    pieces = [data[:80_001], data[80_002:]]
    chunks = [make_object(Kind.CHUNK, piece) for piece in pieces]
    entries = [Entry(b"", chunk.id, len(chunk.payload)) for chunk in chunks]
    made = make_object(Kind.ROOT, Root(Code.STR, (), 0, entries).encode())
    return stored([*chunks, made], made.id)


def an_array_that_is_short() -> MemoryStore:
    array = np.arange(5000)
    return changed_root(array, lambda root: root._replace(head=(root.head[0], [5001], "C")))


def a_link_to_a_node() -> MemoryStore:
    leaf = make_object(Kind.ITEMS, ITEMS.encode(0, items("a")))
    part = b"\xc7\x20" + bytes([Code.LINK]) + leaf.id
    made = make_object(Kind.ROOT, Root(Code.LIST, (), 0, [Entry(b"", part)]).encode())
    return stored([leaf, made], made.id)


def two_custom_parts() -> MemoryStore:
    return one_node(Code.CUSTOM, items("a", "b"), ("app.Custom", 1))


DAMAGED = [
    order_twice,
    order_lacks,
    order_names_another,
    order_names_more,
    equal_keys,
    the_same_key_in_two_nodes,
    a_member_twice,
    no_text,
    a_text_that_ends_inside_a_letter,
    an_array_that_is_short,
    a_link_to_a_node,
]


def values_of(store: MemoryStore) -> Iterator[Any]:
    for ref in store.view(SPACE).refs:
        (commit,) = store.reader(SPACE)([ref.target])
        yield load(read_commit(commit).root, store.reader(SPACE))


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_value_that_cannot_be_read_is_found(damaged: Callable[[], MemoryStore]) -> None:
    store = damaged()

    with pytest.raises(RopewalkError):
        list(values_of(store))
    found = store.check(read_data=True)
    assert [one.code for one in found.problems] == ["damaged-object"]


@pytest.mark.parametrize("damaged", [two_custom_parts, keys_that_do_not_ascend])
def test_what_only_some_readers_trip_over_is_found(damaged: Callable[[], MemoryStore]) -> None:
    found = damaged().check(read_data=True)

    assert [one.code for one in found.problems] == ["damaged-object"]


SOUND: list[Any] = [
    large_dict(),
    dict.fromkeys(TEXTS, "x" * 30),
    dict.fromkeys(range(200), "x" * 40),
    {(number, Decimal(number)): number for number in range(400)} | {1: 2, None: 3, b"x": 4},
    {float(number) + 0.5: number for number in range(900)},
    {f"member {number}" for number in range(900)},
    frozenset((number, "x" * 3000) for number in range(9)),
    "äöüß€😀" * 30_000,
    b"x" * 100_000,
    np.arange(9000, dtype="<i2").reshape(90, 100, order="F"),
    np.array(["größer"] * 900),
    [[["x" * 3000] * 3] * 3] * 3,
]


@pytest.mark.parametrize("value", SOUND, ids=lambda value: type(value).__name__)
def test_a_sound_value_passes(value: Any) -> None:
    written = TreeWriter().write({"value": value, "again": [value]})

    found = stored(written.objects, written.root).check(read_data=True)

    assert found.problems == ()


def test_what_cannot_be_read_for_want_of_a_library_is_not_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = {"array": np.arange(4.0), "scalar": np.float32(2), "frame": pd.DataFrame({"a": [1, 2]})}
    written = TreeWriter().write(value)
    store = stored(written.objects, written.root)
    for library in ("numpy", "pandas"):
        monkeypatch.setitem(sys.modules, library, None)

    assert store.check(read_data=True).problems == ()
    with pytest.raises(UndeclaredClass, match="install numpy"):
        load(written.root, store.reader(SPACE))


class CountingStore(MemoryStore):
    """A store that counts what is read of it."""

    counted = 0

    def _node(self, space: str, id: ObjectId, place: Place) -> Node | None:
        self.counted += 1
        return super()._node(space, id, place)


def test_what_versions_share_is_looked_at_once() -> None:
    store, writer = CountingStore(), TreeWriter()
    value = {"rows": [{"n": n, "text": f"{n} " * 20} for n in range(3000)], **large_dict()}
    before = None
    for version in range(60):
        value["rows"][version * 40]["n"] = -version
        written = writer.write(value)
        made = make_commit(written.root, (before.id,) if before else (), generation=version + 1)
        store.commit(
            SPACE,
            [*written.objects, made[1]],
            written.needs,
            [Move(MAIN, None if before is None else before.id, made[0].id)],
        )
        writer.accept(written)
        before = made[0]
    objects = len(list(store.scan()))
    store.counted = 0

    assert store.check(read_data=True).ok
    assert store.counted < 8 * objects  # Each version anew would be 20 times.
