"""Writing a value: only what changed since the last one becomes new objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.codec import Codec, default_codec
from holdfast.codec._walk import Walk
from holdfast.errors import MissingObjects, NotStorable
from holdfast.tree._builder import Builder
from holdfast.tree._embed import Embedder
from holdfast.tree._mirrors import Mirror
from holdfast.tree._objects import Kind, Object, ObjectId, make_object
from holdfast.tree._parts import linked, links

_STALE: Final = 4096
"""How many forgotten objects may be remembered before they are dropped."""


class Written(NamedTuple):
    """A value that became objects.

    `objects` are new since the last accepted value; `needs` are those that they point
    to and that were there before.
    """

    root: ObjectId
    objects: list[Object]
    needs: list[ObjectId]
    part: bytes
    mirrors: dict[ObjectId, Mirror]


class TreeWriter:
    """Turns a growing, changing value into objects, again and again.

    `write` takes the whole value as plain Python and finds what changed by comparing
    it with the last accepted one, also where it was changed in place. Call `accept`
    once the objects are stored. Not for several threads at once.
    """

    def __init__(self, codec: Codec | None = None) -> None:
        self._codec = default_codec if codec is None else codec
        self.forget()

    def forget(self) -> None:
        """Start anew: the next write gives every object."""
        self._objects: dict[ObjectId, Object] = {}
        self._mirrors: dict[ObjectId, Mirror] = {}
        self._part: bytes | None = None
        self._root: ObjectId | None = None
        self._alive = 0

    @property
    def root(self) -> ObjectId | None:
        """The root of the last accepted value."""
        return self._root

    def write(self, value: Any) -> Written:
        """The root of a value and its new objects; raises NotStorable with a path."""
        builder = Builder(self._read)
        embedder = Embedder(self._codec, builder, self._mirrors)
        try:
            part = embedder.embed(value, self._part)
        except (NotStorable, RecursionError):
            # The walk knows the path from the top of the value.
            Walk(self._codec).encode(value)
            raise
        root = linked(part)
        if root is None:
            root = builder.add(make_object(Kind.VALUE, part, self._root))
        objects, needs = reachable(root, builder.objects, self._objects.__contains__)
        return Written(root, objects, needs, part, embedder.mirrors)

    def accept(self, written: Written) -> None:
        """Take a written value as the one that the next is compared with."""
        self._root, self._part = written.root, written.part
        for made in written.objects:
            if made.kind != Kind.CHUNK:
                self._objects[made.id] = made
        self._mirrors.update(written.mirrors)
        if len(self._objects) > 2 * self._alive + _STALE:
            self._drop_stale()

    def _read(self, ids: Sequence[ObjectId]) -> list[Object]:
        missing = [id for id in ids if id not in self._objects]
        if missing:
            raise MissingObjects(missing)
        return [self._objects[id] for id in ids]

    def _drop_stale(self) -> None:
        assert self._root is not None
        alive = {made.id for made in _walk(self._root, self._objects)}
        self._objects = {id: made for id, made in self._objects.items() if id in alive}
        self._mirrors = {id: mirror for id, mirror in self._mirrors.items() if id in alive}
        self._alive = len(alive)


def _walk(root: ObjectId, objects: dict[ObjectId, Object]) -> Iterable[Object]:
    seen = {root}
    pending = [root]
    while pending:
        found = objects.get(pending.pop())
        if found is None:
            continue
        yield found
        for id in links(found):
            if id not in seen:
                seen.add(id)
                pending.append(id)


def reachable(
    root: ObjectId, made: dict[ObjectId, Object], known: Any
) -> tuple[list[Object], list[ObjectId]]:
    """Of the objects just made, those that a root reaches and nobody had before;
    and what they point to beside each other."""
    objects: list[Object] = []
    needs: dict[ObjectId, None] = {}
    pending, seen = [root], {root}
    while pending:
        id = pending.pop()
        found = made.get(id)
        if found is None or known(id):
            needs[id] = None
            continue
        objects.append(found)
        for target in links(found):
            if target not in seen:
                seen.add(target)
                pending.append(target)
    # Children first: an engine that stores in this order never points to nothing.
    objects.reverse()
    return objects, list(needs)
