"""A tree that was edited is the tree that would have been built at once."""

from __future__ import annotations

import random
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.codec import encode
from ropewalk.codec.msgpack import Code
from ropewalk.errors import FormatError
from ropewalk.tree import Kind, Object, links, make_object
from ropewalk.tree.build import Builder
from ropewalk.tree.levels import Rebuilt, Span, View, in_turn, rebuild
from ropewalk.tree.nodes import (
    CHUNKS,
    INLINE_MAX,
    ITEMS,
    KEY_MAX,
    NODE_MAX,
    NODE_MIN,
    NODE_TARGET,
    PAIRS,
    Entry,
    Layout,
    cuts_after,
    layout_of,
    mark,
)
from tests.tree.support import Objects, small_nodes


def _build(layout: Layout, entries: list[Entry]) -> tuple[Rebuilt, Objects]:
    objects = Objects()
    rebuilt = rebuild(View(layout, 0, [], objects.read), [Span(0, 0, entries)])
    objects.update(rebuilt.objects)
    return rebuilt, objects


def _view(layout: Layout, rebuilt: Rebuilt, objects: Objects) -> View:
    return View(layout, rebuilt.height, rebuilt.entries, objects.read)


def _entries(view: View) -> list[Entry]:
    return [entry for place in view.leaves() for entry in place.entries]


def _item(number: int, size: int) -> Entry:

    return Entry(b"", encode([number, "x" * size]))


def _pair(number: int, size: int) -> Entry:

    return Entry(encode(f"key {number:05d}" + "k" * (size % 7)), encode("x" * size))


_SIZES = st.integers(0, 40)
_EDITS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.lists(_SIZES, max_size=12)),
    max_size=5,
)


def _spans(total: int, edits: list[tuple[int, int, list[int]]]) -> list[tuple[int, int, list[int]]]:
    """Edits as spans that ascend and neither overlap nor touch."""
    found: list[tuple[int, int, list[int]]] = []
    free = 0
    for at, width, sizes in sorted((at % (total + 1), width, sizes) for at, width, sizes in edits):
        if at >= free:
            stop = min(at + width, total)
            found.append((at, stop, sizes))
            free = stop + 1
    return found


@given(count=st.integers(0, 300), edits=_EDITS, seed=st.integers(0, 9))
def test_a_sequence_with_replaced_spans_is_the_sequence_built_at_once(
    count: int, edits: list[tuple[int, int, list[int]]], seed: int
) -> None:
    rolls = random.Random(seed)
    before = [_item(at, rolls.randrange(40)) for at in range(count)]
    spans = [
        Span(start, stop, [_item(1000 + at, size) for at, size in enumerate(sizes)])
        for start, stop, sizes in _spans(count, edits)
    ]
    after = list(before)
    for span in reversed(spans):
        after[span.start : span.stop] = span.entries
    with small_nodes():
        old, objects = _build(ITEMS, before)
        edited = rebuild(_view(ITEMS, old, objects), spans)
        fresh, _ = _build(ITEMS, after)
        objects.update(edited.objects)

        assert (edited.height, edited.entries) == (fresh.height, fresh.entries)
        assert _entries(_view(ITEMS, edited, objects)) == after


@given(
    keys=st.sets(st.integers(0, 2000), max_size=250),
    gone=st.sets(st.integers(0, 250), max_size=30),
    new=st.dictionaries(st.integers(0, 2000), _SIZES, max_size=30),
)
def test_a_map_with_changed_pairs_is_the_map_built_at_once(
    keys: set[int], gone: set[int], new: dict[int, int]
) -> None:

    before = sorted(_pair(key, key % 40) for key in keys)
    added = {entry.key: entry for entry in (_pair(key, size) for key, size in new.items())}
    with small_nodes():
        old, objects = _build(PAIRS, before)
        view = _view(PAIRS, old, objects)
        spans = []
        for key, entry in added.items():
            at, found = view.locate(key)
            spans.append(Span(at, at + (found is not None), [entry]))
        spans += [
            Span(at, at + 1, []) for at in gone if at < len(before) and before[at].key not in added
        ]
        edited = rebuild(view, in_turn(spans))
        kept = {
            entry.key: entry
            for at, entry in enumerate(before)
            if at not in gone or entry.key in added
        }
        fresh, _ = _build(PAIRS, sorted((kept | added).values()))

        assert (edited.height, edited.entries) == (fresh.height, fresh.entries)


