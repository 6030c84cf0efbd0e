"""`TreeWriter`: turns a value into objects, only those that changed since the last write.

It hides how changes are found: a small value is one node, compared by its bytes; of a large one
`mirrors` remember how its parts looked, and `embed` rebuilds the parts that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from ropewalk.codec import Codec, default_codec
from ropewalk.errors import ChangedMeanwhile, InvalidInput, MissingObjects, NotStorable
from ropewalk.tree.build import Builder, reachable
from ropewalk.tree.change_detection import PLAIN_MAX, VALUE_MAX, Budget
from ropewalk.tree.embed import Embedder, retry_if_changed
from ropewalk.tree.limits import explain
from ropewalk.tree.mirrors import Mirror, Mirrors, Reflector
from ropewalk.tree.nodes import INLINE_MAX, linked, links, may_hold_links
from ropewalk.tree.objects import KIND_BYTES, Kind, Object, ObjectId, Reader, make_object
from ropewalk.tree.read import part_of, reading

_VALUE: Final = KIND_BYTES[Kind.VALUE]
_STALE: Final = 4 << 20
"""About how many bytes of stale nodes are held before they are dropped."""
_NODE: Final = 250
"""About how many bytes of memory an entry for a node takes, beside its payload."""


@dataclass(slots=True, eq=False)
class Written:
    """The result of a write: a root and objects.

    `objects` are new since the last accepted value; `needs` are older ones that these link to.
    """

    root: ObjectId
    objects: list[Object] = field(repr=False)
    needs: list[ObjectId] = field(repr=False)
    _part: bytes = field(repr=False)
    _since: object = field(repr=False)
    _mirrors: dict[ObjectId, Mirror] = field(repr=False, default_factory=dict)
    _replaced: list[ObjectId] = field(repr=False, default_factory=list)
    _below: dict[ObjectId, Sequence[ObjectId]] = field(repr=False, default_factory=dict)
    _builder: Builder | None = field(repr=False, default=None)


class TreeWriter:
    """Writes successive versions of one value as objects.

    `write` takes the whole value as plain Python and diffs it with the last accepted one, also
    where it was changed in place. Call `accept` once the objects are stored. Not thread-safe,
    but other threads may change the value during a write.

    With a `read`, nodes of the accepted value are read back where they changed, and little of a
    large value is held in memory: the ids of its nodes, and digests. Without one, all nodes are
    held but chunks of text and bytes. A `lean` writer keeps digests instead of encodings, also
    of small values.
    """

    def __init__(
        self, codec: Codec | None = None, read: Reader | None = None, *, lean: bool = False
    ) -> None:
        self._codec = default_codec if codec is None else codec
        self._source = read
        self._plain_max = 0 if lean else PLAIN_MAX
        self.forget()

    def forget(self) -> None:
        """Reset: the next write returns every object."""
        self._since = object()
        self._objects: dict[ObjectId, Object] = {}
        """The nodes of the last accepted value, if there is no reader."""
        self._below: dict[ObjectId, Sequence[ObjectId]] = {}
        """The links of nodes that were written or read, and so need not be sent again."""
        self._mirrors = Mirrors()
        self._part: bytes | None = None
        self._small = True
        """Whether the last accepted value is a single node without links."""
        self._root: ObjectId | None = None
        self._measure()

    def trim(self) -> None:
        """Drop nodes of older values, which the store may have collected."""
        if self._root is not None:
            self._drop_stale()

    def copy(self) -> TreeWriter:
        """A writer with the same accepted value."""
        made = TreeWriter.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._since = object()
        made._objects, made._below = dict(self._objects), dict(self._below)
        made._mirrors = Mirrors(self._mirrors)
        return made

    @reading
    def resume(self, root: ObjectId, read: Reader | None = None) -> Any:
        """Load a stored value and accept it, as after a restart.

        `read` defaults to the writer's own. The next write returns only what differs from that
        value; or everything, if a class changed since it was stored.
        """
        source = read or self._source
        if source is None:
            raise InvalidInput("a writer that has no reader needs one to resume")
        below: dict[ObjectId, Sequence[ObjectId]] = {}
        objects: dict[ObjectId, Object] = {}

        def noted(ids: Sequence[ObjectId]) -> Sequence[Object]:
            found = source(ids)
            for one in found:
                below[one.id] = links(one) or ()
                if self._source is None and one.kind != Kind.CHUNK:
                    objects[one.id] = one
            return found

        part = part_of(root, noted)
        reflector = Reflector(noted, self._codec, Budget(self._plain_max))
        value = reflector.part(part)
        self.forget()
        self._root, self._part, self._small = root, part, not may_hold_links(part)
        self._below, self._objects, self._mirrors = below, objects, Mirrors(reflector.mirrors)
        self._measure()
        written = self.write(value)
        if written.root == root:
            self.accept(written)
        else:  # A class changed since it was stored.
            self.forget()
        return value

    def __repr__(self) -> str:
        at = "nothing yet" if self._root is None else self._root.hex()[:12]
        return f"<TreeWriter at {at}>"

    @property
    def root(self) -> ObjectId | None:
        """The root of the last accepted value."""
        return self._root

    @property
    def held(self) -> int:
        """About how many bytes are held beside the value itself."""
        return self._nodes + self._mirrors.held

    @property
    def size(self) -> int | None:
        """About how many bytes the value takes when it is encoded; None if that is not known."""
        if self._part is None:
            return None
        id = linked(self._part)
        if id is None:
            return None if may_hold_links(self._part) else len(self._part)
        mirror = self._mirrors.get(id)
        return None if mirror is None else mirror.encoded

    def write(self, value: Any) -> Written:
        """Write a value: its root, and the objects that are new.

        Raises NotStorable or ChangedMeanwhile with a path. Other threads may change the value
        meanwhile: each list, dict, set and object is a snapshot of one moment.
        """
        plain = None
        if self._small:
            try:
                plain = self._codec.encode(value)
            except (NotStorable, ChangedMeanwhile):
                pass  # Below it is raised with its path, or retried.
            else:
                if len(plain) <= INLINE_MAX:
                    return self._write_small(plain)
                if len(plain) > VALUE_MAX:
                    plain = None  # Large: written piece by piece, without holding its encoding.
        return retry_if_changed(lambda: self._write(value, plain))

    def write_encoded(self, plain: bytes, value: Callable[[], Any]) -> Written:
        """The same for a value that is already encoded; `value` is called only if it is large."""
        if self._small and len(plain) <= INLINE_MAX:
            return self._write_small(plain)
        made, known = value(), plain if self._small and len(plain) <= VALUE_MAX else None
        return retry_if_changed(lambda: self._write(made, known))

    def _write_small(self, plain: bytes) -> Written:
        """A value that is one node without links, from its encoding."""
        if plain == self._part:
            assert self._root is not None
            return Written(self._root, [], [self._root], plain, self._since)
        root = sha256(_VALUE + plain).digest()
        if root in self._below:
            return Written(root, [], [root], plain, self._since)
        made = Object(root, Kind.VALUE, plain)
        return Written(root, [made], [], plain, self._since, _below={root: ()})

    def _write(self, value: Any, plain: bytes | None = None) -> Written:
        """Write a value that is more than one node; `plain` is its encoding, if known."""
        try:
            return self._compared(value, plain)
        except MissingObjects:
            if self._root is None:
                raise
            self.forget()  # The last value was collected: write everything.
            return self._compared(value, plain)

    def _compared(self, value: Any, plain: bytes | None) -> Written:
        builder = Builder(self._read)
        budget = Budget(self._plain_max - self._mirrors.held)
        embedder = Embedder(self._codec, builder, self._mirrors, budget)
        try:
            if self._small and plain is None:
                part = embedder.embed_large(value, self._part)
            else:
                part = embedder.embed(value, self._part, plain)
        except (NotStorable, ChangedMeanwhile, RecursionError) as exc:
            raise explain(self._codec, value, exc) from exc
        if part == self._part and self._root is not None:
            return Written(self._root, [], [self._root], part, self._since)
        root = linked(part)
        if root is None:
            root = builder.add(make_object(Kind.VALUE, part))
        known = self._below
        below: dict[ObjectId, Sequence[ObjectId]] = {}
        made = {id: one for id, one in builder.objects.items() if id not in known}

        def links_of(one: Object) -> Sequence[ObjectId]:
            found = below[one.id] = builder.links(one) or ()
            return found

        objects, needs = reachable(root, made, links_of)
        mirrors, replaced = embedder.mirrors, embedder.replaced
        return Written(root, objects, needs, part, self._since, mirrors, replaced, below, builder)

    def accept(self, written: Written) -> None:
        """Make a written value the one that the next write is diffed with.

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
        fresh_node = written._builder is None and bool(written._below)
        self._small = fresh_node or not may_hold_links(written._part)
        if not written._below and written._builder is None:
            return  # Its one node was known already.
        self._below.update(written._below)
        self._nodes += _NODE * len(written._below)
        if self._source is None and not fresh_node:  # A single node is kept as `_part`.
            for made in written.objects:
                if made.kind != Kind.CHUNK:
                    self._objects[made.id] = made
                    self._nodes += len(made.payload)
        if written._builder is not None:
            written._builder.forget()  # From now on these objects are read like all others.
            self._mirrors.renew(written._mirrors, written._replaced)
        if self._nodes + self._mirrors.held > 2 * self._alive + _STALE:
            self._drop_stale()

    def _read(self, ids: Sequence[ObjectId]) -> Sequence[Object]:
        if self._source is not None:
            return self._source(ids)
        missing = [id for id in ids if id not in self._objects]
        if missing:
            raise MissingObjects(missing)
        return [self._objects[id] for id in ids]

    def _drop_stale(self) -> None:
        assert self._root is not None
        alive = _reached(self._root, self._below)
        self._below = {id: below for id, below in self._below.items() if id in alive}
        self._objects = {id: made for id, made in self._objects.items() if id in alive}
        mirrors = {id: mirror for id, mirror in self._mirrors.items() if id in alive}
        self._mirrors = Mirrors(mirrors)
        self._measure()

    def _measure(self) -> None:
        """Recompute how much is held, when nothing held is stale."""
        self._nodes = _NODE * len(self._below)
        self._nodes += sum([len(one.payload) for one in self._objects.values()])
        self._alive = self.held


def small_value(plain: bytes) -> Object:
    """The one node of a value, from its encoding, which is at most `INLINE_MAX` bytes."""
    return Object(sha256(_VALUE + plain).digest(), Kind.VALUE, plain)


def _reached(root: ObjectId, below: dict[ObjectId, Sequence[ObjectId]]) -> set[ObjectId]:
    seen = {root}
    pending: Iterable[ObjectId] = seen
    while pending:
        pending = {id for one in pending for id in below.get(one, ())} - seen
        seen |= pending
    return seen
