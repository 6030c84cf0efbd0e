"""What is too much for a tree, and why and where a value was refused."""

from __future__ import annotations

from typing import Any, Final

from ropewalk.codec import Codec, Path, format_path
from ropewalk.codec.codec import find_refusal, parts_by_step
from ropewalk.codec.msgpack import (
    DEEP_NESTING,
    FREE_NESTED,
    MAX_NESTED,
    NESTED,
    nesting_exceeds,
    pack,
    unpack,
)
from ropewalk.errors import ChangedMeanwhile, NotStorable
from ropewalk.tree.build import Edited
from ropewalk.tree.nodes import INLINE_MAX, KEY_MAX, KEYED, links, unpack_part
from ropewalk.tree.objects import Kind, Object, ObjectId

MAX_LARGE_DEPTH: Final = 100
"""How many large parts may stand inside one another."""


def explain(codec: Codec, value: Any, refusal: Exception) -> NotStorable | ChangedMeanwhile:
    """The refusal of a value with the path from its top."""
    found = find_refusal(codec, value)
    if found is not None:
        return found
    if isinstance(refusal, ChangedMeanwhile):
        return ChangedMeanwhile()
    # The codec has nothing against the value, so it is too much for a tree.
    reason = refusal.reason if isinstance(refusal, NotStorable) else "it is nested too deeply"
    return NotStorable(reason, format_path(_place(codec, value)))


def _place(codec: Codec, value: Any) -> Path:
    """The path of a key that is too long, else of the large value that stands inside most."""
    deepest: Path = ()
    depths = 0
    pending: list[tuple[Path, int, Any]] = [((), 0, value)]
    while pending:
        path, depth, value = pending.pop()
        if depth > depths:
            deepest, depths = path, depth
        opened = codec.open_up(value)
        if opened.code in KEYED:
            for key in opened.parts:
                if len(codec.encode(key)) > KEY_MAX:
                    return (*path, key)
        for steps, part in parts_by_step(opened):
            if len(codec.encode(part)) > INLINE_MAX:
                pending.append(((*path, *steps), depth + 1, part))
    return deepest


# Edits of parts, which nobody saw whole.

_MAX_PLAIN: Final = 255
"""How deep ormsgpack writes lists and dicts."""

_WRAPPED: Final = {Kind.VALUE: 0, Kind.ITEMS: 1, Kind.PAIRS: 1, Kind.ROOT: 2}
"""How many lists of a node stand around its parts."""


def refuse_deep(edited: Edited) -> Edited:
    """Refuse what a writer would refuse as nested too deeply; raises NotStorable."""
    if any(made.kind in _WRAPPED and _is_deep(made) for made in edited.objects):
        raise NotStorable("it is nested too deeply")
    # Only new roots can stand deeper than before.
    roots = sum(made.kind == Kind.ROOT for made in edited.objects)
    if roots > MAX_LARGE_DEPTH and _large_depth(edited) > MAX_LARGE_DEPTH:
        raise NotStorable("it is nested too deeply")
    return edited


def _large_depth(edited: Edited) -> int:
    """How many new roots stand inside one another."""
    depths: dict[ObjectId, int] = {}
    for made in edited.objects:
        below = max([depths.get(id, 0) for id in links(made)], default=0)
        depths[made.id] = below + (made.kind == Kind.ROOT)
    return depths.get(edited.root, 0)


def _is_deep(made: Object) -> bool:
    try:
        pack(unpack(made.payload))
    except (ValueError, TypeError):
        if nesting_exceeds(made.payload, _MAX_PLAIN + _WRAPPED[made.kind]):
            return True
    return _extensions_are_deep(made.payload, 0)


def _extensions_are_deep(data: bytes, depth: int) -> bool:
    inner: list[bytes] = []

    def hook(code: int, content: bytes) -> None:
        if code in NESTED:
            inner.append(content)

    unpack_part(data, hook)
    return any(
        depth >= MAX_NESTED
        or (depth >= FREE_NESTED and nesting_exceeds(content, DEEP_NESTING))
        or _extensions_are_deep(content, depth + 1)
        for content in inner
    )