@pytest.mark.parametrize("layout", [ITEMS, PAIRS])
@given(
    count=st.integers(0, 300),
    edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2), _SIZES), max_size=40),
)
def test_single_edits_after_one_another_are_the_tree_built_at_once(
    layout: Layout, count: int, edits: list[tuple[int, int, int]]
) -> None:
    if layout is PAIRS:
        after = sorted([_pair(at, at % 40) for at in range(count)])
    else:
        after = [_item(at, at % 40) for at in range(count)]
    with small_nodes():
        rebuilt, objects = _build(layout, after)
        view = _view(layout, rebuilt, objects)
        for number, (place, width, size) in enumerate(edits):
            at = count if place % 3 == 0 else place % (len(after) + 1)  # Often near the end.
            start = min(at, len(after))
            stop = min(start + width, len(after))
            entry = _item(1000 + number, size)
            if layout is PAIRS:  # A pair anew, or one behind all.
                is_new = start == len(after)
                key = encode(f"{'z' * 20}{number:05d}") if is_new else after[start].key
                entry, stop = Entry(key, entry.body), start if is_new else start + 1
            span = Span(start, stop, [entry] if width < 2 else [])
            after[start:stop] = span.entries
            rebuilt = rebuild(view, [span])
            objects.update(rebuilt.objects)
            # As a builder does, with what is known of the new nodes.
            made, top = rebuilt.nodes, rebuilt.top
            view = View(layout, rebuilt.height, rebuilt.entries, objects.read, made, top)
        fresh, _ = _build(layout, after)

        assert (rebuilt.height, rebuilt.entries) == (fresh.height, fresh.entries)
        assert _entries(view) == after
        for id, node in rebuilt.nodes.items():
            level = 0 if objects[id].kind == layout.leaf else 1
            assert node.bounds[-1] == sum(entry.weight for entry in node.entries)
            assert node.body is None or node.body == layout.body(level, node.entries)


@given(keys=st.sets(st.integers(0, 2000), max_size=200), wanted=st.integers(0, 2000))
def test_a_key_is_found_where_it_is_or_would_be(keys: set[int], wanted: int) -> None:
    entries = sorted(_pair(key, 3) for key in keys)
    key = _pair(wanted, 3).key
    with small_nodes():
        rebuilt, objects = _build(PAIRS, entries)
        at, found = _view(PAIRS, rebuilt, objects).locate(key)

        assert at == sum(entry.key < key for entry in entries)
        assert (found is not None) == (wanted in keys)


def test_no_edit_leaves_the_tree_as_it_is() -> None:
    rebuilt, objects = _build(ITEMS, [_item(at, 100) for at in range(500)])
    again = rebuild(_view(ITEMS, rebuilt, objects), [])

    assert (again.height, again.entries) == (rebuilt.height, rebuilt.entries)
    assert again.objects == {}


# Content that wants no cuts, or too many.


def _sizes(layout: Layout, rebuilt: Rebuilt) -> list[int]:
    return [len(made.payload) for made in rebuilt.objects.values()]


