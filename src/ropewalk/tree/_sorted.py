"""The keys of a mapping and the members of a set, in the order of their encodings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from ropewalk.codec import Codec
from ropewalk.errors import FormatError
from ropewalk.tree._levels import View
from ropewalk.tree._load import Loader
from ropewalk.tree._objects import Reader
from ropewalk.tree._parts import may_hold_links

# Encodings that begin otherwise are texts, integers or bytes: each of them equals
# no other of its kind, and none of another of these kinds.
_ODD: Final = ((b"\xc0", b"\xc4"), (b"\xc7", b"\xcc"), (b"\xd4", b"\xd9"))


class Sorted:
    """Finds keys or members by their encodings, reading a few nodes."""

    def __init__(self, view: View, read: Reader, codec: Codec) -> None:
        self._view = view
        self._codec = codec
        self._loader = Loader(read, codec)

    def at(self, position: int) -> bytes:
        """The encoding of the key or member at a position."""
        place = self._view.node_at(0, position)
        entry = place.entries[position - place.start]
        if self._view.layout.keyed:
            return entry.key
        if may_hold_links(entry.body):
            return self._codec.encode(self._loader.part(entry.body))
        return entry.body

    def position(self, encoded: bytes) -> int:
        """Where a key or member is, or where it would be."""
        if self._view.layout.keyed:
            return self._view.locate(encoded)[0]
        low, high = 0, self._view.total
        while low < high:
            middle = (low + high) // 2
            if self.at(middle) < encoded:
                low = middle + 1
            else:
                high = middle
        return low

    def twin(self, encoded: bytes, without: Collection[bytes] = ()) -> Any:
        """Another key or member that Python takes for the same one, or None.

        1, 1.0 and True are three values, but a dict or a set can hold one of them only.
        """
        wanted = self._codec.decode(encoded)
        for position in self._suspects(encoded):
            other = self.at(position)
            if other == encoded or other in without:
                continue
            found = self._codec.decode(other)
            if _are_twins(wanted, found):
                return found
        return None

    def _suspects(self, encoded: bytes) -> Iterator[int]:
        if any(low <= encoded[:1] < high for low, high in _ODD):
            yield from range(self._view.total)
            return
        for low, high in _ODD:
            yield from range(self.position(low), self.position(high))


def _are_twins(one: Any, other: Any) -> bool:
    try:
        return len({one, other}) == 1
    except Exception as exc:
        raise FormatError(f"a stored key or member is malformed: {exc}") from exc
