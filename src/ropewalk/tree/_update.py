"""Comparing large values with what was remembered of them, and changing only what differs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ropewalk.codec._msgpack import pack
from ropewalk.tree._chunks import chunk_objects, cut_bytes
from ropewalk.tree._cuts import INLINE_MAX
from ropewalk.tree._layout import SETS, Entry
from ropewalk.tree._levels import Span, View, in_turn
from ropewalk.tree._mirrors import (
    BytesMirror,
    MappingMirror,
    Pairs,
    SequenceMirror,
    all_text,
)
from ropewalk.tree._parts import link
from ropewalk.tree._pieces import (
    Piece,
    first_changed,
    held_bytes,
    splice,
    starts_of,
)

if TYPE_CHECKING:
    from ropewalk.tree._embed import Embedder


def update_sequence(work: Embedder, mirror: SequenceMirror, items: list[Any]) -> bytes:
    if mirror.title.code in SETS and work.live:
        items = work.snapshots(items)
        with work.on_snapshots():
            return update_sequence(work, mirror, items)
    if mirror.title.code in SETS:
        items = work.in_order(items)
    starts = starts_of(mirror.pieces)
    snapshots = SnapshotRanges(work)
    if len(items) == mirror.view.total:
        spans = _changed_in_place(work, mirror, starts, items, snapshots)
    else:
        spans = _changed_between(work, mirror, starts, items, snapshots)
    if not spans:
        return link(mirror.id)
    built = work.builder.edit_sequence(mirror.title, mirror.view, spans, mirror.id)
    if built.id is not None:

        def make(start: int, stop: int, guess: int) -> list[Piece]:
            with work.on_snapshots(snapshots.covers(start, stop)):
                return work.pieces(items[start:stop], guess)

        work.remember_sequence(mirror.title, built, *splice(mirror.pieces, spans, make))
    return built.part


class SnapshotRanges:
    """The ranges of a list whose items were replaced by snapshots."""

    def __init__(self, work: Embedder) -> None:
        self._work = work
        self._live = work.live
        self._ranges: list[tuple[int, int]] = []

    def take(self, items: list[Any], start: int, stop: int) -> list[Any]:
        """Replace a range of items in their list by snapshots, and return these."""
        values = items[start:stop]
        if self._live:
            values = items[start:stop] = self._work.snapshots(values)
            self._ranges.append((start, stop))
        return values

    def covers(self, start: int, stop: int) -> bool:
        """Whether every item of a range is a snapshot."""
        return not self._live or any(a <= start and stop <= b for a, b in self._ranges)


def _changed_in_place(
    work: Embedder,
    mirror: SequenceMirror,
    starts: list[int],
    items: list[Any],
    snapshots: SnapshotRanges,
) -> list[Span]:
    """The spans that differ in a sequence of the same length."""
    spans, pieces = [], mirror.pieces
    order = range(len(pieces))
    while (at := first_changed(work.codec, pieces, starts, order, items, 0)) is not None:
        order = range(at + 1, len(pieces))
        if pieces[at].plain is None:  # Its parts see to themselves, and nothing is remembered.
            values = items[starts[at] : starts[at + 1]]
            spans += _changed_in_piece(work, mirror.view, pieces[at], starts[at], values)
            continue
        values = snapshots.take(items, starts[at], starts[at + 1])
        with work.on_snapshots():
            spans += _changed_in_piece(work, mirror.view, pieces[at], starts[at], values)
    return spans


def _changed_in_piece(
    work: Embedder, view: View, piece: Piece, at: int, values: list[Any]
) -> list[Span]:
    spans = []
    for start, stop in _changed_leaves(work, view, piece, at, values):
        for place, entry in enumerate(view.entries(start, stop), start):
            part = work.embed(values[place - at], entry.body)
            if part != entry.body:
                spans.append(Span(place, place + 1, [Entry(b"", part)]))
    return spans


def _changed_leaves(
    work: Embedder, view: View, piece: Piece, at: int, values: list[Any]
) -> Iterator[tuple[int, int]]:
    """Where in a piece there are leaves that may have changed, whole or in part."""
    end, width = at + piece.length, len(values) // piece.length
    start = at
    while start < end:
        first, last, payload = view.leaf_at(start)
        stop = min(last, end)
        # A leaf without links holds what encoding its values gave.
        whole = not piece.binary and (first, last) == (start, stop)
        some = values[(start - at) * width : (stop - at) * width]
        if not whole or payload is None or work.codec.encode_again(some) != payload:
            yield start, stop
        start = stop


def _changed_between(
    work: Embedder,
    mirror: SequenceMirror,
    starts: list[int],
    items: list[Any],
    snapshots: SnapshotRanges,
) -> list[Span]:
    """One span between what is the same at both ends."""
    pieces, view, shift = mirror.pieces, mirror.view, len(items) - mirror.view.total
    fitting = bisect_right(starts, len(items)) - 1
    first = _first_changed(work, mirror, starts, range(fitting), items, 0)
    # Where items were taken out, the first values are not looked at twice.
    lowest = max(first, bisect_left(starts, starts[first] - shift))
    behind = range(len(pieces) - 1, lowest - 1, -1)
    last = _first_changed(work, mirror, starts, behind, items, shift) + 1
    if work.live:
        # What is remembered of the pieces at both ends is made anew with the others.
        first, last = max(first - 1, 0), min(last + 1, len(pieces))
    stop = starts[last]
    snapshots.take(items, starts[first], stop + shift)
    with work.on_snapshots():
        ahead = range(first, max(first, min(last, bisect_right(starts, stop + shift) - 1)))
        at = first_changed(work.codec, pieces, starts, ahead, items, 0)
        start = starts[ahead.stop if at is None else at]
        start = _same_ahead(work, view, start, min(stop, stop + shift), items)
        stop = _same_behind(work, view, max(start, start - shift), stop, items, shift)
        return _replaced(work, view, start, stop, items, shift)


def _first_changed(
    work: Embedder,
    mirror: SequenceMirror,
    starts: list[int],
    order: range,
    items: list[Any],
    shift: int,
) -> int:
    """The first piece in an order that changed, or where the order ends."""
    while True:
        at = first_changed(work.codec, mirror.pieces, starts, order, items, shift)
        if at is None:
            return order.stop
        piece, values = mirror.pieces[at], items[starts[at] + shift : starts[at + 1] + shift]
        if piece.plain is not None or _changed_in_piece(
            work, mirror.view, piece, starts[at], values
        ):
            return at
        order = range(at + order.step, order.stop, order.step)


def _same_ahead(work: Embedder, view: View, start: int, stop: int, items: list[Any]) -> int:
    """Where the first of the items from a position on changed."""
    for at, entry in enumerate(view.entries(start, stop), start):
        if work.embed(items[at], entry.body) != entry.body:
            return at
    return max(start, stop)


def _same_behind(
    work: Embedder, view: View, start: int, stop: int, items: list[Any], shift: int
) -> int:
    """Behind which position all items up to another one are the same."""
    entries = view.entries(start, stop)
    while entries and work.embed(items[stop - 1 + shift], entries[-1].body) == entries[-1].body:
        entries.pop()
        stop -= 1
    return stop


def _replaced(
    work: Embedder, view: View, start: int, stop: int, items: list[Any], shift: int
) -> list[Span]:
    old = view.entries(start, min(stop, view.leaf_at(start)[1])) if start < stop else []
    beside = {at: entry.body for at, entry in enumerate(old)}
    values = items[start : stop + shift]
    entries = [Entry(b"", work.embed(one, beside.get(at))) for at, one in enumerate(values)]
    return [Span(start, stop, entries)]


def update_mapping(work: Embedder, mirror: MappingMirror, mapping: dict[Any, Any]) -> bytes:
    # Equal encodings are of equal types, and a text finds what an equal text found.
    if work.codec.encode(list(mapping)) == mirror.keys_plain and (
        mirror.texts or _same_keys(mapping, mirror.keys)
    ):
        return _update_values(work, mirror, mapping, {}, [], mirror.order)
    if not (mirror.texts and all_text(mapping)):
        beside = {e.key: e.body for place in mirror.view.leaves() for e in place.entries}
        SnapshotKeys(work, mapping).take(list(mapping))
        with work.on_snapshots():
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
    return all(
        one is other or (one == other and hash(one) == hash(other))
        for one, other in zip(keys, old, strict=True)
    )


def _new_order(
    work: Embedder, mirror: MappingMirror, mapping: dict[Any, Any], gone: list[Any]
) -> bytes | None:
    return work.order(mirror.title, [pack(key) for key in mapping], mirror.order)


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
    places = {key: mirror.view.locate(key)[0] for key in added}
    touched = _touched_runs(mirror, places.values()) if work.live else set()
    snapshots = SnapshotKeys(work, mapping)
    spans = _changed_values(work, mirror, snapshots, set(gone), removed, touched)
    snapshots.take(list(added.values()))
    with work.on_snapshots():
        for key, at in places.items():
            spans.append(Span(at, at, [Entry(key, work.embed(mapping[added[key]]))]))
    if not spans and order == mirror.order:
        return link(mirror.id)
    spans = in_turn(spans)
    built = work.builder.edit_mapping(mirror.title, mirror.view, spans, order, mirror.id)
    if built.id is not None:
        runs, fresh = _spliced_runs(work, mirror, spans, snapshots, added)
        if added or gone or order != mirror.order:
            keys = [pack(key) for key in mapping]
            work.remember_mapping(mirror.title, built, runs, fresh, mapping, keys, order)
        else:
            assert built.view is not None
            size = held_bytes([run.piece for run in fresh], len(runs))
            work.mirrors[built.id] = mirror._replace(
                id=built.id, view=built.view, runs=runs, size=size
            )
    return built.part


class SnapshotKeys:
    """A mapping, and the keys whose values were replaced by snapshots."""

    def __init__(self, work: Embedder, mapping: dict[Any, Any]) -> None:
        self._work = work
        self._live = work.live
        self._keys: set[Any] = set()
        self.mapping = mapping

    def take(self, keys: list[Any]) -> None:
        """Replace the values of keys by snapshots."""
        if self._live:
            values = self._work.snapshots([self.mapping[key] for key in keys])
            self.mapping.update(zip(keys, values, strict=True))
            self._keys.update(keys)

    def covers(self, keys: list[Any]) -> bool:
        """Whether the value of every key is a snapshot."""
        return not self._live or self._keys.issuperset(keys)


def _touched_runs(mirror: MappingMirror, places: Iterable[int]) -> set[int]:
    """Which runs have to be remembered anew if something is inserted in places."""
    starts = starts_of(mirror.runs)
    return {max(bisect_left(starts, at) - 1, 0) for at in places}


def _changed_values(
    work: Embedder,
    mirror: MappingMirror,
    snapshots: SnapshotKeys,
    gone: set[Any],
    removed: set[bytes],
    touched: set[int],
) -> list[Span]:
    spans: list[Span] = []
    at, view, mapping = 0, mirror.view, snapshots.mapping
    for index, run in enumerate(mirror.runs):
        start, at = at, at + run.length
        whole = index in touched or (bool(gone) and not gone.isdisjoint(run.keys))
        if not whole and run.piece.is_same(work.codec, run.values(mapping)):
            continue
        if run.piece.plain is None:  # Its parts see to themselves, and nothing is remembered.
            spans += _changed_pairs(work, view, mapping, run.keys, start, at, removed)
            continue
        snapshots.take([key for key in run.keys if key not in gone])
        with work.on_snapshots():
            leaves = (
                [(start, at)]
                if whole
                else _changed_leaves(work, view, run.piece, start, run.values(mapping))
            )
            for low, high in leaves:
                keys = run.keys[low - start : high - start]
                spans += _changed_pairs(work, view, mapping, keys, low, high, removed)
    return spans


def _changed_pairs(
    work: Embedder,
    view: View,
    mapping: dict[Any, Any],
    keys: list[Any],
    start: int,
    stop: int,
    removed: set[bytes],
) -> list[Span]:
    spans = []
    for at, (key, entry) in enumerate(zip(keys, view.entries(start, stop), strict=True), start):
        if entry.key in removed:
            spans.append(Span(at, at + 1, []))
            continue
        part = work.embed(mapping[key], entry.body)
        if part != entry.body:
            spans.append(Span(at, at + 1, [Entry(entry.key, part)]))
    return spans


def _spliced_runs(
    work: Embedder,
    mirror: MappingMirror,
    spans: list[Span],
    snapshots: SnapshotKeys,
    added: dict[bytes, Any],
) -> tuple[list[Pairs], list[Pairs]]:
    keys = [key for run in mirror.runs for key in run.keys]
    for start, stop, entries in reversed(spans):
        if len(entries) != stop - start:
            keys[start:stop] = [added[entry.key] for entry in entries]

    def make(low: int, high: int, guess: int) -> list[Pairs]:
        some = keys[low:high]
        with work.on_snapshots(snapshots.covers(some)):
            return work.runs(some, snapshots.mapping, guess)

    return splice(mirror.runs, spans, make)


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