@pytest.mark.parametrize("size", [1, 10, 100, 1000, 2000])
def test_equal_items_make_nodes_of_bounded_size(size: int) -> None:
    rebuilt, _ = _build(ITEMS, [_item(1, size)] * (200_000 // (size + 1)))

    assert rebuilt.height >= 1
    assert max(_sizes(ITEMS, rebuilt)) <= NODE_MAX + INLINE_MAX + 5
    assert len(rebuilt.objects) <= 20, "equal nodes are one object"


def _chosen(wanted: Any, count: int) -> list[Entry]:
    """Items whose marks all answer the same way."""
    found: list[Entry] = []
    number = 0
    while len(found) < count:
        entry = _item(number, 60)
        number += 1
        if wanted(cuts_after(NODE_MIN, len(entry.body), mark(entry.body))):
            found.append(entry)
    return found


def test_items_that_never_cut_make_nodes_of_bounded_size() -> None:
    rebuilt, objects = _build(ITEMS, _chosen(lambda cuts: not cuts, 2000))
    leaves = [len(objects[entry.body].payload) for entry in rebuilt.entries]

    assert all(NODE_MAX <= size <= NODE_MAX + 80 for size in leaves[:-1])


def test_items_that_always_cut_make_nodes_of_at_least_the_least_size() -> None:
    rebuilt, objects = _build(ITEMS, _chosen(lambda cuts: cuts, 200))
    leaves = [len(objects[entry.body].payload) for entry in rebuilt.entries]

    assert all(NODE_MIN <= size <= NODE_MIN + 80 for size in leaves[:-1])


def test_nodes_of_random_items_are_about_as_large_as_wanted() -> None:
    rolls = random.Random(5)
    rebuilt, _ = _build(ITEMS, [_item(at, rolls.randrange(200)) for at in range(20_000)])
    sizes = _sizes(ITEMS, rebuilt)

    assert 0.75 * NODE_TARGET < sum(sizes) / len(sizes) < 1.25 * NODE_TARGET


@pytest.mark.parametrize("length", [3000, 5000, KEY_MAX - 10])
@pytest.mark.parametrize("count", [2, 3, 5, 40])
def test_long_keys_make_a_tree_of_few_levels(length: int, count: int) -> None:

    pairs = sorted(Entry(encode(f"{at}" + "k" * length), b"\x01") for at in range(count))
    rebuilt, objects = _build(PAIRS, pairs)

    assert rebuilt.height <= 6
    assert _entries(_view(PAIRS, rebuilt, objects)) == pairs
    assert max(_sizes(PAIRS, rebuilt)) <= NODE_MAX + 2 * (length + 50)


def test_a_cut_depends_only_on_the_bytes() -> None:
    assert mark(b"abc") == (crc32(b"abc") * 0x9E3779B1) % 2**32
    assert not cuts_after(NODE_MIN - 1, 2000, 0)
    assert cuts_after(NODE_MIN, 1, 0)
    assert cuts_after(NODE_MAX, 1, 2**32 - 1)


# What an index says is checked against what it points to.


def test_an_index_that_lies_about_a_count_is_refused() -> None:
    rebuilt, objects = _build(ITEMS, [_item(at, 100) for at in range(500)])
    lies = [entry._replace(weight=entry.weight + 1) for entry in rebuilt.entries]

    with pytest.raises(FormatError, match="does not hold"):
        list(View(ITEMS, rebuilt.height, lies, objects.read).leaves())


@pytest.mark.parametrize("layout", [ITEMS, PAIRS, CHUNKS])
def test_a_node_reads_back_as_it_was_written(layout: Layout) -> None:
    key = b"\xa1k" if layout.keyed else b""
    leaf = [Entry(key, b"\x93\x01\x02\x03")]
    index = [Entry(key, bytes(range(32)), 7)]
    if layout is not CHUNKS:
        assert layout.decode(0, layout.encode(0, leaf)) == leaf

    assert layout.decode(1, layout.encode(1, index)) == index
    payload = layout.encode(1, index)
    assert links(Object(b"", layout.index, payload)) == [bytes(range(32))]


def test_a_builder_reads_what_it_made_and_what_was_there() -> None:

    old, made = make_object(Kind.VALUE, b"\x01"), make_object(Kind.VALUE, b"\x02")
    builder = Builder(lambda ids: [old for _ in ids])
    builder.add(made)

    assert builder.read([made.id, old.id, made.id]) == [made, old, made]


def test_codes_of_containers_have_their_layouts() -> None:

    assert layout_of(Code.LIST) is layout_of(Code.FROZENSET) is layout_of(Code.CUSTOM) is ITEMS
    assert layout_of(Code.MAP) is layout_of(Code.RECORD) is PAIRS
    assert layout_of(Code.STR) is layout_of(Code.ARRAY) is layout_of(Code.INT) is CHUNKS
