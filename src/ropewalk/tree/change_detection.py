"""What a writer remembers of large values, to see quickly and exactly what changed in them.

Values are remembered in *pieces*: runs that encode to about 24 KB, with the bytes that
encoding them in one call gave, or a digest of those. The same bytes again mean that nothing
in them changed, however deep. Pieces follow the size of the values and have nothing to do
with nodes: a list of large values has several for one leaf, a list of small ones has one for
several leaves. A *mirror* holds the pieces of one large part.

A program may change a value while it is being saved. So what is stored is made of its
encoding, in which each container is as it was at one moment: the encoding is unpacked again,
with extensions left closed, and all that a tree consists of is derived from that *snapshot*.
No class is needed for it, and nobody else can change it.
"""

from __future__ import annotations

import secrets
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ormsgpack import Ext

from ropewalk.codec import Codec
from ropewalk.codec.msgpack import (
    Code,
    Form,
    Opened,
    array_header,
    binary_types,
    holds_packed,
    may_hold_binary,
    open_extension,
    pack,
    unpack,
)
from ropewalk.codec.record_run import RecordRun, look_at, may_be_records
from ropewalk.errors import NotStorable, RopewalkError
from ropewalk.tree.build import Title
from ropewalk.tree.levels import View
from ropewalk.tree.nodes import CHUNKS, KEYED, SETS, Entry, Root, layout_of
from ropewalk.tree.objects import ObjectId, Reader
from ropewalk.tree.read import Loader

PIECE_TARGET: Final = 24 << 10
PIECE_MAX: Final = 48 << 10
"""A piece of several values that takes more bytes is cut.

A buffer of up to 64 KB comes from memory that the allocator keeps. One that is larger
may be given back and fetched again at each call, which takes longer than encoding."""

VALUE_MAX: Final = 1 << 20
"""One value of more bytes is looked at part by part."""

PLAIN_MAX: Final = 8 << 20
"""How many bytes of encodings a writer keeps; of what is beyond that, it keeps digests."""

FIRST_GUESS: Final = 32

# Digests.

_SECRET: Final = secrets.token_bytes(16)
_KEYED: Final = sys.hash_info.width >= 64 and sys.hash_info.algorithm.startswith("siphash")


def _mark(plain: bytes) -> int:
    """64 bits that nobody outside of this process can steer."""
    if _KEYED:
        return hash(_SECRET + plain)
    return int.from_bytes(sha256(_SECRET + plain).digest()[:16], "big")


class Digest:
    """Stands for bytes that are not kept: equal to those, and to no others.

    The keyed hash of Python (SipHash) is four times faster than SHA-256. That it misses a
    change has a chance of 2^-64, less than that of memory that loses a bit.
    """

    __slots__ = ("_mark", "size")

    def __init__(self, plain: bytes) -> None:
        self.size, self._mark = len(plain), _mark(plain)

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Digest):
            return (self.size, self._mark) == (other.size, other._mark)
        return isinstance(other, bytes) and len(other) == self.size and _mark(other) == self._mark

    def __hash__(self) -> int:
        return self._mark


class Budget:
    """How many more bytes of encodings may be kept as they are."""

    __slots__ = ("left",)

    def __init__(self, left: int = PLAIN_MAX) -> None:
        self.left = left

    def keep(self, plain: bytes) -> bytes | Digest:
        """What is kept to recognise some bytes."""
        return plain if self.has(len(plain)) else Digest(plain)

    def has(self, size: int) -> bool:
        """Whether there is room for so many bytes, which is taken then."""
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


# Pieces.


class Piece(NamedTuple):
    """A run of values: how many parts they are, and how they looked.

    Where `plain` is None, they are too large, and are looked at one by one.
    """

    length: int
    plain: bytes | Digest | None
    binary: bool
    """Whether there are bytes among them, which a bytearray could imitate."""
    records: RecordRun | None = None
    """What the values are, if they are objects; `plain` is what they hold then."""

    def is_same(self, codec: Codec, values: list[Any]) -> bool:
        """Whether values would be stored as they were."""
        if self.plain is None:
            return False
        if self.records is not None:
            return self.records.held(values) == self.plain
        again = None if self.binary else codec.encode_again(values)
        try:
            return (codec.encode(values) if again is None else again) == self.plain
        except NotStorable:
            return False  # Whoever looks closer says why, and where.

    @property
    def is_small_digest(self) -> bool:
        """Whether it is better made anew with what follows it."""
        return isinstance(self.plain, Digest) and len(self.plain) <= PIECE_TARGET // 2

    @property
    def held(self) -> int:
        """About how many bytes it takes."""
        return 160 + (len(self.plain) if type(self.plain) is bytes else 0)


UNKNOWN: Final = Piece(1, None, True)
"""One part that is always looked at."""

LARGE: Final = Piece(1, None, True)
"""The same, of a value whose encoding is known to be longer than `VALUE_MAX`."""


