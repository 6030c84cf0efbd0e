"""Values of LangGraph as canonical bytes, and back.

The same format as everywhere. What is added: classes are learned as they are met, values
of unknown classes come back raw, and records that did not change are not encoded again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ormsgpack import Fragment

from holdfast.adapters.langgraph._copies import copied
from holdfast.adapters.langgraph._decoder import GraphDecoder, Known, SharingDecoder
from holdfast.adapters.langgraph._memo import MODEL_PARTS, Memo, Seen, looks_same
from holdfast.adapters.langgraph._types import GraphTypes
from holdfast.codec import Codec, Undeclared
from holdfast.codec._atoms import atom_of
from holdfast.codec._codec import raise_interrupt
from holdfast.codec._codes import FREE_NESTED, Code
from holdfast.codec._decoder import Decoder, no_links
from holdfast.codec._models import plan_of
from holdfast.codec._msgpack import (
    array_header,
    binary_types,
    extension,
    map_header,
    may_hold_binary,
    pack,
)
from holdfast.codec._opened import Opened
from holdfast.codec._registry import Entry
from holdfast.codec._walk import Walk
from holdfast.errors import NotStorable

PLAIN: Final = frozenset({str, int, float, bool, type(None), bytes})
"""Immutable, and msgpack has a word for them."""
_EMPTY: Final[dict[type, Any]] = {list: [], dict: {}}
_BUILT_IN: Final = frozenset(
    {tuple, set, frozenset, dict, list, str, bytes, int, float, Undeclared}
)
_DEEPEST: Final = 60
"""Below so many lists and dicts, shared values are walked over one by one."""


class GraphCodec(Codec):
    """Encodes and decodes what one thread of LangGraph holds. Not for several threads.

    `memo` remembers records: call `memo.turn()` after each checkpoint.
    """

    def __init__(self, types: GraphTypes | None = None, *, memory: int = 32 << 20) -> None:
        self.types = GraphTypes() if types is None else types
        super().__init__(self.types.registry)
        self.registry = self.types.registry
        self.memo = Memo(memory)
        self._quick: set[type] = set()
        """Classes of which records were remembered."""

    # Encoding.

    def encode_noting_binary(self, value: Any) -> tuple[bytes, bool]:
        """The encoding, and whether the value holds bytes."""
        if type(value) is list and self._holds_records(value):
            data = self.encode_again(value)
            if data is not None and (not may_hold_binary(data) or not binary_types(value)):
                return data, False
        return super().encode_noting_binary(value)

    def encode_again(self, value: Any) -> bytes | None:
        """The encoding without a look for bytearrays, or None where that needs a walk."""
        if type(value) is list and self._holds_records(value):
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
        find, again, record = self.memo.recent.get, self._inside, self._record
        parts = []
        for value in values:
            seen = find(id(value))
            if seen is not None and looks_same(seen, value, again):
                parts.append(seen[1])
                continue
            data = record(value, 0)
            if data is None:
                data = self._item(value)
                if data is None:
                    return None
            parts.append(data)
        return array_header(len(parts)) + b"".join(parts)

    def _item(self, value: Any) -> bytes | None:
        """The encoding of what stands in a list, or None where that needs a walk."""
        try:
            return pack([value], self._hooks[0])[1:]
        except TypeError as exc:
            raise_interrupt(exc)
            return None

    def _say(self, depth: int, value: Any) -> Any:
        data = self._record(value, depth)
        if data is not None:
            return Fragment(data)
        if self.registry.of(type(value)) is None:
            stand_in = self.stand_in(value)
            if stand_in is not value:
                return stand_in
        return super()._say(depth, value)

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
        return super()._open_other(value)

    # Records.

    def _record(self, value: Any, depth: int) -> bytes | None:
        """The encoding of a record that can be remembered; else None."""
        seen = self.memo.find(value)
        if seen is not None and depth <= seen.depth and looks_same(seen, value, self._inside):
            return seen.data
        if depth >= FREE_NESTED:
            return None
        entry = self.registry.of(type(value))
        if entry is None or entry.shape not in ("model", "dataclass"):
            return None
        seen = _look(self, entry, value, depth)
        if seen is None:
            return None
        self._quick.add(entry.cls)
        self.memo.add(seen)
        return seen.data

    def _inside(self, value: Any, depth: int) -> bytes | None:
        """The encoding of what stands in a record, as `[[value]]`; None if it needs a walk."""
        try:
            return pack([[value]], self._hooks[depth + 1])
        except TypeError as exc:
            raise_interrupt(exc)
            return None

    def _around(self, content: list[Any], depth: int) -> bytes | None:
        """The encoding of a record's content, in which nothing can be changed by others."""
        try:
            return pack(content, self._hooks[depth + 1])
        except TypeError as exc:
            raise_interrupt(exc)
            return None

    def note(self, value: Any, payload: bytes, head: list[Any], depth: int) -> None:
        """Remember a record that was just decoded from its payload."""
        entry = self.registry.of(type(value))
        if entry is None or entry.shape not in ("model", "dataclass"):
            return
        self._quick.add(entry.cls)
        seen = _look(self, entry, value, depth, payload, head)
        if seen is not None:
            self.memo.add(seen)

    # Decoding and copying.

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """What decodes for this codec; `link` gives what a link stands for."""
        return GraphDecoder(self, link)

    def shared(self) -> Codec:
        """The same codec, for values that other threads may be changing."""
        return SharedGraphCodec(self)

    def copy_of(self, value: Any) -> Any:
        """A copy of a value that was decoded, equal to decoding it anew."""
        return copied(self, value)


