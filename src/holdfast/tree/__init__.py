"""A value as a Merkle tree of nodes. Pure: no store, clock or socket."""

from __future__ import annotations

from holdfast.tree._commits import Commit, make_commit, read_commit
from holdfast.tree._container import Edited
from holdfast.tree._diff import Change, diff
from holdfast.tree._edit import fingerprint, get, insert, put, remove
from holdfast.tree._load import load
from holdfast.tree._map import Map
from holdfast.tree._merge import merge
from holdfast.tree._mergers import ABSENT, CannotMerge, Merger, Mergers, PathConflict
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
    "ABSENT",
    "ID_SIZE",
    "CannotMerge",
    "Change",
    "Commit",
    "Edited",
    "Kind",
    "Map",
    "Merger",
    "Mergers",
    "Object",
    "ObjectId",
    "PathConflict",
    "Reader",
    "TreeWriter",
    "Written",
    "diff",
    "fingerprint",
    "get",
    "insert",
    "links",
    "load",
    "make_commit",
    "make_object",
    "merge",
    "object_id",
    "put",
    "read_commit",
    "remove",
]
