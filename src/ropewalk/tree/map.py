"""`Map`: a sorted mapping that is edited in place of its nodes, at O(log n)."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ropewalk.codec import Codec, default_codec
from ropewalk.codec.msgpack import Code
from ropewalk.errors import FormatError, InvalidInput, NotStorable, PathNotFound
from ropewalk.tree.build import Builder, Edited, Title, finish
from ropewalk.tree.changes import MOST_TOGETHER, PairReader, Run, checked_key, differing
from ropewalk.tree.container import Container, check_root, open_root
from ropewalk.tree.edit import embed_at
from ropewalk.tree.embed import Embedder
from ropewalk.tree.levels import Span, View, in_turn
from ropewalk.tree.nodes import KEY_MAX, PAIRS, Entry, linked
from ropewalk.tree.objects import Kind, ObjectId, Reader
from ropewalk.tree.read import Loader, expect_room, reading, reading_on, writing

_TITLE = Title(Code.MAP)


class Map(Mapping[Any, Any]):
    """A stored mapping, read as it is needed.

    Keys are sorted by their encoding and have no other order. A map never changes:
    `edit` gives the objects of a new one. Values that were read are the caller's own.
    """

    def __init__(self, root: ObjectId, read: Reader, codec: Codec | None = None) -> None:
        self.root = check_root(root)
        self._codec = default_codec if codec is None else codec
        self._read = read
        self._opened: Container | None = None
        self._kin: Map | None = None
        """Another version, whose nodes this one may share."""

    @staticmethod
    def empty() -> Edited:
        """The objects of a map without keys."""
        builder = Builder(_nothing)
        view = View(PAIRS, 0, [], builder.read)
        part = builder.edit(_TITLE, view, [Span(0, 0, [])], None).part
        return finish(builder, part, None)

    @writing
    def edit(
        self, changes: Mapping[Any, Any] | None = None, *, remove: Iterable[Any] = ()
    ) -> Edited:
        """Set and remove keys.

        Raises PathNotFound for a key to remove that is not there, InvalidInput for a
        key that is named twice, and NotStorable.
        """
        builder = Builder(self._read)
        embedder = Embedder(self._codec, builder, {})
        spans: dict[bytes, Span] = {}
        for key in remove:
            _add(spans, key, *self._removal(key))
        for key, value in (changes or {}).items():
            _add(spans, key, *self._change(embedder, key, value))
        if not spans:
            return Edited(self.root, [], [self.root])
        view = self._container.view
        ordered = in_turn(list(spans.values()))
        part = builder.edit(_TITLE, view, ordered, self.root).part
        return finish(builder, part, self.root)

    def _removal(self, key: Any) -> tuple[bytes, Span]:
        at, entry = self._locate(key)
        if entry is None:
            raise PathNotFound(f"the map has no key {key!r}")
        return entry.key, Span(at, at + 1, [])

    def _change(self, embedder: Embedder, key: Any, value: Any) -> tuple[bytes, Span]:
        encoded = self._codec.encode(key)
        if len(encoded) > KEY_MAX:
            raise NotStorable(f"a key takes {len(encoded)} bytes; the most is {KEY_MAX}")
        at, entry = self._container.view.locate(encoded)
        old = None if entry is None else entry.body
        part = embed_at(embedder, self._codec, (key,), value, old)
        return encoded, Span(at, at if entry is None else at + 1, [Entry(encoded, part)])

    @property
    def _container(self) -> Container:
        if self._opened is None:
            (found,) = self._read([self.root])
            value = found.kind == Kind.VALUE
            opened = None if value else open_root(self.root, found, self._read)
            if opened is None or opened.title != _TITLE:
                raise FormatError(
                    f"object {self.root.hex()[:12]} holds a value, not a map; use load or get"
                )
            kin = None if self._kin is None else self._kin._opened
            if kin is not None:
                opened.view.inherit(kin.view)
            self._opened, self._kin = opened, None
        return self._opened

    def _locate(self, key: Any) -> tuple[int, Entry | None]:
        try:
            encoded = self._codec.encode(key)
        except NotStorable as exc:
            expect_room(exc)
            return 0, None
        return self._container.view.locate(encoded)

    @reading
    def __getitem__(self, key: Any) -> Any:
        _, entry = self._locate(key)
        if entry is None:
            raise PathNotFound(f"the map has no key {key!r}")
        return Loader(self._read, self._codec).part(entry.body)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or a default if there is no such key."""
        # A key error may also say that an object is missing: then there is no default.
        return self[key] if key in self else default  # noqa: SIM401 - that is what this is

    def inner(self, key: Any) -> Map | None:
        """The map that stands under a key, which is not read; None if there is none."""
        _, entry = self._locate(key)
        root = None if entry is None else linked(entry.body)
        return None if root is None else Map(root, self._read, self._codec)

    def __contains__(self, key: object) -> bool:
        return self._locate(key)[1] is not None

    def __len__(self) -> int:
        return self._container.view.total

    def __iter__(self) -> Iterator[Any]:
        for place in self._container.view.leaves():
            for entry in place.entries:
                yield self._key(entry)

    def range(
        self, start: Any = None, stop: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Keys and values from the key `start` on and before the key `stop`.

        None is no bound. Keys need not be there; they are compared by their encoding, in
        which whole numbers from 0 on ascend. With `reverse` the last pair comes first. What
        is not asked for is not read. Raises NotStorable for what can be no key.
        """
        found = self.places(start, stop)
        return self._pairs(Run(found.start, found.stop, reverse))

    def places(self, start: Any = None, stop: Any = None) -> builtins.range:
        """The places, for `slice`, of the keys from `start` on and before `stop`.

        None is no bound, and keys need not be there, as for `range`. Only the nodes on the
        way to the two are read. Raises NotStorable for what can be no key.
        """
        view = self._container.view
        low = 0 if start is None else view.locate(self._codec.encode(start))[0]
        high = view.total if stop is None else view.locate(self._codec.encode(stop))[0]
        return builtins.range(low, max(low, high))

    def slice(self, start: int, stop: int) -> Iterator[tuple[Any, Any]]:
        """Keys and values by their place in the order of keys, as a slice of a list has them.

        Places count from 0, negative ones from the end. All of them are fetched together.
        """
        low, high, _ = slice(start, stop).indices(self._container.view.total)
        return self._pairs(Run(low, high, first=MOST_TOGETHER))

    def pick(self, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Keys and values of those of the keys that are there, in the order of the map.

        All of them are fetched together. Raises NotStorable for what can be no key.
        """
        encoded = sorted({self._codec.encode(key) for key in keys})
        reader = PairReader(self._container.view, self._read, self._codec)
        return reading_on(reader.picked(encoded))

    def version(self, root: ObjectId) -> Map:
        """Another map with the same reader and codec: an earlier or later one of this."""
        made = Map(root, self._read, self._codec)
        made._kin = self
        return made

    def differing(self, other: Map) -> list[Any]:
        """The keys under which two maps have different values, or one has none; sorted.

        What they share is not read.
        """
        if self.root == other.root:
            return []
        sides = differing(self._container.view, other._container.view, self._read)
        keys = sorted({entry.key for side in sides for entry in side})
        return [checked_key(self._codec.decode(key), self._codec) for key in keys]

    def _pairs(self, run: Run) -> Iterator[tuple[Any, Any]]:
        return reading_on(PairReader(self._container.view, self._read, self._codec).pairs(run))

    def _key(self, entry: Entry) -> Any:
        return checked_key(self._codec.decode(entry.key), self._codec)

    def __eq__(self, other: object) -> bool:
        # By content: keys that Python takes for the same may stand beside each other.
        if isinstance(other, Map):
            return self.root == other.root
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.root)


def _add(spans: dict[bytes, Span], key: Any, encoded: bytes, span: Span) -> None:
    if encoded in spans:
        raise InvalidInput(f"the key {key!r} is to be changed twice")
    spans[encoded] = span


def _nothing(ids: Any) -> Any:
    raise FormatError("an empty map has no nodes")
