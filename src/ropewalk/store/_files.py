"""A store of plain files in a folder: easy to look at, easy to copy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import ClassVar, Literal

from ropewalk.errors import Corrupt, FormatError, InvalidInput, RopewalkError
from ropewalk.store import _file_paths as paths
from ropewalk.store import _file_small as small
from ropewalk.store._decide import Batch, Decision, Facts, Presence, Recorded, decide
from ropewalk.store._file_lock import LOCK, TURN, Lock, WriteLock
from ropewalk.store._file_objects import Objects
from ropewalk.store._file_spaces import Spaces
from ropewalk.store._file_state import State
from ropewalk.store._file_usage import Usage, folder_bytes
from ropewalk.store._filesystem import Filesystem
from ropewalk.store._framing import DEFAULT_CACHE_BYTES
from ropewalk.store._listeners import Listeners
from ropewalk.store._object_store import ObjectStore
from ropewalk.store._records import (
    Capabilities,
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
)
from ropewalk.store._system_errors import no_store, system_errors
from ropewalk.tree.objects import ObjectId

_CHANGED_AT_A_TIME = 1000
_LINE_BYTES = 512  # About what an operation takes in its log.
_OURS = {
    LOCK, TURN, paths.HEADER, paths.EPOCH, paths.OBJECTS, paths.SPACES, paths.NEW,
    paths.COLLECTIONS,
}  # fmt: skip


class FileStore(ObjectStore):
    """A store of plain files in a folder, for several processes and threads at once.

    The folder is made if it is not there; the one that it is in must exist. With
    `create=False` nothing is made, and `NotFound` says that there is no store. With
    `durability="full"` a commit that returned survives a power loss. With `"relaxed"`
    the last moments before a power loss may be gone, but nothing is ever half there;
    the end of a process, even a killed one, takes nothing in either case.

    A commit that would make the folder larger than `size_limit` bytes is `StoreFull`, with
    nothing written. One that waited `busy_seconds` for other writers is `Unavailable`.
    Reading waits for nobody.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    poll_seconds: ClassVar[float | None] = 0.02

    # What tests of crashes put their own in the place of.
    _disk: ClassVar[Filesystem] = Filesystem()

    def __init__(  # noqa: PLR0913 - each has a default
        self,
        path: str | PathLike[str],
        *,
        durability: Literal["full", "relaxed"] = "full",
        size_limit: int | None = None,
        busy_seconds: float = 30.0,
        backend_id: str = "file",
        backend_aliases: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        threads: int = 16,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        create: bool = True,
        default_ttl_seconds: float | None = None,
    ) -> None:
        super().__init__(
            backend_id=backend_id,
            backend_aliases=backend_aliases,
            clock=clock,
            threads=threads,
            cache_bytes=cache_bytes,
            size_limit=size_limit,
            default_ttl_seconds=default_ttl_seconds,
        )
        if durability not in ("full", "relaxed"):
            raise InvalidInput(f"durability is 'full' or 'relaxed', not {durability!r}")
        self.path = Path(path).absolute()
        self._durability: Durability = durability
        self._listeners = Listeners()
        self._lock = WriteLock(self.path, busy_seconds)
        self._objects = Objects(self.path, self._disk)
        self._log = Spaces(self.path, self._disk, durability)
        self._usage = Usage(self.path, size_limit)
        self._place: tuple[int, int, int] | None = None
        """Which file the header is."""
        try:
            with system_errors(self.path):
                self._header = self._open(create)
        except BaseException:
            self._lock.close()
            raise

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""
        return self._durability

    # Opening and closing.

    def _open(self, create: bool) -> Header:
        if self.path.exists() and not self.path.is_dir():
            raise FormatError(f"{self.path} is a file. A store is a folder; choose another name.")
        if not (self.path / paths.HEADER).exists():
            if not create:
                raise no_store(self.path)
            self._disk.make_folder(self.path)
            self._expect_ours()
            with self._lock.held() as lock:
                if not (self.path / paths.HEADER).exists():
                    with self._changing(lock):
                        self._create()
        return small.read_header(self.path / paths.HEADER)

    def _expect_ours(self) -> None:
        others = sorted(set(os.listdir(self.path)) - _OURS)
        if others:
            raise FormatError(
                f"{self.path} is not a store of plain files: it holds {others[0]!r}. Nothing was "
                "changed; choose an empty folder, or a name that is free."
            )

    def _create(self) -> None:
        """Make an empty store; the header comes last, when all else is durable."""
        for name in (paths.OBJECTS, paths.SPACES, paths.COLLECTIONS, paths.NEW):
            self._disk.make_folder(self.path / name)
        epoch, header = self.path / paths.EPOCH, self.path / paths.HEADER
        if not epoch.exists():
            small.replace_file(self._disk, self.path, epoch, small.encode_epoch(1))
        small.replace_file(self._disk, self.path, header, small.encode_header())
        self._sync_own_name()

    def _close(self) -> None:
        # What cannot be synced now may be lost with the power, as `relaxed` says.
        with suppress(RopewalkError, OSError):
            if self._durability == "relaxed":
                with self._writing():
                    self._log.sync_relaxed()
        self._lock.close()

    # The right to write.

    @contextmanager
    def _writing(self) -> Iterator[Lock]:
        """Be the only one who changes the folder, after all that was begun is settled."""
        with system_errors(self.path):
            self._expect_there()
        with system_errors(self.path), self._lock.held() as lock:
            unfinished = lock.unfinished()
            if unfinished is not None:
                self._settle(unfinished)
                lock.done()
            yield lock

    def _settle(self, space: str) -> None:
        """Make durable what somebody named and wrote who was killed, or met an error."""
        self._sync_own_name()
        self._disk.sync_folder(self.path)
        self._objects.sync_all()
        if space:
            self._log.sync(space)

    def _sync_own_name(self) -> None:
        with suppress(PermissionError):  # Then somebody else made the folder for us.
            self._disk.sync_folder(self.path.parent)

    @contextmanager
    def _changing(self, lock: Lock, space: str = "") -> Iterator[None]:
        """Note that names change, until they are durable. After an error the note stays."""
        lock.begin(space)
        yield
        lock.done()

    # Objects.

    def _frames(self, ids: Sequence[ObjectId]) -> Mapping[ObjectId, bytes]:
        with system_errors(self.path):
            found = self._objects.frames(ids)
            if len(found) < len(ids):
                self._expect_there()
            return found

    def _presence(self, ids: Iterable[ObjectId]) -> Mapping[ObjectId, Presence]:
        with system_errors(self.path):
            self._expect_there()
            return self._objects.presence(ids)

    # Commits.

    def _commit(self, batch: Batch) -> Operation:
        with self._lock.using(), system_errors(self.path):
            # A first look spares others a wait for what would be refused anyway, and says
            # what to write before anybody has to wait for it.
            first = decide(batch, self._facts(batch))
            if first.frames:  # Without any, a commit may be what makes room.
                self._usage.take(sum(len(one.frame) for one in first.frames) + _LINE_BYTES)
            staged = self._objects.stage(first.frames)
            try:
                with self._writing() as lock:
                    decision = self._land_batch(batch, staged, lock)
            finally:
                self._disk.discard(path for path in staged.values() if path.exists())
        if not decision.repeated:
            self._listeners.wake(batch.space)
        return decision.operation

    def _land_batch(self, batch: Batch, staged: Mapping[ObjectId, Path], lock: Lock) -> Decision:
        facts = self._facts(batch)
        decision = decide(batch, facts)
        if decision.repeated:
            if self._durability == "full":
                self._log.sync(batch.space)
            return decision
        with self._changing(lock, batch.space):
            self._objects.install(decision.frames, staged, facts.present)
            self._log.append(batch.space, Recorded(batch.digest, decision.operation))
        return decision

    def _facts(self, batch: Batch) -> Facts:
        epoch = self._epoch()
        leases = self._log.leases(batch.space).records if batch.fences else {}
        with self._log.looking(batch.space) as state:
            refs = {move.name: state.refs.get(move.name) for move in batch.moves}
            sequence, recorded = state.sequence, state.recorded(batch.write_id)
        return Facts(
            sequence=sequence,
            epoch=epoch,
            recorded=recorded,
            refs={name: ref.target for name, ref in refs.items() if ref},
            tokens={name: lease.token for name, lease in leases.items()},
            present=self._objects.presence(batch.asks(epoch)),
        )

    def _epoch(self) -> int:
        path = self.path / paths.EPOCH
        try:
            return small.read_epoch(path)
        except FileNotFoundError:
            self._expect_there()
            raise small.damaged(path) from None

    def _expect_there(self) -> None:
        """Raise if the folder is away, or that of another store by now."""
        header = self.path / paths.HEADER
        found = os.stat(header)
        place = found.st_dev, found.st_ino, found.st_mtime_ns
        if place == self._place:
            return
        if small.read_header(header).store_id != self._header.store_id:
            raise Corrupt(
                f"the folder {self.path} holds another store than when it was opened. Nothing was "
                "written: open the store anew to use what is there now."
            )
        self._place = place

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        with self._state(space) as state:
            return state.refs.get(name)

    def _view(self, space: str, prefix: str) -> View:
        with system_errors(self.path):
            self._expect_there()
            while True:
                epoch = self._epoch()
                with self._log.looking(space) as state:
                    sequence, refs = state.sequence, list(state.refs.values())
                if self._epoch() == epoch:
                    break
        found = sorted(ref for ref in refs if ref.name.startswith(prefix))
        return View(sequence, epoch, tuple(found))

    def _spaces(self, prefix: str) -> list[str]:
        with system_errors(self.path):
            self._expect_there()
            return self._log.names(prefix)

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        with self._state(space) as state:
            return state.operations(after, limit)

    @contextmanager
    def _state(self, space: str) -> Iterator[State]:
        with system_errors(self.path):
            self._expect_there()
            with self._log.looking(space) as state:
                yield state

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Wakes for what this store object commits; what others commit is looked for."""
        return self._listeners.add(space, wake)

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
            changed = small.Leases(granted.token, {**leases.records, name: granted})
            with self._changing(lock, space):
                # A token is never given twice, so it is durable before it is given.
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
            self._log.write_leases(space, small.Leases(leases.tokens, records), sync=False)
            return True

    # Collection.

    def _scan(self) -> Iterator[Stored]:
        with system_errors(self.path):
            self._expect_there()
            yield from self._objects.scan()

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        with system_errors(self.path):
            yield from self._log.examine()
            yield from self._objects.examine()

    def _disk_bytes(self) -> int:
        return folder_bytes(self.path)

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        self._sync_logs()
        for some in _portions(ids):
            with self._lock.using(), self._writing() as lock, self._changing(lock):
                self._objects.condemn(some, collection)

    def _sync_logs(self) -> None:
        with self._lock.using(), self._writing():
            self._log.sync_all()

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        for some in _portions(ids):
            with self._lock.using(), self._writing() as lock, self._changing(lock):
                self._objects.revive(some)

    def _raise_epochs(self) -> int:
        with self._lock.using(), self._writing() as lock, self._changing(lock):
            raised = self._epoch() + 1
            epoch = self.path / paths.EPOCH
            small.replace_file(self._disk, self.path, epoch, small.encode_epoch(raised))
            return raised

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        self._sync_logs()
        gone: list[ObjectId] = []
        for some in _portions(ids):
            with self._lock.using(), self._writing():
                gone += self._objects.delete(some, collection)
        with self._lock.using(), self._writing():
            self._objects.tidy()
        return gone


def _portions(ids: Sequence[ObjectId]) -> Iterator[Sequence[ObjectId]]:
    """Few at a time, so that a large collection lets others write in between."""
    for start in range(0, len(ids), _CHANGED_AT_A_TIME):
        yield ids[start : start + _CHANGED_AT_A_TIME]
