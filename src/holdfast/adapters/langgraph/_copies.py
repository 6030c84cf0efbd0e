"""Copies of decoded values, which cost less than decoding them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.langgraph._looking import PLAIN
from holdfast.adapters.langgraph._memo import Seen, looks_same
from holdfast.codec._models import made_model

if TYPE_CHECKING:
    from holdfast.adapters.langgraph._codec import GraphCodec

_TEXTS = frozenset({str})


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
        return _copied_record(codec, seen)
    if cls is tuple:
        return tuple([copied(codec, one) for one in value])
    if codec.types.is_frozen(cls):
        return value
    return codec.decoder().decode(codec.encode(value))


def _copied_record(codec: GraphCodec, seen: Seen) -> Any:
    value, data, depth, keys, _, named, extra, _, busy, loose = seen
    fields = value.__dict__.copy()
    empty: list[Any] = []
    copies: list[tuple[Any, bytes]] = []
    at = 0
    for name in loose:
        one = fields[name]
        if at < len(busy) and one is busy[at][0]:
            fields[name] = one = copied(codec, one)
            copies.append((one, busy[at][1]))
            at += 1
        else:
            fields[name] = one = type(one)()
            empty.append(one)
    if named is None:
        made = object.__new__(type(value))
        object.__setattr__(made, "__dict__", fields)
    else:
        if extra is not None:
            extra = {}
            empty.append(extra)
        made = made_model(type(value), fields, set(named), extra, None)
    held = tuple(fields.values())
    codec.memo.add(Seen(made, data, depth, keys, held, named, extra, empty, tuple(copies), loose))
    return made
