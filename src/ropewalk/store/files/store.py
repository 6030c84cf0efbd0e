"""A store of plain files in a folder: easy to inspect, easy to copy.

ropewalk.json            the id and format of the store
lock                     the write lock
objects/ab/cdef...       shared objects, by their hash
spaces/TENANT/NAME/      a space: its log, its segments, its leases
new/                     files under temporary names
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from os import PathLike
from pathlib import Path
from typing import Final, Literal, TypeVar, Unpack

from ropewalk.errors import (
    Corrupt,
    FormatError,
    MissingObjects,
    RopewalkError,
)
from ropewalk.store.collection import Sweep, names_of, touches, unreached
from ropewalk.store.contract import StoreOptions
from ropewalk.store.files import formats
from ropewalk.store.files.lock import LOCK, Lock, WriteLock
from ropewalk.store.files.objects import Objects
from ropewalk.store.files.space import Space
from ropewalk.store.files.spaces import Spaces
from ropewalk.store.folder import FolderStore, no_store, system_errors
from ropewalk.store.log import expect_allowed, expect_refs, shared_frame
from ropewalk.store.model import (
    REMEMBERED_WRITES,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
)
from ropewalk.store.quota import Usage
from ropewalk.store.record import GROUP, Append, Place, Row, same_group
from ropewalk.store.segment import Packed, commit_name, key_name
from ropewalk.tree.objects import Object, ObjectId

T = TypeVar("T")

_LINE_BYTES: Final = 512  # Approximate overhead of a record in its log, besides its frame.
_OURS: Final = {
    LOCK, formats.HEADER, formats.LIST, formats.OBJECTS, formats.SPACES, formats.NEW,
}  # fmt: skip


class FileStore(FolderStore):
    """A store of plain files in a folder, for several processes and threads at once.

    The folder is created if it does not exist; its parent must. With `create=False` nothing is
    created, and `NotFound` is raised if there is no store. With `durability="full"` a commit that
    returned survives a power loss. With `"relaxed"` a power loss may undo the last moments, but
    never leaves half a commit; the end of a process, even a killed one, loses nothing in either
    case.

    A commit that would make the folder larger than `size_limit` bytes raises `StoreFull`, with
    nothing written. One that waited `busy_seconds` for other writers raises `Unavailable`. Readers
    never wait.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        durability: Literal["full", "relaxed"] = "full",
        busy_seconds: float = 30.0,
        create: bool = True,
        **options: Unpack[StoreOptions],
    ) -> None:
        options.setdefault("backend_id", "file")
        super().__init__(path, durability, **options)
        self._lock = WriteLock(self.path, busy_seconds)
        self._objects = Objects(self.path, self._disk)
        self._log = Spaces(self.path, self._disk, durability)
        self._usage = Usage(self.path, self.size_limit)
        self._place: tuple[int, int, int] | None = None
        """Which file the header is."""
        try:
            with system_errors(self.path):
                self._header = self._open(create)
        except BaseException:
            self._lock.close()
            raise

    # Opening and closing.

    def _open(self, create: bool) -> Header:
        if self.path.exists() and not self.path.is_dir():
            raise FormatError(f"{self.path} is a file. A store is a folder; choose another name.")
        if not (self.path / formats.HEADER).exists():
            if not create:
                raise no_store(self.path)
            self._disk.make_folder(self.path)
            self._expect_ours()
            with self._lock.held() as lock:
                if not (self.path / formats.HEADER).exists():
                    with self._changing(lock):
                        self._create()
        return formats.read_header(self.path / formats.HEADER)

    def _expect_ours(self) -> None:
        others = sorted(set(os.listdir(self.path)) - _OURS)
        if others:
            raise FormatError(
                f"{self.path} is not a store of plain files: it holds {others[0]!r}. Nothing was "
                "changed; choose an empty folder, or a name that is free."
            )

    def _create(self) -> None:
        """Create an empty store; the header comes last, when everything else is durable."""
        for name in (formats.OBJECTS, formats.SPACES, formats.NEW):
            self._disk.make_folder(self.path / name)
        self._disk.sync_folder(self.path)
        header = self.path / formats.HEADER
        formats.replace_file(self._disk, self.path, header, formats.encode_header())
        self._sync_own_name()

    def _close(self) -> None:
        self._close_packer()
        # With `relaxed`, unsynced names may be lost with the power.
        with suppress(RopewalkError, OSError):
            if self._durability == "relaxed":
                with self._writing():
                    self._log.sync_relaxed()
        self._log.note_ends()
        self._lock.close()

    # The write lock.

    @contextmanager
    def _writing(self) -> Iterator[Lock]:
        """Hold the write lock, after recovering from unfinished changes."""
        with system_errors(self.path):
            self._expect_there()
        with system_errors(self.path), self._lock.held() as lock:
            unfinished = lock.unfinished()
            if unfinished is not None:
                self._finish(unfinished)
                lock.done()
            yield lock

    def _finish(self, space: str) -> None:
        """Make durable what a writer that was killed or failed had named and written."""
        self._sync_own_name()
        self._disk.sync_folder(self.path)
        self._objects.sync_all()
        if space:
            self._log.sync(space)

    def _sync_own_name(self) -> None:
        with suppress(PermissionError):  # Another process created the folder first.
            self._disk.sync_folder(self.path.parent)

    @contextmanager
    def _changing(self, lock: Lock, space: str = "") -> Iterator[None]:
        """Record that names change, until they are durable. After an error the entry stays."""
        lock.begin(space)
        yield
        lock.done()

    def _expect_there(self) -> None:
        """Raise if the folder is gone, or belongs to another store by now."""
        header = self.path / formats.HEADER
        found = os.stat(header)
        place = found.st_dev, found.st_ino, found.st_mtime_ns
        if place == self._place:
            return
        if formats.read_header(header).store_id != self._header.store_id:
            raise Corrupt(
                f"the folder {self.path} holds another store than when it was opened. Nothing was "
                "written: open the store anew to use what is there now."
            )
        self._place = place

    # Committing.

    def _commit(self, batch: Append) -> Operation:
        with self._lock.using(), system_errors(self.path):
            staged = self._stage(batch) if batch.shared else {}
            cache = self._space(batch.space)
            dictionary, known = cache.dictionary(batch)
            frame = batch.frame(known)
            try:
                with self._writing() as lock:
                    operation, size = self._append(batch, dictionary, frame, staged, lock)
            finally:
                self._disk.discard([path for path in staged.values() if path.exists()])
        if batch.recorded is None:
            self._landed(batch, operation.sequence)
            if self._listeners.wakes:
                self._listeners.wake(batch.space)
            self._watch_tail(cache, batch.space, operation.sequence, size)
        return operation

    def _stage(self, batch: Append) -> Mapping[ObjectId, Path]:
        """Write missing shared objects before taking the write lock."""
        if batch.fresh:  # An early check, so that a commit bound to fail does not take the lock.
            with self._space_at(batch.space) as space:
                expect_refs(batch, space.refs)
        there = self._objects.present(batch.shared)
        absent = [(id, shared_frame(one)) for id, one in batch.shared.items() if id not in there]
        self._usage.take(sum([len(frame) for _, frame in absent]))
        return self._objects.stage(absent)

    def _append(
        self,
        batch: Append,
        dictionary: int | None,
        frame: bytes,
        staged: Mapping[ObjectId, Path],
        lock: Lock,
    ) -> tuple[Operation, int]:
        """Append a record under the write lock: check, decide, write."""
        with self._log.looking(batch.space) as space:
            tail = space.tail()
            refs = {move.name: space.refs[move.name] for move in batch.moves
                    if move.name in space.refs}  # fmt: skip
        recorded = None
        if not batch.fresh:
            after = max(tail.sequence - REMEMBERED_WRITES, 0)
            latest = self._newest_first(batch.space, after, tail.sequence)
            recorded = self._find_write(batch, latest)
        if recorded is not None:
            if self._durability == "full":
                self._log.sync(batch.space)
            batch.recorded = recorded
            return recorded, 0
        leases = self._log.leases(batch.space).records if batch.fences else {}
        packing = tail.packing
        expect_allowed(batch, leases, refs, packing.epoch)
        absent = self._absent(batch)
        sequence = tail.sequence + 1
        if dictionary is not None and not (
            same_group(sequence, dictionary) and packing.packed < dictionary < sequence
        ):  # It was packed, or is in another group.
            dictionary, frame = None, batch.frame(None)
        if batch.objects:  # A commit without objects may be what frees space.
            self._usage.take(len(frame) * 4 // 3 + _LINE_BYTES)
        names_change = bool(absent) or tail.end == 0
        with self._changing(lock, batch.space) if names_change else nullcontext():
            if absent:
                self._objects.install(absent, staged)
            size = self._log.append(tail, batch, dictionary, frame)
        done = Operation(
            batch.space, sequence, batch.moves, batch.write_id, batch.time, packing.epoch,
            batch.metadata,
        )  # fmt: skip
        return done, size

    def _absent(self, batch: Append) -> list[Object]:
        """Missing shared objects; raises `MissingObjects` for links to absent ones."""
        if not batch.names and not batch.shared:
            return []
        there = self._objects.present(batch.names.union(batch.shared))
        if gone := batch.names.difference(batch.shared) - there:
            raise MissingObjects(sorted(gone))
        return [one for id, one in batch.shared.items() if id not in there]

    # The log.

    @contextmanager
    def _space_at(self, name: str) -> Iterator[Space]:
        with system_errors(self.path):
            self._expect_there()
            with self._log.looking(name) as space:
                yield space

    def _ask(self, name: str, question: Callable[[Space], T]) -> T:
        with system_errors(self.path):
            self._expect_there()
            return self._log.ask(name, question)

    def _epoch(self, space: str) -> int:
        with self._space_at(space) as found:
            return found.packing.epoch

    def _span(self, space: str) -> tuple[int, int]:
        with self._space_at(space) as found:
            return found.packing.packed, found.sequence

    def _rows(self, space: str, first: int, last: int) -> list[Row]:
        return self._ask(space, lambda found: found.rows(first, last))

    def _load(self, space: str, sequence: int) -> list[Row] | Packed | None:
        first = (sequence - 1) // GROUP * GROUP + 1

        def question(found: Space) -> list[Row] | Packed | None:
            if sequence > found.packing.packed:
                return found.rows(first, sequence)
            return found.segment(sequence)

        return self._ask(space, question)

    def _locate(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, int]:
        names = [commit_name(id) for id in ids]
        try:
            found = self._ask(space, lambda found: found.indexed(names))
        except FormatError:
            return {}  # Then all records are scanned.
        return {id: some[-1] for id, some in zip(ids, found, strict=True) if some}

    def _find(self, space: str, key: bytes) -> list[int]:
        def question(found: Space) -> list[int]:
            (packed,) = found.indexed([key_name(key)])
            return packed + [one.sequence for one in found.entries if one.key == key]

        try:
            return self._ask(space, question)
        except FormatError:
            return super()._find(space, key)  # By scanning all records.

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        with self._space_at(space) as found:
            return found.refs.get(name)

    def _view(self, space: str, prefix: str) -> View:
        with self._space_at(space) as found:
            refs = [ref for ref in found.refs.values() if ref.name.startswith(prefix)]
            return View(found.sequence, found.packing.epoch, tuple(sorted(refs)))

    def _spaces(self, prefix: str) -> list[str]:
        with system_errors(self.path):
            self._expect_there()
            return self._log.names(prefix)

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        with system_errors(self.path):
            self._expect_there()
            return self._log.leases(space).records.get(name)

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        with system_errors(self.path):
            self._expect_there()
            records = self._log.leases(space).records
        return sorted(one for name, one in records.items() if name.startswith(prefix))

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        with self._lock.using(), self._writing() as lock:
            leases = self._log.leases(space)
            if leases.records.get(name) != expected:
                return None
            granted = LeaseRecord(name, holder, leases.tokens + 1, 0, duration)
            changed = formats.Leases(granted.token, {**leases.records, name: granted})
            with self._changing(lock, space):
                # A token is never reused, so it is durable before it is given out.
                self._log.write_leases(space, changed, sync=True)
            return granted

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        with self._lock.using(), self._writing():
            leases = self._log.leases(space)
            if leases.records.get(expected.name) != expected:
                return False
            records = dict(leases.records)
            del records[expected.name]
            if record is not None:
                records[record.name] = record
            changed = formats.Leases(leases.tokens, records)
            self._log.write_leases(space, changed, sync=False)
            return True

    # Segments and collection. A segment is written before taking the write lock, and referenced
    # under it. Segments that end up unreferenced are removed later.

    def _settle(
        self, space: str, packed: Packed, commits: Sequence[tuple[ObjectId, Place]]
    ) -> bool:
        with self._lock.using(), system_errors(self.path):
            self._expect_there()
            segment = self._log.write_segment(space, packed)
            with self._writing() as lock, self._changing(lock, space):
                done = self._log.pack(space, segment, commits)
            if not done:
                self._log.discard(space, [segment])
        return done

    def _replace(self, space: str, found: Sweep) -> bool:
        gone = {id for id, _ in found.gone}
        with self._lock.using(), system_errors(self.path):
            self._expect_there()
            segments = [self._log.write_segment(space, one) for one in found.replaced]
            with self._writing() as lock, self._changing(lock, space):
                since = self._records_after(space, found.last, self._span(space)[1])
                done = not touches(since, found.dead, gone) and self._log.replace(
                    space, found.epoch, segments, found.named | names_of(since)
                )
            if not done:
                self._log.discard(space, segments)
        return done

    def _names_more(self, space: str, named: set[ObjectId]) -> bool:
        return self._ask(space, lambda found: not found.packed_names() <= named)

    # Shared objects.

    def _read_shared(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        with system_errors(self.path):
            found = self._objects.frames(ids)
            if len(found) < len(ids):
                self._expect_there()
            return found

    def _present_shared(self, ids: Sequence[ObjectId]) -> set[ObjectId]:
        with system_errors(self.path):
            self._expect_there()
            return self._objects.present(ids)

    def _leading_shared(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        with system_errors(self.path):
            return self._objects.leading(ids)

    def _scan_shared(self) -> Iterator[Stored]:
        with system_errors(self.path):
            self._expect_there()
            yield from self._objects.scan()

    def _count_shared(self) -> tuple[int, int]:
        sizes = [one.stored for one in self._scan_shared()]
        return len(sizes), sum(sizes)

    def _collect_shared(self, named: set[ObjectId] | None) -> tuple[int, int]:
        there = {one.id: one.stored for one in self._scan_shared()}
        doomed = unreached(self, there, self._named() if named is None else named)
        if named is None:
            with self._lock.using(), self._writing():
                if doomed:  # A commit may reference some of them by now.
                    doomed = unreached(self, there, self._named())
                self._objects.remove(doomed)
                self._objects.remove_orphans()
            for space in self._spaces(""):
                with self._lock.using(), self._writing():
                    self._log.remove_orphans(space)
        return len(doomed), sum(doomed.values())

    def _discard(self, ids: Sequence[ObjectId]) -> None:
        with self._lock.using(), self._writing():
            self._objects.discard(ids)

    def _named(self) -> set[ObjectId]:
        """The shared objects that spaces reference."""
        return set[ObjectId]().union(*[self._ask(space, Space.names) for space in self._spaces("")])

    # Care.

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        with system_errors(self.path):
            yield from self._log.examine()