def take(
    codec: Codec, values: list[Any], budget: Budget, *, live: bool, width: int = 1, guess: int = 0
) -> Iterator[tuple[list[Any], Piece]]:
    """The runs of values, of which `width` make one part, each with its piece.

    What is `live` may be changed by others meanwhile: a run is its snapshot then, and what
    is remembered is what the snapshot was made of. But a value that is too large for that is
    given as it is, alone, as `LARGE`. `guess` is how many parts the first run may have.
    """
    at, total, guess = 0, len(values) // width, guess or FIRST_GUESS
    while at < total:
        count = min(guess, total - at)
        run = values[at * width : (at + count) * width]
        try:
            most = PIECE_MAX if count > 1 else VALUE_MAX
            plain, run, binary = _snapshot(codec, run, most) if live else _encoded(codec, run)
            size = len(plain)
        except NotStorable:
            # Each can be stored, but together they nest too deeply; or one cannot.
            plain, size = b"", PIECE_MAX + 1
        if size > PIECE_MAX and count > 1:
            guess = max(1, min(count // 2, count * PIECE_TARGET // size))
            continue
        piece = UNKNOWN if not plain else LARGE
        if plain and size <= VALUE_MAX:
            seen = None
            objects = values[at : at + count] if width == 1 else []
            if may_be_records(objects):
                seen = look_at(codec.registry, objects, run if live else unpack(plain))
            if seen is None:
                piece = Piece(count, budget.keep(plain), binary)
            else:
                piece = Piece(count, budget.keep(seen[1]), False, seen[0])
        del plain  # It may be long, and is held no longer than it must.
        yield run, piece
        at += count
        guess = max(1, min(4 * count, count * PIECE_TARGET // size))


def _snapshot(codec: Codec, values: list[Any], most: int) -> tuple[bytes, list[Any], bool]:
    """The encoding of live values, their snapshot, and whether there are bytes among them.

    There is no snapshot of what takes more than so many bytes.
    """
    try:
        plain = pack(values)  # One call that nothing can interrupt.
    except TypeError:
        pass
    else:
        if len(plain) > most:
            return plain, values, True
        if not holds_packed(values, len(plain)):
            run: list[Any] = unpack(plain)
            if not may_hold_binary(plain) or bytes not in binary_types(run):
                return plain, run, False
    plain = codec.encode(values)
    run = unpack(plain) if len(plain) <= most else values
    # What is in an extension was looked at when that was encoded.
    return plain, run, may_hold_binary(plain) and bool(binary_types(run) - {Ext})


def _encoded(codec: Codec, values: list[Any]) -> tuple[bytes, list[Any], bool]:
    """The same of a snapshot, or of values that nobody changes."""
    plain = codec.encode(values)
    return plain, values, may_hold_binary(plain) and bool(binary_types(values) - {Ext})


def joined(one: Piece, other: Piece) -> Piece | None:
    """Two pieces of a sequence as one, if that is small enough."""
    left, right = one.plain, other.plain
    if type(left) is not bytes or type(right) is not bytes:
        return None
    if len(left) + len(right) > PIECE_TARGET:
        return None
    records = None
    if one.records is not None and other.records is not None:
        records = one.records.joined(other.records)
    if records is None and not (one.records is None and other.records is None):
        return None
    # The encoding of a list is that of its items, one after another.
    length, binary = one.length + other.length, one.binary or other.binary
    first, second = left[header_size(one.length) :], right[header_size(other.length) :]
    return Piece(length, array_header(length) + first + second, binary, records)


def spliced(ahead: list[Piece], fresh: list[Piece], behind: list[Piece]) -> list[Piece]:
    """Pieces with new ones between them, joined where they are small."""
    pieces = list(ahead)
    for piece in [*fresh, *behind[:1]]:
        one = joined(pieces[-1], piece) if pieces else None
        if one is None:
            pieces.append(piece)
        else:
            pieces[-1] = one
    return pieces + behind[1:]


def header_size(count: int) -> int:
    """How long the head of an array with `count` elements is."""
    return 1 if count < 16 else 3 if count < 1 << 16 else 5


def first_changed(
    codec: Codec, pieces: list[Piece], starts: list[int], order: range, items: list[Any], shift: int
) -> int | None:
    """The first piece, in an order, that its values do not look like any more.

    The values of a piece stand `shift` after its start. This loop runs over the whole
    state at every commit, so it does no more than it must.
    """
    again = codec.encode_again
    for index in order:
        _, plain, binary, records = piece = pieces[index]
        values = items[starts[index] + shift : starts[index + 1] + shift]
        if records is not None:
            if records.held(values) != plain:
                return index
            continue
        # What cannot be encoded in one call, or could be imitated, takes the longer way.
        unsure = plain is None or again(values) != plain or binary
        if unsure and not piece.is_same(codec, values):
            return index
    return None


class _Run(Protocol):
    @property
    def length(self) -> int: ...


def starts_of(runs: Sequence[_Run]) -> list[int]:
    """The first position of each run, and the end."""
    return [0, *accumulate([run.length for run in runs])]


# Mirrors.


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
        return sorted([(self._codec.encode(key), key) for key in keys], key=_first)


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]
