"""What a store keeps about itself, in a space of its own.

Refs of kind `alias` name the backends that it answers to since a migration; each points
to the name, as a value. Refs of kind `arriving` lead to what a migration has brought so
far. What those reach is kept by collection, but it need not be whole: that is what makes
them different from all other refs.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from ropewalk.codec.msgpack import array_header, pack
from ropewalk.store.names import ref_name
from ropewalk.tree.nodes import link, linked, unpack_list
from ropewalk.tree.objects import Kind, Object, ObjectId, make_object

OWN_SPACE = "ropewalk/migration"
CONTENT_SPACE = "content/refs"
"""The space of the pins that references make. What is let go there is not brought back."""
EXPIRES_AT = "expires_at"
"""The key, in the extension of a pin's commit, for its end in microseconds since 1970."""
NEVER_UNDONE = frozenset({OWN_SPACE, CONTENT_SPACE})
"""Spaces whose operations nobody undoes, so that a collection keeps nothing for them."""
ALIAS = "alias/"
ARRIVING = "arriving/"


def alias_ref(backend_id: str) -> str:
    """The ref that says that a store answers to a name, which may be any text."""
    return ref_name("alias", sha256(backend_id.encode("utf-8", "surrogatepass")).hexdigest())


def arriving_ref(store_id: bytes) -> str:
    """The ref that keeps what has come from a store and is not in its place yet."""
    return ref_name("arriving", store_id.hex())


def is_arriving(space: str, name: str) -> bool:
    """Whether a ref may lead to what is not whole."""
    return space == OWN_SPACE and name.startswith(ARRIVING)


def manifest(ids: Iterable[ObjectId], before: ObjectId | None) -> Object:
    """An object that points to these, whatever they are, and to the manifest before it."""
    links = [link(id) for id in ids]
    first = pack(None) if before is None else link(before)
    payload = array_header(2) + first + array_header(len(links)) + b"".join(links)
    return make_object(Kind.VALUE, payload)


def may_be_manifest(found: Object) -> bool:
    """Whether an object looks like a manifest, which may point to what no value points to."""
    if found.kind != Kind.VALUE or not found.payload.startswith(array_header(2)):
        return False
    before, ids = unpack_list(found.payload)
    if type(ids) is not list:
        return False
    return all(linked(pack(one)) for one in ([] if before is None else [before]) + ids)


def manifest_before(found: Object) -> ObjectId | None:
    """The manifest that came before one."""
    first = unpack_list(found.payload)[0]
    return None if first is None else linked(pack(first))
