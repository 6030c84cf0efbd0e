"""Import of the threads of LangGraph's own savers, with all ids preserved."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langgraph.checkpoint.serde.types import _DeltaSnapshot

from ropewalk.adapters.langgraph.classes import BUILT_IN, GraphTypes
from ropewalk.adapters.langgraph.deferred import class_name, is_deferred, rebuild
from ropewalk.adapters.langgraph.saver.checkpoints import Address
from ropewalk.adapters.langgraph.saver.thread import GraphThread, Put, Writes
from ropewalk.adapters.langgraph.saver.values import History
from ropewalk.adapters.langgraph.transfer.databases import (
    Checkpointed,
    Counts,
    Key,
    LeftOut,
    Official,
    PendingWrite,
    WriteKey,
    open_official,
    parents_first,
)
from ropewalk.adapters.langgraph.transfer.values import (
    Cipher,
    Lookup,
    Unreadable,
    ValueDecoder,
    check_names,
)
from ropewalk.codec import Codec
from ropewalk.codec.decoder import Decoder, no_links
from ropewalk.codec.msgpack import Code
from ropewalk.errors import NotFound, RopewalkError

if TYPE_CHECKING:
    from ropewalk.adapters.langgraph.saver.saver import RopewalkSaver

TakeoverProgress: TypeAlias = Callable[[str, int, int], None]
"""A progress callback: the phase, the number of checkpoints done, and their total."""

_MOST_TOGETHER: Final = 64
_MOST_BYTES: Final = 8 * 2**20
_MOST_NAMED: Final = 1000


@dataclass(slots=True)
class Imported:
    """The result of `import_checkpoints`."""

    source: Counts
    """The size of the source."""
    threads: int = 0
    """Threads that received new rows."""
    checkpoints: int = 0
    """Checkpoints that were added."""
    writes: int = 0
    """Pending writes that were added."""
    present: int = 0
    """Checkpoints that already existed."""
    verified: int | None = None
    """Checkpoints that were read back and found equal; None without `verify`."""
    left_out: list[LeftOut] = field(default_factory=list)
    """The first rows that were not imported."""
    left_counts: Counter[str] = field(default_factory=Counter)
    """How many were not, by reason."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Undeclared classes, and how many of their objects are kept as stored."""
    refused: dict[str, int] = field(default_factory=dict)
    """Declared classes that did not accept stored data, and how often."""
    source_bytes: int = 0
    """The size of the source; for selected threads, of what was read."""
    stored_bytes: int | None = None
    """The growth of the store; None if its engine cannot tell."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was left out."""
        return not self.left_counts

    def leave(self, left: LeftOut) -> None:
        """Record a row that is not imported."""
        self.left_counts[left.reason] += 1
        if len(self.left_out) < _MOST_NAMED:
            self.left_out.append(left)


def import_checkpoints(
    source: str | PathLike[str],
    saver: RopewalkSaver,
    *,
    threads: Iterable[str] | None = None,
    schema: str | None = None,
    verify: bool = False,
    cipher: Cipher | None = None,
    progress: TakeoverProgress | None = None,
) -> Imported:
    """Import the database of a `SqliteSaver` (a path) or a `PostgresSaver` (a URL).

    Ids, parents, versions, metadata and pending writes are preserved. It can be repeated, also
    after it was killed: only missing rows are added. With `verify` every checkpoint is read back
    and compared.

    Nothing that the database names is imported or called. Objects of classes unknown to the saver
    are kept as stored, and are read as objects once their class is declared. Pickles, encrypted
    and damaged rows are left out, and the result lists them. With a `cipher`, that of LangGraph's
    `EncryptedSerializer`, encrypted rows are read, and stored as the store does it. Raises
    `NotFound` if there is no such database or thread.
    """
    store = saver.store
    before = store._disk_bytes()
    with closing(open_official(source, schema=schema)) as database:
        chosen = _chosen(database, threads)
        done = _Import(database, saver, cipher, progress).run(chosen, verify=verify)
        if threads is None:
            done.source_bytes = database.size()
    after = store._disk_bytes()
    done.stored_bytes = None if before is None or after is None else after - before
    return done


def _chosen(database: Official, threads: Iterable[str] | None) -> list[str]:
    there = database.threads()
    if threads is None:
        return there
    wanted = list(dict.fromkeys(map(str, threads)))
    missing = [one for one in wanted if one not in set(there)]
    if missing:
        raise NotFound(f"the source has no thread {missing[0]!r:.80}; it has {len(there)} others")
    return wanted


