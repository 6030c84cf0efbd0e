"""A first look at a record: what has to be remembered of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ormsgpack import Fragment

from ropewalk.adapters.langgraph._memo import Seen
from ropewalk.codec._codes import Code
from ropewalk.codec._models import MODEL_PARTS, plan_of
from ropewalk.codec._msgpack import extension, holds_binary
from ropewalk.codec._registry import Entry

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph._codec import GraphCodec

PLAIN: Final = frozenset({str, int, float, bool, type(None), bytes})
"""Immutable, and msgpack has a word for them."""
EMPTY: Final[dict[type, Any]] = {list: [], dict: {}}


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


def look(codec: GraphCodec, entry: Entry, value: Any, depth: int) -> Seen | None:
    """What there is to remember of a record; None if it has to be looked at each time.

    The encoding is made of what is remembered, not of the record itself, because others may
    be changing that meanwhile.
    """
    shape = _shape_of(codec, entry, value)
    if shape is None:
        return None
    fields = shape.held.copy()
    if list(fields) != shape.names:
        return None
    values = tuple(fields.values())
    found = _loosen(codec, fields, depth, fields)
    if found is None:
        return None
    loose, empty, busy = found
    if shape.extra is not None:
        empty.append(shape.extra)
    payload = codec.around([entry.name, entry.version, *shape.marks, fields], depth)
    if payload is None:
        return None
    data, rest = extension(Code.RECORD, payload), (empty, busy, loose)
    return Seen(value, data, depth, shape.names, values, shape.named, shape.extra, *rest)


def look_at_decoded(
    codec: GraphCodec,
    value: Any,
    fields: dict[str, Any],
    payload: bytes,
    names: list[str],
    named: frozenset[str] | None,
    depth: int,
) -> Seen | None:
    """The same for a record that was just decoded, which nobody else has yet."""
    found = _loosen(codec, fields, depth, None)
    if found is None:
        return None
    loose, empty, busy = found
    extra = None if named is None else value.__pydantic_extra__
    if extra is not None:
        empty.append(extra)
    held = tuple(fields.values())
    data = extension(Code.RECORD, payload)
    return Seen(value, data, depth, names, held, named, extra, empty, busy, loose)


def _loosen(
    codec: GraphCodec, fields: dict[str, Any], depth: int, put: dict[str, Any] | None
) -> tuple[list[str], list[Any], tuple[tuple[Any, bytes], ...]] | None:
    """The names of what can change, what of it is empty, and the rest with its encodings.

    The encodings are put where they are wanted.
    """
    loose: list[str] = []
    empty: list[Any] = []
    busy: list[tuple[Any, bytes]] = []
    for name, one in fields.items():
        cls = type(one)
        if cls in PLAIN:
            continue
        if cls in EMPTY and not one:
            empty.append(one)
            if put is not None:
                put[name] = EMPTY[cls]
        elif codec.types.is_frozen(cls):
            continue
        else:
            plain = codec.inside(one, depth, exact=put is not None)
            if plain is None or holds_binary(plain):
                return None
            busy.append((one, plain))
            if put is not None:
                put[name] = Fragment(plain[2:])
        loose.append(name)
    return loose, empty, tuple(busy)
