"""A stored mapping with sorted keys, which is read and edited at O(log n).

`Map` reads one and gives the objects of a new one. A `MapWriter` finds out what a program
changed in place among the values that it read or set. Those are slots of a `CachedMap`. Each is
remembered with the part that is stored for it, so what was never read costs nothing, and what
was read costs a comparison.
"""

from __future__ import annotations

import builtins
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from ropewalk.codec import Codec, default_codec
from ropewalk.codec.msgpack import Code, array_header, may_hold_binary
from ropewalk.errors import ChangedMeanwhile, FormatError, InvalidInput, NotStorable, PathNotFound
from ropewalk.tree.build import Builder, Edited, Title, finish
from ropewalk.tree.change_detection import PLAIN_MAX, Budget, Piece
from ropewalk.tree.changes import differing
from ropewalk.tree.edit import embed_at
from ropewalk.tree.embed import Embedder, retry_if_changed
from ropewalk.tree.levels import Place, Span, View, in_turn
from ropewalk.tree.mirrors import Mirror, Mirrors, Reflector
from ropewalk.tree.nodes import (
    INLINE_MAX,
    KEY_MAX,
    PAIRS,
    Entry,
    link,
    linked,
    links,
    links_in,
    may_hold_links,
)
from ropewalk.tree.objects import Kind, Object, ObjectId, Reader
from ropewalk.tree.read import (
    Container,
    Loader,
    check_root,
    expect_room,
    open_part,
    open_root,
    reading,
    reading_on,
    writing,
)
from ropewalk.tree.three_way_merge import ABSENT

_TITLE = Title(Code.MAP)


