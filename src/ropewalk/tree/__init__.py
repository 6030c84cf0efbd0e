"""A value as a Merkle tree of nodes. Pure: no store, clock or socket."""

from __future__ import annotations

from ropewalk.tree._commits import Commit, check_commit, make_commit, read_commit
from ropewalk.tree._container import Edited
from ropewalk.tree._diff import Change, diff
from ropewalk.tree._edit import fingerprint, get, insert, put, remove
from ropewalk.tree._load import Loader, load
from ropewalk.tree._map import Map
from ropewalk.tree._merge import merge
from ropewalk.tree._mergers import ABSENT, CannotMerge, Merger, Mergers, PathConflict
from ropewalk.tree._objects import (
    ID_SIZE,
    Kind,
    Object,
    ObjectId,
    Reader,
    make_object,
    object_id,
)
from ropewalk.tree._parts import check_links, link, links
from ropewalk.tree._writer import TreeWriter, Written

__all__ = [
    "ABSENT",
    "ID_SIZE",
    "CannotMerge",
    "Change",
    "Commit",
    "Edited",
    "Kind",
    "Loader",
    "Map",
    "Merger",
    "Mergers",
    "Object",
    "ObjectId",
    "PathConflict",
    "Reader",
    "TreeWriter",
    "Written",
    "check_commit",
    "check_links",
    "diff",
    "fingerprint",
    "get",
    "insert",
    "link",
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
