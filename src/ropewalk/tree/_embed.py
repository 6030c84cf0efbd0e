"""A value as a part, with what is large as a tree of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final, TypeVar

from ormsgpack import Ext

from ropewalk.codec import Codec
from ropewalk.codec._codes import Code
from ropewalk.codec._msgpack import pack, unpack
from ropewalk.codec._opened import Form, Opened, close_sequence
from ropewalk.errors import ChangedMeanwhile, NotStorable
from ropewalk.tree._builder import Builder, Built, Title
from ropewalk.tree._cuts import INLINE_MAX
from ropewalk.tree._layout import KEYED, SETS, Entry
from ropewalk.tree._mirrors import (
    BytesMirror,
    MappingMirror,
    Mirror,
    Pairs,
    SequenceMirror,
    all_text,
    cut_pairs,
)
from ropewalk.tree._objects import ObjectId
from ropewalk.tree._parts import link, linked, may_hold_links
from ropewalk.tree._pieces import FIRST_GUESS, UNKNOWN, Piece, cut_pieces, held_bytes
from ropewalk.tree._snapshot import Live, SnapshotCodec
from ropewalk.tree._update import update_bytes, update_mapping, update_sequence

MAX_LARGE_DEPTH: Final = 100
"""How many large parts may stand inside one another."""


_ATTEMPTS: Final = 4
T = TypeVar("T")

_TEXTS = frozenset({str, bytes})

_NO_PARTS = frozenset({type(None), bool, float})
"""Types that the codec cannot open up, because msgpack has a word for them."""


class Embedder:
    """Turns values into parts; `old` is always the part in the same place before.

    What `old` says only saves work: the part of a value depends on the value alone.

    Others may change the values meanwhile. So both the part and what is remembered of it are
    made from one snapshot: else a change between the two would never be found.

    With `lean`, digests are remembered of what would else be remembered itself.
    """

    def __init__(
        self,
        codec: Codec,
        builder: Builder,
        known: dict[ObjectId, Mirror],
        lean: bool = False,
    ) -> None:
        self._codec = codec
        self._snapshot_codec = SnapshotCodec(codec)
        self.lean = lean
        self.builder = builder
        self.live = True
        """Whether it works on live values, which others may change, or on snapshots."""
        self._known = known
        self._depth = 0
        self.mirrors: dict[ObjectId, Mirror] = {}

    @property
    def codec(self) -> Codec:
        """What values, or snapshots, are encoded with."""
        return self._codec if self.live else self._snapshot_codec

    def snapshots(self, values: list[Any]) -> list[Any]:
        """Snapshots of values."""
        if not self.live:
            return values
        try:
            snapshots: list[Any] = unpack(self._codec.encode(values))
        except NotStorable:
            # Each can be stored, but together they nest too deeply; or one cannot.
            return list(map(self._snapshot, values))
        return snapshots

    def _snapshot(self, value: Any) -> Any:
        try:
            return unpack(self._codec.encode(value))
        except NotStorable:
            return Live(value)

    @contextmanager
    def on_snapshots(self, yes: bool = True) -> Iterator[None]:
        """While it works on snapshots; if not `yes`, on live values."""
        before, self.live = self.live, not yes
        try:
            yield
        finally:
            self.live = before

    def embed(self, value: Any, old: bytes | None = None, plain: bytes | None = None) -> bytes:
        """The part of a value; `plain` is its encoding, where that is known."""
        if type(value) is Live:
            with self.on_snapshots(False):
                return self.embed(value.value, old)
        if old is not None and type(value) not in _NO_PARTS:
            id = linked(old)
            mirror = self._known.get(id) if id is not None else None
            if mirror is not None:
                return self._deeper(self._update, mirror, value)
        if old is None or type(value) in _NO_PARTS or not may_hold_links(old):
            whole = self.codec.encode(value) if plain is None else plain
            if len(whole) <= INLINE_MAX:
                return whole
            return self._deeper(self._build_encoded, value, whole, old)
        return self._deeper(self._build, value, old)

    def _deeper(self, step: Any, *arguments: Any) -> bytes:
        if self._depth >= MAX_LARGE_DEPTH:
            raise NotStorable("it is nested too deeply")
        self._depth += 1
        try:
            part: bytes = step(*arguments)
        finally:
            self._depth -= 1
        return part

    # Building a part without a mirror.

    def _build_encoded(self, value: Any, plain: bytes, old: bytes | None) -> bytes:
        """The part of a large value with that encoding."""
        if not self.live or type(value) in _TEXTS:
            return self._build_opened(self.codec.open_up(value), value, old)
        value = unpack(plain)
        with self.on_snapshots():
            return self._build_opened(self.codec.open_up(value), value, old)

    def _build(self, value: Any, old: bytes) -> bytes:
        """The part of a value where there was something large."""
        if not self.live or type(value) in _TEXTS:
            return self._build_opened(self.codec.open_up(value), value, old)
        if linked(old) is None:
            # A small container with large parts, each of which sees to itself.
            part = self._build_opened(self.codec.open_up(value), value, old)
            if linked(part) is None:
                return part
        try:
            plain = self._codec.encode(value)
        except NotStorable:
            # Its parts can be stored, but together they nest too deeply; or one cannot.
            return self._build_opened(self.codec.open_up(value), value, old)
        return self._build_encoded(value, plain, old)

    def _build_opened(self, opened: Opened, value: Any, old: bytes | None) -> bytes:
        title = Title(opened.code, opened.head)
        base = linked(old) if old is not None else None
        if opened.form is Form.BYTES:
            return self.build_bytes(title, opened.parts, value, base)
        beside = _old_parts(old, title) if old is not None else {}
        if opened.form is Form.SEQUENCE:
            return self._build_sequence(title, opened.parts, beside, base)
        return self.build_mapping(title, opened.parts, beside, base)

    def build_bytes(self, title: Title, data: bytes, source: Any, base: ObjectId | None) -> bytes:
        if len(data) <= INLINE_MAX:
            plain = self.codec.encode(source)
            if len(plain) <= INLINE_MAX:
                return plain
        built, chunks = self.builder.chunked(title, data, base)
        self.remember_bytes(title, built, chunks, data, source)
        return built.part

    def remember_bytes(
        self, title: Title, built: Built, chunks: list[Entry], data: bytes, source: Any
    ) -> None:
        assert built.id is not None
        kept = source if type(source) in (str, bytes) else data
        self.mirrors[built.id] = BytesMirror(built.id, title, built.view, chunks, kept)

    def _build_sequence(
        self, title: Title, items: list[Any], beside: dict[Any, bytes], base: ObjectId | None
    ) -> bytes:
        if title.code in SETS:
            items = self.in_order(items)
        parts = [self.embed(item, beside.get(index)) for index, item in enumerate(items)]
        built = self.builder.sequence(title, parts, base)
        if built.id is not None:
            pieces = self.pieces(items)
            self.remember_sequence(title, built, pieces, pieces)
        return built.part

    def pieces(self, items: list[Any], guess: int = FIRST_GUESS) -> list[Piece]:
        """What is remembered of items; next to nothing where they may have changed already."""
        if self.live:
            return [UNKNOWN] * len(items)
        return cut_pieces(self.codec, items, 1, guess, self.lean)

    def runs(
        self, keys: list[Any], mapping: dict[Any, Any], guess: int = FIRST_GUESS
    ) -> list[Pairs]:
        """What is remembered of keys and their values, likewise."""
        if self.live:
            return [Pairs([key], itemgetter(key), UNKNOWN) for key in keys]
        return cut_pairs(self.codec, keys, mapping, guess, self.lean)

    def remember_sequence(
        self, title: Title, built: Built, pieces: list[Piece], fresh: list[Piece]
    ) -> None:
        """Remember a sequence; others hold those of its pieces that are not fresh."""
        assert built.id is not None and built.view is not None
        size = held_bytes(fresh, len(pieces))
        self.mirrors[built.id] = SequenceMirror(built.id, title, built.view, pieces, size)

    def in_order(self, members: list[Any]) -> list[Any]:
        """The members of a set in the order of their encodings."""
        return in_order(self.codec, members)

    def build_mapping(
        self,
        title: Title,
        mapping: dict[Any, Any],
        beside: dict[Any, bytes],
        base: ObjectId | None,
        old_order: bytes | None = None,
    ) -> bytes:
        encoded = {self.codec.encode(key): key for key in mapping}
        keys = list(encoded)
        parts = [self.embed(mapping[key], beside.get(at)) for at, key in encoded.items()]
        if len(keys) != len(mapping):
            raise NotStorable("two of its keys are stored as the same bytes (nan twice?)")
        order = self.order(title, keys, old_order)
        built = self.builder.mapping(title, keys, parts, order, base)
        if built.id is not None:
            runs = self.runs([encoded[key] for key in sorted(keys)], mapping)
            self.remember_mapping(title, built, runs, runs, mapping, keys, order)
        return built.part

    def order(self, title: Title, keys: list[bytes], old: bytes | None) -> bytes | None:
        """The part of the order of keys, where it is not the sorted one."""
        if title.code == Code.MAP or keys == sorted(keys):
            return None
        if any(len(key) > INLINE_MAX for key in keys):
            # Keys never leave their parent, however long they are.
            return self.builder.sequence(Title(Code.LIST), keys).part
        with self.on_snapshots():
            return self.embed(unpack(close_sequence(Code.LIST, (), keys)), old)

    def remember_mapping(
        self,
        title: Title,
        built: Built,
        runs: list[Pairs],
        fresh: list[Pairs],
        mapping: dict[Any, Any],
        encoded: list[bytes],
        order: bytes | None,
    ) -> None:
        """Remember a mapping; others hold those of its runs that are not fresh."""
        assert built.id is not None and built.view is not None
        keys = dict.fromkeys(mapping)
        plain = close_sequence(Code.LIST, (), encoded)
        size = held_bytes([run.piece for run in fresh], len(runs)) + 100 * len(keys) + len(plain)
        self.mirrors[built.id] = MappingMirror(
            built.id, title, built.view, runs, keys, plain, all_text(keys), order, size
        )

    # Comparing a value with its mirror.

    def _update(self, mirror: Mirror, value: Any) -> bytes:
        if isinstance(mirror, BytesMirror) and mirror.is_same(value):
            return link(mirror.id)
        opened = self.codec.open_up(value)
        if Title(opened.code, opened.head) != mirror.title:
            return self._build(value, link(mirror.id))
        if isinstance(mirror, SequenceMirror):
            return update_sequence(self, mirror, opened.parts)
        if isinstance(mirror, MappingMirror):
            return update_mapping(self, mirror, opened.parts)
        return update_bytes(self, mirror, opened.parts, value)


def retry_if_changed(call: Callable[[], T]) -> T:
    """Call a function that reads live values, again if they changed; raises ChangedMeanwhile."""
    for _ in range(_ATTEMPTS):
        try:
            return call()
        except ChangedMeanwhile:
            continue
    return call()


def in_order(codec: Codec, members: list[Any]) -> list[Any]:
    """The members of a set in the order of their encodings."""
    encoded = {codec.encode(member): member for member in members}
    if len(encoded) != len(members):
        raise NotStorable("two of its members are stored as the same bytes (nan twice?)")
    return [encoded[key] for key in sorted(encoded)]


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
    if title.code == Code.CUSTOM:
        return {0: pack(raw[-1])}
    raw = raw[-1] if title.head else raw
    if title.code in KEYED:
        keys, parts = raw[::2], raw[1::2]
        return {pack(key): pack(part) for key, part in zip(keys, parts, strict=True)}
    return {index: pack(part) for index, part in enumerate(raw)}
