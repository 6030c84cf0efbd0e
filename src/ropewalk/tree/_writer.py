"""Writing a value: only what changed since the last one becomes new objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from ropewalk.codec import Codec, default_codec
from ropewalk.errors import ChangedMeanwhile, InvalidInput, MissingObjects, NotStorable
from ropewalk.tree._builder import Builder
from ropewalk.tree._cuts import INLINE_MAX
from ropewalk.tree._embed import Embedder, retry_if_changed
from ropewalk.tree._load import load
from ropewalk.tree._mirrors import Mirror
from ropewalk.tree._objects import KIND_BYTES, Kind, Object, ObjectId, Reader, make_object
from ropewalk.tree._parts import linked, links, may_hold_links
from ropewalk.tree._refusals import explain

_VALUE: Final = KIND_BYTES[Kind.VALUE]
_STALE: Final = 16 << 20
"""How many bytes that are no longer needed may be held before they are dropped."""


@dataclass(slots=True, eq=False)
class Written:
    """A value that became objects.

    `objects` are new since the last accepted value; `needs` are those that they point
    to and that were there before.
    """

    root: ObjectId
    objects: list[Object] = field(repr=False)
    needs: list[ObjectId] = field(repr=False)
    _part: bytes = field(repr=False)
    _mirrors: dict[ObjectId, Mirror] = field(repr=False)
    _since: object = field(repr=False)
    _small: bool = field(default=False, repr=False)
    """Whether it is known to be whole in one node."""


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
        self._since = object()
        self._objects: dict[ObjectId, Object] = {}
        self._chunks: set[ObjectId] = set()
        self._mirrors: dict[ObjectId, Mirror] = {}
        self._part: bytes | None = None
        self._small = True
        """Whether the last accepted value is whole in one node."""
        self._root: ObjectId | None = None
        self._alive = 0
        self._added = 0

    def trim(self) -> None:
        """Forget what is no part of the last accepted value: it may be stored no more."""
        if self._root is not None:
            self._drop_stale()

    def resume(self, root: ObjectId, read: Reader) -> Any:
        """Load a stored value and go on from it, as after a restart.

        The next write gives only what differs from that value; or everything, where a
        class changed since it was stored.
        """
        value = load(root, read, self._codec)
        self.forget()
        written = self.write(value)
        if written.root == root:
            self.accept(written)
        return value

    def __repr__(self) -> str:
        at = "nothing yet" if self._root is None else self._root.hex()[:12]
        return f"<TreeWriter at {at}>"

    @property
    def root(self) -> ObjectId | None:
        """The root of the last accepted value."""
        return self._root

    def write(self, value: Any) -> Written:
        """The root of a value and its new objects.

        Raises NotStorable or ChangedMeanwhile with a path. Others may be changing the value
        meanwhile: each list, dict, set and object is taken as it was at one moment.
        """
        plain = None
        if self._small:
            try:
                plain = self._codec.encode(value)
            except (NotStorable, ChangedMeanwhile):
                pass  # Said below with the path, or tried again.
            else:
                if len(plain) <= INLINE_MAX:
                    return self._write_small(plain)
                return self._write(value, plain)
        return retry_if_changed(lambda: self._write(value))

    def write_encoded(self, plain: bytes, value: Callable[[], Any]) -> Written:
        """The same for a value whose encoding is known; `value` gives it if it is large."""
        if self._small and len(plain) <= INLINE_MAX:
            return self._write_small(plain)
        made = value()
        return retry_if_changed(lambda: self._write(made, plain if self._small else None))

    def _write_small(self, plain: bytes) -> Written:
        """A value that is one node without links, from its encoding."""
        if plain == self._part:
            root, made = self._root, None
        else:
            root = sha256(_VALUE + plain).digest()
            made = None if root in self._objects else Object(root, Kind.VALUE, plain, self._root)
        assert root is not None
        if made is None:
            return Written(root, [], [root], plain, {}, self._since, True)
        return Written(root, [made], [], plain, {}, self._since, True)

    def _write(self, value: Any, plain: bytes | None = None) -> Written:
        """A value with large parts; from its encoding, where that is known."""
        builder = Builder(self._read)
        embedder = Embedder(self._codec, builder, self._mirrors)
        try:
            part = embedder.embed(value, self._part, plain)
        except (NotStorable, ChangedMeanwhile, RecursionError) as exc:
            raise explain(self._codec, value, exc) from exc
        root = linked(part)
        if root is None:
            before = None if self._part is None or linked(self._part) else self._root
            root = builder.add(make_object(Kind.VALUE, part, before))
        made = {id: one for id, one in builder.objects.items() if not self._is_known(id)}
        objects, needs = reachable(root, made, builder.links)
        return Written(root, objects, needs, part, embedder.mirrors, self._since)

    def accept(self, written: Written) -> None:
        """Take a written value as the one that the next is compared with.

        Raises InvalidInput if another one was accepted since it was written.
        """
        if not isinstance(written, Written):
            raise InvalidInput(f"accept takes what write gave, not a {type(written).__name__}")
        if written._since is not self._since:
            raise InvalidInput(
                "this value was written before another one was accepted, by another writer, or "
                "before forget(): write it again"
            )
        self._since = object()
        self._root, self._part = written.root, written._part
        self._small = written._small or not may_hold_links(written._part)
        for made in written.objects:
            if made.kind == Kind.CHUNK:
                self._chunks.add(made.id)
            else:
                self._objects[made.id] = made
                self._added += len(made.payload) + 200
        for id, mirror in written._mirrors.items():
            self._mirrors[id] = mirror
            self._added += mirror.size
        if self._added > self._alive + _STALE:
            self._drop_stale()

    def _is_known(self, id: ObjectId) -> bool:
        return id in self._objects or id in self._chunks

    def _read(self, ids: Sequence[ObjectId]) -> list[Object]:
        missing = [id for id in ids if id not in self._objects]
        if missing:
            raise MissingObjects(missing)
        return [self._objects[id] for id in ids]

    def _drop_stale(self) -> None:
        assert self._root is not None
        alive = _reached(self._root, self._objects)
        self._objects = {id: made for id, made in self._objects.items() if id in alive}
        self._mirrors = {id: mirror for id, mirror in self._mirrors.items() if id in alive}
        self._chunks &= alive
        self._alive = _size(self._objects.values(), self._mirrors.values())
        self._added = 0


def _size(objects: Iterable[Object], mirrors: Iterable[Mirror]) -> int:
    """About how many bytes objects and mirrors hold."""
    held = sum([len(made.payload) + 200 for made in objects if made.kind != Kind.CHUNK])
    return held + sum([mirror.size for mirror in mirrors])


def _reached(root: ObjectId, objects: dict[ObjectId, Object]) -> set[ObjectId]:
    seen = {root}
    pending = [root]
    while pending:
        found = objects.get(pending.pop())
        fresh = set() if found is None else set(links(found)) - seen
        seen |= fresh
        pending += fresh
    return seen


def reachable(
    root: ObjectId,
    made: Mapping[ObjectId, Object],
    links_of: Callable[[Object], Sequence[ObjectId]] = links,
) -> tuple[list[Object], list[ObjectId]]:
    """Of the objects just made, those that a root reaches; and what else these point to."""
    if root not in made:
        return [], [root]
    # Children first: an engine that stores in this order never points to nothing.
    objects: dict[ObjectId, Object] = {}
    needs: dict[ObjectId, None] = {}
    pending, entered = [root], set[ObjectId]()
    while pending:
        id = pending[-1]
        if id in entered:
            objects[id] = made[pending.pop()]
            continue
        entered.add(id)
        below = links_of(made[id])
        needs.update(dict.fromkeys(below))
        pending += [one for one in reversed(below) if one in made and one not in entered]
    return list(objects.values()), [id for id in needs if id not in made]
