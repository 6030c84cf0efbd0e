"""The channel values of checkpoints: writing only what changed, and reading them back.

LangGraph passes the whole state with every checkpoint. Its dict is written as one value, of which
only what changed becomes new objects. What was read last is cached decoded, and copied for each
reader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from ropewalk.adapters.langgraph.saver.checkpoints import (
    Address,
    Record,
    Step,
    Written,
    record_of,
    writes_of,
)
from ropewalk.adapters.langgraph.saver.codec import GraphCodec, SharingGraphCodec
from ropewalk.adapters.langgraph.saver.log import Listed
from ropewalk.codec import Codec
from ropewalk.codec.msgpack import Code
from ropewalk.errors import FormatError, PathNotFound
from ropewalk.tree import Kind, Loader, Object, ObjectId, Reader, TreeWriter, get, links
from ropewalk.tree import Written as Tree
from ropewalk.tree.nodes import ITEMS, Layout, Root, root_links, unpack_list
from ropewalk.tree.nodes import Entry as Pair
from ropewalk.tree.read import reading, uncollected

_FIRST_PAGE: Final = 8
_LARGEST_PAGE: Final = 128
_MOST_KEPT: Final = 16 << 20
"""Of so many bytes, decoded leaves are kept."""
_MOST_BYTES: Final = 32 << 20
"""So many bytes of objects are held, with what was made of them, before all is let go."""


class ChannelValues:
    """The channel values of one namespace that were stored last. Not thread-safe."""

    def __init__(self, codec: GraphCodec, read: Reader) -> None:
        self._codec, self._read = codec, read
        self._writer = TreeWriter(codec)
        self._leaves: dict[ObjectId, list[Any]] = {}
        """The decoded leaves of what was read last. Nobody else holds them."""
        self._names: list[str] = []
        self._sorted: list[str] = []
        self._small: bytes | None = None
        self.seen: dict[str, Any] | None = None
        """Which versions of channels the nodes had seen at the checkpoint that was put last."""

    @property
    def held(self) -> int:
        """About how many bytes are held of them."""
        return 2 * self._writer.held  # And what was decoded.

    def write(self, values: dict[str, Any]) -> Tree:
        """Write the dict of values: its root, and the objects that changed.

        From now on it counts as stored. Raises NotStorable with the path from the channel.
        """
        names = [*values]
        if names != self._names:
            # Equal states have equal roots, in whatever order the channels came.
            self._names, self._sorted = names, _as_in_tree(names)
        before = self._writer.root
        written = self._writer.write(
            dict(zip(self._sorted, map(values.get, self._sorted), strict=True))
        )
        self._writer.accept(written)
        if written.root != before:
            made = written.objects
            whole = len(made) == 1 and made[0].kind == Kind.VALUE and not written.needs
            self._small = made[0].payload if whole else None
        return written

    def trim(self) -> None:
        """Forget what is no part of the last values: it may be stored no more."""
        self._writer.trim()

    def read(self, root: ObjectId) -> dict[str, Any]:
        """The values of a root, which the next ones are compared with. They are the caller's."""
        if root != self._writer.root:
            self._leaves, self._small = {}, None
            return _values(self._writer.resume(root, self._read))
        if self._small is not None:
            return _values(self._codec.decoder().decode(self._small))
        loader = _CopyingLoader(self._read, self._codec, self._leaves)
        values = values_of(root, loader)
        self._leaves = loader.used
        return values


def _as_in_tree(names: Sequence[str]) -> list[str]:
    """Names of channels in the order in which a tree has them: the shortest encoding first."""
    ordered = sorted(names)  # UTF-8 sorts as its characters do.
    if "".join(names).isascii():
        return sorted(ordered, key=len)
    return sorted(ordered, key=lambda name: len(name.encode(errors="surrogatepass")))


@reading
def values_of(root: ObjectId, loader: Loader) -> dict[str, Any]:
    """The channel values of a root; raises FormatError."""
    return _values(loader.root(root))


def _values(found: Any) -> dict[str, Any]:
    if type(found) is not dict:
        raise FormatError("the values of a LangGraph checkpoint are malformed")
    return found


class Found(NamedTuple):
    """A checkpoint that was read."""

    address: Address
    record: Record
    parent: str | None
    values: dict[str, Any]
    writes: list[tuple[str, str, Any]]
    """Task, channel and value, in the order in which a run applies them."""


