"""A value as a part, with what is large as a tree of its own.

A value is built anew, or compared with what is remembered of the one before: with its
mirror, and with that only. What others may change meanwhile is looked at where it is, and
what differs is taken as a snapshot, from which all that is stored is made, and all that is
remembered. So a change between two looks is never lost.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from ormsgpack import Ext

from ropewalk.codec import Codec
from ropewalk.codec.msgpack import Code, Form, Opened, close_sequence, open_extension, pack, unpack
from ropewalk.errors import ChangedMeanwhile, NotStorable
from ropewalk.tree.build import Builder, Built, Title, chunk_objects, cut_bytes
from ropewalk.tree.change_detection import (
    LARGE,
    UNKNOWN,
    VALUE_MAX,
    Budget,
    Digest,
    Piece,
    first_changed,
    spliced,
    starts_of,
    take,
)
from ropewalk.tree.levels import Span, View, differing_spans, keyed_spans, renewed_spans
from ropewalk.tree.limits import MAX_LARGE_DEPTH
from ropewalk.tree.mirrors import (
    BytesMirror,
    MappingMirror,
    Mirror,
    Pairs,
    SequenceMirror,
    SnapshotCodec,
    all_text,
    by_run,
    runs_of,
    same_keys,
)
from ropewalk.tree.nodes import (
    INLINE_MAX,
    KEYED,
    NODE_MAX,
    SETS,
    Entry,
    link,
    linked,
    may_hold_links,
)
from ropewalk.tree.objects import Kind, ObjectId, object_id

_NOTHING_LEFT: Final = Budget(0)
_ATTEMPTS: Final = 4
T = TypeVar("T")

_TEXTS = frozenset({str, bytes})

_NO_PARTS = frozenset({type(None), bool, float})
"""Types that the codec cannot open up, because msgpack has a word for them."""


class Embedder:
    """Turns values into parts; `old` is always the part in the same place before.

    What `old` says only saves work: the part of a value depends on the value alone.
    """

    def __init__(
        self,
        codec: Codec,
        builder: Builder,
        known: Mapping[ObjectId, Mirror],
        budget: Budget | None = None,
    ) -> None:
        self._codec = codec
        self._snapshot_codec = SnapshotCodec(codec)
        self._budget = Budget() if budget is None else budget
        self.builder = builder
        self._live = True
        """Whether it works on live values, which others may change, or on snapshots."""
        self._covered = False
        """Whether a piece further up tells of every change here, so that a digest will do."""
        self._known = known
        self._depth = 0
        self.mirrors: dict[ObjectId, Mirror] = {}
        self.replaced: list[ObjectId] = []
        """The roots in whose place something else stands now."""

    @property
    def codec(self) -> Codec:
        """What values, or snapshots, are encoded with."""
        return self._codec if self._live else self._snapshot_codec

    def _on(self, live: bool, covered: bool = False) -> _Mode:
        return _Mode(self, live, covered or (self._covered and not live))

    def _take(
        self, values: list[Any], width: int = 1, guess: int = 0
    ) -> Iterator[tuple[list[Any], Piece]]:
        left = self._left()
        return take(self.codec, values, left, live=self._live, width=width, guess=guess)

    def _left(self) -> Budget:
        return _NOTHING_LEFT if self._covered else self._budget

    def _on_run(self, piece: Piece) -> _Mode:
        """While it works on the run of a piece."""
        return self._on(self._live and piece.plain is None, piece.plain is not None)

    def embed(self, value: Any, old: bytes | None = None, plain: bytes | None = None) -> bytes:
        """The part of a value; `plain` is its encoding, where that is known."""
        if old is not None and type(value) not in _NO_PARTS and may_hold_links(old):
            mirror = self._known.get(linked(old) or b"")
            self._deeper()
            try:
                return self._build(value, old) if mirror is None else self._update(mirror, value)
            finally:
                self._depth -= 1
        whole = self.codec.encode(value) if plain is None else plain
        if len(whole) <= INLINE_MAX:
            return whole
        if self._live and len(whole) > VALUE_MAX:
            del whole, plain  # What is taken piece by piece is not held beside that.
            return self.embed_large(value, old)
        self._deeper()
        try:
            return self._build_taken(value, old, whole)
        finally:
            self._depth -= 1

    def embed_large(self, value: Any, old: bytes | None = None) -> bytes:
        """The part of a value whose encoding is known to be longer than `VALUE_MAX`."""
        if old is not None and may_hold_links(old):
            return self.embed(value, old)
        self._deeper()
        try:
            return self._build_taken(value, old, None)
        finally:
            self._depth -= 1

    def _deeper(self) -> None:
        if self._depth >= MAX_LARGE_DEPTH:
            raise NotStorable("it is nested too deeply")
        self._depth += 1

    # Building.

    def _build(self, value: Any, old: bytes) -> bytes:
        """The part of a value where there was something large."""
        if linked(old) is None or not self._live or type(value) in _TEXTS:
            # A small container with large parts, each of which sees to itself.
            part = self._build_opened(self.codec.open_up(value), value, old)
            if linked(part) is None or not self._live or type(value) in _TEXTS:
                return part
        try:
            plain: bytes | None = self._codec.encode(value)
        except NotStorable:
            plain = None  # Its parts can be stored, but together they nest too deeply.
        if plain is not None and len(plain) > VALUE_MAX:
            plain = None
        return self._build_taken(value, old, plain)

    def _build_taken(self, value: Any, old: bytes | None, plain: bytes | None) -> bytes:
        """The part of a large value, from its encoding if that is given."""
        if plain is not None and self._live and type(value) not in _TEXTS:
            value = unpack(plain)
            with self._on(False):
                return self._build_opened(self.codec.open_up(value), value, old)
        return self._build_opened(self.codec.open_up(value), value, old)

    def _build_opened(self, opened: Opened, value: Any, old: bytes | None) -> bytes:
        title = Title(opened.code, opened.head)
        was = linked(old) if old is not None else None
        if opened.form is Form.BYTES:
            return self._build_bytes(title, opened.parts, value, was)
        beside = _old_parts(old, title) if old is not None else {}
        if opened.form is Form.SEQUENCE:
            return self._build_sequence(title, opened.parts, beside, was)
        return self._build_mapping(title, opened.parts, beside, was, inline=bool(beside))

    def _build_bytes(self, title: Title, data: bytes, source: Any, was: ObjectId | None) -> bytes:
        if len(data) <= INLINE_MAX:
            plain = self.codec.encode(source)
            if len(plain) <= INLINE_MAX:
                return plain
        built, chunks = self.builder.chunked(title, data, was)
        return self._remember_bytes(title, built, chunks, data, source)

    def _build_sequence(
        self, title: Title, items: list[Any], beside: Mapping[int, bytes], was: ObjectId | None
    ) -> bytes:
        is_set = title.code in SETS
        if is_set:
            items = self._members(items)
        with self._on(self._live and not is_set):
            if beside:  # Most are as they were, and know so.
                parts = [self.embed(item, beside.get(index)) for index, item in enumerate(items)]
                pieces = [UNKNOWN] * len(items)
            else:
                parts, pieces = self._taken(items)
            built = self.builder.sequence(title, parts, was)
            if built.id is not None:
                if beside and not self._live:
                    pieces = [one for _, one in self._take(items)]
                self._remember_sequence(title, built, pieces)
        return built.part

    def _taken(
        self, items: list[Any], old: Callable[[int, list[bytes]], bytes | None] | None = None
    ) -> tuple[list[bytes], list[Piece]]:
        """The parts of items, run by run, and what is remembered of them.

        `old` gives the old part beside an index, from the new parts before it.
        """
        parts: list[bytes] = []
        pieces: list[Piece] = []
        for values, piece in self._take(items):
            with self._on_run(piece):
                if piece is LARGE:
                    parts.append(self.embed_large(values[0], old and old(len(parts), parts)))
                elif old is None:
                    parts += self._parts(values)
                else:
                    for value in values:
                        parts.append(self.embed(value, old(len(parts), parts)))
            pieces.append(piece)
        return parts, pieces

    def _parts(self, values: list[Any]) -> list[bytes]:
        """The parts of values, of which nothing is remembered."""
        if not self._live:
            try:
                parts = list(map(pack, values))
            except TypeError:
                pass  # They nest too deeply.
            else:
                if max(map(len, parts)) <= INLINE_MAX:
                    return parts
                return [
                    part if len(part) <= INLINE_MAX else self.embed(value, None, part)
                    for part, value in zip(parts, values, strict=True)
                ]
        return [self.embed(value) for value in values]

    def _members(self, members: list[Any]) -> list[Any]:
        """Snapshots of the members of a set, in the order of their encodings."""
        encoded = {self.codec.encode(member): member for member in members}
        if len(encoded) != len(members):
            raise NotStorable("two of its members are stored as the same bytes (nan twice?)")
        if self._live:
            return list(map(unpack, sorted(encoded)))
        return [encoded[key] for key in sorted(encoded)]

    def _build_mapping(
        self,
        title: Title,
        mapping: dict[Any, Any],
        beside: Mapping[bytes, bytes],
        was: ObjectId | None,
        old_order: bytes | None = None,
        *,
        inline: bool = False,
    ) -> bytes:
        """A mapping; the parts `beside` may stand `inline` and see to themselves."""
        encode = pack if all_text(mapping) else self.codec.encode
        try:
            keys = {encode(key): key for key in mapping}
        except TypeError:
            keys = {self.codec.encode(key): key for key in mapping}  # It says what is refused.
        if len(keys) != len(mapping):
            raise NotStorable("two of its keys are stored as the same bytes (nan twice?)")
        in_turn = sorted(keys)
        if inline:
            parts = [self.embed(mapping[keys[at]], beside.get(at)) for at in in_turn]
            runs = [Pairs.of([keys[at]], UNKNOWN) for at in in_turn]
            if not self._live:
                taken = [keys[at] for at in in_turn]
                runs = runs_of(self.codec, taken, mapping, self._left())
        else:
            parts, runs = self._taken_pairs([keys[at] for at in in_turn], in_turn, mapping, beside)
        by_key = dict(zip(in_turn, parts, strict=True))
        order = self._order(title, list(keys), old_order)
        built = self.builder.mapping(title, list(keys), [by_key[key] for key in keys], order, was)
        if built.id is not None:
            self._remember_mapping(title, built, runs, mapping, list(keys), order)
        return built.part

    def _taken_pairs(
        self,
        keys: list[Any],
        encoded: Sequence[bytes],
        mapping: dict[Any, Any],
        beside: Mapping[bytes, bytes],
    ) -> tuple[list[bytes], list[Pairs]]:
        """The parts under keys, run by run, and what is remembered of them."""
        flat = [one for key in keys for one in (key, mapping[key])]
        parts: list[bytes] = []
        runs: list[Pairs] = []
        for values, piece in self._take(flat, 2):
            at = len(parts)
            with self._on_run(piece):
                if piece is LARGE:
                    parts.append(self.embed_large(values[1], beside.get(encoded[at])))
                elif beside:
                    olds = map(beside.get, encoded[at : at + piece.length])
                    parts += map(self.embed, values[1::2], olds)
                else:
                    parts += self._parts(values[1::2])
            runs.append(Pairs.of(keys[at : at + piece.length], piece))
        return parts, runs

    def _order(self, title: Title, keys: list[bytes], old: bytes | None) -> bytes | None:
        """The part of the order of keys, where it is not the sorted one."""
        if title.code == Code.MAP or keys == sorted(keys):
            return None
        if any(len(key) > INLINE_MAX for key in keys):
            # Keys never leave their parent, however long they are.
            return self.builder.sequence(Title(Code.LIST), keys).part
        with self._on(False):
            return self.embed(unpack(close_sequence(Code.LIST, (), keys)), old)

    # Remembering.

    def _remember_sequence(self, title: Title, built: Built, pieces: list[Piece]) -> None:
        assert built.id is not None and built.view is not None
        self.mirrors[built.id] = SequenceMirror(built.id, title, built.view, pieces)

    def _remember_mapping(
        self,
        title: Title,
        built: Built,
        runs: list[Pairs],
        mapping: dict[Any, Any],
        encoded: list[bytes],
        order: bytes | None,
    ) -> None:
        assert built.id is not None and built.view is not None
        keys, plain = dict.fromkeys(mapping), close_sequence(Code.LIST, (), encoded)
        self.mirrors[built.id] = MappingMirror(
            built.id, title, built.view, runs, keys, plain, all_text(keys), order
        )

    def _remember_bytes(
        self, title: Title, built: Built, chunks: list[Entry], data: bytes, source: Any
    ) -> bytes:
        assert built.id is not None
        kept: Any = source
        if not self._live or type(source) not in _TEXTS:  # Else it is the program's own object.
            kept = data if type(source) is not str else source
            if self._covered or not self._budget.has(len(data)):
                kept = Digest(data)
        self.mirrors[built.id] = BytesMirror(built.id, title, built.view, chunks, kept)
        return built.part

    # Comparing a value with its mirror.

    def _update(self, mirror: Mirror, value: Any) -> bytes:
        if isinstance(mirror, BytesMirror) and mirror.is_same(value):
            return link(mirror.id)
        opened = self.codec.open_up(value)
        if Title(opened.code, opened.head) != mirror.title:
            part = self._build(value, link(mirror.id))
        elif isinstance(mirror, SequenceMirror):
            part = self._update_sequence(mirror, opened.parts)
        elif isinstance(mirror, MappingMirror):
            part = self._update_mapping(mirror, opened.parts)
        else:
            part = self._update_bytes(mirror, opened.parts, value)
        if linked(part) != mirror.id:
            self.replaced.append(mirror.id)
        return part

    def _update_sequence(self, mirror: SequenceMirror, items: list[Any]) -> bytes:
        is_set = mirror.title.code in SETS
        if is_set:
            items = self._members(items)
        with self._on(self._live and not is_set):
            starts = starts_of(mirror.pieces)
            if len(items) == mirror.view.total:
                spans, pieces = self._changed_in_place(mirror, starts, items)
            else:
                spans, pieces = self._changed_between(mirror, starts, items)
        if not spans:
            return link(mirror.id)
        built = self.builder.edit(mirror.title, mirror.view, spans, mirror.id)
        if built.id is not None:
            self._remember_sequence(mirror.title, built, pieces)
        return built.part

    def _changed_in_place(
        self, mirror: SequenceMirror, starts: list[int], items: list[Any]
    ) -> tuple[list[Span], list[Piece]]:
        """The spans that differ in a sequence of the same length, and its new pieces."""
        spans: list[Span] = []
        pieces: list[Piece] = []
        done, order = 0, range(len(mirror.pieces))
        while (at := first_changed(self.codec, mirror.pieces, starts, order, items, 0)) is not None:
            order = range(at + 1, len(mirror.pieces))
            pieces += mirror.pieces[done:at]
            done = at + 1
            more, fresh = self._changed_piece(mirror, at, starts[at], items)
            spans += more
            pieces += fresh
        return spans, pieces + mirror.pieces[done:]

    def _changed_piece(
        self, mirror: SequenceMirror, index: int, at: int, items: list[Any]
    ) -> tuple[list[Span], list[Piece]]:
        """The spans of one piece that differs, and what is remembered instead."""
        view, piece = mirror.view, mirror.pieces[index]
        values = items[at : at + piece.length]
        if piece.plain is None:  # Its parts see to themselves, and nothing is remembered.
            olds = view.entries(at, at + piece.length)
            return differing_spans(olds, list(map(self._embedded, values, olds)), at), [piece]
        spans: list[Span] = []
        pieces: list[Piece] = []
        for run, fresh in self._take(values, guess=piece.length):
            with self._on_run(fresh):
                spans += self._changed_leaves(view, run, at)
            pieces.append(fresh)
            at += fresh.length
        return spans, pieces

    def _changed_leaves(self, view: View, values: list[Any], at: int) -> list[Span]:
        """The spans that differ in a run of values, whose first is at a position."""
        spans: list[Span] = []
        start, end = at, at + len(values)
        while start < end:
            first, last, id = view.leaf_at(start)
            stop = min(last, end)
            some = values[start - at : stop - at]
            if (first, last) != (start, stop) or id is None or self._leaf_of(some) != id:
                olds = view.entries(start, stop)
                spans += differing_spans(olds, list(map(self._embedded, some, olds)), start)
            start = stop
        return spans

    def _leaf_of(self, values: list[Any]) -> ObjectId | None:
        """The id of a leaf of a sequence with these items, if none of them is large."""
        if self._live:
            return None
        plain = self.codec.encode(values)  # The encoding of a list is that of its items.
        return object_id(Kind.ITEMS, plain) if len(plain) <= NODE_MAX + INLINE_MAX + 5 else None

    def _embedded(self, value: Any, old: Entry) -> bytes:
        return self.embed(value, old.body)

    def _changed_between(
        self, mirror: SequenceMirror, starts: list[int], items: list[Any]
    ) -> tuple[list[Span], list[Piece]]:
        """One span between what is the same at both ends, and the new pieces."""
        view, old, shift = mirror.view, mirror.pieces, len(items) - mirror.view.total
        fitting = bisect_right(starts, len(items)) - 1
        first = self._first_changed(mirror, starts, range(fitting), items, 0)
        # Where items were taken out, the first values are not looked at twice.
        lowest = max(first, bisect_left(starts, starts[first] - shift))
        behind = range(len(old) - 1, lowest - 1, -1)
        last = self._first_changed(mirror, starts, behind, items, shift) + 1
        if first and old[first - 1].is_small_digest:
            first -= 1  # It cannot be joined with what follows, so it is taken again.
        low, high = starts[first], starts[last]
        values = items[low : high + shift]
        olds = view.entries(low, high) if values else []
        parts, pieces = self._taken(values, _Beside(olds, shift).of if olds else None)
        spans = differing_spans(olds, parts, low) if values else [Span(low, high, [])]
        return spans, spliced(old[:first], pieces, old[last:])

    def _first_changed(
        self, mirror: SequenceMirror, starts: list[int], order: range, items: list[Any], shift: int
    ) -> int:
        """The first piece in an order that changed, or where the order ends."""
        while True:
            at = first_changed(self.codec, mirror.pieces, starts, order, items, shift)
            if at is None:
                return order.stop
            start, piece = starts[at], mirror.pieces[at]
            if piece.plain is not None:
                return at
            olds = mirror.view.entries(start, start + piece.length)
            values = items[start + shift : start + shift + piece.length]
            if differing_spans(olds, list(map(self._embedded, values, olds)), start):
                return at
            order = range(at + order.step, order.stop, order.step)

    def _update_mapping(self, mirror: MappingMirror, mapping: dict[Any, Any]) -> bytes:
        # Equal encodings are of equal types, and a text finds what an equal text found.
        if self.codec.encode(list(mapping)) == mirror.keys_plain and (
            mirror.texts or same_keys(mapping, mirror.keys)
        ):
            return self._update_values(mirror, mapping, {}, set(), mirror.order)
        if not (mirror.texts and all_text(mapping)):
            beside = {e.key: e.body for place in mirror.view.leaves() for e in place.entries}
            title, order = mirror.title, mirror.order
            return self._build_mapping(title, mapping, beside, mirror.id, order)
        added = {pack(key): key for key in mapping if key not in mirror.keys}
        gone = {key for key in mirror.keys if key not in mapping}
        order = self._order(mirror.title, [pack(key) for key in mapping], mirror.order)
        return self._update_values(mirror, mapping, added, gone, order)

    def _update_values(
        self,
        mirror: MappingMirror,
        mapping: dict[Any, Any],
        added: dict[bytes, Any],
        gone: set[Any],
        order: bytes | None,
    ) -> bytes:
        """Change values, add and remove keys, and keep everything else."""
        spans: list[Span] = []
        runs: list[Pairs] = []
        fresh = by_run(mirror, added)
        start = 0
        for index, run in enumerate(mirror.runs):
            more = fresh.get(index, ())
            if more or (gone and not gone.isdisjoint(run.keys)):
                changed, made = self._changed_run(mirror, run, start, mapping, more, gone)
            elif run.piece.is_same(self.codec, run.values(mapping)):
                changed, made = [], [run]
            elif run.piece.plain is None:  # Its parts see to themselves.
                olds = mirror.view.entries(start, start + run.length)
                values = [mapping[key] for key in run.keys]
                changed, made = renewed_spans(olds, map(self._embedded, values, olds), start), [run]
            else:
                changed, made = self._changed_run(mirror, run, start, mapping, (), gone)
            spans += changed
            runs += made
            start += run.length
        if not spans and order == mirror.order:
            return link(mirror.id)
        built = self.builder.edit(mirror.title, mirror.view, spans, mirror.id, order)
        if built.id is not None and (added or gone or order != mirror.order):
            keys = [pack(key) for key in mapping]
            self._remember_mapping(mirror.title, built, runs, mapping, keys, order)
        elif built.id is not None:
            assert built.view is not None
            self.mirrors[built.id] = mirror._replace(id=built.id, view=built.view, runs=runs)
        return built.part

    def _changed_run(
        self,
        mirror: MappingMirror,
        run: Pairs,
        start: int,
        mapping: dict[Any, Any],
        added: Iterable[tuple[bytes, Any]],
        gone: set[Any],
    ) -> tuple[list[Span], list[Pairs]]:
        """The spans of one run of keys that differs, and what is remembered instead."""
        olds = mirror.view.entries(start, start + run.length)
        pairs = [
            (entry.key, key) for entry, key in zip(olds, run.keys, strict=True) if key not in gone
        ]
        if added:
            pairs = sorted([*pairs, *added], key=itemgetter(0))
        encoded = [at for at, _ in pairs]
        beside = {entry.key: entry.body for entry in olds if may_hold_links(entry.body)}
        parts, made = self._taken_pairs([key for _, key in pairs], encoded, mapping, beside)
        return keyed_spans(olds, list(map(Entry, encoded, parts)), start), made

    def _update_bytes(self, mirror: BytesMirror, data: bytes, source: Any) -> bytes:
        old: Any = mirror.source
        new: Any = data
        if type(old) is str and type(source) is str and old.isascii() and source.isascii():
            new = source  # Its bytes stand where its letters do, so no copy is needed.
        elif type(old) is str:
            old = old.encode()
        if new == old:
            return link(mirror.id)
        if mirror.view is None or len(data) <= INLINE_MAX:
            return self._build_bytes(mirror.title, data, source, mirror.id)
        kept, at = _same_chunks(mirror.chunks, old, new)
        pieces = cut_bytes(memoryview(data)[at:]) if at < len(data) else []
        if kept + len(pieces) == 1:
            built, chunks = self.builder.one_chunk(mirror.title, data, mirror.id), []
        else:
            fresh, objects = chunk_objects(pieces)
            olds = {one.body for one in mirror.chunks[kept:]}
            for made in objects:
                if made.id not in olds:
                    self.builder.add(made)
            chunks = mirror.chunks[:kept] + fresh
            span = Span(at, mirror.view.total, fresh)
            built = self.builder.edit(mirror.title, mirror.view, [span], mirror.id)
        return self._remember_bytes(mirror.title, built, chunks, data, source)


class _Mode:
    """While an embedder works on live values or on snapshots."""

    __slots__ = ("_before", "_now", "_work")

    def __init__(self, work: Embedder, live: bool, covered: bool) -> None:
        self._work, self._now = work, (live, covered)

    def __enter__(self) -> None:
        work = self._work
        self._before = work._live, work._covered
        work._live, work._covered = self._now

    def __exit__(self, *_: object) -> None:
        self._work._live, self._work._covered = self._before


def retry_if_changed(call: Callable[[], T]) -> T:
    """Call a function that reads live values, again if they changed; raises ChangedMeanwhile."""
    for _ in range(_ATTEMPTS):
        try:
            return call()
        except ChangedMeanwhile:
            continue
    return call()


class _Beside:
    """Which old part stands beside an item, where there may be more items or fewer than before.

    Up to the first that differs they are counted from the start, then from the end.
    """

    def __init__(self, olds: list[Entry], shift: int) -> None:
        self._olds, self._shift = olds, shift
        self._differs: int | None = None

    def of(self, index: int, before: list[bytes]) -> bytes | None:
        """The old part beside the item of an index; `before` are the new parts before it."""
        olds = self._olds
        if self._differs is None and index:
            if index > len(olds):
                return None  # Something was appended.
            if before[-1] != olds[index - 1].body:
                self._differs = index - 1
        at = index if self._differs is None else index - self._shift
        return olds[at].body if 0 <= at < len(olds) else None


def _same_chunks(chunks: list[Entry], old: Any, new: Any) -> tuple[int, int]:
    """How many chunks at the start are the same, and where they end."""
    kept, at = 0, 0
    # The last chunk ends where the data did, not where its content says.
    for entry in chunks[:-1]:
        stop = at + entry.weight
        if isinstance(old, Digest):
            if object_id(Kind.CHUNK, new[at:stop]) != entry.body:
                break
        # Whether a chunk ends here also depends on the two bytes that follow.
        elif old[at : stop + 2] != new[at : stop + 2]:
            break
        kept, at = kept + 1, stop
    if isinstance(old, Digest) and kept:
        # Those two bytes are not known of the last one.
        kept, at = kept - 1, at - chunks[kept - 1].weight
    return kept, at


def _old_parts(old: bytes, title: Title) -> dict[Any, bytes]:
    """The parts of an old inline container, by index or by encoded key."""
    if linked(old) is not None:
        return {}
    raw = unpack(old)
    if type(raw) is Ext:
        opened = open_extension(*unpack(old, lambda code, data: (code, data)))
        if opened.code != title.code or opened.form is Form.BYTES:
            return {}
        raw = opened.parts
        if title.code in KEYED:
            raw = zip(raw[::2], raw[1::2], strict=True)
            return {pack(key): pack(part) for key, part in raw}
    if type(raw) is dict:
        return {pack(key): pack(part) for key, part in raw.items()}
    return {at: pack(part) for at, part in enumerate(raw)} if type(raw) is list else {}
