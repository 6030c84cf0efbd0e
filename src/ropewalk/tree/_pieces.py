"""Pieces: runs of values that are encoded and compared in one step.

A piece remembers what encoding its Python values in one call gave. The same bytes
again mean that nothing in them changed, however deep. Pieces follow the size of the
values and have nothing to do with nodes: a list of large values has several for one
leaf, a list of small ones has one for several leaves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ormsgpack import Ext

from ropewalk.codec import Codec
from ropewalk.codec._msgpack import binary_types, may_hold_binary
from ropewalk.errors import NotStorable
from ropewalk.tree._levels import Span

PIECE_TARGET: Final = 24 << 10
PIECE_MAX: Final = 48 << 10
"""A piece of several values that takes more bytes is cut.

A buffer of up to 64 KB comes from memory that the allocator keeps. One that is larger
may be given back and fetched again at each call, which takes longer than encoding."""

VALUE_MAX: Final = 1 << 20
"""One value of more bytes is looked at part by part."""

FIRST_GUESS: Final = 32


class Digest(bytes):
    """A hash in the place of bytes: equal to those, and to those only, that it was made of.

    For who would rather hash again than hold an encoding beside the values.
    """

    size: int

    @classmethod
    def of(cls, plain: bytes) -> Digest:
        """The digest of some bytes."""
        made = cls(sha256(plain).digest())
        made.size = len(plain)
        return made

    def __eq__(self, other: object) -> bool:
        # Python asks the derived class first, on whichever side it stands.
        if isinstance(other, Digest) or not isinstance(other, bytes):
            return bytes.__eq__(self, other)
        return len(other) == self.size and sha256(other).digest() == bytes(self)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = bytes.__hash__


class Piece(NamedTuple):
    """A run of values: how many parts they are, and how they looked.

    Where `plain` is None, they are too large, and are looked at one by one. It may be a
    `Digest`.
    """

    length: int
    plain: bytes | None
    binary: bool
    """Whether there are bytes among them, which a bytearray could imitate."""

    def is_same(self, codec: Codec, values: list[Any]) -> bool:
        """Whether values would be stored as they were."""
        if self.plain is None:
            return False
        again = None if self.binary else codec.encode_again(values)
        try:
            return (codec.encode(values) if again is None else again) == self.plain
        except NotStorable:
            return False  # Whoever looks closer says why, and where.


UNKNOWN: Final = Piece(1, None, True)
"""One part that is always looked at."""


def held_bytes(fresh: Iterable[Piece], count: int) -> int:
    """About how many bytes `count` pieces take, of which only some are new."""
    return 16 * count + sum([100 + len(piece.plain or b"") for piece in fresh])


class _Run(Protocol):
    @property
    def length(self) -> int: ...


R = TypeVar("R", bound=_Run)


def cut_pieces(
    codec: Codec, values: list[Any], width: int = 1, guess: int = FIRST_GUESS, lean: bool = False
) -> list[Piece]:
    """Pieces of values, of which `width` make one part.

    `guess` is how many parts the first piece may have. With `lean`, digests are held.
    """
    pieces: list[Piece] = []
    at, total = 0, len(values) // width
    while at < total:
        count = min(guess, total - at)
        piece = _piece(codec, values[at * width : (at + count) * width], count)
        size = PIECE_MAX + 1 if piece.plain is None else len(piece.plain)
        if size > PIECE_MAX and count > 1:
            guess = max(1, min(count // 2, count * PIECE_TARGET // size))
            continue
        if lean and piece.plain is not None:
            piece = piece._replace(plain=Digest.of(piece.plain))
        pieces.append(piece if size <= VALUE_MAX else UNKNOWN)
        at += count
        guess = max(1, min(4 * count, count * PIECE_TARGET // size))
    return pieces


def _piece(codec: Codec, values: list[Any], count: int) -> Piece:
    try:
        plain = codec.encode(values)
    except NotStorable:
        # Each can be stored, but together they nest too deeply.
        return Piece(count, None, True)
    # What is in an extension was looked at when that was encoded.
    binary = may_hold_binary(plain) and bool(binary_types(values) - {Ext})
    return Piece(count, plain, binary)


def first_changed(
    codec: Codec, pieces: list[Piece], starts: list[int], order: range, items: list[Any], shift: int
) -> int | None:
    """The first piece, in an order, that its values do not look like any more.

    The values of a piece stand `shift` after its start. This loop runs over the whole
    state at every commit, so it does no more than it must.
    """
    again = codec.encode_again
    for index in order:
        _, plain, binary = piece = pieces[index]
        values = items[starts[index] + shift : starts[index + 1] + shift]
        # What cannot be encoded in one call, or could be imitated, takes the longer way.
        unsure = plain is None or again(values) != plain or binary
        if unsure and not piece.is_same(codec, values):
            return index
    return None


def starts_of(runs: Sequence[_Run]) -> list[int]:
    """The first position of each run, and the end."""
    return [0, *accumulate([run.length for run in runs])]


def splice(
    runs: list[R], spans: Sequence[Span], make: Callable[[int, int, int], list[R]]
) -> tuple[list[R], list[R]]:
    """The runs of an edited container, and those of them that are new.

    Runs that no span touches stay. `make` gets the new positions from and to which it
    makes runs, and a guess of how many parts the first one may have.
    """
    starts = starts_of(runs)
    kept: list[R] = []
    fresh: list[R] = []
    done, shift, at = 0, 0, 0
    assert runs, "a large container has parts"
    while at < len(spans):
        low, high = _touched(starts, spans[at])
        moved = shift
        while at < len(spans) and (touched := _touched(starts, spans[at]))[0] < high:
            high = max(high, touched[1])
            shift += len(spans[at].entries) - (spans[at].stop - spans[at].start)
            at += 1
        kept += runs[done:low]
        guess = (starts[high] - starts[low]) // (high - low) + FIRST_GUESS
        made = make(starts[low] + moved, starts[high] + shift, guess)
        kept += made
        fresh += made
        done = high
    kept += runs[done:]
    return kept, fresh


def _touched(starts: list[int], span: Span) -> tuple[int, int]:
    """Which runs a span touches; what comes between two runs belongs to the first."""
    if span.start == span.stop:
        low = max(bisect_left(starts, span.start) - 1, 0)
        return low, low + 1
    return bisect_right(starts, span.start) - 1, bisect_left(starts, span.stop)
