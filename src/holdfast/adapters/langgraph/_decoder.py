"""Canonical bytes as values of LangGraph.

A value of an unknown class comes back raw, with a warning. Records are remembered with the
bytes that they came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.adapters.langgraph import _deferred as deferred
from holdfast.codec._codes import FREE_NESTED, Code
from holdfast.codec._decoder import Decoder, no_links
from holdfast.codec._models import EXTRA
from holdfast.codec._registry import Entry
from holdfast.errors import ClassChanged, UndeclaredClass
from holdfast.tree._parts import may_hold_links

if TYPE_CHECKING:
    from holdfast.adapters.langgraph._codec import GraphCodec

Known: TypeAlias = dict[bytes, Any]
"""Records by what is stored of them."""


class GraphDecoder(Decoder):
    """Decodes for a `GraphCodec`."""

    def __init__(self, codec: GraphCodec, link: Callable[[bytes], Any] = no_links) -> None:
        super().__init__(codec, link)
        self._graph = codec
        self._may_link = link is not no_links
        self._altered = 0
        """How many values came back as something else than what is stored."""

    def _record(self, depth: int, data: bytes) -> Any:
        before = self._altered
        *head, parts = self._content(depth, Code.RECORD, data) or [None]
        value = self.close(Code.RECORD, head, parts)
        whole = not (self._may_link and may_hold_links(data))
        if self._altered == before and depth < FREE_NESTED and whole:
            self._graph.note(value, data, head, depth)
        return value

    def _is_strange(self, head: list[Any]) -> bool:
        if self._codec.registry.named(head[0]) is not None:
            return False
        super()._is_strange(head)
        return self._graph.types.find(head[0]) is None and not self._graph.types.strict

    def _stranger(self, code: Code, head: list[Any], content: Any) -> Any:
        self._altered += 1
        self._graph.types.warn_of(head[0])
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
        if entry is None or keys != self._graph.types.names_of(entry):
            self._altered += 1
        return value

    def _make_enum(self, head: list[Any], parts: Any) -> Any:
        return self._made(Code.ENUM, head, parts, super()._make_enum)

    def _make_custom(self, head: list[Any], parts: Any) -> Any:
        if isinstance(head[0], str) and deferred.is_deferred(head[0]):
            return self._make_deferred(deferred.class_name(head[0]), parts)
        if not self._graph.types.is_built_in(head[0]):
            self._altered += 1  # It may not be encoded as what it was decoded from.
        return self._made(Code.CUSTOM, head, parts, super()._make_custom)

    def _make_deferred(self, name: str, parts: Any) -> Any:
        """A value that was taken over before its class was known."""
        self._altered += 1
        types, content = self._graph.types, parts[0] if parts else None
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
            types = self._graph.types
            if types.strict:
                raise
            self._altered += 1
            types.warn_of(head[0], exc)
            return raw(code, parts[0] if code == Code.CUSTOM else parts)


class SharingDecoder(GraphDecoder):
    """Decodes each record once, also where several values hold it."""

    def __init__(self, codec: GraphCodec, link: Callable[[bytes], Any], known: Known) -> None:
        super().__init__(codec, link)
        self._known = known

    def _record(self, depth: int, data: bytes) -> Any:
        value = self._known.get(data)
        if value is None:
            *head, parts = self._content(depth, Code.RECORD, data) or [None]
            value = self.close(Code.RECORD, head, parts)
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