class Map(Mapping[Any, Any]):
    """A stored mapping, read as it is needed.

    Keys are sorted by their encoding and have no other order. A map never changes:
    `edit` gives the objects of a new one. Values that were read are the caller's own.
    """

    def __init__(self, root: ObjectId, read: Reader, codec: Codec | None = None) -> None:
        self.root = check_root(root)
        self._codec = default_codec if codec is None else codec
        self._read = read
        self._opened: Container | None = None
        self._kin: Map | None = None
        """Another version, whose nodes this one may share."""

    @staticmethod
    def empty() -> Edited:
        """The objects of a map without keys."""
        builder = Builder(_nothing)
        view = View(PAIRS, 0, [], builder.read)
        part = builder.edit(_TITLE, view, [Span(0, 0, [])], None).part
        return finish(builder, part, None)

    @writing
    def edit(
        self, changes: Mapping[Any, Any] | None = None, *, remove: Iterable[Any] = ()
    ) -> Edited:
        """Set and remove keys.

        Raises PathNotFound for a key to remove that is not there, InvalidInput for a
        key that is named twice, and NotStorable.
        """
        builder = Builder(self._read)
        embedder = Embedder(self._codec, builder, {})
        spans: dict[bytes, Span] = {}
        for key in remove:
            _add(spans, key, *self._removal(key))
        for key, value in (changes or {}).items():
            _add(spans, key, *self._change(embedder, key, value))
        if not spans:
            return Edited(self.root, [], [self.root])
        view = self._container.view
        ordered = in_turn(list(spans.values()))
        part = builder.edit(_TITLE, view, ordered, self.root).part
        return finish(builder, part, self.root)

    def _removal(self, key: Any) -> tuple[bytes, Span]:
        at, entry = self._locate(key)
        if entry is None:
            raise PathNotFound(f"the map has no key {key!r}")
        return entry.key, Span(at, at + 1, [])

    def _change(self, embedder: Embedder, key: Any, value: Any) -> tuple[bytes, Span]:
        encoded = self._codec.encode(key)
        if len(encoded) > KEY_MAX:
            raise NotStorable(f"a key takes {len(encoded)} bytes; the most is {KEY_MAX}")
        at, entry = self._container.view.locate(encoded)
        old = None if entry is None else entry.body
        part = embed_at(embedder, self._codec, (key,), value, old)
        return encoded, Span(at, at if entry is None else at + 1, [Entry(encoded, part)])

    @property
    def _container(self) -> Container:
        if self._opened is None:
            (found,) = self._read([self.root])
            value = found.kind == Kind.VALUE
            opened = None if value else open_root(self.root, found, self._read)
            if opened is None or opened.title != _TITLE:
                raise FormatError(
                    f"object {self.root.hex()[:12]} holds a value, not a map; use load or get"
                )
            kin = None if self._kin is None else self._kin._opened
            if kin is not None:
                opened.view.inherit(kin.view)
            self._opened, self._kin = opened, None
        return self._opened

    def _locate(self, key: Any) -> tuple[int, Entry | None]:
        try:
            encoded = self._codec.encode(key)
        except NotStorable as exc:
            expect_room(exc)
            return 0, None
        return self._container.view.locate(encoded)

    @reading
    def __getitem__(self, key: Any) -> Any:
        _, entry = self._locate(key)
        if entry is None:
            raise PathNotFound(f"the map has no key {key!r}")
        return Loader(self._read, self._codec).part(entry.body)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or a default if there is no such key."""
        # A key error may also say that an object is missing: then there is no default.
        return self[key] if key in self else default  # noqa: SIM401 - that is what this is

    def inner(self, key: Any) -> Map | None:
        """The map that stands under a key, which is not read; None if there is none."""
        _, entry = self._locate(key)
        root = None if entry is None else linked(entry.body)
        return None if root is None else Map(root, self._read, self._codec)

    def __contains__(self, key: object) -> bool:
        return self._locate(key)[1] is not None

    def __len__(self) -> int:
        return self._container.view.total

    def __iter__(self) -> Iterator[Any]:
        for place in self._container.view.leaves():
            for entry in place.entries:
                yield self._key(entry)

    def range(
        self, start: Any = None, stop: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Keys and values from the key `start` on and before the key `stop`.

        None is no bound. Keys need not be there; they are compared by their encoding, in
        which whole numbers from 0 on ascend. With `reverse` the last pair comes first. What
        is not asked for is not read. Raises NotStorable for what can be no key.
        """
        found = self.places(start, stop)
        return self._pairs(Run(found.start, found.stop, reverse))

    def places(self, start: Any = None, stop: Any = None) -> builtins.range:
        """The places, for `slice`, of the keys from `start` on and before `stop`.

        None is no bound, and keys need not be there, as for `range`. Only the nodes on the
        way to the two are read. Raises NotStorable for what can be no key.
        """
        view = self._container.view
        low = 0 if start is None else view.locate(self._codec.encode(start))[0]
        high = view.total if stop is None else view.locate(self._codec.encode(stop))[0]
        return builtins.range(low, max(low, high))

    def slice(self, start: int, stop: int) -> Iterator[tuple[Any, Any]]:
        """Keys and values by their place in the order of keys, as a slice of a list has them.

        Places count from 0, negative ones from the end. All of them are fetched together.
        """
        low, high, _ = slice(start, stop).indices(self._container.view.total)
        return self._pairs(Run(low, high, first=MOST_TOGETHER))

    def pick(self, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Keys and values of those of the keys that are there, in the order of the map.

        All of them are fetched together. Raises NotStorable for what can be no key.
        """
        encoded = sorted({self._codec.encode(key) for key in keys})
        reader = PairReader(self._container.view, self._read, self._codec)
        return reading_on(reader.picked(encoded))

    def version(self, root: ObjectId) -> Map:
        """Another map with the same reader and codec: an earlier or later one of this."""
        made = Map(root, self._read, self._codec)
        made._kin = self
        return made

    def differing(self, other: Map) -> list[Any]:
        """The keys under which two maps have different values, or one has none; sorted.

        What they share is not read.
        """
        if self.root == other.root:
            return []
        sides = differing(self._container.view, other._container.view, self._read)
        keys = sorted({entry.key for side in sides for entry in side})
        return [checked_key(self._codec.decode(key), self._codec) for key in keys]

    def _pairs(self, run: Run) -> Iterator[tuple[Any, Any]]:
        return reading_on(PairReader(self._container.view, self._read, self._codec).pairs(run))

    def _key(self, entry: Entry) -> Any:
        return checked_key(self._codec.decode(entry.key), self._codec)

    def __eq__(self, other: object) -> bool:
        # By content: keys that Python takes for the same may stand beside each other.
        if isinstance(other, Map):
            return self.root == other.root
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.root)


def _add(spans: dict[bytes, Span], key: Any, encoded: bytes, span: Span) -> None:
    if encoded in spans:
        raise InvalidInput(f"the key {key!r} is to be changed twice")
    spans[encoded] = span


def _nothing(ids: Any) -> Any:
    raise FormatError("an empty map has no nodes")


# Pairs of a map.

MOST_TOGETHER = 64
"""How many leaves are fetched at once, at most: a page of a few hundred KB."""


class Run(NamedTuple):
    """The pairs at the positions [start, stop), from the last one on if `reverse`."""

    start: int
    stop: int
    reverse: bool = False
    first: int = 1
    """How many leaves are fetched at first; each time after that, twice as many."""


class PairReader:
    """Reads pairs of a map and keeps none of them."""

    def __init__(self, view: View, read: Reader, codec: Codec) -> None:
        self._view = view
        self._read = read
        self._codec = codec
        self._loader = Loader(read, codec)

    def pairs(self, run: Run) -> Iterator[tuple[Any, Any]]:
        """Keys and values of a run; those of one leaf are decoded together.

        Where large values stand apart, each is fetched when it is asked for, unless all
        of the run were wanted at once.
        """
        for place in self._leaves(run):
            low = max(run.start - place.start, 0)
            entries = place.entries[low : run.stop - place.start]
            if run.reverse:
                entries = entries[::-1]
            lazy = run.first < MOST_TOGETHER
            if lazy and any(may_hold_links(entry.body) for entry in entries):
                for entry in entries:
                    yield from self._decoded([entry])
            else:
                yield from self._decoded(entries)

    def picked(self, keys: Sequence[bytes]) -> Iterator[tuple[Any, Any]]:
        """Keys and values of those of the encoded keys, sorted, that are there.

        Level by level, so that one step reads what all of them need.
        """
        nodes = [(self._view.top.entries, list(keys))]
        for level in range(self._view.height - 1, -1, -1):
            wanted = [pair for entries, some in nodes for pair in _children(entries, some)]
            found = self._read([entry.body for entry, _ in wanted])
            nodes = [
                (self._view.layout.read(level, node), some)
                for (_, some), node in zip(wanted, found, strict=True)
            ]
        chosen: list[Entry] = []
        for entries, some in nodes:
            known = set(some)
            chosen += [entry for entry in entries if entry.key in known]
        yield from self._decoded(chosen)

    def _decoded(self, entries: list[Entry]) -> Iterator[tuple[Any, Any]]:
        flat = self._loader.part(PAIRS.encode(0, entries))
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            yield checked_key(key, self._codec), value

    def _leaves(self, run: Run) -> Iterator[Place]:
        if run.start >= run.stop:
            return
        if not self._view.height:
            yield self._view.top
            return
        together = run.first
        start, stop = run.start, run.stop
        while start < stop:
            asked = self._together(start, stop, run.reverse, together)
            found = self._read([entry.body for _, entry in asked])
            for (at, entry), leaf in zip(asked, found, strict=True):
                yield self._place(at, entry, leaf)
            at, entry = asked[-1]
            if run.reverse:
                stop = at
            else:
                start = at + entry.weight
            together = min(together * 2, MOST_TOGETHER)

    def _together(self, start: int, stop: int, reverse: bool, most: int) -> list[tuple[int, Entry]]:
        """Where the next leaves over [start, stop) begin, and their entries in one index."""
        index = self._view.node_at(1, stop - 1 if reverse else start)
        low = bisect_right(index.bounds, max(start - index.start, 0))
        high = bisect_right(index.bounds, stop - 1 - index.start) + 1
        chosen = list(range(low, min(high, len(index.entries))))
        chosen = chosen[::-1][:most] if reverse else chosen[:most]
        befores = [index.bounds[at - 1] if at else 0 for at in chosen]
        return [
            (index.start + before, index.entries[at])
            for at, before in zip(chosen, befores, strict=True)
        ]

    def _place(self, start: int, entry: Entry, leaf: Object) -> Place:
        entries = self._view.layout.read(0, leaf)
        if len(entries) != entry.weight:
            raise FormatError(f"node {leaf.id.hex()[:12]} does not hold what its index says")
        return Place(start, leaf.id, entries, [])


def _children(entries: list[Entry], keys: list[bytes]) -> list[tuple[Entry, list[bytes]]]:
    """The nodes under which keys would stand, each with its keys."""
    found: dict[int, list[bytes]] = {}
    for key in keys:
        at = bisect_right(entries, key, key=lambda entry: entry.key) - 1
        if at >= 0:
            found.setdefault(at, []).append(key)
    return [(entries[at], some) for at, some in found.items()]


def checked_key(key: Any, codec: Codec) -> Any:
    """Refuse a key that Python cannot have as one, or only by running code of its class."""
    if type(key) is not str:
        codec.decoder().check_keys([key])
    try:
        hash(key)
    except Exception as exc:
        raise FormatError(f"a stored key of a map is malformed: {exc}") from exc
    return key


Keys: TypeAlias = tuple[bytes, ...]
"""Encoded keys, from the top of a map to one that stands in it."""

_NOTHING: Final[Mapping[bytes, bytes]] = {}
_IMMUTABLE: Final = frozenset({str, int, float, bool, bytes, complex, type(None)})
_GROUP: Final = 256
_FEW: Final = 4
_STALE: Final = 16 << 20
"""How many bytes of mirrors that are no longer needed may be held."""


@dataclass(slots=True, eq=False)
class CacheEntry:
    """A key that was read or set: what is under it now, and the part that is stored."""

    key: Any
    value: Any
    """`ABSENT` if it was removed."""
    part: bytes | None = None
    """None if nothing is stored under the key."""
    given: Any = ABSENT
    """The value that was read; what is immutable and the same needs no comparison."""
    mirrors: Mirrors = field(default_factory=Mirrors)
    alive: int = 0
    """About how many bytes the mirrors took when the stale ones were dropped last."""

    @property
    def is_untouched(self) -> bool:
        """Whether nobody can have changed the value."""
        if self.value is ABSENT:
            return self.part is None
        return self.value is self.given and type(self.value) in _IMMUTABLE


@dataclass(slots=True, eq=False)
class CachedMap:
    """What is held of one map."""

    entries: dict[bytes, CacheEntry] = field(default_factory=dict)
    """By encoded key."""
    inner: dict[bytes, CachedMap] = field(default_factory=dict)
    """What is held of maps that stand in this one, by encoded key."""


class ChangedEntry(NamedTuple):
    """An entry that changed, in a draft."""

    cached: CachedMap
    key: bytes
    slot: CacheEntry
    value: Any
    part: bytes | None
    mirrors: Mapping[ObjectId, Mirror] = {}
    replaced: Sequence[ObjectId] = ()


class Draft(NamedTuple):
    """A cached map as objects: what is new, and what is to be remembered once it is stored."""

    edited: Edited
    changes: list[ChangedEntry]
    opened: dict[Keys, Container]
    builder: Builder


class Making:
    """One draft in the making."""

    def __init__(self, builder: Builder, root: ObjectId | None) -> None:
        self.builder, self.root = builder, root
        self.changes: list[ChangedEntry] = []
        self.opened: dict[Keys, Container] = {}
        self.replaced: set[Keys] = set()
        """Where something else stands now than what may have been opened."""

    def still_open(self, before: dict[Keys, Container]) -> dict[Keys, Container]:
        """What is open after this, of what was before."""
        gone = self.replaced
        if not gone:
            return {**before, **self.opened}
        stays = {
            keys: one
            for keys, one in before.items()
            if not any(keys[:length] in gone for length in range(1, len(keys) + 1))
        }
        return {**stays, **self.opened}


class MapWriter:
    """Reads values of a map and finds out what changed in them. Not for several threads."""

    def __init__(self, codec: Codec, read: Reader) -> None:
        self._codec = codec
        self._read = read
        self._root: ObjectId | None = None
        self._opened: dict[Keys, Container] = {}
        """What was opened of the map with that root, by encoded keys from the top."""

    def open(self, root: ObjectId | None, keys: Keys = ()) -> Container:
        """A map, or one that stands in it at encoded keys; an empty one if it is not there."""
        if root != self._root:
            self._root, self._opened = root, {}
        found = self._opened.get(keys)
        if found is None:
            part = self._part_at(root, keys)
            found = _empty(self._read) if part is None else self._open(part)
            self._opened[keys] = found
        return found

    def _part_at(self, root: ObjectId | None, keys: Keys) -> bytes | None:
        if not keys:
            return None if root is None else link(root)
        _, entry = self.open(root, keys[:-1]).view.locate(keys[-1])
        return None if entry is None else entry.body

    def _open(self, part: bytes) -> Container:
        opened = open_part(part, self._read)
        if opened is None or opened.title != _TITLE:
            raise FormatError("the state is not a map: another program wrote this history")
        return opened

    def encode_key(self, key: Any) -> bytes:
        """The encoding of a key; raises `NotStorable`."""
        encoded = self._codec.encode(key)
        if len(encoded) > KEY_MAX:
            raise NotStorable(f"a key takes {len(encoded)} bytes; the most is {KEY_MAX}")
        return encoded

    def decode_key(self, encoded: bytes) -> Any:
        """A key from its encoding."""
        return self._codec.decode(encoded)

    @reading
    def load(self, key: Any, part: bytes, read: Reader | None = None) -> CacheEntry:
        """An entry with the value of a stored part."""
        reflector = Reflector(read or self._read, self._codec)
        value = reflector.part(part)
        mirrors = Mirrors(reflector.mirrors)
        return CacheEntry(key, value, part, value, mirrors, mirrors.held)

    @writing
    def check(self, key: Any, value: Any) -> None:
        """Raise `NotStorable` if a value cannot stand under a key."""
        try:
            self._codec.encode(value)
        except (NotStorable, ChangedMeanwhile):
            # It may still fit a tree, which nests deeper; that decides, and says why not.
            embedder = Embedder(self._codec, Builder(self._read), {})
            retry_if_changed(lambda: embed_at(embedder, self._codec, (key,), value, None))

    @writing
    def write(
        self, root: ObjectId | None, cached: CachedMap, added: Mapping[bytes, bytes] = _NOTHING
    ) -> Draft:
        """The map with all that changed in what is cached of it.

        `added` are further parts, of `encode_small`, by encoded keys that the map does not have;
        nothing is cached of them. Raises `NotStorable` or `ChangedMeanwhile` with the path.
        """
        return retry_if_changed(lambda: self._draft(root, cached, added))

    def _draft(
        self, root: ObjectId | None, cached: CachedMap, added: Mapping[bytes, bytes]
    ) -> Draft:
        work = Making(Builder(self._read), root)
        part = self._write(work, cached, (), added)
        if part is None:
            assert root is not None
            return Draft(Edited(root, [], [root]), [], self._opened, work.builder)
        edited = finish(work.builder, part, root)
        return Draft(edited, work.changes, work.still_open(self._opened), work.builder)

    def _write(
        self,
        work: Making,
        cached: CachedMap,
        keys: Keys,
        added: Mapping[bytes, bytes] = _NOTHING,
    ) -> bytes | None:
        """The part of a map; None if it is as it was."""
        before = self.open(work.root, keys)
        spans = [_span(before, key, part) for key, part in added.items()]
        for key, slot in self._suspects(cached):
            kept = self._kept(work, cached, key, slot)
            if kept.part != slot.part:
                work.changes.append(kept)
                if (*keys, key) in self._opened:
                    work.replaced.add((*keys, key))
                spans.append(_span(before, key, kept.part))
        for key, inside in cached.inner.items():
            part = self._write(work, inside, (*keys, key))
            if part is not None:
                spans.append(_span(before, key, part))
        if not spans and (before.id is not None or keys):
            return None
        title, view = _TITLE, before.view
        built = work.builder.edit(title, view, in_turn(spans), before.id)
        assert built.view is not None
        built.view.inherit(view)
        work.opened[keys] = Container(title, built.view, None, built.id)
        return built.part

    def _suspects(self, cached: CachedMap) -> Iterator[tuple[bytes, CacheEntry]]:
        """The entries whose values may have changed; small ones are compared many at a time."""
        group: list[tuple[bytes, CacheEntry]] = []
        for key, slot in cached.entries.items():
            if slot.is_untouched:
                continue
            if slot.value is ABSENT or slot.value is not slot.given or slot.mirrors:
                yield key, slot  # Set or removed, or large.
                continue
            group.append((key, slot))
            if len(group) == _GROUP:
                yield from self._differing(group)
                group = []
        if group:
            yield from self._differing(group)

    def _differing(self, group: list[tuple[bytes, CacheEntry]]) -> list[tuple[bytes, CacheEntry]]:
        """Those of a group that differ, or that a closer look will tell."""
        # The encoding of a list is that of its items, one after another.
        parts = [slot.part or b"" for _, slot in group]
        plain = array_header(len(parts)) + b"".join(parts)
        piece = Piece(len(parts), plain, may_hold_binary(plain))
        if piece.is_same(self._codec, [slot.value for _, slot in group]):
            return []
        if len(group) <= _FEW:
            return group
        half = len(group) // 2
        return self._differing(group[:half]) + self._differing(group[half:])

    def _kept(self, work: Making, cached: CachedMap, key: bytes, slot: CacheEntry) -> ChangedEntry:
        value = slot.value
        if value is ABSENT:
            return ChangedEntry(cached, key, slot, ABSENT, None)
        if not slot.mirrors and (slot.part is None or not may_hold_links(slot.part)):
            plain = self.encode_small(value)
            if plain is not None:
                return ChangedEntry(cached, key, slot, value, plain)
        budget = Budget(PLAIN_MAX - slot.mirrors.held)
        embedder = Embedder(self._codec, work.builder, slot.mirrors, budget)
        part = embed_at(embedder, self._codec, (slot.key,), value, slot.part)
        return ChangedEntry(cached, key, slot, value, part, embedder.mirrors, embedder.replaced)

    def encode_small(self, value: Any) -> bytes | None:
        """The part of a value that needs no node of its own; None where a closer look is needed."""
        try:
            plain = self._codec.encode(value)
        except (NotStorable, ChangedMeanwhile):
            return None
        return plain if len(plain) <= INLINE_MAX else None

    def accept(self, draft: Draft) -> None:
        """Take what was drafted for what is stored."""
        for kept in draft.changes:
            self.accept_one(kept, draft.builder.read)
        self._root, self._opened = draft.edited.root, draft.opened
        draft.builder.forget()

    def accept_one(self, kept: ChangedEntry, read: Reader | None = None) -> None:
        """Take what was drafted of one entry for what is stored; may be done twice.

        With `read`, which reads also what was drafted, before it is stored.
        """
        slot, old = kept.slot, kept.slot.part
        slot.part, slot.given = kept.part, kept.value
        if kept.part is None and slot.value is ABSENT:
            kept.cached.entries.pop(kept.key, None)
            return
        slot.mirrors.renew(kept.mirrors, kept.replaced)
        self._drop_stale(slot, old, read or self._read)

    def _drop_stale(self, slot: CacheEntry, old: bytes | None, read: Reader) -> None:
        """Forget what was remembered of parts that are no more."""
        part = slot.part
        if part is None or not slot.mirrors:
            slot.mirrors.clear()
            return
        if old is not None and old != part:
            for id in set(links_in(old)).difference(links_in(part)):
                slot.mirrors.drop(id)
        if slot.mirrors.held > 2 * slot.alive + _STALE:
            alive = _reached(part, read)
            slot.mirrors = Mirrors({id: one for id, one in slot.mirrors.items() if id in alive})
            slot.alive = slot.mirrors.held


def _reached(part: bytes, read: Reader) -> set[ObjectId]:
    reached = set(links_in(part))
    pending = list(reached)
    while pending:
        found = [one for one in read(pending) if one.kind != Kind.CHUNK]
        pending = list({id for one in found for id in links(one)} - reached)
        reached.update(pending)
    return reached


def _span(opened: Container, key: bytes, part: bytes | None) -> Span:
    at, entry = opened.view.locate(key)
    return Span(at, at if entry is None else at + 1, [] if part is None else [Entry(key, part)])


def _empty(read: Reader) -> Container:
    return Container(_TITLE, View(PAIRS, 0, [], read), None, None)
