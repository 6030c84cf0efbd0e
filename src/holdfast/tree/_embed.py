"""A value as a part, with what is large as a tree of its own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import groupby
from typing import Any, Final

from ormsgpack import Ext

from holdfast.codec import Codec
from holdfast.codec._codes import Code
from holdfast.codec._msgpack import pack, unpack
from holdfast.codec._opened import Form, Opened
from holdfast.errors import NotStorable
from holdfast.tree._builder import Builder, Built, Title
from holdfast.tree._chunks import chunk_objects, cut_bytes
from holdfast.tree._cuts import INLINE_MAX
from holdfast.tree._layout import PAIRS, SETS, Entry
from holdfast.tree._levels import Rebuilt, Region, Span, View
from holdfast.tree._mirrors import (
    BytesMirror,
    Leaf,
    MappingMirror,
    Mirror,
    Pairs,
    SequenceMirror,
    first_changed,
    interleave,
    leaf_of,
    pairs_of,
    starts_of,
)
from holdfast.tree._objects import ObjectId
from holdfast.tree._parts import link, linked, may_hold_links

MAX_LARGE_DEPTH: Final = 100
"""How many large parts may stand inside one another."""


_NO_PARTS = frozenset({type(None), bool, float})
"""Types that the codec cannot open up, because msgpack has a word for them."""


class Embedder:
    """Turns values into parts; `old` is always the part in the same place before.

    What `old` says only saves work: the part of a value depends on the value alone.
    """

    def __init__(self, codec: Codec, builder: Builder, known: dict[ObjectId, Mirror]) -> None:
        self._codec = codec
        self._builder = builder
        self._known = known
        self._depth = 0
        self.mirrors: dict[ObjectId, Mirror] = {}

    def embed(self, value: Any, old: bytes | None = None) -> bytes:
        """The part of a value."""
        if old is not None and type(value) not in _NO_PARTS:
            id = linked(old)
            mirror = self._known.get(id) if id is not None else None
            if mirror is not None:
                return self._deeper(self._update, mirror, value)
        if old is None or type(value) in _NO_PARTS or not may_hold_links(old):
            plain = self._codec.encode(value)
            if len(plain) <= INLINE_MAX:
                return plain
        return self._deeper(self._build, self._codec.open_up(value), value, old)

    def _deeper(self, step: Any, *arguments: Any) -> bytes:
        if self._depth >= MAX_LARGE_DEPTH:
            raise NotStorable("it is nested too deeply")
        self._depth += 1
        part: bytes = step(*arguments)
        self._depth -= 1
        return part

    # Building a part without a mirror.

    def _build(self, opened: Opened, value: Any, old: bytes | None) -> bytes:
        title = Title(opened.code, opened.head)
        base = linked(old) if old is not None else None
        if opened.form is Form.BYTES:
            return self._build_bytes(title, opened.parts, value, base)
        beside = _old_parts(old, title) if old is not None else {}
        if opened.form is Form.SEQUENCE:
            return self._build_sequence(title, opened.parts, beside, base)
        return self._build_mapping(title, opened.parts, beside, base)

    def _build_bytes(self, title: Title, data: bytes, source: Any, base: ObjectId | None) -> bytes:
        if len(data) <= INLINE_MAX:
            plain = self._codec.encode(source)
            if len(plain) <= INLINE_MAX:
                return plain
        built, chunks = self._builder.chunked(title, data, base)
        self._remember_bytes(title, built, chunks, data, source)
        return built.part

    def _remember_bytes(
        self, title: Title, built: Built, chunks: list[Entry], data: bytes, source: Any
    ) -> None:
        assert built.id is not None
        kept = source if type(source) in (str, bytes) else data
        self.mirrors[built.id] = BytesMirror(built.id, title, built.view, chunks, kept)

    def _build_sequence(
        self, title: Title, items: list[Any], beside: dict[Any, bytes], base: ObjectId | None
    ) -> bytes:
        if title.code in SETS:
            items = sorted(items, key=self._codec.encode)
        parts = [self.embed(item, beside.get(index)) for index, item in enumerate(items)]
        built = self._builder.sequence(title, parts, base)
        if built.id is not None:
            assert built.view is not None and built.rebuilt is not None
            leaves = self._leaves(built.view, built.rebuilt, items, built.rebuilt.regions[0])
            self.mirrors[built.id] = SequenceMirror(built.id, title, built.view, leaves)
        return built.part

    def _build_mapping(
        self,
        title: Title,
        mapping: dict[Any, Any],
        beside: dict[Any, bytes],
        base: ObjectId | None,
        old_order: bytes | None = None,
    ) -> bytes:
        encoded = {self._codec.encode(key): key for key in mapping}
        keys = list(encoded)
        parts = [self.embed(mapping[key], beside.get(at)) for at, key in encoded.items()]
        if len(keys) != len(mapping):
            raise NotStorable("two of its keys are stored as the same bytes (nan twice?)")
        order = self._order(title, keys, encoded, old_order)
        built = self._builder.mapping(title, keys, parts, order, base)
        if built.id is not None:
            assert built.view is not None and built.rebuilt is not None
            region = built.rebuilt.regions[0]
            leaves = self._pair_leaves(built, region, encoded, mapping)
            self._remember_mapping(title, built, leaves, mapping, order)
        return built.part

    def _order(
        self, title: Title, keys: list[bytes], encoded: dict[bytes, Any], old: bytes | None
    ) -> bytes | None:
        """The part of the order of keys, where it is not the sorted one."""
        if title.code == Code.MAP or keys == sorted(keys):
            return None
        if any(len(key) > INLINE_MAX for key in keys):
            # Keys never leave their parent, however long they are.
            return self._builder.sequence(Title(Code.LIST), keys).part
        return self.embed(list(encoded.values()), old)

    def _remember_mapping(
        self,
        title: Title,
        built: Built,
        leaves: list[Pairs],
        mapping: dict[Any, Any],
        order: bytes | None,
    ) -> None:
        assert built.id is not None and built.view is not None
        keys = dict.fromkeys(mapping)
        self.mirrors[built.id] = MappingMirror(
            built.id, title, built.view, leaves, keys, self._codec.encode(list(keys)), order
        )

    def _leaves(self, view: View, rebuilt: Rebuilt, items: list[Any], region: Region) -> list[Leaf]:
        """Remember the leaves of a region; `items` are its values."""
        leaves, at = [], 0
        for group in region.groups:
            payload = view.layout.encode(0, group.entries)
            values = items[at : at + len(group.entries)]
            leaves.append(leaf_of(self._codec, values, payload, len(values)))
            at += len(values)
        return leaves

    def _pair_leaves(
        self, built: Built, region: Region, encoded: dict[bytes, Any], mapping: dict[Any, Any]
    ) -> list[Pairs]:
        leaves = []
        for group in region.groups:
            keys = [encoded[entry.key] for entry in group.entries]
            payload = PAIRS.encode(0, group.entries)
            leaves.append(pairs_of(self._codec, keys, [mapping[key] for key in keys], payload))
        return leaves

    # Comparing a value with its mirror.

    def _update(self, mirror: Mirror, value: Any) -> bytes:
        if isinstance(mirror, BytesMirror) and mirror.is_same(value):
            return link(mirror.id)
        opened = self._codec.open_up(value)
        title = Title(opened.code, opened.head)
        if title != mirror.title:
            return self._build(opened, value, link(mirror.id))
        if isinstance(mirror, SequenceMirror):
            return self._update_sequence(mirror, opened.parts)
        if isinstance(mirror, MappingMirror):
            return self._update_mapping(mirror, opened.parts)
        return self._update_bytes(mirror, opened.parts, value)

    def _update_sequence(self, mirror: SequenceMirror, items: list[Any]) -> bytes:
        if mirror.title.code in SETS:
            items = sorted(items, key=self._codec.encode)
        if len(items) == mirror.view.total:
            spans = self._changed_in_place(mirror, items)
        else:
            spans = self._changed_between(mirror, items)
        if not spans:
            return link(mirror.id)
        built = self._builder.edit_sequence(mirror.title, mirror.view, spans, mirror.id)
        if built.id is not None:
            assert built.view is not None and built.rebuilt is not None
            leaves = self._spliced_leaves(mirror, built, items)
            self.mirrors[built.id] = SequenceMirror(built.id, mirror.title, built.view, leaves)
        return built.part

    def _changed_in_place(self, mirror: SequenceMirror, items: list[Any]) -> list[Span]:
        """The spans that differ in a sequence of the same length."""
        spans, leaves = [], mirror.leaves
        starts = starts_of([leaf.length for leaf in leaves])
        order = range(len(leaves))
        while (at := first_changed(self._codec, leaves, starts, order, items, 0)) is not None:
            values = items[starts[at] : starts[at + 1]]
            spans += self._changed_in_leaf(mirror.view, starts[at], values)
            order = range(at + 1, len(leaves))
        return spans

    def _changed_in_leaf(self, view: View, at: int, values: list[Any]) -> list[Span]:
        spans = []
        for index, entry in enumerate(view.node_at(0, at).entries):
            part = self.embed(values[index], entry.body)
            if part != entry.body:
                spans.append(Span(at + index, at + index + 1, [Entry(b"", part)]))
        return spans

    def _changed_between(self, mirror: SequenceMirror, items: list[Any]) -> list[Span]:
        """One span between the leaves that are the same at both ends."""
        leaves, shift = mirror.leaves, len(items) - mirror.view.total
        starts = starts_of([leaf.length for leaf in leaves])
        fitting = bisect_right(starts, len(items)) - 1
        first = self._first_changed(mirror, starts, range(fitting), items, 0)
        # Where items were taken out, the values of the first leaves are not looked at twice.
        lowest = max(first, bisect_left(starts, starts[first] - shift))
        behind = range(len(leaves) - 1, lowest - 1, -1)
        last = self._first_changed(mirror, starts, behind, items, shift) + 1
        return self._replaced(mirror.view, starts[first], starts[last], items, shift)

    def _first_changed(
        self, mirror: SequenceMirror, starts: list[int], order: range, items: list[Any], shift: int
    ) -> int:
        """The first leaf in an order that changed, or where the order ends."""
        while True:
            at = first_changed(self._codec, mirror.leaves, starts, order, items, shift)
            if at is None:
                return order.stop
            values = items[starts[at] + shift : starts[at + 1] + shift]
            if mirror.leaves[at].plain is not None or self._changed_in_leaf(
                mirror.view, starts[at], values
            ):
                return at
            order = range(at + order.step, order.stop, order.step)

    def _replaced(
        self, view: View, start: int, stop: int, items: list[Any], shift: int
    ) -> list[Span]:
        old: list[bytes] = []
        if start < stop:
            old = [entry.body for entry in view.node_at(0, start).entries]
        beside = dict(enumerate(old))
        values = items[start : stop + shift]
        entries = [Entry(b"", self.embed(one, beside.get(at))) for at, one in enumerate(values)]
        return [Span(start, stop, entries)]

    def _spliced_leaves(self, mirror: SequenceMirror, built: Built, items: list[Any]) -> list[Leaf]:
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
            leaves += self._leaves(built.view, built.rebuilt, items[at : at + fresh], region)
            at += fresh
            done = position[region.stop]
        return leaves + mirror.leaves[done:]

    def _update_mapping(self, mirror: MappingMirror, mapping: dict[Any, Any]) -> bytes:
        texts = _all_text(mapping) and _all_text(mirror.keys)
        if self._codec.encode(list(mapping)) == mirror.keys_plain and (
            # A key that equals only itself, such as nan, is not found by another one.
            texts or all(key in mapping for key in mirror.keys)
        ):
            return self._update_values(mirror, mapping, {}, [], mirror.order)
        if not texts:
            beside = {e.key: e.body for place in mirror.view.leaves() for e in place.entries}
            return self._build_mapping(mirror.title, mapping, beside, mirror.id, mirror.order)
        added = {pack(key): key for key in mapping if key not in mirror.keys}
        gone = [key for key in mirror.keys if key not in mapping]
        order = self._new_order(mirror, mapping, gone)
        return self._update_values(mirror, mapping, added, gone, order)

    def _new_order(
        self, mirror: MappingMirror, mapping: dict[Any, Any], gone: list[Any]
    ) -> bytes | None:
        encoded = {pack(key): key for key in mapping}
        return self._order(mirror.title, list(encoded), encoded, mirror.order)

    def _update_values(
        self,
        mirror: MappingMirror,
        mapping: dict[Any, Any],
        added: dict[bytes, Any],
        gone: list[Any],
        order: bytes | None,
    ) -> bytes:
        """Change values, add and remove keys, and keep everything else."""
        removed = {pack(key) for key in gone}
        spans = self._changed_values(mirror, mapping, set(gone), removed)
        for key, python_key in added.items():
            at, _ = mirror.view.locate(key)
            spans.append(Span(at, at, [Entry(key, self.embed(mapping[python_key]))]))
        if not spans and order == mirror.order:
            return link(mirror.id)
        built = self._builder.edit_mapping(
            mirror.title, mirror.view, in_turn(spans), order, mirror.id
        )
        if built.id is not None:
            leaves = self._spliced_pairs(mirror, built, mapping, added)
            self._remember_mapping(mirror.title, built, leaves, mapping, order)
        return built.part

    def _changed_values(
        self,
        mirror: MappingMirror,
        mapping: dict[Any, Any],
        gone: set[Any],
        removed: set[bytes],
    ) -> list[Span]:
        spans: list[Span] = []
        at, codec = 0, self._codec
        for pairs in mirror.leaves:
            whole = not gone or gone.isdisjoint(pairs.keys)
            if not whole or not pairs.leaf.is_same(
                codec, interleave(pairs.keys, pairs.values(mapping))
            ):
                spans += self._changed_pairs(mirror, mapping, pairs, at, removed)
            at += len(pairs.keys)
        return spans

    def _changed_pairs(
        self,
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
            part = self.embed(mapping[key], entry.body)
            if part != entry.body:
                spans.append(Span(at + index, at + index + 1, [Entry(entry.key, part)]))
        return spans

    def _spliced_pairs(
        self,
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
                encoded |= {self._codec.encode(key): key for key in pairs.keys}
            leaves += self._pair_leaves(built, region, encoded, mapping)
            done = last
        return leaves + mirror.leaves[done:]

    def _update_bytes(self, mirror: BytesMirror, data: bytes, source: Any) -> bytes:
        old = mirror.source.encode() if type(mirror.source) is str else mirror.source
        if data == old:
            return link(mirror.id)
        if mirror.view is None or len(data) <= INLINE_MAX:
            return self._build_bytes(mirror.title, data, source, mirror.id)
        kept, at = _same_chunks(mirror.chunks, old, data)
        pieces = cut_bytes(data[at:]) if at < len(data) else []
        if kept + len(pieces) == 1:
            built, chunks = self._builder.one_chunk(mirror.title, data, mirror.id), []
        else:
            fresh, objects = chunk_objects(pieces, mirror.chunks[kept:], True)
            for made in objects:
                self._builder.add(made)
            chunks = mirror.chunks[:kept] + fresh
            span = Span(at, mirror.view.total, fresh)
            built = self._builder.edit_chunks(mirror.title, mirror.view, [span], mirror.id)
        self._remember_bytes(mirror.title, built, chunks, data, source)
        return built.part


def in_turn(spans: list[Span]) -> list[Span]:
    """Spans in ascending order, with those that insert in one place as one."""
    spans.sort(key=lambda span: (span.start, span.stop, [entry.key for entry in span.entries]))
    joined: list[Span] = []
    for at, together in groupby(spans, key=lambda span: (span.start, span.stop)):
        several = list(together)
        if len(several) > 1:
            assert at[0] == at[1], "two changes of one key"
            entries = [entry for span in several for entry in span.entries]
            several = [Span(*at, entries)]
        joined += several
    return joined


def _all_text(keys: Any) -> bool:
    return set(map(type, keys)) <= {str}


def _same_chunks(chunks: list[Entry], old: bytes, new: bytes) -> tuple[int, int]:
    """How many chunks at the start are the same, and where they end."""
    before, after = memoryview(old), memoryview(new)
    kept, at = 0, 0
    # The last chunk ends where the data did, not where its content says.
    for entry in chunks[:-1]:
        stop = at + entry.weight
        # Whether a chunk ends here also depends on the two bytes that follow.
        if before[at : stop + 2] != after[at : stop + 2]:
            break
        kept, at = kept + 1, stop
    return kept, at


def _old_parts(old: bytes, title: Title) -> dict[Any, bytes]:
    """The parts of an old inline container, by index or by encoded key."""
    if linked(old) is not None:
        return {}
    raw = unpack(old)
    if type(raw) is list:
        return {index: pack(part) for index, part in enumerate(raw)}
    if type(raw) is dict:
        return {pack(key): pack(part) for key, part in raw.items()}
    return _extension_parts(old, title) if type(raw) is Ext else {}


def _extension_parts(old: bytes, title: Title) -> dict[Any, bytes]:
    """The parts of an old inline extension of the same type."""
    code, content = unpack(old, lambda code, data: (code, data))
    if code != title.code:
        return {}
    raw = unpack(content)
    if title.code == Code.RECORD:
        return {pack(key): pack(part) for key, part in raw[-1].items()}
    if title.code == Code.DICT:
        keys, parts = raw[::2], raw[1::2]
        return {pack(key): pack(part) for key, part in zip(keys, parts, strict=True)}
    if title.code == Code.CUSTOM:
        return {0: pack(raw[-1])}
    return {index: pack(part) for index, part in enumerate(raw)}
