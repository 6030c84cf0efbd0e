"""A value as a Merkle tree of nodes. Pure: no store, clock or socket."""

from __future__ import annotations

from ropewalk.tree.build import Edited
from ropewalk.tree.changes import Change, diff
from ropewalk.tree.edit import fingerprint, get, insert, put, remove
from ropewalk.tree.map import Map
from ropewalk.tree.nodes import check_links, link, links
from ropewalk.tree.objects import (
    ID_SIZE,
    Commit,
    Kind,
    Object,
    ObjectId,
    Reader,
    check_commit,
    make_commit,
    make_object,
    object_id,
    read_commit,
)
from ropewalk.tree.read import Loader, load
from ropewalk.tree.three_way_merge import ABSENT, CannotMerge, Merger, Mergers, PathConflict, merge
from ropewalk.tree.writer import TreeWriter, Written

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
