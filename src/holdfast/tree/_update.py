"""Comparing large values with what was remembered of them, and changing only what differs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.codec._msgpack import pack
from holdfast.tree._chunks import chunk_objects, cut_bytes
from holdfast.tree._cuts import INLINE_MAX
from holdfast.tree._layout import SETS, Entry
from holdfast.tree._levels import Span, View, in_turn
from holdfast.tree._mirrors import (
    BytesMirror,
    Leaf,
    MappingMirror,
    Pairs,
    SequenceMirror,
    first_changed,
    interleave,
    starts_of,
)
from holdfast.tree._parts import link

if TYPE_CHECKING:
    from holdfast.tree._builder import Built
    from holdfast.tree._embed import Embedder


def update_sequence(work: Embedder, mirror: SequenceMirror, items: list[Any]) -> bytes:
    if mirror.title.code in SETS:
        items = work.in_order(items)
    if len(items) == mirror.view.total:
        spans = _changed_in_place(work, mirror, items)
    else:
        spans = _changed_between(work, mirror, items)
    if not spans:
        return link(mirror.id)
    built = work.builder.edit_sequence(mirror.title, mirror.view, spans, mirror.id)
    if built.id is not None:
        assert built.view is not None and built.rebuilt is not None
        leaves = _spliced_leaves(work, mirror, built, items)
        work.mirrors[built.id] = SequenceMirror(built.id, mirror.title, built.view, leaves)
    return built.part


def _changed_in_place(work: Embedder, mirror: SequenceMirror, items: list[Any]) -> list[Span]:
    """The spans that differ in a sequence of the same length."""
    spans, leaves = [], mirror.leaves
    starts = starts_of([leaf.length for leaf in leaves])
    order = range(len(leaves))
    while (at := first_changed(work.codec, leaves, starts, order, items, 0)) is not None:
        values = items[starts[at] : starts[at + 1]]
        spans += _changed_in_leaf(work, mirror.view, starts[at], values)
        order = range(at + 1, len(leaves))
    return spans


def _changed_in_leaf(work: Embedder, view: View, at: int, values: list[Any]) -> list[Span]:
    spans = []
    for index, entry in enumerate(view.node_at(0, at).entries):
        part = work.embed(values[index], entry.body)
        if part != entry.body:
            spans.append(Span(at + index, at + index + 1, [Entry(b"", part)]))
    return spans


def _changed_between(work: Embedder, mirror: SequenceMirror, items: list[Any]) -> list[Span]:
    """One span between the leaves that are the same at both ends."""
    leaves, shift = mirror.leaves, len(items) - mirror.view.total
    starts = starts_of([leaf.length for leaf in leaves])
    fitting = bisect_right(starts, len(items)) - 1
    first = _first_changed(work, mirror, starts, range(fitting), items, 0)
    # Where items were taken out, the values of the first leaves are not looked at twice.
    lowest = max(first, bisect_left(starts, starts[first] - shift))
    behind = range(len(leaves) - 1, lowest - 1, -1)
    last = _first_changed(work, mirror, starts, behind, items, shift) + 1
    return _replaced(work, mirror.view, starts[first], starts[last], items, shift)


def _first_changed(
    work: Embedder,
    mirror: SequenceMirror,
    starts: list[int],
    order: range,
    items: list[Any],
    shift: int,
) -> int:
    """The first leaf in an order that changed, or where the order ends."""
    while True:
        at = first_changed(work.codec, mirror.leaves, starts, order, items, shift)
        if at is None:
            return order.stop
        values = items[starts[at] + shift : starts[at + 1] + shift]
        if mirror.leaves[at].plain is not None or _changed_in_leaf(
            work, mirror.view, starts[at], values
        ):
            return at
        order = range(at + order.step, order.stop, order.step)


def _replaced(
    work: Embedder, view: View, start: int, stop: int, items: list[Any], shift: int
) -> list[Span]:
    old: list[bytes] = []
    if start < stop:
        old = [entry.body for entry in view.node_at(0, start).entries]
    beside = dict(enumerate(old))
    values = items[start : stop + shift]
    entries = [Entry(b"", work.embed(one, beside.get(at))) for at, one in enumerate(values)]
    return [Span(start, stop, entries)]


def _spliced_leaves(
    work: Embedder, mirror: SequenceMirror, built: Built, items: list[Any]
) -> list[Leaf]:
    """The leaves of the old mirror, with those of the changed regions replaced."""
    assert built.view is not None and built.rebuilt is not None
    leaves: list[Leaf] = []
    starts = starts_of([leaf.length for leaf in mirror.leaves])
    position = {start: index for index, start in enumerate(starts)}
    done, at = 0, 0
    for region in built.rebuilt.regions:
        kept = mirror.leaves[done : position[region.start]]
        leaves += kept
        at += region.start - starts[done]
        fresh = sum([len(group.entries) for group in region.groups])
        leaves += work.leaves(built.view, built.rebuilt, items[at : at + fresh], region)
        at += fresh
        done = position[region.stop]
    return leaves + mirror.leaves[done:]


def update_mapping(work: Embedder, mirror: MappingMirror, mapping: dict[Any, Any]) -> bytes:
    texts = _all_text(mapping) and _all_text(mirror.keys)
    if work.codec.encode(list(mapping)) == mirror.keys_plain and (
        texts or _same_keys(mapping, mirror.keys)
    ):
        return _update_values(work, mirror, mapping, {}, [], mirror.order)
    if not texts:
        beside = {e.key: e.body for place in mirror.view.leaves() for e in place.entries}
        return work.build_mapping(mirror.title, mapping, beside, mirror.id, mirror.order)
    added = {pack(key): key for key in mapping if key not in mirror.keys}
    gone = [key for key in mirror.keys if key not in mapping]
    order = _new_order(work, mirror, mapping, gone)
    return _update_values(work, mirror, mapping, added, gone, order)


def _same_keys(keys: Iterable[Any], old: Iterable[Any]) -> bool:
    """Whether an old key finds what the new key in its place stands for.

    A key that equals only itself, such as nan, is found by no other; and one that was
    changed in place is found where it no longer belongs.
    """
    return all(one is other or one == other for one, other in zip(keys, old, strict=True))


def _new_order(
    work: Embedder, mirror: MappingMirror, mapping: dict[Any, Any], gone: list[Any]
) -> bytes | None:
    encoded = {pack(key): key for key in mapping}
    return work.order(mirror.title, list(encoded), encoded, mirror.order)


def _update_values(
    work: Embedder,
    mirror: MappingMirror,
    mapping: dict[Any, Any],
    added: dict[bytes, Any],
    gone: list[Any],
    order: bytes | None,
) -> bytes:
    """Change values, add and remove keys, and keep everything else."""
    removed = {pack(key) for key in gone}
    spans = _changed_values(work, mirror, mapping, set(gone), removed)
    for key, python_key in added.items():
        at, _ = mirror.view.locate(key)
        spans.append(Span(at, at, [Entry(key, work.embed(mapping[python_key]))]))
    if not spans and order == mirror.order:
        return link(mirror.id)
    built = work.builder.edit_mapping(mirror.title, mirror.view, in_turn(spans), order, mirror.id)
    if built.id is not None:
        assert built.view is not None
        leaves = _spliced_pairs(work, mirror, built, mapping, added)
        if added or gone or order != mirror.order:
            work.remember_mapping(mirror.title, built, leaves, mapping, order)
        else:
            same = mirror._replace(id=built.id, view=built.view, leaves=leaves)
            work.mirrors[built.id] = same
    return built.part


def _changed_values(
    work: Embedder,
    mirror: MappingMirror,
    mapping: dict[Any, Any],
    gone: set[Any],
    removed: set[bytes],
) -> list[Span]:
    spans: list[Span] = []
    at, codec = 0, work.codec
    for pairs in mirror.leaves:
        whole = not gone or gone.isdisjoint(pairs.keys)
        if not whole or not pairs.leaf.is_same(
            codec, interleave(pairs.keys, pairs.values(mapping))
        ):
            spans += _changed_pairs(work, mirror, mapping, pairs, at, removed)
        at += len(pairs.keys)
    return spans


def _changed_pairs(
    work: Embedder,
    mirror: MappingMirror,
    mapping: dict[Any, Any],
    pairs: Pairs,
    at: int,
    removed: set[bytes],
) -> list[Span]:
    spans = []
    entries = mirror.view.node_at(0, at).entries
    for index, (key, entry) in enumerate(zip(pairs.keys, entries, strict=True)):
        if entry.key in removed:
            spans.append(Span(at + index, at + index + 1, []))
            continue
        part = work.embed(mapping[key], entry.body)
        if part != entry.body:
            spans.append(Span(at + index, at + index + 1, [Entry(entry.key, part)]))
    return spans


def _spliced_pairs(
    work: Embedder,
    mirror: MappingMirror,
    built: Built,
    mapping: dict[Any, Any],
    added: dict[bytes, Any],
) -> list[Pairs]:
    assert built.rebuilt is not None
    leaves: list[Pairs] = []
    starts = starts_of([len(pairs.keys) for pairs in mirror.leaves])
    position = {start: index for index, start in enumerate(starts)}
    done = 0
    for region in built.rebuilt.regions:
        first, last = position[region.start], position[region.stop]
        leaves += mirror.leaves[done:first]
        encoded = dict(added)
        for pairs in mirror.leaves[first:last]:
            encoded |= {work.codec.encode(key): key for key in pairs.keys}
        leaves += work.pair_leaves(built, region, encoded, mapping)
        done = last
    return leaves + mirror.leaves[done:]


def update_bytes(work: Embedder, mirror: BytesMirror, data: bytes, source: Any) -> bytes:
    old = mirror.source.encode() if type(mirror.source) is str else mirror.source
    if data == old:
        return link(mirror.id)
    if mirror.view is None or len(data) <= INLINE_MAX:
        return work.build_bytes(mirror.title, data, source, mirror.id)
    kept, at = _same_chunks(mirror.chunks, old, data)
    pieces = cut_bytes(data[at:]) if at < len(data) else []
    if kept + len(pieces) == 1:
        built, chunks = work.builder.one_chunk(mirror.title, data, mirror.id), []
    else:
        fresh, objects = chunk_objects(pieces, mirror.chunks[kept:], True)
        for made in objects:
            work.builder.add(made)
        chunks = mirror.chunks[:kept] + fresh
        span = Span(at, mirror.view.total, fresh)
        built = work.builder.edit_chunks(mirror.title, mirror.view, [span], mirror.id)
    work.remember_bytes(mirror.title, built, chunks, data, source)
    return built.part


def _all_text(keys: Any) -> bool:
    return set(map(type, keys)) <= {str}


def _same_chunks(chunks: list[Entry], old: bytes, new: bytes) -> tuple[int, int]:
    """How many chunks at the start are the same, and where they end."""
    kept, at = 0, 0
    # The last chunk ends where the data did, not where its content says.
    for entry in chunks[:-1]:
        stop = at + entry.weight
        # Whether a chunk ends here also depends on the two bytes that follow.
        if old[at : stop + 2] != new[at : stop + 2]:
            break
        kept, at = kept + 1, stop
    return kept, at
