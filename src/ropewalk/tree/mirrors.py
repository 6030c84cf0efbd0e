"""Mirrors: what is remembered of the large parts of a value, to see what changed in them.

A *mirror* holds the pieces of one large part (see `change_detection`). A program may change a
value while it is being saved. So what is stored is made of its encoding, in which each container
is as it was at one moment: the encoding is unpacked again, with extensions left closed, and all
that a tree consists of is derived from that *snapshot*. No class is needed for it, and nobody
else can change it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from ormsgpack import Ext

from ropewalk.codec import Codec
from ropewalk.codec.msgpack import (
    Code,
    Form,
    Opened,
    array_header,
    open_extension,
    pack,
    unpack,
)
from ropewalk.errors import NotStorable, RopewalkError
from ropewalk.tree.build import Title
from ropewalk.tree.change_detection import Budget, Digest, Piece, starts_of, take
from ropewalk.tree.levels import View
from ropewalk.tree.nodes import CHUNKS, KEYED, SETS, Entry, Root, layout_of
from ropewalk.tree.objects import ObjectId, Reader
from ropewalk.tree.read import Loader


class Pairs(NamedTuple):
    """A run of a mapping's parts: its keys, and its piece of keys and values."""

    keys: list[Any]
    pick: Callable[[Any], Any]
    piece: Piece

    @classmethod
    def of(cls, keys: list[Any], piece: Piece) -> Pairs:
        """The run of some keys."""
        return cls(keys, itemgetter(*keys), piece)

    @property
    def length(self) -> int:
        """How many parts there are."""
        return len(self.keys)

    def values(self, mapping: dict[Any, Any]) -> list[Any]:
        """Keys, and the values that a mapping has for them now, in turn."""
        held = [self.pick(mapping)] if len(self.keys) == 1 else self.pick(mapping)
        return interleave(self.keys, held)


def runs_of(
    codec: Codec, keys: list[Any], mapping: Mapping[Any, Any], budget: Budget
) -> list[Pairs]:
    """The runs of a mapping that nobody changes, by its keys in the order of its parts."""
    flat = [one for key in keys for one in (key, mapping[key])]
    runs: list[Pairs] = []
    at = 0
    for _, piece in take(codec, flat, budget, live=False, width=2):
        runs.append(Pairs.of(keys[at : at + piece.length], piece))
        at += piece.length
    return runs


class SequenceMirror(NamedTuple):
    """A sequence."""

    id: ObjectId
    title: Title
    view: View
    pieces: list[Piece]

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        return sum([piece.held for piece in self.pieces])

    @property
    def encoded(self) -> int | None:
        """About how many bytes its encoding takes; None if that is not known."""
        return _summed(self.pieces)


class MappingMirror(NamedTuple):
    """A mapping."""

    id: ObjectId
    title: Title
    view: View
    runs: list[Pairs]
    keys: dict[Any, None]
    keys_plain: bytes
    texts: bool
    """Whether all keys are texts."""
    order: bytes | None

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        held = sum([run.piece.held for run in self.runs])
        return held + 100 * len(self.keys) + len(self.keys_plain)

    @property
    def encoded(self) -> int | None:
        """About how many bytes its encoding takes; None if that is not known."""
        return _summed([run.piece for run in self.runs])


class BytesMirror(NamedTuple):
    """A large string or large bytes."""

    id: ObjectId
    title: Title
    view: View | None
    chunks: list[Entry]
    source: Any
    """What it was; a `Digest` of its bytes, where it would be one copy more."""

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        return (100 if type(self.source) is Digest else len(self.source)) + 100 * len(self.chunks)

    @property
    def encoded(self) -> int | None:
        """How many bytes it is; None if that is not known."""
        if self.chunks:
            return sum([one.weight for one in self.chunks])
        return None if type(self.source) is str else len(self.source)

    def is_same(self, value: Any) -> bool:
        """Whether a text or bytes are what they were; both are immutable."""
        if self.title.code not in (Code.STR, Code.BYTES) or type(value) is not type(self.source):
            return False
        return bool(value == self.source)


Mirror: TypeAlias = SequenceMirror | MappingMirror | BytesMirror


class Mirrors(dict[ObjectId, Mirror]):
    """The mirrors of one value, by root."""

    __slots__ = ("held",)

    def __init__(self, found: Mapping[ObjectId, Mirror] | None = None) -> None:
        super().__init__(found or {})
        self.held = sum([mirror.size for mirror in self.values()])
        """About how many bytes they hold."""

    def renew(self, fresh: Mapping[ObjectId, Mirror], replaced: Iterable[ObjectId]) -> None:
        """Remember new ones in the place of others."""
        for id in replaced:
            # What stands elsewhere too is built there once more: that only takes longer.
            self.drop(id)
        for id, mirror in fresh.items():
            self.drop(id)
            self[id] = mirror
            self.held += mirror.size

    def drop(self, id: ObjectId) -> None:
        """Forget one, if it is there."""
        gone = self.pop(id, None)
        if gone is not None:
            self.held -= gone.size

    def clear(self) -> None:
        """Forget all of them."""
        super().clear()
        self.held = 0


def _summed(pieces: list[Piece]) -> int | None:
    sizes = [None if one.plain is None else len(one.plain) for one in pieces]
    return None if None in sizes else sum([size or 0 for size in sizes])


