"""Writing a map of which some values were read, and may have been changed in place.

A `CachedMap` is what a program has cached of a map: the values that it read or set, by key.
Each is remembered with the part that is stored for it, so what was never read costs nothing,
and what was read costs a comparison. It may have others inside, for maps that
stand in the map.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from ropewalk.codec import Codec
from ropewalk.codec.msgpack import Code, array_header, may_hold_binary
from ropewalk.errors import ChangedMeanwhile, FormatError, NotStorable
from ropewalk.tree.build import Builder, Edited, Title, finish
from ropewalk.tree.change_detection import PLAIN_MAX, Budget, Mirror, Mirrors, Piece, Reflector
from ropewalk.tree.container import Container, open_part
from ropewalk.tree.edit import embed_at
from ropewalk.tree.embed import Embedder, retry_if_changed
from ropewalk.tree.levels import Span, View, in_turn
from ropewalk.tree.mergers import ABSENT
from ropewalk.tree.nodes import (
    INLINE_MAX,
    KEY_MAX,
    PAIRS,
    Entry,
    link,
    links,
    links_in,
    may_hold_links,
)
from ropewalk.tree.objects import Kind, ObjectId, Reader
from ropewalk.tree.read import reading, writing

Keys: TypeAlias = tuple[bytes, ...]
"""Encoded keys, from the top of a map to one that stands in it."""

_TITLE: Final = Title(Code.MAP)
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
    def write(self, root: ObjectId | None, cached: CachedMap) -> Draft:
        """The map with all that changed in what is cached of it.

        Raises `NotStorable` or `ChangedMeanwhile` with the path.
        """
        return retry_if_changed(lambda: self._draft(root, cached))

    def _draft(self, root: ObjectId | None, cached: CachedMap) -> Draft:
        work = Making(Builder(self._read), root)
        part = self._write(work, cached, ())
        if part is None:
            assert root is not None
            return Draft(Edited(root, [], [root]), [], self._opened, work.builder)
        edited = finish(work.builder, part, root)
        return Draft(edited, work.changes, work.still_open(self._opened), work.builder)

    def _write(self, work: Making, cached: CachedMap, keys: Keys) -> bytes | None:
        """The part of a map; None if it is as it was."""
        before = self.open(work.root, keys)
        spans: list[Span] = []
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
            plain = self._small(value)
            if plain is not None:
                return ChangedEntry(cached, key, slot, value, plain)
        budget = Budget(PLAIN_MAX - slot.mirrors.held)
        embedder = Embedder(self._codec, work.builder, slot.mirrors, budget)
        part = embed_at(embedder, self._codec, (slot.key,), value, slot.part)
        return ChangedEntry(cached, key, slot, value, part, embedder.mirrors, embedder.replaced)

    def _small(self, value: Any) -> bytes | None:
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
