"""Values of LangGraph as canonical bytes, and back.

The same format as everywhere. What is added: classes are learned as they are met, values of
unknown classes come back raw with a warning, and records that did not change are not encoded
again: they are remembered with the bytes that they came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from ormsgpack import Fragment

from ropewalk.adapters.langgraph import deferred
from ropewalk.adapters.langgraph.classes import GraphTypes
from ropewalk.adapters.langgraph.saver.memo import (
    SHORTEST,
    Kept,
    Memo,
    Seen,
    copied,
    copies_of,
    keep,
    look,
    look_at_decoded,
    looks_same,
    make_run,
)
from ropewalk.codec import Codec, Undeclared
from ropewalk.codec.atoms import CLASSES, atom_of
from ropewalk.codec.codec import raise_interrupt
from ropewalk.codec.decoder import Decoder, no_links
from ropewalk.codec.msgpack import FREE_NESTED, Code, Opened, array_header
from ropewalk.codec.records import EXTRA, ModelPlan
from ropewalk.codec.registry import Entry
from ropewalk.errors import ClassChanged, UndeclaredClass
from ropewalk.tree.nodes import may_hold_links

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
        """Called after each checkpoint, which has used all cached records still needed."""
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
        """A deep copy of a decoded value, equal to decoding it again."""
        return copied(self, value)

    def keep(self, values: list[Any]) -> Kept:
        """Values that were just decoded, to make copies of. They must not be used otherwise."""
        return keep(self, values)

    def copies_of(self, kept: Kept) -> list[Any]:
        """Deep copies of cached values, equal to decoding them again."""
        return copies_of(self, kept)


class SharingGraphCodec(GraphCodec):
    """Decodes records that several values hold once, for who reads a whole history."""

    def __init__(self, types: GraphTypes) -> None:
        super().__init__(types, memory=0)
        self.known: Known = {}

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """What decodes for this codec; `link` gives what a link stands for."""
        return SharingDecoder(self, link, self.known)


# Decoding.


Known: TypeAlias = dict[bytes, Any]
"""Records by what is stored of them."""

_MANY: Final = 1024


class _Usual(NamedTuple):
    """What records with one head have in common."""

    plan: ModelPlan
    named: frozenset[str]
    canonical: bool
    """Whether they would be encoded as they are stored."""


class GraphDecoder(Decoder):
    """Decodes for a `GraphCodec`."""

    def __init__(self, codec: GraphCodec, link: Callable[[bytes], Any] = no_links) -> None:
        super().__init__(codec, link)
        self._graph = codec
        self._types = codec.types
        self._notes = codec.remembers
        self._heads: dict[Any, tuple[Entry, int, _Usual]] = {}
        self._may_link = link is not no_links
        self._altered = 0
        """How many values would not be encoded as what they were decoded from."""
        self._unknown: set[str] = set()

    def _record(self, depth: int, data: bytes) -> Any:
        before = self._altered
        content = self._content(depth, Code.RECORD, data)
        usual = self._usual_of(content)
        if usual is None:
            return self._other_record(depth, data, content, before)
        plan, named, canonical = usual
        fields = content[-1]
        value = plan.build(fields, named)
        if not canonical:
            self._altered += 1
        elif self._notes and self._altered == before and self._is_whole(depth, data):
            self._note(value, fields, data, plan.names, named, depth)
        return value

    def _usual_of(self, content: list[Any]) -> _Usual | None:
        """What is known of records with the same head, if these are all fields of the class."""
        try:
            key = content[0], tuple(content[2]) if len(content) == 4 else None
            entry, version, usual = self._heads[key]
            plan, fields = usual.plan, content[-1]
            if (
                self._codec.registry.named(content[0]) is entry
                and content[1] is version
                and entry.plan is plan
                and list(fields) == plan.names
                and type(fields) is dict
            ):
                return usual
            return self._learned(content)
        except Exception:  # noqa: BLE001 - whatever stands there may raise when it is hashed
            return self._learned(content)

    def _learned(self, content: list[Any]) -> _Usual | None:
        plan = self._usual(content)
        if plan is None:
            return None
        marks = content[2] if len(content) == 4 else None
        named = plan.public if marks is None else plan.set_of(marks)
        entry = self._codec.registry.named(content[0])
        assert entry is not None
        canonical = entry.name == content[0] and self._codec.registry.of(plan.cls) is entry
        if marks is not None:
            canonical = canonical and marks == sorted(named) and named != plan.public
        usual = _Usual(plan, named, canonical)
        if len(self._heads) < _MANY:
            key = content[0], None if marks is None else tuple(marks)
            self._heads[key] = entry, content[1], usual
        return usual

    def _other_record(self, depth: int, data: bytes, content: list[Any], before: int) -> Any:
        *head, parts = content or [None]
        value = self.close(Code.RECORD, head, parts)
        if self._notes and self._altered == before and self._is_whole(depth, data):
            entry = self._codec.registry.of(type(value))
            if entry is not None and entry.shape == "dataclass" and len(head) == 2:
                names = self._types.plain_fields(entry)
                if names and list(value.__dict__) == names:
                    self._note(value, value.__dict__, data, names, None, depth)
        return value

    def _is_whole(self, depth: int, data: bytes) -> bool:
        """Whether all of a record is here, and it may be remembered."""
        return depth < FREE_NESTED and not (self._may_link and may_hold_links(data))

    def _note(
        self,
        value: Any,
        fields: dict[str, Any],
        payload: bytes,
        names: list[str],
        named: frozenset[str] | None,
        depth: int,
    ) -> None:
        seen = look_at_decoded(self._graph, value, fields, payload, names, named, depth)
        if seen is not None:
            self._graph.note(seen)

    def _is_strange(self, head: list[Any]) -> bool:
        super()._is_strange(head)
        name = head[0]
        if type(name) is not str or self._codec.registry.named(name) is not None:
            return False
        if name not in self._unknown:
            if self._types.find(name) is not None:
                return False
            self._unknown.add(name)
        return not self._types.strict

    def _stranger(self, code: Code, head: list[Any], content: Any) -> Any:
        self._altered += 1
        self._types.warn_of(head[0])
        return raw(code, content)

    def _current(self, head: list[Any], stored: Any) -> tuple[Entry, Any]:
        entry, current = super()._current(head, stored)
        if entry.name != head[0] or entry.version != head[1]:
            self._altered += 1
        return entry, current

    def _make_record(self, head: list[Any], parts: Any) -> Any:
        # The fields become the object's own, and may be put in another order.
        keys = list(parts) if type(parts) is dict else []
        value = self._made(Code.RECORD, head, parts, super()._make_record)
        entry = self._codec.registry.of(type(value))
        if entry is None or keys != self._types.names_of(entry):
            self._altered += 1
        return value

    def _make_enum(self, head: list[Any], parts: Any) -> Any:
        return self._made(Code.ENUM, head, parts, super()._make_enum)

    def _make_custom(self, head: list[Any], parts: Any) -> Any:
        if isinstance(head[0], str) and deferred.is_deferred(head[0]):
            return self._make_deferred(deferred.class_name(head[0]), parts)
        if not self._types.is_built_in(head[0]):
            self._altered += 1  # It may not be encoded as what it was decoded from.
        return self._made(Code.CUSTOM, head, parts, super()._make_custom)

    def _make_deferred(self, name: str, parts: Any) -> Any:
        """A value that was taken over before its class was known."""
        self._altered += 1
        types, content = self._types, parts[0] if parts else None
        entry = types.find(name)
        if entry is None:
            if types.strict:
                raise UndeclaredClass(
                    name, f"a stored value is of class {name!r:.200}, which was not declared"
                )
            types.warn_of(name)
            return deferred.raw(content)
        try:
            return deferred.rebuild(entry.cls, content)
        except Exception as exc:
            if types.strict:
                raise ClassChanged(f"{name} does not take what was stored: {exc}") from exc
            types.warn_of(name, exc)
            return deferred.raw(content)

    def _made(
        self, code: Code, head: list[Any], parts: Any, make: Callable[[list[Any], Any], Any]
    ) -> Any:
        try:
            return make(head, parts)
        except ClassChanged as exc:
            if self._types.strict:
                raise
            self._altered += 1
            self._types.warn_of(head[0], exc)
            return raw(code, parts[0] if code == Code.CUSTOM else parts)


class SharingDecoder(GraphDecoder):
    """Decodes each record once, also where several values hold it."""

    def __init__(self, codec: GraphCodec, link: Callable[[bytes], Any], known: Known) -> None:
        super().__init__(codec, link)
        self._known = known

    def _record(self, depth: int, data: bytes) -> Any:
        value = self._known.get(data)
        if value is None:
            value = super()._record(depth, data)
            if not (self._may_link and may_hold_links(data)):
                self._known[data] = value
        return value


def raw(code: Code, content: Any) -> Any:
    """What is left of a value without its class."""
    if code != Code.RECORD:
        return content
    return {
        name.removeprefix(EXTRA): value
        for name, value in content.items()
        if not name.startswith("_")
    }
