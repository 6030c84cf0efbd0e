"""What the keys of a value take of its nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from ropewalk.codec._msgpack import pack
from ropewalk.errors import FormatError
from ropewalk.tree._container import open_part
from ropewalk.tree._layout import PAIRS, Entry, Root, layout_of
from ropewalk.tree._objects import Kind, Object, ObjectId
from ropewalk.tree._parts import links, links_in, unpack_part


class Share(NamedTuple):
    """What one key, or none of them, has of a node."""

    key: bytes | None
    """The encoded key; None for what belongs to no single one."""
    size: int
    """Bytes of its encoded parts in this node."""
    links: list[ObjectId]
    """Where they go on."""


class Division(NamedTuple):
    """A node at the top of a value."""

    keyed: bool
    """Whether the value has keys: it is a dict, a map or a record."""
    shares: list[Share]
    below: list[ObjectId]
    """Further nodes of the same container, to be divided in their turn."""


def divide(found: Object) -> Division:
    """Divide a value's root, or a node of its top container, by key; raises FormatError."""
    if found.kind == Kind.VALUE:
        raw = unpack_part(found.payload)
        if type(raw) is dict:  # What most small values are.
            return _leaf(found, [Entry(pack(key), pack(body)) for key, body in raw.items()])
        opened = open_part(found.payload, _unread)
        if opened is not None and opened.is_mapping:
            entries = [entry for place in opened.view.leaves() for entry in place.entries]
            return _leaf(found, entries)
    elif found.kind == Kind.ROOT:
        root = Root.decode(found.payload)
        if layout_of(root.code) is PAIRS and root.height == 0:
            return _leaf(found, root.entries, root.order)
        if layout_of(root.code) is PAIRS:
            order = [] if root.order is None else links_in(root.order)
            below = [entry.body for entry in root.entries]
            return Division(True, [Share(None, 1, order)], below)
    elif found.kind == Kind.PAIRS:
        return _leaf(found, PAIRS.decode(0, found.payload))
    elif found.kind == Kind.PAIRS_INDEX:
        return Division(True, [Share(None, 1, [])], links(found))
    return Division(False, [Share(None, 1, links(found))], [])


def _leaf(found: Object, entries: Iterable[Entry], order: bytes | None = None) -> Division:
    shares = [Share(key, len(key) + len(body), links_in(body)) for key, body, _ in entries]
    if order is not None:
        shares.append(Share(None, len(order), links_in(order)))
    return Division(True, shares or [Share(None, 1, links(found))], [])


def _unread(ids: Sequence[ObjectId]) -> NoReturn:
    raise FormatError("a small value has no further nodes")
