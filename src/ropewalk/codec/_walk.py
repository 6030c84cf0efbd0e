"""The slow way to encode: a walk in Python that knows where it is.

It finds the place of what is refused. Its bytes are the same as those of the fast way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ormsgpack import Ext

from ropewalk.codec._codes import DEEP_NESTING, FREE_NESTED, MAX_NESTED, Code
from ropewalk.codec._frames import step_of
from ropewalk.codec._msgpack import nesting_exceeds, pack
from ropewalk.codec._opened import Form, Opened, nests
from ropewalk.codec._paths import Field, Path, format_path
from ropewalk.errors import ChangedMeanwhile, NotStorable

if TYPE_CHECKING:
    from ropewalk.codec._codec import Codec

_SCALARS = frozenset({type(None), bool, float, bytes})
_BUILT_IN = frozenset({str, int, list, dict, tuple, set, frozenset})
_NO_BUFFER = "a memoryview is a window on somebody else's bytes; store bytes(view)"


class Walk:
    """One encoding of one value."""

    def __init__(self, codec: Codec, path: Path = ()) -> None:
        self._codec = codec
        self._path: list[Any] = list(path)
        self._inside: set[int] = set()

    def encode(self, value: Any) -> bytes:
        """The encoding; raises NotStorable with the path of the first refusal."""
        return self.encode_at(value, 0)

    def encode_at(self, value: Any, depth: int) -> bytes:
        """The encoding of what stands inside so many extensions."""
        try:
            return pack(self._lower(value, depth))
        except RecursionError:
            self._refuse("it is nested too deeply")
        except NotStorable:
            raise
        except TypeError as exc:
            self._refuse(_explain(exc))

    def _lower(self, value: Any, depth: int) -> Any:
        """The same value with an `Ext` wherever msgpack has no word."""
        cls = type(value)
        if cls in _SCALARS:
            return value
        if cls is int and -(2**63) <= value < 2**64:
            return value
        if cls is memoryview:
            self._refuse(_NO_BUFFER)
        if cls not in _BUILT_IN:
            remembered = self._codec.remembered(value, depth)
            if remembered is not None:
                return remembered
            stand_in = self._codec.stand_in(value)
            if stand_in is not value:
                return self._lower(stand_in, depth)
        try:
            opened = self._codec.open_up(value)
        except (NotStorable, ChangedMeanwhile) as exc:
            self._refuse(getattr(exc, "reason", None), exc)
        if cls is str:
            return value
        if depth >= MAX_NESTED and nests(opened) and not self._is_plain(opened):
            self._refuse("it is nested too deeply")
        if opened.form is Form.BYTES:
            return self._extend(opened, [*opened.head, opened.parts], depth)
        if id(value) in self._inside:
            self._refuse("it contains itself")
        self._inside.add(id(value))
        try:
            return self._lower_container(opened, depth)
        finally:
            self._inside.discard(id(value))

    def _lower_container(self, opened: Opened, depth: int) -> Any:
        if opened.code == Code.LIST:
            return self._items(opened.parts, depth)
        if opened.code == Code.DICT:
            return self._dict(opened, depth)
        below = depth + 1
        if opened.code == Code.RECORD:
            fields = {name: self._at(Field(name), v, below) for name, v in opened.parts.items()}
            return self._extend(opened, [*opened.head, fields], depth)
        if opened.code == Code.CUSTOM:
            return self._extend(opened, [*opened.head, self._lower(opened.parts[0], below)], depth)
        if opened.form is Form.MAPPING:
            items = self._pairs(opened.parts, below)
        elif opened.code == Code.FRAME:
            kind, parts = opened.head[0], opened.parts
            items = [self._at(step_of(kind, parts, at), one, below) for at, one in enumerate(parts)]
        else:
            items = self._items(opened.parts, below)
        if opened.code in (Code.SET, Code.FROZENSET):
            items = self._in_order(items)
        return self._extend(opened, [*opened.head, items] if opened.head else items, depth)

    def _items(self, items: list[Any], depth: int) -> list[Any]:
        # A loop, and no call of `_at`, because Python counts frames.
        lowered = []
        for index, item in enumerate(items):
            self._path.append(index)
            lowered.append(self._lower(item, depth))
            self._path.pop()
        return lowered

    def _in_order(self, members: list[Any]) -> list[Any]:
        by_bytes = {pack(member): member for member in members}
        if len(by_bytes) < len(members):
            self._refuse("two of its members are stored as the same bytes (nan twice?)")
        return [by_bytes[encoded] for encoded in sorted(by_bytes)]

    def _dict(self, opened: Opened, depth: int) -> Any:
        value: dict[Any, Any] = opened.parts
        if all(type(key) is str for key in value):
            return self._plain_dict(value, depth)
        return self._extend(opened, self._pairs(value, depth + 1), depth)

    def _pairs(self, value: dict[Any, Any], depth: int) -> list[Any]:
        """Keys and values in turn."""
        flat: list[Any] = []
        seen: set[bytes] = set()
        for key, held in value.items():
            lowered = self._at(key, key, depth)
            encoded = pack(lowered)
            if encoded in seen:
                self._refuse("two of its keys are stored as the same bytes (nan twice?)")
            seen.add(encoded)
            flat += [lowered, self._at(key, held, depth)]
        return flat

    def _plain_dict(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        lowered = {}
        for key, held in value.items():
            self._path.append(key)
            lowered[self._lower(key, depth)] = self._lower(held, depth)
            self._path.pop()
        return lowered

    def _is_plain(self, opened: Opened) -> bool:
        """Whether msgpack itself has a word for this container."""
        if opened.code == Code.DICT:
            return set(map(type, opened.parts)) <= {str}
        return opened.code == Code.LIST

    def _at(self, step: Any, value: Any, depth: int) -> Any:
        self._path.append(step)
        lowered = self._lower(value, depth)
        self._path.pop()
        return lowered

    def _extend(self, opened: Opened, content: list[Any], depth: int) -> Ext:
        if opened.form is Form.BYTES and not opened.head:
            return Ext(opened.code, opened.parts)
        try:
            payload = pack(content)
        except TypeError as exc:
            self._refuse(_explain(exc))
        if depth + 1 > FREE_NESTED and nesting_exceeds(payload, DEEP_NESTING):
            self._refuse("it is nested too deeply")
        return Ext(opened.code, payload)

    def _refuse(self, reason: str | None, cause: Exception | None = None) -> NoReturn:
        path = format_path(tuple(self._path))
        if reason is None:
            raise ChangedMeanwhile(path) from cause
        raise NotStorable(reason, path) from cause


def _explain(exc: TypeError) -> str:
    return "it is nested too deeply" if "ecursion" in str(exc) else str(exc)
