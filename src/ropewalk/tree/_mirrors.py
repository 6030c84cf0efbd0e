"""What a writer remembers of a large part, to see quickly what changed in it.

A mirror belongs to one root and never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from ropewalk.codec import Codec
from ropewalk.codec._codes import Code
from ropewalk.tree._builder import Title
from ropewalk.tree._layout import Entry
from ropewalk.tree._levels import View
from ropewalk.tree._objects import ObjectId
from ropewalk.tree._pieces import FIRST_GUESS, Piece, cut_pieces


class Pairs(NamedTuple):
    """A run of a mapping's parts: its keys, and its piece of keys and values."""

    keys: list[Any]
    pick: Callable[[Any], Any]
    piece: Piece

    @property
    def length(self) -> int:
        """How many parts there are."""
        return len(self.keys)

    def values(self, mapping: dict[Any, Any]) -> list[Any]:
        """Keys, and the values that a mapping has for them now, in turn."""
        held = [self.pick(mapping)] if len(self.keys) == 1 else self.pick(mapping)
        return interleave(self.keys, held)


class SequenceMirror(NamedTuple):
    """A sequence."""

    id: ObjectId
    title: Title
    view: View
    pieces: list[Piece]
    size: int
    """About how many bytes it holds beside what others hold too."""


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
    size: int
    """About how many bytes it holds beside what others hold too."""


class BytesMirror(NamedTuple):
    """A large string or large bytes."""

    id: ObjectId
    title: Title
    view: View | None
    chunks: list[Entry]
    source: Any

    @property
    def size(self) -> int:
        """About how many bytes it holds beside what others hold too."""
        return len(self.source) + 100 * len(self.chunks)

    def is_same(self, value: Any) -> bool:
        """Whether a text or bytes are what they were; both are immutable."""
        if self.title.code not in (Code.STR, Code.BYTES):
            return False
        return type(value) is type(self.source) and bool(value == self.source)


Mirror: TypeAlias = SequenceMirror | MappingMirror | BytesMirror


def all_text(keys: Iterable[Any]) -> bool:
    """Whether keys are texts, and of no class derived from them."""
    return set(map(type, keys)) <= {str}


def cut_pairs(
    codec: Codec,
    keys: list[Any],
    mapping: dict[Any, Any],
    guess: int = FIRST_GUESS,
    lean: bool = False,
) -> list[Pairs]:
    """The runs of a mapping, of which these are the keys in the order of its parts."""
    values = interleave(keys, [mapping[key] for key in keys])
    runs, at = [], 0
    for piece in cut_pieces(codec, values, 2, guess, lean):
        some = keys[at : at + piece.length]
        runs.append(Pairs(some, itemgetter(*some), piece))
        at += piece.length
    return runs


def interleave(keys: list[Any], values: Sequence[Any]) -> list[Any]:
    """Keys and values in turn, as a leaf of a mapping holds them."""
    flat: list[Any] = [None] * (2 * len(keys))
    flat[::2], flat[1::2] = keys, values
    return flat