class _Import:
    """One run of it."""

    def __init__(
        self,
        database: Official,
        saver: RopewalkSaver,
        cipher: Cipher | None,
        progress: TakeoverProgress | None,
    ) -> None:
        self._database, self._saver = database, saver
        self._tell = progress or (lambda step, done, total: None)
        self._types: GraphTypes = saver._core.types
        self._decoder = ValueDecoder(lookup_in(self._types), snapshot=_DeltaSnapshot, cipher=cipher)
        self._left: set[tuple[str, Address]] = set()
        self._seen = 0

    def run(self, threads: list[str], *, verify: bool) -> Imported:
        """Import some threads, one after another."""
        self.done = Imported(self._database.counts(threads))
        for id in threads:
            self._take(id)
        self.done.unknown = dict(self._decoder.unknown)
        self.done.refused = dict(self._decoder.refused)
        if verify:
            self.done.verified = self._seen = 0
            for id in threads:
                self._verify(id)
        return self.done

    def _thread(self, id: str) -> GraphThread:
        # With a saver of its own: regardless of the user's conflict policy, a fork of the source
        # is a fork.
        return GraphThread(self._saver.store, id, self._types, "fork")

    def _next(self, what: str) -> None:
        self._seen += 1
        self._tell(what, self._seen, self.done.source.checkpoints)

    # Writing.

    def _take(self, id: str) -> None:
        thread = self._thread(id)
        there = There(thread, Comparing(self._types))
        batch = _Batch(thread, id, self.done, self._left)
        waiting = _by_checkpoint(self._database.write_keys(id))
        keys = parents_first(self._database.keys(id))
        followed = {(key.namespace, key.parent_id) for key in keys}
        for key in keys:
            is_last = (key.namespace, key.id) not in followed
            self._take_one(id, key, there, batch, waiting.pop(key[:2], []), is_last)
            self._next("taking over")
        for place, some in waiting.items():
            # Writes can be stored before their checkpoint, which may never have been written.
            if self._is_sound(id, Address(*place), None):
                self._take_writes(id, Address(*place), there, batch, some)
        batch.flush()
        self.done.threads += batch.stored

    def _take_one(
        self,
        id: str,
        key: Key,
        there: There,
        batch: _Batch,
        writes: list[WriteKey],
        is_last: bool,
    ) -> None:
        address = Address(key.namespace, key.id)
        if not self._is_sound(id, address, key.parent_id):
            return
        if there.has(address) and not is_last:
            self.done.present += 1
        else:
            found = self._database.checkpoint(id, key, self._decoder)
            if isinstance(found, LeftOut):
                self._left.add((id, address))
                self.done.leave(found)
                return  # Its writes would belong to no checkpoint.
            if there.is_same(address, found):
                self.done.present += 1
            else:
                batch.put(address, found)
                self.done.source_bytes += found.size
        self._take_writes(id, address, there, batch, writes)
        batch.flush_if_full()

    def _is_sound(self, id: str, address: Address, parent: str | None) -> bool:
        """Whether these ids are valid; otherwise the row is left out."""
        try:
            check_names(id, *address, parent)
        except Unreadable as error:
            self._left.add((id, address))
            self.done.leave(LeftOut(error.reason, id, *address, "the checkpoint", str(error)))
            return False
        return True

    def _take_writes(
        self, id: str, address: Address, there: There, batch: _Batch, writes: list[WriteKey]
    ) -> None:
        known = there.writes(address) if writes else set()
        if all((one.task_id, one.idx) in known for one in writes):
            return
        for found in self._database.writes(id, *address, self._decoder):
            if isinstance(found, LeftOut):
                self.done.leave(found)
            elif (found.task_id, found.idx) not in known:
                batch.write(address, found)
                self.done.source_bytes += found.size

    # Verification.

    def _verify(self, id: str) -> None:
        codec = Comparing(self._types)
        there = There(self._thread(id), codec)
        for key in self._database.keys(id):
            address = Address(key.namespace, key.id)
            if (id, address) not in self._left:
                wanted = self._database.checkpoint(id, key, self._decoder)
                writes = list(self._database.writes(id, *address, self._decoder))
                self._compare(id, address, there, codec, wanted, writes)
            self._next("verifying")

    def _compare(
        self,
        id: str,
        address: Address,
        there: There,
        codec: Comparing,
        wanted: Checkpointed | LeftOut,
        writes: list[PendingWrite | LeftOut],
    ) -> None:
        assert self.done.verified is not None
        try:
            different = there.difference(address, codec, wanted, writes)
        except RopewalkError as error:
            different = f"it cannot be read back: {error}"
        if different is None:
            self.done.verified += 1
        else:
            left = LeftOut("different", id, *address, "the checkpoint", different)
            self.done.leave(left)


