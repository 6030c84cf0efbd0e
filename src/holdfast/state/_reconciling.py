"""Bringing an object up to date in place, because somebody holds it."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any, TypeVar

from holdfast.codec import Codec
from holdfast.errors import NotStorable

T = TypeVar("T")


def reconcile(held: Any, fresh: Any, codec: Codec) -> Any:
    """The held object with the content of a fresh one, or the fresh one where that cannot be.

    Objects inside that stay what they are, or change in their place, stay the same
    objects, so whoever holds them goes on with the newest content.
    """
    if type(held) is not type(fresh):
        return fresh
    match held:
        case dict():
            return _reconcile_dict(held, fresh, codec)
        case list():
            held[:] = _reconciled_items(held, fresh, codec)
            return held
        case tuple():
            return _reconcile_tuple(held, fresh, codec)
        case set() | bytearray():
            return _refill(held, fresh)
        case _:
            return _reconcile_object(held, fresh, codec)


def _reconcile_dict(held: dict[Any, Any], fresh: dict[Any, Any], codec: Codec) -> dict[Any, Any]:
    merged = {
        key: reconcile(held[key], value, codec) if key in held else value
        for key, value in fresh.items()
    }
    held.clear()
    held.update(merged)
    return held


def _reconciled_items(held: list[Any], fresh: list[Any], codec: Codec) -> list[Any]:
    """The fresh items, with held ones where they are the same or changed in their place."""
    before, after = ([_identity(item, codec) for item in items] for items in (held, fresh))
    items: list[Any] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, stop, low, high in matcher.get_opcodes():
        if tag == "equal":
            items += held[start:stop]
        elif tag == "replace" and stop - start == high - low:
            items += [
                reconcile(held[start + at], fresh[low + at], codec) for at in range(high - low)
            ]
        else:
            items += fresh[low:high]
    return items


def _identity(item: Any, codec: Codec) -> bytes:
    try:
        return codec.encode(item)
    except NotStorable:
        return b""


def _reconcile_tuple(held: Any, fresh: Any, codec: Codec) -> Any:
    """The held tuple if only what its items hold had to change."""
    if len(held) == len(fresh):
        items = [reconcile(one, other, codec) for one, other in zip(held, fresh, strict=True)]
        same = all(_is_same(new, old, codec) for new, old in zip(items, held, strict=True))
        return held if same else fresh
    return fresh


def _is_same(new: Any, old: Any, codec: Codec) -> bool:
    return new is old or _identity(new, codec) == _identity(old, codec)


def _refill(held: Any, fresh: Any) -> Any:
    held.clear()
    if isinstance(held, set):
        held.update(fresh)
    else:
        held.extend(fresh)
    return held


def _reconcile_object(held: Any, fresh: Any, codec: Codec) -> Any:
    """An object of a declared class, attribute by attribute."""
    ours, theirs = getattr(held, "__dict__", None), getattr(fresh, "__dict__", None)
    if type(ours) is not dict or type(theirs) is not dict or isinstance(held, type):
        return fresh
    _reconcile_dict(ours, theirs, codec)
    return held
