"""What an edit or a merge puts together may nest deeper than anybody could read it."""

from __future__ import annotations

from typing import Final

from ropewalk.codec._codes import DEEP_NESTING, FREE_NESTED, MAX_NESTED, Code
from ropewalk.codec._collections import CLASSES
from ropewalk.codec._msgpack import nesting_exceeds, pack, unpack
from ropewalk.errors import NotStorable
from ropewalk.tree._container import Edited
from ropewalk.tree.embed import MAX_LARGE_DEPTH
from ropewalk.tree._objects import Kind, Object, ObjectId
from ropewalk.tree._parts import links, unpack_part

_MAX_PLAIN: Final = 255
"""How deep ormsgpack writes lists and dicts."""

_WRAPPED: Final = {Kind.VALUE: 0, Kind.ITEMS: 1, Kind.PAIRS: 1, Kind.ROOT: 2}
"""How many lists of a node stand around its parts."""

_NESTED = frozenset(
    {
        Code.TUPLE,
        Code.SET,
        Code.FROZENSET,
        Code.DICT,
        Code.ENUM,
        Code.RECORD,
        Code.CUSTOM,
        Code.ARRAY,
        Code.FRAME,
        *CLASSES,
    }
)


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
        if code in _NESTED:
            inner.append(content)

    unpack_part(data, hook)
    return any(
        depth >= MAX_NESTED
        or (depth >= FREE_NESTED and nesting_exceeds(content, DEEP_NESTING))
        or _extensions_are_deep(content, depth + 1)
        for content in inner
    )