class _Batch:
    """Checkpoints and writes that are stored with one commit."""

    def __init__(
        self, thread: GraphThread, id: str, done: Imported, left: set[tuple[str, Address]]
    ) -> None:
        self._thread, self._id, self._done = thread, id, done
        self._left = left
        self._waiting: list[Put | Writes] = []
        self._size = 0
        self.stored = False
        """Whether something was stored."""

    def put(self, address: Address, found: Checkpointed) -> None:
        """Add a checkpoint."""
        parent = found.key.parent_id or None
        wanted = Put(address, found.checkpoint, found.metadata, parent, parent)
        self._waiting.append(wanted)
        self._size += found.size

    def write(self, address: Address, found: PendingWrite) -> None:
        """Add a pending write."""
        numbered = [(found.idx, found.channel, found.value)]
        self._waiting.append(Writes(address, found.task_id, found.task_path, numbered))
        self._size += found.size

    def flush_if_full(self) -> None:
        """Store the batch if it is large."""
        if len(self._waiting) >= _MOST_TOGETHER or self._size >= _MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Store the batch."""
        if not self._waiting:
            return
        self._thread.land_all(self._waiting)
        for one in self._waiting:
            if one.error is not None:
                self._done.leave(_refused(self._id, one))
                self._left.add((self._id, one.address))
                continue
            self.stored = True
            if isinstance(one, Put):
                self._done.checkpoints += 1
            else:
                self._done.writes += len(one.writes)
        self._waiting, self._size = [], 0


def _refused(id: str, wanted: Put | Writes) -> LeftOut:
    """Handles a value without an exact stored form."""
    error = wanted.error
    if not isinstance(error, RopewalkError):
        assert error is not None
        raise error
    what = "the checkpoint"
    if isinstance(wanted, Writes):
        what = f"the write {wanted.writes[0][0]} of task {wanted.task_id}"
    return LeftOut("not_storable", id, *wanted.address, what, str(error))


def _by_checkpoint(keys: Iterable[WriteKey]) -> dict[tuple[str, str], list[WriteKey]]:
    found: defaultdict[tuple[str, str], list[WriteKey]] = defaultdict(list)
    for key in keys:
        found[key.namespace, key.checkpoint_id].append(key)
    return dict(found)


def lookup_in(types: GraphTypes) -> Lookup:
    """A lookup of the classes that a saver knows, by module and name."""
    own = {(cls.__module__, cls.__name__): cls for cls in BUILT_IN._by_class}

    def find(module: str, name: str) -> type[Any] | None:
        entry = types.find(f"{module}.{name}")
        return own.get((module, name)) if entry is None else entry.cls

    return find


class Comparing(Codec):
    """Decodes the source for comparison: objects of known classes, and others in stored form."""

    def __init__(self, types: GraphTypes) -> None:
        super().__init__(types.registry, classes=types.registry.classes, undeclared="show")
        self.types = types

    def decoder(self, link: Callable[[bytes], Any] = no_links) -> Decoder:
        """The decoder for this codec."""
        return _ComparingDecoder(self, link)


class _ComparingDecoder(Decoder):
    def _stranger(self, code: Code, head: list[Any], content: Any) -> Any:
        assert isinstance(self._codec, Comparing)
        entry = self._codec.types.find(class_name(head[0])) if is_deferred(head[0]) else None
        if entry is not None:
            with suppress(Exception):  # Then it was kept as stored, as now.
                return rebuild(entry.cls, content)
        return super()._stranger(code, head, content)


class There:
    """The existing content of a thread."""

    def __init__(self, thread: GraphThread, codec: Codec) -> None:
        self._thread, self._log = thread, thread.look()
        self._reader = History.of(self._log.read, codec)

    def has(self, address: Address) -> bool:
        """Whether a checkpoint exists."""
        return self._log.find(address).put is not None

    def is_same(self, address: Address, found: Checkpointed) -> bool:
        """Whether an equal checkpoint exists: the last one may be written again."""
        put = self._log.find(address).put
        if put is None:
            return False
        step = self._log.step(put)
        record = self._reader.record(step)
        said = {name: one for name, one in found.checkpoint.items() if name != "channel_values"}
        return (record.checkpoint, step.parent) == (said, found.key.parent_id) and (
            record.metadata == found.metadata
        )

    def writes(self, address: Address) -> set[tuple[str, int]]:
        """The tasks and indexes of the pending writes."""
        found = self._reader.writes(self._log.writes(self._log.find(address), address))
        return {(task, number) for _, task, number, _, _ in found}

    def difference(
        self,
        address: Address,
        codec: Codec,
        wanted: Checkpointed | LeftOut,
        writes: list[PendingWrite | LeftOut],
    ) -> str | None:
        """A description of how stored data differs from its source; None if it does not."""
        place = self._log.find(address)
        if place.put is None:
            return "it is not there"
        assert isinstance(wanted, Checkpointed)
        if not self.is_same(address, wanted):
            return "its versions or its metadata are others"
        reader, step = History.of(self._log.read, codec), self._log.step(place.put)
        encode = codec.encode
        values = {name: encode(one) for name, one in reader.values(step).items()}
        expected = {name: encode(one) for name, one in wanted.checkpoint["channel_values"].items()}
        if values != expected:
            others = [
                name for name in {**expected, **values} if values.get(name) != expected.get(name)
            ]
            return f"the channels {', '.join(others):.200} are others"
        return _other_writes(reader.writes(self._log.writes(place, address)), writes, encode)


def _other_writes(
    found: Iterable[tuple[str, str, int, str, Any]],
    wanted: Iterable[PendingWrite | LeftOut],
    encode: Callable[[Any], bytes],
) -> str | None:
    there = {(path, task, number, name, encode(value)) for path, task, number, name, value in found}
    for one in wanted:
        if isinstance(one, LeftOut):
            continue
        if (one.task_path, one.task_id, one.idx, one.channel, encode(one.value)) not in there:
            return f"the write {one.idx} of task {one.task_id} is another one"
    return None