class SharingGraphCodec(GraphCodec):
    """Decodes records that several values hold once, for who reads a whole history."""

    def __init__(self, types: GraphTypes) -> None:
        super().__init__(types)
        self.known: Known = {}

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """What decodes for this codec; `link` gives what a link stands for."""
        return SharingDecoder(self, link, self.known)


class _Shape(NamedTuple):
    """How a record is held, beside the values of its fields."""

    names: list[str]
    held: dict[str, Any]
    named: frozenset[str] | None
    marks: list[list[str]]
    """Which fields were set, as it is stored."""
    extra: Any


def _shape_of(codec: GraphCodec, entry: Entry, value: Any) -> _Shape | None:
    """None if a record holds more than its fields."""
    if entry.shape == "dataclass":
        names = codec.types.plain_fields(entry)
        held = getattr(value, "__dict__", None)
        return None if not names or held is None else _Shape(names, held, None, [], None)
    plan = plan_of(entry)
    held, named_now, extra, private = MODEL_PARTS(value)
    if extra or private or not plan.is_simple:
        return None
    named = frozenset(named_now)
    marks = [] if named == plan.public else [sorted(named)]
    return _Shape(plan.names, held, named, marks, extra)


def _look(
    codec: GraphCodec,
    entry: Entry,
    value: Any,
    depth: int,
    payload: bytes | None = None,
    head: list[Any] | None = None,
) -> Seen | None:
    """What there is to remember of a record, with its payload and head if they are known."""
    shape = _shape_of(codec, entry, value)
    if shape is None or (head is not None and head[2:] != shape.marks):
        return None
    fields = shape.held.copy()  # Others may be changing it.
    keys = list(fields)
    if keys != shape.names:
        return None
    values = tuple(fields.values())
    empty: list[Any] = []
    busy: list[tuple[Any, bytes]] = []
    loose = [name for name, one in fields.items() if type(one) not in PLAIN]
    loose = [name for name in loose if not codec.types.is_frozen(type(fields[name]))]
    for name in loose:
        one = fields[name]
        if type(one) in _EMPTY and not one:
            empty.append(one)
            fields[name] = _EMPTY[type(one)]
            continue
        plain = codec._inside(one, depth)
        if plain is None or (may_hold_binary(plain) and binary_types([one])):
            return None
        busy.append((one, plain))
        fields[name] = Fragment(plain[2:])
    if shape.extra is not None:
        empty.append(shape.extra)
    if payload is None:
        payload = codec._around([entry.name, entry.version, *shape.marks, fields], depth)
        if payload is None:
            return None
    data, rest = extension(Code.RECORD, payload), (tuple(busy), tuple(loose))
    return Seen(value, data, depth, keys, values, shape.named, shape.extra, empty, *rest)


class SharedGraphCodec(GraphCodec):
    """The same as another codec, for values that several threads hold.

    Lists and dicts are copied before they are looked at, and hooks are called only for what
    nobody else holds.
    """

    def __init__(self, codec: GraphCodec) -> None:
        self.__dict__.update(codec.__dict__)

    def shared(self) -> Codec:
        """The codec itself."""
        return self

    def encode_noting_binary(self, value: Any) -> tuple[bytes, bool]:
        """The encoding, and whether the value may hold bytes."""
        data = self.encode_again(value)
        if data is None or may_hold_binary(data):
            return self._walked(value), True
        return data, False

    def encode_again(self, value: Any) -> bytes | None:
        """The encoding without a look for bytearrays, or None where that needs a walk."""
        try:
            return self._bytes(value, 0)
        except TypeError:
            return None

    def _walked(self, value: Any) -> bytes:
        if type(value) is list:
            items = list(value)
            if self._holds_records(items):
                data = self._assembled(items)
                if data is not None and not any(map(_is_binary, items)):
                    return data
        return Walk(self).encode(value)

    def _bytes(self, value: Any, level: int) -> bytes:
        """The encoding of a value; raises TypeError where that needs a walk."""
        cls = type(value)
        if cls in PLAIN:
            return pack(value)
        if level > _DEEPEST:
            raise TypeError("nested too deeply")
        if cls is list:
            return self._list(list(value), level)
        if cls is dict:
            return self._dict(dict(value), level)
        data = self._record(value, 0)
        if data is None:
            data = self._item(value)
        if data is None:
            raise TypeError("it needs a walk")
        return data

    def _list(self, items: list[Any], level: int) -> bytes:
        if self._holds_records(items):
            data = self._assembled(items)
            if data is None:
                raise TypeError("it needs a walk")
            return data
        try:
            return pack(items)
        except TypeError:
            parts = [self._bytes(item, level + 1) for item in items]
            return array_header(len(parts)) + b"".join(parts)

    def _dict(self, mapping: dict[Any, Any], level: int) -> bytes:
        if not set(map(type, mapping)) <= {str}:
            raise TypeError("it needs a walk")
        try:
            return pack(mapping)
        except TypeError:
            parts = [pack(key) + self._bytes(value, level + 1) for key, value in mapping.items()]
            return map_header(len(parts)) + b"".join(parts)

    def _item(self, value: Any) -> bytes | None:
        try:
            if type(value) in (list, dict):
                return self._bytes(value, 1)
            return Walk(self).encode(value)
        except (TypeError, NotStorable):
            return None

    def _inside(self, value: Any, depth: int) -> bytes | None:
        try:
            return pack([[value]])
        except TypeError:
            pass
        try:
            return b"\x91\x91" + Walk(self).encode_at(value, depth + 1)
        except NotStorable:
            return None


def _is_binary(value: Any) -> bool:
    return type(value) not in (str, int) and bool(binary_types(value))
