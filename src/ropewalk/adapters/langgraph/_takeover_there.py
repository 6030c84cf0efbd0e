"""What a thread holds already, for who takes over another database into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from ropewalk.adapters.langgraph._deferred import class_name, is_deferred, rebuild
from ropewalk.adapters.langgraph._entries import Address, Record
from ropewalk.adapters.langgraph._index import Index
from ropewalk.adapters.langgraph._official import Checkpointed, LeftOut, Written
from ropewalk.adapters.langgraph._reading import History
from ropewalk.adapters.langgraph._thread import GraphThread
from ropewalk.adapters.langgraph._types import GraphTypes
from ropewalk.codec import Codec
from ropewalk.codec._codes import Code
from ropewalk.codec._decoder import Decoder, no_links


class Comparing(Codec):
    """Reads what was stored: objects of known classes, and others as they stand."""

    def __init__(self, types: GraphTypes) -> None:
        super().__init__(types.registry, classes=types.registry.classes, undeclared="show")
        self.types = types

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """What decodes for this codec."""
        return _ComparingDecoder(self, link)


class _ComparingDecoder(Decoder):
    def _stranger(self, code: Code, head: list[Any], content: Any) -> Any:
        assert isinstance(self._codec, Comparing)
        entry = self._codec.types.find(class_name(head[0])) if is_deferred(head[0]) else None
        if entry is not None:
            with suppress(Exception):  # Then it was kept as it was stored, as now.
                return rebuild(entry.cls, content)
        return super()._stranger(code, head, content)


class There:
    """What a thread holds already."""

    def __init__(self, thread: GraphThread, codec: Codec) -> None:
        self._thread = thread
        self._index: Index = thread.look().checkpoints
        self._reader = History.of(thread._objects.read, codec)

    def has(self, address: Address) -> bool:
        """Whether a checkpoint was put."""
        return self._index.get(address) is not None

    def is_same(self, address: Address, found: Checkpointed) -> bool:
        """Whether a checkpoint was put, and says the same: the last one may be put again."""
        entry = self._index.get(address)
        if entry is None:
            return False
        record: Record = self._reader.record(entry)
        said = {name: one for name, one in found.checkpoint.items() if name != "channel_values"}
        return (record.checkpoint, record.parent) == (said, found.key.parent_id) and (
            record.metadata == found.metadata
        )

    def writes(self, address: Address) -> set[tuple[str, int]]:
        """The tasks and numbers of the pending writes."""
        found = self._reader.writes(self._index.writes(address))
        return {(task, number) for _, task, number, _, _ in found}

    def difference(
        self,
        address: Address,
        codec: Codec,
        wanted: Checkpointed | LeftOut,
        writes: list[Written | LeftOut],
    ) -> str | None:
        """How what is read back differs from what was to be stored; None if it does not."""
        entry = self._index.get(address)
        if entry is None:
            return "it is not there"
        assert isinstance(wanted, Checkpointed)
        if not self.is_same(address, wanted):
            return "its versions or its metadata are others"
        reader = History.of(self._thread._objects.read, codec)
        encode = codec.encode
        values = {name: encode(one) for name, one in reader.values(entry).items()}
        expected = {name: encode(one) for name, one in wanted.checkpoint["channel_values"].items()}
        if values != expected:
            others = [
                name for name in {**expected, **values} if values.get(name) != expected.get(name)
            ]
            return f"the channels {', '.join(others):.200} are others"
        return _other_writes(reader.writes(self._index.writes(address)), writes, encode)


def _other_writes(
    found: Iterable[tuple[str, str, int, str, Any]],
    wanted: Iterable[Written | LeftOut],
    encode: Callable[[Any], bytes],
) -> str | None:
    there = {(path, task, number, name, encode(value)) for path, task, number, name, value in found}
    for one in wanted:
        if isinstance(one, LeftOut):
            continue
        if (one.task_path, one.task_id, one.idx, one.channel, encode(one.value)) not in there:
            return f"the write {one.idx} of task {one.task_id} is another one"
    return None
