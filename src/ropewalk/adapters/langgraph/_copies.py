"""Copies of decoded values, which cost less than decoding them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ropewalk.adapters.langgraph._looking import PLAIN
from ropewalk.adapters.langgraph._memo import Seen, looks_same

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph._codec import GraphCodec

Kept: TypeAlias = list[Any]
"""Values that nobody else holds, or what was seen of them."""

_TEXTS = frozenset({str})
_new, _set = object.__new__, object.__setattr__


def copied(codec: GraphCodec, value: Any) -> Any:
    """A copy of a value that shares nothing with it that can be changed."""
    cls = type(value)
    if cls in PLAIN:
        return value
    if cls is list:
        return [one if type(one) in PLAIN else copied(codec, one) for one in value]
    if cls is dict and set(map(type, value)) <= _TEXTS:
        return {
            key: one if type(one) in PLAIN else copied(codec, one) for key, one in value.items()
        }
    seen = codec.memo.find(value)
    if seen is not None and looks_same(seen, value, codec.inside):
        copy = _copied_record(codec, seen)
        codec.memo.add(copy)
        return copy.value
    if cls is tuple:
        return tuple([copied(codec, one) for one in value])
    if codec.types.is_frozen(cls):
        return value
    return codec.decoder().decode(codec.encode(value))


def keep(codec: GraphCodec, values: list[Any]) -> Kept:
    """Values that were just decoded, and will only ever be copied from now on."""
    return [codec.memo.forget(value) or value for value in values]


def copies_of(codec: GraphCodec, kept: Kept) -> list[Any]:
    """Copies of what is kept, which nobody can have changed."""
    copies: list[Any] = []
    made: list[Seen] = []
    for one in kept:
        if type(one) is Seen:
            copy = _copied_record(codec, one)
            made.append(copy)
            copies.append(copy[0])
        else:
            copies.append(copied(codec, one))
    codec.memo.add_all(made)
    return copies


def _copied_record(codec: GraphCodec, seen: Seen) -> Seen:
    """What there is to remember of a copy, with the copy."""
    value, data, depth, keys, _, named, extra, _, busy, loose = seen
    fields = value.__dict__.copy()
    empty: list[Any] = []
    if busy:
        busy = _copied_busy(codec, fields, seen, empty)
    else:
        for name in loose:
            fields[name] = one = fields[name].copy()
            empty.append(one)
    made = _new(type(value))
    _set(made, "__dict__", fields)
    if named is not None:
        if extra is not None:
            extra = {}
            empty.append(extra)
        _set(made, "__pydantic_fields_set__", set(named))
        _set(made, "__pydantic_extra__", extra)
        _set(made, "__pydantic_private__", None)
    held = tuple(fields.values())
    return Seen(made, data, depth, keys, held, named, extra, empty, busy, loose)


def _copied_busy(
    codec: GraphCodec, fields: dict[str, Any], seen: Seen, empty: list[Any]
) -> tuple[tuple[Any, bytes], ...]:
    """Copies of all that can change, in their fields."""
    copies: list[tuple[Any, bytes]] = []
    pending = iter(seen.busy)
    following = next(pending, None)
    for name in seen.loose:
        one = fields[name]
        if following is not None and one is following[0]:
            fields[name] = one = copied(codec, one)
            copies.append((one, following[1]))
            following = next(pending, None)
        else:
            fields[name] = one = one.copy()
            empty.append(one)
    return tuple(copies)
