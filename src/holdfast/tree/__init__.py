"""A value as a Merkle tree of nodes. Pure: no store, clock or socket."""

from __future__ import annotations

from holdfast.tree._load import load
from holdfast.tree._objects import (
    ID_SIZE,
    Kind,
    Object,
    ObjectId,
    Reader,
    make_object,
    object_id,
)
from holdfast.tree._parts import links
from holdfast.tree._writer import TreeWriter, Written

__all__ = [
    "ID_SIZE",
    "Kind",
    "Object",
    "ObjectId",
    "Reader",
    "TreeWriter",
    "Written",
    "links",
    "load",
    "make_object",
    "object_id",
]
