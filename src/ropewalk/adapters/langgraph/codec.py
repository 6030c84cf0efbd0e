"""Values of LangGraph as canonical bytes, and back.

The same format as everywhere. What is added: classes are learned as they are met, values
of unknown classes come back raw, and records that did not change are not encoded again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ormsgpack import Fragment

from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.adapters.langgraph.decoder import GraphDecoder, Known, SharingDecoder
from ropewalk.adapters.langgraph.memo import (
    SHORTEST,
    Kept,
    Memo,
    Seen,
    copied,
    copies_of,
    keep,
    look,
    looks_same,
    make_run,
)
from ropewalk.codec import Codec, Undeclared
from ropewalk.codec.atoms import CLASSES, atom_of
from ropewalk.codec.codec import raise_interrupt
from ropewalk.codec.decoder import Decoder, no_links
from ropewalk.codec.msgpack import FREE_NESTED, Opened, array_header

_BUILT_IN: Final = frozenset(
    {tuple, set, frozenset, dict, list, str, bytes, int, float, Undeclared, Fragment}
).union(CLASSES.values())


class GraphCodec(Codec):
    """Encodes and decodes what one thread of LangGraph holds. Not for several threads.

    Records are remembered: call `turn` after each checkpoint. It takes about
    `memory` bytes; with 0 nothing that is decoded is remembered, which is faster for those
    who only read.
    """

    def __init__(self, types: GraphTypes | None = None, *, memory: int = 32 << 20) -> None:
        self.types = GraphTypes() if types is None else types
        super().__init__(self.types.registry, classes=self.types.registry.classes)
        self.registry = self.types.registry
        self.memo = Memo(memory)
        self.remembers = memory > 0
        self._quick: set[type] = set()
        """Classes of which records were remembered."""

    def turn(self) -> None:
        """Say that a checkpoint was written, which used all that is still needed."""
        if self._quick:
            self.memo.turn()

    # Encoding.

    def encode(self, value: Any) -> bytes:
        """The one encoding of a value; raises NotStorable with the path inside it."""
        if type(value) is list:
            value = value.copy()  # Others may be changing it.
            data = self._assembled(value) if self._quick and self._holds_records(value) else None
            if data is not None:
                return data
        return super().encode(value)

    def encode_again(self, value: Any) -> bytes | None:
        """The encoding without a look for bytearrays, or None where that needs a walk."""
        if type(value) is list:
            value = value.copy()
            if self._holds_records(value):
                return self._assembled(value)
        return super().encode_again(value)

    def _holds_records(self, values: list[Any]) -> bool:
        """Whether a list, or one of keys and values in turn, is one of records."""
        quick = self._quick
        return bool(values) and (
            type(values[0]) in quick or (len(values) > 1 and type(values[1]) in quick)
        )

    def _assembled(self, values: list[Any]) -> bytes | None:
        """The encoding of a list, of which most items are remembered."""
        run = self.memo.find_run(values)
        return self._joined(values) if run is None else run.data

    def _joined(self, values: list[Any]) -> bytes | None:
        find, again, record = self.memo.recent.get, self.inside, self._record
        parts: list[bytes] = []
        found: list[Seen] = []
        for value in values:
            seen = find(id(value))
            if seen is None or not looks_same(seen, value, again):
                data = record(value, 0)
                seen = None if data is None else self.memo.recent.get(id(value))
                if seen is None:
                    data = self._item(value) if data is None else data
                    if data is None:
                        return None
                    parts.append(data)
                    continue
            found.append(seen)
            parts.append(seen.data)
        joined = array_header(len(parts)) + b"".join(parts)
        if len(found) == len(values) >= SHORTEST:
            run = make_run(found, joined)
            if run is not None:
                self.memo.add_run(run)
        return joined

    def _item(self, value: Any) -> bytes | None:
        """The encoding of what stands in a list, or None where that needs a walk."""
        try:
            return self._pack(value, 0)
        except TypeError as exc:
            raise_interrupt(exc)
            return None

    def _default(self, depth: int, value: Any) -> Any:
        data = self._record(value, depth)
        if data is not None:
            return Fragment(data)
        if self.registry.of(type(value)) is None:
            stand_in = self.stand_in(value)
            if stand_in is not value:
                return Fragment(self._pack(stand_in, depth))
        return super()._default(depth, value)

    def stand_in(self, value: Any) -> Any:
        """What is stored in place of a value of a class that has no form of its own.

        As LangGraph does, an exception is stored as the text that shows it, and an object of
        a class derived from a built-in one as one of that.
        """
        cls = type(value)
        if cls in _BUILT_IN or self.registry.of(cls) is not None or atom_of(cls) is not None:
            return value
        return value if self.types.learn(cls) else self.types.stand_in(value)

    def _open_other(self, value: Any) -> Opened:
        stand_in = self.stand_in(value)
        if stand_in is not value or self.registry.of(type(value)) is not None:
            return self.open_up(stand_in)
        self.types.check(value)
        return super()._open_other(value)

    # Records.

    def _record(self, value: Any, depth: int) -> bytes | None:
        """The encoding of a record that can be remembered; else None."""
        seen = self.memo.find(value)
        if seen is not None and depth <= seen.depth and looks_same(seen, value, self.inside):
            return seen.data
        if depth >= FREE_NESTED:
            return None
        entry = self.registry.of(type(value))
        if entry is None or entry.shape not in ("model", "dataclass"):
            return None
        seen = look(self, entry, value, depth)
        if seen is None:
            return None
        self._quick.add(entry.cls)
        self.memo.add(seen)
        return seen.data

    def inside(self, value: Any, depth: int, *, exact: bool = False) -> bytes | None:
        """The encoding of what stands in a record, as `[[value]]`; None if it needs a walk.

        Only for comparing, unless it is `exact`.
        """
        try:
            return self._pack([[value]], depth + 1, exact=exact)
        except TypeError as exc:
            raise_interrupt(exc)
            return None

    def around(self, content: list[Any], depth: int) -> bytes | None:
        """The encoding of a record's content, in which nothing can be changed by others."""
        try:
            return self._call_packer(content, depth + 1)
        except TypeError as exc:
            raise_interrupt(exc)
            return None

    def note(self, seen: Seen) -> None:
        """Remember a record that was just decoded."""
        self._quick.add(type(seen.value))
        self.memo.add(seen)

    # Decoding and copying.

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """What decodes for this codec; `link` gives what a link stands for."""
        return GraphDecoder(self, link)

    def copy_of(self, value: Any) -> Any:
        """A copy of a value that was decoded, equal to decoding it anew."""
        return copied(self, value)

    def keep(self, values: list[Any]) -> Kept:
        """Values that were just decoded, to make copies of. They must not be used otherwise."""
        return keep(self, values)

    def copies_of(self, kept: Kept) -> list[Any]:
        """Copies of what is kept, equal to decoding it anew."""
        return copies_of(self, kept)


class SharingGraphCodec(GraphCodec):
    """Decodes records that several values hold once, for who reads a whole history."""

    def __init__(self, types: GraphTypes) -> None:
        super().__init__(types, memory=0)
        self.known: Known = {}

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """What decodes for this codec; `link` gives what a link stands for."""
        return SharingDecoder(self, link, self.known)
