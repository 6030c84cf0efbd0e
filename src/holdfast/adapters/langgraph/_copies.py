"""Copies of decoded values, which cost less than decoding them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.langgraph._memo import Seen, looks_same

if TYPE_CHECKING:
    from holdfast.adapters.langgraph._codec import GraphCodec

_ATOMS: Final = frozenset({str, int, float, bool, type(None), bytes})
_set = object.__setattr__


def copied(codec: GraphCodec, value: Any) -> Any:
    """A copy of a value that shares nothing with it that can be changed."""
    cls = type(value)
    if cls in _ATOMS:
        return value
    if cls is list:
        return [one if type(one) in _ATOMS else copied(codec, one) for one in value]
    if cls is dict and set(map(type, value)) <= {str}:
        return {
            key: one if type(one) in _ATOMS else copied(codec, one) for key, one in value.items()
        }
    seen = codec.memo.find(value)
    if seen is not None and looks_same(seen, value, codec._inside):
        return _copied_record(codec, seen, value)
    if cls is tuple:
        return tuple([copied(codec, one) for one in value])
    if codec.types.is_frozen(cls):
        return value
    return codec.decoder().decode(codec.encode(value))


def _copied_record(codec: GraphCodec, seen: Seen, value: Any) -> Any:
    cls: Any = type(value)
    fields = value.__dict__.copy()
    empty: list[Any] = []
    busy: list[tuple[Any, bytes]] = []
    plains = iter(seen.busy)
    for name in seen.loose:
        one = fields[name]
        if one:
            fields[name] = copy = copied(codec, one)
            busy.append((copy, next(plains)[1]))
        else:
            fields[name] = fresh = type(one)()
            empty.append(fresh)
    made = cls.__new__(cls)
    extra: Any = None
    if seen.named is None:
        _set(made, "__dict__", fields)
    else:
        extra = None if seen.extra is None else {}
        if extra is not None:
            empty.append(extra)
        _set(made, "__dict__", fields)
        _set(made, "__pydantic_fields_set__", set(seen.named))
        _set(made, "__pydantic_extra__", extra)
        _set(made, "__pydantic_private__", None)
    held = tuple(fields.values())
    codec.memo.add(
        Seen(
            made, seen.data, seen.depth, seen.keys, held, seen.named, extra, empty,
            tuple(busy), seen.loose,
        )
    )  # fmt: skip
    return made
