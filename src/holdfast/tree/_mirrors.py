"""What a writer remembers of a large part, to see quickly what changed in it.

A mirror belongs to one root and never changes. `plain` is what encoding the Python
values of a leaf in one call gave: the same bytes again mean that nothing in them
changed, however deep. Where that would be too much to keep, it is None, and the
parts are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast.codec import Codec
from holdfast.codec._codes import Code
from holdfast.codec._msgpack import binary_types, may_hold_binary
from holdfast.tree._builder import Title
from holdfast.tree._layout import Entry
from holdfast.tree._levels import View
from holdfast.tree._objects import ObjectId
from holdfast.tree._parts import may_hold_links

PLAIN_MAX: Final = 1 << 20
"""How many bytes of one leaf's values are compared in one piece."""


class Leaf(NamedTuple):
    """One leaf: how many parts, and how their values looked."""

    length: int
    plain: bytes | None
    binary: bool
    """Whether there are bytes among them, which a bytearray could imitate."""

    def is_same(self, codec: Codec, values: list[Any]) -> bool:
        """Whether values would be stored as they were."""
        if self.plain is None:
            return False
        again = None if self.binary else codec.encode_again(values)
        return (codec.encode(values) if again is None else again) == self.plain


def first_changed(
    codec: Codec, leaves: list[Leaf], starts: list[int], order: range, items: list[Any], shift: int
) -> int | None:
    """The first leaf, in an order, that its values do not look like any more.

    The values of a leaf stand `shift` after its start. This loop runs over the whole
    state at every commit, so it does no more than it must.
    """
    again = codec.encode_again
    for index in order:
        _, plain, binary = leaf = leaves[index]
        values = items[starts[index] + shift : starts[index + 1] + shift]
        # What cannot be encoded in one call, or could be imitated, takes the longer way.
        unsure = plain is None or again(values) != plain or binary
        if unsure and not leaf.is_same(codec, values):
            return index
    return None


class Pairs(NamedTuple):
    """One leaf of a mapping: its keys, and its leaf of keys and values."""

    keys: list[Any]
    pick: Callable[[Any], Any]
    leaf: Leaf

    def values(self, mapping: dict[Any, Any]) -> list[Any]:
        """The values that a mapping has now for these keys."""
        return [self.pick(mapping)] if len(self.keys) == 1 else list(self.pick(mapping))


class SequenceMirror(NamedTuple):
    """A sequence."""

    id: ObjectId
    title: Title
    view: View
    leaves: list[Leaf]

    @property
    def size(self) -> int:
        """About how many bytes it holds beside what others hold too."""
        return 16 * len(self.leaves)


class MappingMirror(NamedTuple):
    """A mapping."""

    id: ObjectId
    title: Title
    view: View
    leaves: list[Pairs]
    keys: dict[Any, None]
    keys_plain: bytes
    order: bytes | None

    @property
    def size(self) -> int:
        """About how many bytes it holds beside what others hold too."""
        return 100 * len(self.keys) + len(self.keys_plain)


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


def leaf_of(codec: Codec, values: list[Any], payload: bytes, length: int) -> Leaf:
    """Remember a leaf that was written with `payload`."""
    plain: bytes | None = payload
    if may_hold_links(payload):
        plain = codec.encode(values)
        if len(plain) > PLAIN_MAX:
            return Leaf(length, None, True)
    assert plain is not None
    return Leaf(length, plain, may_hold_binary(plain) and bool(binary_types(values)))


def pairs_of(codec: Codec, keys: list[Any], values: list[Any], payload: bytes) -> Pairs:
    """Remember a leaf of a mapping that was written with `payload`."""
    leaf = leaf_of(codec, interleave(keys, values), payload, len(keys))
    return Pairs(keys, itemgetter(*keys), leaf)


def interleave(keys: list[Any], values: list[Any]) -> list[Any]:
    """Keys and values in turn, as a leaf of a mapping holds them."""
    flat: list[Any] = [None] * (2 * len(keys))
    flat[::2], flat[1::2] = keys, values
    return flat


def starts_of(counts: list[int]) -> list[int]:
    """The first position of each leaf, and the end."""
    return [0, *accumulate(counts)]
