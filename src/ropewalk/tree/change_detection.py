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
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from ormsgpack import Ext

from ropewalk.codec import Codec
from ropewalk.codec.msgpack import (
    Code,
    array_header,
    binary_types,
    holds_packed,
    may_hold_binary,
    pack,
    unpack,
)
from ropewalk.codec.records import plan_of, record_plan_of
from ropewalk.codec.registry import Entry, Registry
from ropewalk.errors import NotStorable

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
            if objects and type(objects[0]) not in _BUILT_IN:
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


# Runs of objects.
#
# Messages are objects of pydantic models or dataclasses, and a conversation of 2,000 of them is
# handed over whole at every step. Encoding each again takes 2 to 3 microseconds, because Python
# runs for each. But what a plain object holds is in its `__dict__`: one call takes those of all,
# and one call of ormsgpack encodes them.

_BUILT_IN: Final = frozenset({dict, list, str, int, float, bool, type(None), tuple, bytes, Ext})
_DICT: Final = attrgetter("__dict__")
_NAMED: Final = attrgetter("__pydantic_fields_set__")
_EXTRA: Final = attrgetter("__pydantic_extra__")
_PRIVATE: Final = attrgetter("__pydantic_private__")


class RecordRun(NamedTuple):
    """How a run of objects of data classes looked.

    That they are of the same classes and hold the same means that they would be encoded as
    they were; it is exact, as encoding them again is. For fields that msgpack has no word
    for there is none.
    """

    registry: Registry
    entries: dict[type, Entry]
    types: list[type]
    named: list[frozenset[str]] | None
    """Which fields of pydantic models were set; None if they are other objects."""

    def held(self, values: Sequence[Any]) -> bytes | None:
        """What objects hold, as bytes; None if they are others than these in what is not held.

        No hook is called here, so this is safe while others change the values.
        """
        if list(map(type, values)) != self.types:
            return None
        of = self.registry.of
        if any(of(cls) is not entry for cls, entry in self.entries.items()):
            return None
        if self.named is not None:
            if list(map(_NAMED, values)) != self.named:
                return None
            if any(map(_EXTRA, values)) or any(map(_PRIVATE, values)):
                return None  # They hold what is no field.
        try:
            return pack(list(map(_DICT, values)))
        except TypeError:
            return None

    def joined(self, other: RecordRun) -> RecordRun | None:
        """This run and another one that follows, if they are of one kind."""
        if self.registry is not other.registry or (self.named is None) != (other.named is None):
            return None
        named = None if self.named is None else self.named + (other.named or [])
        return RecordRun(
            self.registry, self.entries | other.entries, self.types + other.types, named
        )


def look_at(
    registry: Registry, values: Sequence[Any], stored: Sequence[Any]
) -> tuple[RecordRun, bytes] | None:
    """The run of objects that were encoded, and what they hold; None for what is no such run.

    `stored` is their encoding, unpacked with extensions left closed. What is remembered is
    made of that, because others may have changed the objects since.
    """
    types = list(map(type, values))
    names: dict[type, list[str]] = {}
    entries: dict[type, Entry] = {}
    for cls in set(types):
        entry = None if cls in _BUILT_IN else registry.of(cls)
        plain = None if entry is None else _plain_fields(entry)
        if entry is None or plain is None:
            return None
        entries[cls], names[cls] = entry, plain
    are_models = {entry.shape == "model" for entry in entries.values()}
    if len(are_models) > 1:
        return None
    fields: list[dict[str, Any]] = []
    named: list[frozenset[str]] = []
    for cls, one in zip(types, stored, strict=True):
        entry = entries[cls]
        code, payload = unpack(pack([one]), _opened)[0] if type(one) is Ext else (None, b"")
        if code != Code.RECORD:
            return None
        name, version, *marks, held = unpack(payload)
        if (name, version) != (entry.name, entry.version) or list(held) != names[cls]:
            return None
        fields.append(held)
        if entry.shape == "model":
            model = plan_of(entry)
            named.append(model.set_of(marks[0]) if marks else model.public)
    if binary_types(fields):
        return None  # Also what is stored as an extension.
    run = RecordRun(registry, entries, types, named if True in are_models else None)
    plain_bytes = pack(fields)
    return None if run.held(values) != plain_bytes else (run, plain_bytes)


def _opened(code: int, payload: bytes) -> tuple[int, bytes]:
    return code, payload


def _plain_fields(entry: Entry) -> list[str] | None:
    """The names of the fields, if all that an object can hold is in its `__dict__`."""
    if entry.shape == "model":
        model = plan_of(entry)
        return model.names if model.is_simple else None
    if entry.shape not in ("dataclass", "attrs"):
        return None
    record = record_plan_of(entry)
    return record.names if record.only_dict and not record.caches_hash else None
