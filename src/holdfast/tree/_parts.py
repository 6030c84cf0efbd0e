"""Parts: a value as it stands in its parent, whole or as a link.

A part is the encoding of a value in which every large part is a link. One value has
one part, so parts are equal exactly where values are.
"""

from __future__ import annotations

from typing import Final

from holdfast.codec._codes import Code
from holdfast.codec._msgpack import pack, unpack
from holdfast.tree._layout import Root, layout_of
from holdfast.tree._objects import ID_SIZE, Kind, Object, ObjectId

_LINK: Final = b"\xc7\x20" + bytes([Code.LINK])
_LINK_LENGTH: Final = len(_LINK) + ID_SIZE


def link(id: ObjectId) -> bytes:
    """The part that points to a root."""
    return _LINK + id


def linked(part: bytes) -> ObjectId | None:
    """What a part points to, if it is a link."""
    if len(part) == _LINK_LENGTH and part.startswith(_LINK):
        return part[len(_LINK) :]
    return None


def may_hold_links(data: bytes) -> bool:
    """Whether an encoding may hold links; never wrong when it says no."""
    return _LINK in data


_NESTED = frozenset({Code.TUPLE, Code.SET, Code.FROZENSET, Code.DICT, Code.RECORD, Code.CUSTOM})


def links_in(data: bytes) -> list[ObjectId]:
    """The links in an encoding, in the order in which they stand."""
    if not may_hold_links(data):
        return []
    found: list[ObjectId] = []

    def hook(code: int, content: bytes) -> None:
        if code == Code.LINK:
            found.append(content)
        elif code in _NESTED:
            found.extend(links_in(content))

    unpack(data, hook)
    return found


def links(source: Object) -> list[ObjectId]:
    """The objects that a node points to."""
    if source.kind == Kind.CHUNK:
        return []
    if source.kind in (Kind.VALUE, Kind.ITEMS, Kind.PAIRS):
        return links_in(source.payload)
    if source.kind == Kind.ROOT:
        return _root_links(source.payload)
    content = unpack(source.payload)
    width = 3 if source.kind == Kind.PAIRS_INDEX else 2
    ids: list[ObjectId] = content[width - 2 :: width]
    return ids


def _root_links(payload: bytes) -> list[ObjectId]:
    root = Root.decode(payload)
    order = [] if root.order is None else links_in(root.order)
    if root.data is not None:
        return order
    if root.height >= layout_of(root.code).first_index:
        return [entry.body for entry in root.entries] + order
    return [id for entry in root.entries for id in links_in(entry.body)] + order


def pack_parts(part: bytes) -> list[bytes]:
    """The parts of an encoded list."""
    return [pack(one) for one in unpack(part)]
