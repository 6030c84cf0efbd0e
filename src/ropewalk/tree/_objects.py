from __future__ import annotations

from ropewalk.tree.objects import (
    ID_SIZE,
    KIND_BYTES,
    Kind,
    Object,
    ObjectId,
    Reader,
    make_object,
    object_id,
)

__all__ = [
    "ID_SIZE",
    "KIND_BYTES",
    "Kind",
    "Object",
    "ObjectId",
    "Reader",
    "make_object",
    "object_id",
]
