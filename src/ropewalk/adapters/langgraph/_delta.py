"""Delta channels: what a checkpoint's value is made of, found along its parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import DeltaChannelHistory

from ropewalk.adapters.langgraph._entries import Address, Entry
from ropewalk.adapters.langgraph._index import Index
from ropewalk.adapters.langgraph._reading import History

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph._thread import GraphThread


class Trail(dict[str, DeltaChannelHistory]):
    """What was found of delta channels, from the newest checkpoint back."""

    def __init__(self, channels: Sequence[str]) -> None:
        super().__init__({channel: {"writes": []} for channel in channels})
        self.open = set(channels)
        """Those of which the beginning was not found yet."""

    def pass_by(self, reader: History, entry: Entry, writes: bytes | None, child: str) -> None:
        """Take what a checkpoint on the way says, whose writes led to the one after it."""
        for _, task, _, channel, value in reversed(reader.writes(writes, child)):
            if channel in self.open:
                self[channel]["writes"].append((task, channel, value))
        values = reader.some_values(entry, self.open)
        for channel, value in values.items():
            self[channel]["seed"] = value
            self.open.discard(channel)

    def close(self, reader: History, entry: Entry) -> None:
        """Take what is kept of the checkpoints before one, which are gone."""
        if entry.before is None:
            return
        kept = reader.before(entry)
        for channel in self.open & kept.keys():
            writes, *seed = kept[channel]
            self[channel]["writes"] += [tuple(one) for one in reversed(writes)]
            if seed:
                self[channel]["seed"] = seed[0]
        self.open -= kept.keys()

    def finish(self) -> Mapping[str, DeltaChannelHistory]:
        """The writes in the order in which they were made."""
        for found in self.values():
            found["writes"].reverse()
        return self


def trail(
    index: Index, reader: History, address: Address, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """What delta channels are made of at a checkpoint."""
    found = Trail(channels)
    entry = index.get(address)
    met = {address.id}
    while entry is not None and found.open:
        found.close(reader, entry)
        record = reader.record(entry)
        child, parent = record.copy_of or address.id, record.parent
        if parent is None or parent in met:
            break
        met.add(parent)
        address = Address(address.namespace, parent)
        entry = index.get(address)
        if entry is not None:
            found.pass_by(reader, entry, index.writes(address), child)
    return found.finish()


def delta_history(
    thread: GraphThread, namespace: str, id: str | None, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """What delta channels are made of at a checkpoint, or at the newest one."""
    if not channels:
        return {}
    index = thread.look().checkpoints
    reader: Any = thread.reader()
    if id is None:
        newest = index.newest(namespace, reader.loader)
        if newest is None:
            return Trail(channels)
        id = newest.address.id
    return trail(index, reader, Address(namespace, id), channels)
