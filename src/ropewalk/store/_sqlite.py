"""The embedded store: one folder with an SQLite database, for one machine."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from ropewalk.errors import Corrupt, FormatError, InvalidInput
from ropewalk.store import _sqlite_collection as care
from ropewalk.store import _sqlite_packs as packs
from ropewalk.store import _sqlite_schema as schema
from ropewalk.store import _sqlite_spaces as spaces
from ropewalk.store import _sqlite_wal as wal
from ropewalk.store._aside import Scratch, TextIndex
from ropewalk.store._contract import Store
from ropewalk.store._decide import Batch, Decision, Presence, decide
from ropewalk.store._file_usage import folder_bytes
from ropewalk.store._filesystem import Filesystem
from ropewalk.store._framing import DEFAULT_CACHE_BYTES
from ropewalk.store._listeners import Listeners
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
from ropewalk.store._room import expect_room
from ropewalk.store._sqlite_database import DATABASE, Database
from ropewalk.store._sqlite_errors import translated
from ropewalk.store._sqlite_group import Transaction
from ropewalk.store._sqlite_index import Moment, open_moment
from ropewalk.store._sqlite_scratch import SqliteScratch
from ropewalk.store._sqlite_side import SideFile
from ropewalk.store._sqlite_words import SqliteTextIndex
from ropewalk.store._system_errors import no_store
from ropewalk.tree._objects import ID_SIZE, ObjectId

R = TypeVar("R")

PACKS = "packs"
RELAXED = "store.relaxed"
"""An empty file that marks a store once written without syncing, where a torn log is no proof."""

_SCANNED_AT_A_TIME = 1000
_CHANGED_AT_A_TIME = 10_000


class SqliteStore(Store):
    """A store in a folder of one machine, for several processes and threads at once.

    The folder is made if it is not there; the one that it is in must exist. With
    `create=False` nothing is made, and `NotFound` says that there is no store. With
    `durability="full"` a commit that returned survives a power loss. With `"relaxed"`
    the last moments before a power loss may be gone, but nothing is ever half there;
    the end of a process, even a killed one, takes nothing in either case.

    With a `size_limit`, a commit whose objects would take the store over so many bytes
    raises `StoreFull`. What counts is what is in use: the pages of the database that hold
    something, and the files of large packs.

    A commit waits for other writers, at most `busy_seconds`; then it is `Unavailable`.
    Reading waits for nobody.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    poll_seconds: ClassVar[float | None] = 0.02

    # What tests of crashes put their own in the place of.
    _disk: ClassVar[Filesystem] = Filesystem()
    _vfs: ClassVar[str | None] = None
    """The name of SQLite's own layer for files; None is its default."""

    def __init__(  # noqa: PLR0913 - each by name
        self,
        path: str | PathLike[str] = ".ropewalk",
        *,
        durability: Literal["full", "relaxed"] = "full",
        size_limit: int | None = None,
        busy_seconds: float = 30.0,
        backend_id: str = "sqlite",
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
        self._packs = self.path / PACKS
        self._listeners = Listeners()
        self._database = Database(
            self.path, durability, busy_seconds, self._vfs, before_writing=self._sync_log
        )
        self._side = SideFile(self.path, self._vfs)
        try:
            self._header = self._open(create)
        except BaseException:
            self._database.close()
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
        with translated(self.path):
            self._expect_whole()
            self._make_folder(create)
            self._examine_log()
        database = self._database
        database.create(schema.is_new, schema.BEFORE_TABLES)
        database.keep_to_file()
        if database.read(schema.is_new):
            if not create:
                raise no_store(self.path)
            self._expect_no_packs()
            # Before anybody can commit to it, the names are safe from a power loss.
            with translated(self.path):
                self._disk.make_folder(self._packs)
                self._disk.sync_folder(self.path)
                self._disk.sync_folder(self.path.parent)
            # Synced at every durability, so that no file of a pack can outlive the tables.
            database.transact(lambda made: schema.create(made.db), through=True)
        return database.read(schema.read_header)

    def _expect_whole(self) -> None:
        """Raise if this is what is left of a store: a new one would look like an empty one."""
        database = self.path / DATABASE
        if _has_bytes(database):
            return
        lost = next(self._packs.glob("*.pack"), None)
        if wal.has_frames(database):
            lost = wal.log_of(database)  # SQLite would remove it.
        if lost is not None and not _has_bytes(database):  # Nobody made it meanwhile.
            raise self._remains(lost)

    def _remains(self, lost: Path) -> Corrupt:
        return Corrupt(
            f"the database of the store in {self.path} is gone or empty, but "
            f"{lost.relative_to(self.path)} still holds what belongs to it. Nothing was changed: "
            f"restore {DATABASE} from a copy, or choose another folder."
        )

    def _examine_log(self) -> None:
        """Raise if a crash cannot have left SQLite's log as it is."""
        relaxed, database = self.path / RELAXED, self.path / DATABASE
        if relaxed.exists():
            return
        if self._durability == "relaxed":
            # It must not be lost with the power when what was written without a sync is not.
            self._disk.append(relaxed, b"", sync=True)
            self._disk.sync_folder(self.path)
        else:
            wal.examine(database)

    def _sync_log(self) -> None:
        """Sync frames that SQLite may have recovered from a writer killed before its sync.

        The next transaction makes them count as durable, so they must be before it is written.
        """
        database = self.path / DATABASE
        if self._durability == "full" and wal.has_frames(database):
            self._disk.append(wal.log_of(database), b"", sync=True)

    def _make_folder(self, create: bool) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise FormatError(f"{self.path} is a file. A store is a folder; choose another name.")
        if not create and not _has_bytes(self.path / DATABASE):
            raise no_store(self.path)
        self._disk.make_folder(self.path)

    def _expect_no_packs(self) -> None:
        with translated(self.path):
            lost = next(self._packs.glob("*.pack"), None)
        if lost is not None and self._database.read(schema.is_new):  # Nobody made it meanwhile.
            raise self._remains(lost)

    def _close(self) -> None:
        self._side.close()
        self._database.close()

    # Beside history: in a database of its own, so that nobody waits for it who commits.

    def _make_text_index(self) -> TextIndex:
        return SqliteTextIndex(self._side)

    def _make_scratch(self) -> Scratch:
        return SqliteScratch(self._side)

    # Objects.

    def _frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        gone: set[str] = set()
        while True:
            read = self._at_one_moment(lambda moment: packs.read_frames(moment, self._packs, ids))
            # A file may be moved by a collection after we learned of it: then a second look
            # leads elsewhere. If it leads to the same place, the file is lost.
            if read.gone <= gone:
                return read.frames
            gone = read.gone

    def _presence(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Presence]:
        return self._at_one_moment(lambda moment: moment.presence(ids))

    # Commits.

    def _commit(self, batch: Batch) -> Operation:
        size = sum(len(one.frame) for one in batch.frames)
        ahead = self._write_ahead(batch) if size > packs.LARGE else None
        decision = self._database.transact(partial(self._land_batch, batch, ahead), size)
        if not decision.repeated:
            self._listeners.wake(batch.space)
        return decision.operation

    def _write_ahead(self, batch: Batch) -> packs.Ahead | None:
        """Put a large pack into a file, before others have to wait for it."""
        present = self._presence([one.id for one in batch.frames])
        frames = [one for one in batch.frames if one.id not in present or present[one.id].condemned]
        size = sum(len(one.frame) for one in frames)
        if size <= packs.LARGE:
            return None
        self._database.read(partial(self._check_room, size))
        with translated(self.path):
            return packs.write_ahead(self._disk, self._packs, frames)

    def _land_batch(
        self, batch: Batch, ahead: packs.Ahead | None, transaction: Transaction
    ) -> Decision:
        try:
            db, moment = transaction.db, transaction.shared
            assert moment is None or isinstance(moment, Moment)
            looked = spaces.look(db, self._database.tails(), moment, batch)
            transaction.shared = looked.moment
            decision = decide(batch, looked.facts)
            if not decision.repeated:
                if self._size_limit is not None and decision.frames:
                    self._check_room(sum(len(one.frame) for one in decision.frames), db)
                spaces.apply(looked, batch, decision, ahead)
                return decision
        except BaseException:
            self._discard(ahead)
            raise
        self._discard(ahead)
        return decision

    def _discard(self, ahead: packs.Ahead | None) -> None:
        if ahead is not None:
            self._disk.discard([ahead.path])

    def _check_room(self, size: int, db: sqlite3.Connection) -> None:
        if self._size_limit is not None:
            expect_room(schema.used_bytes(db), size, self._size_limit)

    def _at_one_moment(self, ask: Callable[[Moment], R]) -> R:
        return self._database.read(lambda db: ask(open_moment(db, self._database.tails())))

    def _changing(self, work: Callable[[Moment], R], *, through: bool = False) -> R:
        return self._database.transact(
            lambda transaction: work(self._moment_of(transaction)), through=through
        )

    def _moment_of(self, transaction: Transaction) -> Moment:
        if transaction.shared is None:
            transaction.shared = open_moment(transaction.db, self._database.tails())
        assert isinstance(transaction.shared, Moment)
        return transaction.shared

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        row = self._database.read_once(
            lambda db: db.execute(
                "SELECT refs.name, target, sequence FROM refs JOIN spaces ON number = space "
                "WHERE spaces.name = ? AND refs.name = ?",
                (space, name),
            ).fetchone()
        )
        return None if row is None else Ref(*row)

    def _view(self, space: str, prefix: str) -> View:
        def ask(moment: Moment) -> View:
            found = spaces.find_space(moment, space)
            rows = moment.db.execute(
                "SELECT name, target, sequence FROM refs "
                "WHERE space = ? AND name >= ? AND name < ? ORDER BY name",
                (found.number, prefix, prefix + spaces.AFTER_NAMES),
            )
            refs = tuple(Ref(*row) for row in rows)
            spaces.expect_logged(
                space, found.sequence, max((ref.sequence for ref in refs), default=0)
            )
            return View(found.sequence, moment.epoch, refs)

        return self._at_one_moment(ask)

    def _spaces(self, prefix: str) -> list[str]:
        return self._at_one_moment(lambda moment: spaces.spaces_with_operations(moment, prefix))

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        return self._at_one_moment(
            lambda moment: spaces.read_operations(moment, space, after, limit)
        )

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Wakes for what this store object commits; what others commit is looked for."""
        return self._listeners.add(space, wake)

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        return self._database.read(
            lambda db: spaces.read_lease(db, spaces.space_number(db, space), name)
        )

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        rows = self._database.read_once(
            lambda db: db.execute(
                "SELECT leases.name, holder, token, beat, duration FROM leases "
                "JOIN spaces ON number = space "
                "WHERE spaces.name = ? AND leases.name >= ? AND leases.name < ? "
                "ORDER BY leases.name",
                (space, prefix, prefix + spaces.AFTER_NAMES),
            ).fetchall()
        )
        return [spaces.lease_record(*row) for row in rows]

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        def work(db: sqlite3.Connection) -> LeaseRecord | None:
            number = spaces.make_space(db, space)
            if spaces.read_lease(db, number, name) != expected:
                return None
            db.execute("UPDATE spaces SET tokens = tokens + 1 WHERE number = ?", (number,))
            row = db.execute("SELECT tokens FROM spaces WHERE number = ?", (number,)).fetchone()
            granted = LeaseRecord(name, holder, row[0], 0, duration)
            spaces.write_lease(db, number, granted)
            return granted

        return self._database.write(work)

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            number = spaces.space_number(db, space)
            if number is None or spaces.read_lease(db, number, expected.name) != expected:
                return False
            if record is None:
                db.execute(
                    "DELETE FROM leases WHERE space = ? AND name = ?", (number, expected.name)
                )
            else:
                spaces.write_lease(db, number, record)
            return True

        return self._database.write(work)

    # Collection.

    def _scan(self) -> Iterator[Stored]:
        after: int | None = 0
        seen = bytearray()
        while after is not None:
            page = self._database.read(
                partial(packs.scan_after, after=after, limit=_SCANNED_AT_A_TIME)
            )
            after = page.last
            # What a collection moves to the end of the log meanwhile must not come twice.
            known = _ids(seen) if page.moved else set()
            for one in page.stored:
                if one.id not in known:
                    seen += one.id
                    yield one

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        if read_data:
            for problem in self._database.read(schema.find_damage):
                yield str(self.path / DATABASE), problem

    def _disk_bytes(self) -> int:
        return folder_bytes(self.path)

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        for some in _portions(ids):
            self._changing(partial(care.condemn, ids=some, collection=collection))

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        for some in _portions(ids):
            self._database.write(partial(care.revive, ids=some))

    def _revive_bases(self) -> None:
        self._changing(care.revive_bases)

    def _raise_epochs(self) -> int:
        def work(moment: Moment) -> int:
            moment.epoch += 1
            moment.db.execute("UPDATE facts SET epoch = ?", (moment.epoch,))
            return moment.epoch

        return self._changing(work)

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        self._database.write(lambda db: care.remove_orphans(db, self._disk, self._packs))
        gone: list[ObjectId] = []
        for some in _portions(ids):
            delete = partial(
                care.delete_objects,
                disk=self._disk,
                folder=self._packs,
                ids=some,
                collection=collection,
            )
            # Files are removed after it, for good: a power loss must not bring back rows that
            # name them.
            deleted = self._changing(delete, through=True)
            self._disk.discard(self._packs / file for file in deleted.files)
            gone += deleted.ids
        if gone:
            self._give_back_pages()
        return gone

    def _give_back_pages(self) -> None:
        while self._database.write(care.give_back_pages):
            pass  # In portions, so that others can write in between.


def _has_bytes(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def _ids(joined: bytearray) -> set[ObjectId]:
    return {bytes(joined[at : at + ID_SIZE]) for at in range(0, len(joined), ID_SIZE)}


def _portions(ids: Sequence[ObjectId]) -> Iterator[Sequence[ObjectId]]:
    """Few at a time, so that a large collection lets others write in between."""
    for start in range(0, len(ids), _CHANGED_AT_A_TIME):
        yield ids[start : start + _CHANGED_AT_A_TIME]