class History:
    """Reads checkpoints one after another; what several of them hold is decoded once."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    @classmethod
    def of(cls, read: Reader, codec: Codec) -> History:
        """One that shares what it decodes."""
        return cls(SharingLoader(read, codec))

    def read(self, found: Iterable[Listed]) -> Iterator[Found]:
        """Checkpoints with all that they hold, which is read for several at a time."""
        size, rest = _FIRST_PAGE, iter(found)
        while page := list(islice(rest, size)):
            if isinstance(self.loader, SharingLoader):
                self.loader.fetch([id for one in page for id in one.roots])
            with uncollected():
                read = [self.whole(one) for one in page]
            yield from read
            size = min(2 * size, _LARGEST_PAGE)

    def whole(self, one: Listed) -> Found:
        """A checkpoint with all that it holds."""
        record, values = self.record(one.step), self.values(one.step)
        return Found(one.address, record, one.step.parent, values, self.pending(one.writes))

    @reading
    def record(self, step: Step) -> Record:
        """What is kept of a checkpoint beside its values."""
        return record_of(step, self.loader)

    def values(self, step: Step) -> dict[str, Any]:
        """The channel values of a checkpoint."""
        return values_of(step.commit.root, self.loader)

    @reading
    def some_values(self, step: Step, channels: Collection[str]) -> dict[str, Any]:
        """Those of the channel values that there are."""
        found: dict[str, Any] = {}
        for channel in channels:
            with suppress(PathNotFound):
                read, codec = self.loader._read, self.loader._codec
                found[channel] = get(step.commit.root, (channel,), read, codec)
        return found

    @reading
    def writes(
        self, found: Iterable[tuple[Step, Written]], child: str | None = None
    ) -> list[tuple[str, str, int, str, Any]]:
        """Pending writes in the order of a run: path, task, number, channel and value.

        With the id of a `child`, without those that came when it was there already.
        """
        return writes_of(found, self.loader, child)

    def pending(self, found: Iterable[tuple[Step, Written]]) -> list[tuple[str, str, Any]]:
        """Pending writes as LangGraph wants them: task, channel and value."""
        return [(task, channel, value) for _, task, _, channel, value in self.writes(found)]


class SharingLoader(Loader):
    """Loads values of which each large part is loaded once, also where several hold it."""

    def __init__(self, read: Reader, codec: Codec) -> None:
        self._fetched = _Fetched(read)
        super().__init__(self._fetched.read, codec)
        self._records = codec.known if isinstance(codec, SharingGraphCodec) else {}
        self._parts: dict[ObjectId, Any] = {}
        self._leaves: dict[ObjectId, list[Any]] = {}

    def fetch(self, roots: Iterable[ObjectId]) -> None:
        """Read all that some roots reach, in as few steps as there are levels."""
        if self._fetched.size > _MOST_BYTES:
            self._fetched.clear()
            self._parts.clear()
            self._leaves.clear()
            self._records.clear()
        self._fetched.fetch(roots)

    def _opened(self, found: Object) -> Root:
        return self._fetched.root(found)

    def _object(self, found: Object) -> Any:
        spine = self._fetched.spine(found)
        if spine is None:
            return super()._object(found)
        # A long list: its leaves are found without an object for each of its entries.
        for level in range(spine.height - 1, 0, -1):
            spine = self._below(level, spine)
        elements: list[Any] = []
        known = self._leaves
        for id, count in zip(spine.ids, spine.counts, strict=True):
            leaf = known.get(id)
            if leaf is None:
                (one,) = self._read([id])
                leaf = known[id] = self._leaf(ITEMS, Pair(b"", id, count), one)
            elements += leaf
        return elements

    def _below(self, level: int, spine: Spine) -> Spine:
        ids: list[ObjectId] = []
        counts: list[int] = []
        for node, count in zip(self._read(spine.ids), spine.counts, strict=True):
            found = self._fetched.spine(node)
            if found is None or node.kind == Kind.ROOT or sum(found.counts) != count:
                raise FormatError(f"node {node.id.hex()[:12]} does not hold what its index says")
            ids += found.ids
            counts += found.counts
        return Spine(level, ids, counts)

    def _objects(self, ids: list[ObjectId]) -> list[Any]:
        for id in ids:
            if id not in self._parts:
                (found,) = self._read([id])
                self._parts[id] = self._object(found)
        return [self._parts[id] for id in ids]

    def _run(self, layout: Layout, root: Root) -> list[Any]:
        known, elements = self._leaves, list[Any]()
        for entry in self._lowest(layout, root):
            leaf = known.get(entry.body)
            if leaf is None:
                (found,) = self._read([entry.body])
                leaf = known[entry.body] = self._leaf(layout, entry, found)
            elements += leaf
        return elements


class _CopyingLoader(Loader):
    """Loads values, of which leaves that are known are copied and not decoded again."""

    def __init__(self, read: Reader, codec: GraphCodec, known: dict[ObjectId, list[Any]]) -> None:
        super().__init__(read, codec)
        self._graph, self._leaves = codec, known
        self.used: dict[ObjectId, list[Any]] = {}
        self._room = _MOST_KEPT

    def _run(self, layout: Layout, root: Root) -> list[Any]:
        elements: list[Any] = []
        entries = self._lowest(layout, root)
        unknown = [entry.body for entry in entries if entry.body not in self._leaves]
        found = {one.id: one for one in self._read(unknown)} if unknown else {}
        with uncollected():
            for entry in entries:
                leaf = self._leaves.get(entry.body)
                if leaf is None:
                    fresh = self._leaf(layout, entry, found[entry.body])
                    self._room -= len(found[entry.body].payload)
                    if self._room < 0:
                        elements += fresh
                        continue
                    leaf = self._graph.keep(fresh)
                self.used[entry.body] = leaf
                elements += self._graph.copies_of(leaf)
        return elements


class Spine(NamedTuple):
    """What a node of a long list points to."""

    height: int
    ids: list[ObjectId]
    counts: list[int]


class _Fetched:
    """Objects that were read with all that they reach."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._known: dict[ObjectId, Object] = {}
        self._roots: dict[ObjectId, Root] = {}
        self._spines: dict[ObjectId, Spine | None] = {}
        self.size = 0

    def clear(self) -> None:
        """Let go of everything."""
        self._known.clear()
        self._roots.clear()
        self._spines.clear()
        self.size = 0

    def read(self, ids: Sequence[ObjectId]) -> Sequence[Object]:
        """Objects by id; raises MissingObjects."""
        known = self._known
        if any(id not in known for id in ids):
            self._take(ids)
        return [known[id] for id in ids]

    def fetch(self, roots: Iterable[ObjectId]) -> None:
        """Read all that some roots reach."""
        pending = [id for id in roots if id not in self._known]
        while pending:
            found = self._take(pending)
            with uncollected():
                below = [link for one in found for link in self._links(one)]
            pending = [id for id in dict.fromkeys(below) if id not in self._known]

    def _links(self, one: Object) -> list[ObjectId]:
        spine = self.spine(one)
        if spine is not None:
            return spine.ids
        if one.kind != Kind.ROOT:
            return links(one)
        return root_links(self.root(one), one.payload)

    def spine(self, one: Object) -> Spine | None:
        """What the root or an index of a long list points to; None if it is something else."""
        if one.kind not in (Kind.ROOT, Kind.ITEMS_INDEX):
            return None
        if one.id not in self._spines:
            self._spines[one.id] = _spine_of(one)
        return self._spines[one.id]

    def root(self, one: Object) -> Root:
        """The root that an object is, decoded once."""
        found = self._roots.get(one.id)
        if found is None:
            found = self._roots[one.id] = Root.decode(one.payload)
        return found

    def _take(self, ids: Sequence[ObjectId]) -> list[Object]:
        found = list(self._read(list(dict.fromkeys(ids))))
        for one in found:
            if one.id not in self._known:
                self._known[one.id] = one
                self.size += len(one.payload)
        return found


def _spine_of(one: Object) -> Spine | None:
    content = unpack_list(one.payload)
    if one.kind == Kind.ITEMS_INDEX:
        height, flat = 0, content
    elif len(content) == 3 and content[0] == Code.LIST and content[1] and type(content[2]) is list:
        height, flat = content[1], content[2]
    else:
        return None
    ids, counts = flat[::2], flat[1::2]
    if len(ids) != len(counts) or set(map(type, ids)) != {bytes} or set(map(type, counts)) != {int}:
        raise FormatError(f"node {one.id.hex()[:12]} is malformed")
    return Spine(height, ids, counts)
