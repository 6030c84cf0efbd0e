"""A stored value that a program holds, and may change in place."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ropewalk.codec import Codec
from ropewalk.errors import MissingObjects
from ropewalk.tree._builder import Builder
from ropewalk.tree._container import Edited, finish, part_of
from ropewalk.tree._edit import embed_at
from ropewalk.tree._embed import Embedder, retry_if_changed
from ropewalk.tree._mirrors import BytesMirror, MappingMirror, Mirror
from ropewalk.tree._objects import Kind, ObjectId, Reader
from ropewalk.tree._parts import linked, links, links_in, may_hold_links
from ropewalk.tree._pieces import Digest
from ropewalk.tree._reflecting import Reflector
from ropewalk.tree._stack import reading, writing

_STALE: Final = 16 << 20
"""How many bytes of mirrors that are no longer needed may be held."""


class Drafted(NamedTuple):
    """A value as objects, and what is to be remembered of it once they are stored."""

    edited: Edited
    part: bytes
    mirrors: dict[ObjectId, Mirror]


class Tracked:
    """What is needed to see what was changed in a value, and to store only that.

    `write` takes the whole value as plain Python; objects of the version before are read
    where they are needed, and not held. Call `accept` once a draft is stored. Not for
    several threads at once, but others may be changing the value meanwhile.

    It holds about as much as the value itself; with `lean` next to nothing, for some time.
    """

    def __init__(self, codec: Codec, read: Reader, lean: bool = False) -> None:
        self._codec, self._read, self._lean = codec, read, lean
        self.forget()

    def forget(self) -> None:
        """Start anew: the next write gives every object."""
        self._root: ObjectId | None = None
        self._part: bytes | None = None
        self._mirrors: dict[ObjectId, Mirror] = {}
        self._alive = 0

    def copy(self) -> Tracked:
        """One that goes on from the same value."""
        made = Tracked(self._codec, self._read, self._lean)
        made._root, made._part, made._alive = self._root, self._part, self._alive
        made._mirrors = dict(self._mirrors)
        return made

    @reading
    def load(self, root: ObjectId) -> Any:
        """The value of a root, which is tracked from now on."""
        part = part_of(root, self._read)
        reflector = Reflector(self._read, self._codec, self._lean)
        value = reflector.part(part)
        self._root, self._part, self._mirrors = root, part, reflector.mirrors
        self._alive = _size(self._mirrors)
        return value

    @writing
    def write(self, value: Any) -> Drafted:
        """A value as objects; raises NotStorable or ChangedMeanwhile with a path."""
        return retry_if_changed(lambda: self._draft(value))

    def _draft(self, value: Any) -> Drafted:
        try:
            return self._written(value)
        except MissingObjects:
            # The version before is gone: everything is new.
            self.forget()
            return self._written(value)

    def _written(self, value: Any) -> Drafted:
        builder = Builder(self._read)
        embedder = Embedder(self._codec, builder, self._mirrors, self._lean)
        part = embed_at(embedder, self._codec, (), value, self._part)
        if part == self._part and self._root is not None:
            return Drafted(Edited(self._root, [], [self._root]), part, {})
        return Drafted(finish(builder, part, self._root), part, embedder.mirrors)

    def accept(self, drafted: Drafted) -> None:
        """Take a draft as the value that the next is compared with."""
        old, self._part = self._part, drafted.part
        self._root = drafted.edited.root
        self._mirrors |= drafted.mirrors
        for id in set(links_in(old or b"")).difference(links_in(drafted.part)):
            self._mirrors.pop(id, None)
        if old is None:
            self._alive = _size(self._mirrors)
        elif _size(self._mirrors) > 2 * self._alive + _STALE:
            alive = self._reached()
            self._mirrors = {id: one for id, one in self._mirrors.items() if id in alive}
            self._alive = _size(self._mirrors)

    @property
    def size(self) -> int | None:
        """About how many bytes the value takes when it is encoded; None if that is not known."""
        if self._part is None:
            return None
        id = linked(self._part)
        if id is None:
            return None if may_hold_links(self._part) else len(self._part)
        mirror = self._mirrors.get(id)
        if mirror is None:
            return None
        if isinstance(mirror, BytesMirror):
            return sum([one.weight for one in mirror.chunks]) if mirror.chunks else None
        if isinstance(mirror, MappingMirror):
            plains = [one.piece.plain for one in mirror.runs]
        else:
            plains = [one.plain for one in mirror.pieces]
        return None if None in plains else sum([_length(one or b"") for one in plains])

    def _reached(self) -> set[ObjectId]:
        reached = set(links_in(self._part or b""))
        pending = list(reached)
        while pending:
            found = [one for one in self._read(pending) if one.kind != Kind.CHUNK]
            pending = list({id for one in found for id in links(one)} - reached)
            reached.update(pending)
        return reached


def _length(plain: bytes) -> int:
    return plain.size if isinstance(plain, Digest) else len(plain)


def _size(mirrors: dict[ObjectId, Mirror]) -> int:
    return sum([mirror.size for mirror in mirrors.values()])
