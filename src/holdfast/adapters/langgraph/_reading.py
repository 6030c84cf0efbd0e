"""Reading many checkpoints of a thread: what they share is decoded once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from holdfast.adapters.langgraph._entries import Entry, Record
from holdfast.codec import Codec
from holdfast.tree import Map, ObjectId, Reader
from holdfast.tree._layout import Layout, Root
from holdfast.tree._load import Loader
from holdfast.tree._stack import reading

_BATCH: Final = 128


@reading
def values_of(root: ObjectId, loader: Loader) -> dict[str, Any]:
    """The channel values of a root."""
    return dict(loader.root(root))


class History:
    """Reads checkpoints one after another."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    @classmethod
    def of(cls, read: Reader, codec: Codec) -> History:
        """One that decodes what several checkpoints hold once, and shares it."""
        return cls(SharingLoader(read, codec))

    def record(self, entry: Entry) -> Record:
        """What is kept of a checkpoint beside its values."""
        return Record.read(entry, self._loader)

    def values(self, entry: Entry) -> dict[str, Any]:
        """The channel values of a checkpoint."""
        return values_of(entry.values, self._loader)

    @reading
    def some_values(self, entry: Entry, channels: Collection[str]) -> dict[str, Any]:
        """Those of the channel values that there are."""
        found = Map(entry.values, self._loader._read, self._loader._codec)
        return dict(found.pick(channels))

    @reading
    def before(self, entry: Entry) -> dict[str, list[Any]]:
        """What is kept of delta channels before a checkpoint: writes, and where to begin."""
        return {} if entry.before is None else dict(self._loader.root(entry.before))

    @reading
    def writes(self, root: ObjectId | None) -> list[tuple[str, str, int, str, Any]]:
        """Pending writes: path, task, number, channel and value, in the order of a run."""
        if root is None:
            return []
        found = [
            (path, task, number, channel, value)
            for task, (path, several) in self._loader.root(root).items()
            for number, channel, value in several
        ]
        return sorted(found, key=lambda one: one[:3])

    def pending(self, root: ObjectId | None) -> list[tuple[str, str, Any]]:
        """Pending writes as LangGraph wants them: task, channel and value."""
        return [(task, channel, value) for _, task, _, channel, value in self.writes(root)]


class SharingLoader(Loader):
    """Loads values of which each large part is loaded once, also where several hold it."""

    def __init__(self, read: Reader, codec: Codec) -> None:
        super().__init__(read, codec)
        self._parts: dict[ObjectId, Any] = {}
        self._leaves: dict[ObjectId, list[Any]] = {}

    def _objects(self, ids: list[ObjectId]) -> list[Any]:
        unknown = [id for id in dict.fromkeys(ids) if id not in self._parts]
        for id, found in zip(unknown, self._read(unknown) if unknown else (), strict=True):
            self._parts[id] = self._object(found)
        return [self._parts[id] for id in ids]

    def _run(self, layout: Layout, root: Root) -> list[Any]:
        leaves, known = self._lowest(layout, root), self._leaves
        unknown = [entry for entry in leaves if entry.body not in known]
        for start in range(0, len(unknown), _BATCH):
            batch = unknown[start : start + _BATCH]
            found = self._read([entry.body for entry in batch])
            for entry, leaf in zip(batch, found, strict=True):
                known[entry.body] = self._leaf(layout, entry, leaf)
        elements: list[Any] = []
        for entry in leaves:
            elements += known[entry.body]
        return elements
