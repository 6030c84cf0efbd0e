"""Changing stored content without loading it: only the nodes on the way are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ropewalk.codec import Codec
from ropewalk.codec.msgpack import Code
from ropewalk.errors import InvalidInput
from ropewalk.tree import Edited, Object, ObjectId, Reader, insert, links, put
from ropewalk.tree.read import open_part, part_of


class Kept(NamedTuple):
    """A root, the objects that are new, and what they point to beside each other."""

    root: ObjectId
    objects: list[Object]
    needs: list[ObjectId]


def append(root: ObjectId, items: Sequence[Any], read: Reader, codec: Codec) -> Kept:
    """A stored list with more items at its end."""
    opened = open_part(part_of(root, read), read)
    if opened is None or opened.title.code != Code.LIST:
        raise InvalidInput("items can be appended to a list only, and this is another value")
    total = opened.view.total
    edits = _Edits(root, read)
    for at, item in enumerate(items, total):
        edits.apply(partial(insert, path=(at,), value=item, codec=codec))
    return edits.kept()


def update(root: ObjectId, pairs: Mapping[Any, Any], read: Reader, codec: Codec) -> Kept:
    """A stored dict with other or more values by key."""
    opened = open_part(part_of(root, read), read)
    if opened is None or opened.title.code != Code.DICT:
        raise InvalidInput("keys can be merged into a dict only, and this is another value")
    edits = _Edits(root, read)
    for key, value in pairs.items():
        edits.apply(partial(put, path=(key,), value=value, codec=codec))
    return edits.kept()


class _Edits:
    """Edits that follow one another; nothing is stored between them."""

    def __init__(self, root: ObjectId, read: Reader) -> None:
        self._root, self._stored = root, read
        self._made: dict[ObjectId, Object] = {}

    def apply(self, edit: Callable[..., Edited]) -> None:
        edited = edit(self._root, read=self._read)
        self._made.update((one.id, one) for one in edited.objects)
        self._root = edited.root

    def kept(self) -> Kept:
        """What the last edit left of all that was made."""
        reached: dict[ObjectId, Object] = {}
        needs: dict[ObjectId, None] = {}
        pending = [self._root]
        while pending:
            id = pending.pop()
            if id in reached:
                continue
            if id not in self._made:
                needs[id] = None
                continue
            reached[id] = self._made[id]
            pending += links(self._made[id])
        # Children first: an engine that stores in this order never points to nothing.
        return Kept(self._root, list(reversed(reached.values())), list(needs))

    def _read(self, ids: Sequence[ObjectId]) -> Sequence[Object]:
        rest = [id for id in ids if id not in self._made]
        stored = dict(zip(rest, self._stored(rest), strict=True)) if rest else {}
        return [self._made.get(id) or stored[id] for id in ids]
