"""Parts: a value as it stands in its parent, whole or as a link.

A part is the encoding of a value in which every large part is a link. One value has
one part, so parts are equal exactly where values are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ormsgpack import Ext

from ropewalk.codec._codes import DEEP_NESTING, FREE_NESTED, MAX_NESTED, Code
from ropewalk.codec._collections import CLASSES
from ropewalk.codec._msgpack import hidden_failure, nesting_exceeds, pack, unpack
from ropewalk.errors import FormatError
from ropewalk.tree._commits import check_commit, commit_links
from ropewalk.tree._layout import Root, layout_of
from ropewalk.tree._objects import ID_SIZE, Kind, Object, ObjectId

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
    # One byte is found ten times faster than three, and it is rare.
    return 0xC7 in data and _LINK in data


def unpack_part(data: bytes, hook: Callable[[int, bytes], Any] = Ext) -> Any:
    """Unpack bytes from anywhere, one level of extensions deep; raises FormatError.

    The hook raises nothing.
    """
    try:
        return unpack(data, hook)
    except (ValueError, TypeError) as exc:
        hidden = hidden_failure(exc)
        if hidden is not None:
            raise hidden from exc
        raise FormatError(f"a node is malformed: {exc}") from exc


def unpack_list(data: bytes) -> list[Any]:
    """Unpack bytes that are a list; raises FormatError."""
    content = unpack_part(data)
    if type(content) is not list:
        raise FormatError("a part that must be a list is none")
    return content


_NESTED = frozenset(
    {
        Code.TUPLE,
        Code.SET,
        Code.FROZENSET,
        Code.DICT,
        Code.RECORD,
        Code.CUSTOM,
        Code.FRAME,
        *CLASSES,
    }
)


def links_in(data: bytes) -> list[ObjectId]:
    """The links in an encoding, in the order in which they stand; raises FormatError."""
    found: list[ObjectId] = []
    _gather(data, 0, found)
    return found


def _gather(data: bytes, depth: int, found: list[ObjectId]) -> None:
    if not may_hold_links(data):
        return
    if depth > MAX_NESTED or (depth > FREE_NESTED and nesting_exceeds(data, DEEP_NESTING)):
        raise FormatError("the bytes are nested too deeply")

    extensions: list[tuple[int, bytes]] = []
    unpack_part(data, lambda code, content: extensions.append((code, content)))
    for code, content in extensions:
        if code in _NESTED:
            _gather(content, depth + 1, found)
        elif code == Code.LINK:
            found.append(_expect_id(content))


def _expect_id(id: object) -> ObjectId:
    if type(id) is not bytes or len(id) != ID_SIZE:
        raise FormatError("a link is malformed")
    return id


def links(source: Object) -> list[ObjectId]:
    """The objects that an object points to, in the order in which they stand in it.

    Looks at no more than it must: `check_links` is for objects from anywhere. Raises
    FormatError where there is something else in the place of a link.
    """
    kind, payload = source.kind, source.payload
    if kind in _HOLDS_PARTS:
        return links_in(payload) if 0xC7 in payload and _LINK in payload else []
    if kind == Kind.CHUNK:
        return []
    if kind == Kind.COMMIT:
        return commit_links(source)
    content = unpack_list(payload)
    if kind in _WIDTHS:
        return _indexed(content, _WIDTHS[kind])
    if kind != Kind.ROOT:
        raise FormatError(f"object {source.id.hex()[:12]} is not part of a value")
    try:
        title, height, body, *order = content
        layout = layout_of(title[0] if type(title) is list else title)
        if type(body) is bytes or height < layout.first_index:
            return links_in(payload)
        last = pack(order) if may_hold_links(payload) else b""
    except (TypeError, ValueError, IndexError) as exc:
        raise FormatError("a root is malformed") from exc
    return _indexed(body, layout.index_width) + links_in(last)


def check_links(source: Object) -> list[ObjectId]:
    """The same for an object from anywhere, of which the form is checked as well."""
    if source.kind == Kind.COMMIT:
        check_commit(source)
    elif source.kind == Kind.ROOT:
        Root.decode(source.payload)
    return links(source)


_HOLDS_PARTS: Final = frozenset({Kind.VALUE, Kind.ITEMS, Kind.PAIRS})
_WIDTHS: Final = {Kind.ITEMS_INDEX: 2, Kind.PAIRS_INDEX: 3, Kind.CHUNKS_INDEX: 2}


def _indexed(entries: Any, width: int) -> list[ObjectId]:
    """The ids in the entries of an index."""
    if type(entries) is not list or len(entries) % width:
        raise FormatError("an index node is malformed")
    ids = entries[width - 2 :: width]
    if not (set(map(type, ids)) <= _IDS and set(map(len, ids)) <= _LENGTHS):
        raise FormatError("a link is malformed")
    return ids


_IDS: Final = frozenset({bytes})
_LENGTHS: Final = frozenset({ID_SIZE})


def root_links(root: Root, payload: bytes) -> list[ObjectId]:
    """The objects that a root points to, which is read already; raises FormatError."""
    if root.data is not None or root.height < layout_of(root.code).first_index:
        return links_in(payload)
    order = [] if root.order is None else links_in(root.order)
    return [entry.body for entry in root.entries] + order


def pack_parts(part: bytes) -> list[bytes]:
    """The parts of an encoded list; raises FormatError."""
    try:
        return [pack(one) for one in unpack_list(part)]
    except TypeError as exc:
        raise FormatError(f"a list is malformed: {exc}") from exc