def by_run(mirror: MappingMirror, added: dict[bytes, Any]) -> dict[int, list[tuple[bytes, Any]]]:
    """Which keys are added to which run."""
    found: dict[int, list[tuple[bytes, Any]]] = {}
    starts = starts_of(mirror.runs) if added else []
    for encoded, key in added.items():
        at = mirror.view.locate(encoded)[0]
        found.setdefault(max(bisect_left(starts, at) - 1, 0), []).append((encoded, key))
    return found


def same_keys(keys: Iterable[Any], old: Iterable[Any]) -> bool:
    """Whether an old key finds what the new key in its place stands for.

    A key that equals only itself, such as nan, is found by no other; and one that was
    changed in place is found where it no longer belongs.
    """
    return all(
        one is other or (one == other and hash(one) == hash(other))
        for one, other in zip(keys, old, strict=True)
    )


def all_text(keys: Iterable[Any]) -> bool:
    """Whether keys are texts, and of no class derived from them."""
    return set(map(type, keys)) <= {str}


def interleave(keys: list[Any], values: Sequence[Any]) -> list[Any]:
    """Keys and values in turn, as a leaf of a mapping holds them."""
    flat: list[Any] = [None] * (2 * len(keys))
    flat[::2], flat[1::2] = keys, values
    return flat


# Snapshots.


class SnapshotCodec(Codec):
    """What a codec is for values, for snapshots of them.

    The keys of dicts are values beside that: they are looked up in other dicts.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec, self.registry = codec, codec.registry

    def encode(self, value: Any) -> bytes:
        """The encoding of what a snapshot is of."""
        try:
            return pack(value)
        except TypeError:
            if type(value) is list:
                return array_header(len(value)) + b"".join(map(self.encode, value))
            return self._codec.encode(value)

    def encode_again(self, value: Any) -> bytes | None:
        """The same; None for what cannot be encoded."""
        try:
            return self.encode(value)
        except NotStorable:
            return None

    def open_up(self, value: Any) -> Opened:
        """The parts of what a snapshot is of, as snapshots."""
        if type(value) is not Ext:
            return super().open_up(value)
        opened = open_extension(*unpack(pack(value), lambda code, data: (code, data)))
        if opened.code not in KEYED:
            return opened
        keys, parts = opened.parts[::2], opened.parts[1::2]
        return opened._replace(form=Form.MAPPING, parts=self._keyed(keys, parts))

    def _keyed(self, keys: list[Any], parts: list[Any]) -> dict[Any, Any]:
        try:
            decoder = self._codec.decoder()
            found = dict(zip([decoder.decode(pack(key)) for key in keys], parts, strict=True))
            if len(found) == len(keys):
                return found
        except (RopewalkError, TypeError):
            pass
        # The class of a key does not come back: the dict is made anew when it is next saved.
        return dict(zip(keys, parts, strict=True))


# Reading a value together with what is needed to see later what was changed in it.


class Reflector(Loader):
    """Loads values, and makes a mirror of every large part before anybody can change it."""

    def __init__(self, read: Reader, codec: Codec, budget: Budget | None = None) -> None:
        super().__init__(read, codec)
        self._budget = Budget() if budget is None else budget
        self.mirrors: dict[ObjectId, Mirror] = {}

    def _loaded(self, id: ObjectId, root: Root, value: Any) -> None:
        if root.code in (Code.MAP, Code.ENUM):
            return
        opened = self._codec.open_up(value)
        title = Title(root.code, root.head)
        if Title(opened.code, opened.head) == title:  # Else its class changed since.
            self.mirrors[id] = self._mirror(id, title, root, opened, value)

    def _mirror(self, id: ObjectId, title: Title, root: Root, opened: Opened, value: Any) -> Mirror:
        layout = layout_of(root.code)
        if opened.form is Form.BYTES:
            whole = root.data is not None
            view = None if whole else View(layout, root.height, root.entries, self._read)
            chunks = [] if whole else self._lowest(CHUNKS, root)
            held = value if type(value) in (str, bytes) else opened.parts
            if held is not value:
                held = self._budget.keep(held)
            return BytesMirror(id, title, view, chunks, held)
        view = View(layout, root.height, root.entries, self._read)
        if opened.form is Form.SEQUENCE:
            items = opened.parts
            if root.code in SETS:
                items = [item for _, item in self._sorted(items)]
            pieces = [piece for _, piece in take(self._codec, items, self._budget, live=False)]
            return SequenceMirror(id, title, view, pieces)
        return self._mapping_mirror(id, title, view, opened.parts, root.order)

    def _mapping_mirror(
        self,
        id: ObjectId,
        title: Title,
        view: View,
        mapping: dict[Any, Any],
        order: bytes | None,
    ) -> MappingMirror:
        in_turn = [key for _, key in self._sorted(mapping)]
        runs = runs_of(self._codec, in_turn, mapping, self._budget)
        plain = self._codec.encode(list(mapping))
        keys = dict.fromkeys(mapping)
        return MappingMirror(id, title, view, runs, keys, plain, all_text(keys), order)

    def _sorted(self, keys: Iterable[Any]) -> list[tuple[bytes, Any]]:
        return sorted([(self._codec.encode(key), key) for key in keys], key=itemgetter(0))
