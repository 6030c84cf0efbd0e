"""The embedded store: one folder with an SQLite database, for one machine."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import ClassVar, Final, Literal, Unpack

from ropewalk.errors import Corrupt, FormatError, NotAllowed, RopewalkError
from ropewalk.store.collection import Sweep, names_of, touches
from ropewalk.store.contract import StoreOptions
from ropewalk.store.folder import no_store
from ropewalk.store.model import (
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
)
from ropewalk.store.record import GROUP, Place, Row, sequence_of
from ropewalk.store.scratch import Scratch
from ropewalk.store.search_index import TextIndex
from ropewalk.store.segment import Packed
from ropewalk.store.sqlite import packs, schema, wal
from ropewalk.store.sqlite.commit import (
    AFTER_NAMES,
    LOOK,
    SqliteLog,
    damaged_space,
    expect_ref,
    expect_refs,
    expect_unknown,
    find_end,
    insert_space,
    lease_record,
    list_spaces,
    load,
    mark,
    next_number,
    number_of,
    prefix,
    read_lease,
    tail_rows,
    write_lease,
)
from ropewalk.store.sqlite.database import DATABASE, Database, translated
from ropewalk.store.sqlite.schema import LAST, SAID_COLUMNS, SEQUENCE_BITS
from ropewalk.store.sqlite.search_index import SideFile, SqliteScratch, SqliteTextIndex
from ropewalk.tree.objects import ObjectId

RELAXED: Final = "store.relaxed"
"""An empty file that marks a store once written without syncing, where a torn log is no proof."""

_PAGES_AT_A_TIME: Final = 2048


class SqliteStore(SqliteLog):
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
    Reading waits for nobody. A folder that cannot be written to opens for reading.
    """

    _vfs: ClassVar[str | None] = None
    """The name of SQLite's own layer for files, in whose place tests of crashes put their own."""

    def __init__(
        self,
        path: str | PathLike[str] = ".ropewalk",
        *,
        durability: Literal["full", "relaxed"] = "full",
        busy_seconds: float = 30.0,
        create: bool = True,
        **options: Unpack[StoreOptions],
    ) -> None:
        options.setdefault("backend_id", "sqlite")
        super().__init__(path, durability, **options)
        self._packs = self.path / packs.FOLDER
        self._database = Database(
            self.path, durability, busy_seconds, self._vfs, before_writing=self._sync_log
        )
        self._side = SideFile(self.path, self._vfs)
        try:
            self._header = self._open(create)
        except BaseException:
            self._database.close()
            raise

    # Opening and closing.

    def _open(self, create: bool) -> Header:
        database = self._database
        with translated(self.path):
            self._expect_whole()
            self._make_folder(create)
            if self._is_read_only():
                database.open_read_only()
                if database.read(schema.is_new):
                    raise no_store(self.path)
                return database.read(schema.read_header)
            self._examine_log()
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
            database.write(schema.create, through=True)
        return database.read(schema.read_header)

    def _is_read_only(self) -> bool:
        if os.access(self.path, os.W_OK) or not has_bytes(self.path / DATABASE):
            return False
        log = wal.log_of(self.path / DATABASE)
        if wal.has_frames(self.path / DATABASE) and not os.access(
            log.with_name(f"{DATABASE}-shm"), os.R_OK
        ):
            raise NotAllowed(
                f"the store in {self.path} was not closed, and its folder cannot be written to, "
                "so its last commits cannot be read. Copy the folder to where you may write."
            )
        return True

    def _expect_whole(self) -> None:
        """Raise if this is what is left of a store: a new one would look like an empty one."""
        database = self.path / DATABASE
        if has_bytes(database):
            return
        lost = next(self._packs.glob("*.pack"), None)
        if wal.has_frames(database):
            lost = wal.log_of(database)  # SQLite would remove it.
        if lost is not None and not has_bytes(database):  # Nobody made it meanwhile.
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
        if not create and not has_bytes(self.path / DATABASE):
            raise no_store(self.path)
        self._disk.make_folder(self.path)

    def _expect_no_packs(self) -> None:
        with translated(self.path):
            lost = next(self._packs.glob("*.pack"), None)
        if lost is not None and self._database.read(schema.is_new):  # Nobody made it meanwhile.
            raise self._remains(lost)

    def _close(self) -> None:
        if self._close_packer():
            with suppress(RopewalkError):
                if self._database.read(schema.has_many_free_pages):
                    self._give_back_pages()
        self._side.close()
        self._database.close()

    # Beside history: in a database of its own, so that nobody waits for it who commits.

    def _make_text_index(self) -> TextIndex:
        return SqliteTextIndex(self._side)

    def _make_scratch(self) -> Scratch:
        return SqliteScratch(self._side)

    # Shared objects.

    def _read_shared(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        gone: set[str] = set()
        while True:
            read = self._database.read(lambda db: packs.read(db, self._packs, ids))
            # A file may be moved by a collection after we learned of it: then a second look
            # leads elsewhere. If it leads to the same place, the file is lost.
            if read.gone <= gone:
                return read.frames
            gone = read.gone

    def _present_shared(self, ids: Sequence[ObjectId]) -> set[ObjectId]:
        return self._database.read(lambda db: packs.present(db, ids))

    def _leading_shared(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        return self._database.read(lambda db: packs.leading(db, ids))

    def _scan_shared(self) -> Iterator[Stored]:
        after = b""
        while page := self._database.read(partial(packs.scan, after=after)):
            yield from page
            after = page[-1].id

    # The log.

    def _epoch(self, space: str) -> int:
        row = self._database.read(
            lambda db: db.execute("SELECT epoch FROM spaces WHERE name = ?", (space,)).fetchone(),
            once=True,
        )
        return 1 if row is None else row[0]

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        def expect_end(db: sqlite3.Connection) -> None:
            number = number_of(db, space)
            if number is not None:
                expect_refs(db, space, number)

        self._database.read(expect_end)  # That the last record is there, which moved a ref.
        return super()._operations(space, after, limit)

    def _span(self, space: str) -> tuple[int, int]:
        def ask(db: sqlite3.Connection) -> tuple[int, int]:
            number = number_of(db, space)
            if number is None:
                return 0, 0
            between = (number << SEQUENCE_BITS, number << SEQUENCE_BITS | LAST)
            packed, last = (
                db.execute(
                    f"SELECT max(key) FROM {table} WHERE key BETWEEN ? AND ?",  # noqa: S608
                    between,
                ).fetchone()[0]
                for table in ("segments", "tail")
            )
            packed = 0 if packed is None else packed & LAST
            return packed, packed if last is None else last & LAST

        return self._database.read(ask)

    def _rows(self, space: str, first: int, last: int) -> list[Row]:
        return self._database.read(lambda db: tail_rows(db, number_of(db, space), first, last))

    def _load(self, space: str, sequence: int) -> list[Row] | Packed | None:
        return self._database.read(lambda db: load(db, number_of(db, space), sequence))

    def _locate(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, int]:
        def ask(db: sqlite3.Connection) -> dict[ObjectId, int]:
            number = number_of(db, space)
            found: dict[ObjectId, int] = {}
            for id in ids if number is not None else ():
                for (key,) in db.execute("SELECT key FROM commits WHERE prefix = ?", (prefix(id),)):
                    if key >> SEQUENCE_BITS == number:
                        found[id] = key & LAST
            return found

        return self._database.read(ask)

    def _find(self, space: str, key: bytes) -> list[int]:
        def ask(db: sqlite3.Connection) -> list[int]:
            number = number_of(db, space)
            if number is None:
                return []
            low, high = number << SEQUENCE_BITS, number << SEQUENCE_BITS | LAST
            rows = db.execute(
                "SELECT key FROM keys WHERE find = ? AND key BETWEEN ? AND ? UNION "
                "SELECT key FROM tail WHERE key BETWEEN ? AND ? AND find = ? ORDER BY key",
                (key, low, high, low, high, key),
            )
            return [found & LAST for (found,) in rows]

        return self._database.read(ask)

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        def ask(db: sqlite3.Connection) -> Ref | None:
            number = number_of(db, space)
            if number is None:
                return None
            row = db.execute(
                "SELECT name, target, sequence, mark FROM refs WHERE space = ? AND name = ?",
                (number, name),
            ).fetchone()
            if row is None:
                expect_refs(db, space, number)
                return None
            expect_ref(space, number, LAST, *row)
            return Ref(*row[:3])

        return self._database.read(ask)

    def _view(self, space: str, prefix: str) -> View:
        def ask(db: sqlite3.Connection) -> View:
            row = db.execute(LOOK, (prefix, space)).fetchone()
            if row is None:
                expect_unknown(db, space)
                return View(0, 1, ())
            number, epoch, marked, key, digest, target, moved, ref_mark = row
            if marked != mark(number, space):
                raise damaged_space(space)
            last, _ = find_end(db, number, key, digest)
            if target is not None:
                expect_ref(space, number, last, prefix, target, moved, ref_mark)
                if not prefix.endswith("/"):
                    return View(last, epoch, self._beside(db, number, prefix, target, moved))
            rows = expect_refs(db, space, number)
            refs = tuple(Ref(*row) for row in rows if row[0].startswith(prefix))
            return View(last, epoch, refs)

        view = self._database.read(ask)
        self._note(space, view.epoch, 0)
        return view

    def _beside(
        self, db: sqlite3.Connection, number: int, name: str, target: ObjectId, moved: int
    ) -> tuple[Ref, ...]:
        """A ref, and others whose names begin like it."""
        rows = db.execute(
            "SELECT name, target, sequence FROM refs WHERE space = ? AND name > ? AND name < ? "
            "ORDER BY name",
            (number, name, name + AFTER_NAMES),
        )
        return (Ref(name, target, moved), *[Ref(*row) for row in rows])

    def _spaces(self, prefix: str) -> list[str]:
        return self._database.read(lambda db: list_spaces(db, prefix))

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        return self._database.read(lambda db: read_lease(db, number_of(db, space), name))

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        def ask(db: sqlite3.Connection) -> list[LeaseRecord]:
            rows = db.execute(
                "SELECT name, holder, token, beat, duration FROM leases "
                "WHERE space = ? AND name >= ? AND name < ? ORDER BY name",
                (number_of(db, space), prefix, prefix + AFTER_NAMES),
            )
            return [lease_record(*row) for row in rows]

        return self._database.read(ask)

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        def work(db: sqlite3.Connection) -> LeaseRecord | None:
            number = number_of(db, space)
            if number is None:
                number = next_number(db)
                insert_space(db, number, space)
            if read_lease(db, number, name) != expected:
                return None
            db.execute("UPDATE spaces SET tokens = tokens + 1 WHERE number = ?", (number,))
            row = db.execute("SELECT tokens FROM spaces WHERE number = ?", (number,)).fetchone()
            granted = LeaseRecord(name, holder, row[0], 0, duration)
            write_lease(db, number, granted)
            return granted

        return self._database.write(work)

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            number = number_of(db, space)
            if number is None or read_lease(db, number, expected.name) != expected:
                return False
            if record is None:
                db.execute(
                    "DELETE FROM leases WHERE space = ? AND name = ?", (number, expected.name)
                )
            else:
                write_lease(db, number, record)
            return True

        return self._database.write(work)

    # Segments and collection.

    def _settle(
        self, space: str, packed: Packed, commits: Sequence[tuple[ObjectId, Place]]
    ) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            number = number_of(db, space)
            if number is None:
                return False
            low, high = (
                number << SEQUENCE_BITS | packed.first,
                number << SEQUENCE_BITS | packed.last,
            )
            found = db.execute(
                "SELECT count(*), (SELECT refs FROM tail WHERE key = ?) FROM tail "
                "WHERE key BETWEEN ? AND ?",
                (high, low, high),
            ).fetchone()
            if found[0] != packed.last - packed.first + 1:
                return False
            # A record that came since may lean on the last one, if that does not end its group.
            if packed.last % GROUP and tail_rows(db, number, packed.last + 1, packed.last + 1):
                return False
            db.execute(
                f"INSERT INTO packed SELECT key, {SAID_COLUMNS}, NULL FROM tail "  # noqa: S608
                "WHERE key BETWEEN ? AND ?",
                (low, high),
            )
            db.execute(
                "INSERT INTO keys SELECT find, key FROM tail "
                "WHERE key BETWEEN ? AND ? AND find IS NOT NULL ORDER BY find",
                (low, high),
            )
            base = number << SEQUENCE_BITS
            db.executemany(
                "INSERT OR IGNORE INTO commits VALUES (?, ?)",
                sorted((prefix(id), base | sequence_of(place)) for id, place in commits),
            )
            # The segment goes to the pages of what it replaces, so the file grows by less.
            db.execute("DELETE FROM tail WHERE key BETWEEN ? AND ?", (low, high))
            db.execute(
                "INSERT INTO segments VALUES (?, ?, ?, ?, ?)",
                (high, packed.first, found[1], packed.head, packed.data),
            )
            return True

        return self._database.write(work)

    def _replace(self, space: str, found: Sweep) -> bool:
        gone = {id for id, _ in found.gone}

        def work(db: sqlite3.Connection) -> bool:
            number = number_of(db, space)
            if number is None:
                return False
            last = max(
                (key or 0) & LAST
                for table in ("tail", "segments")
                for (key,) in db.execute(
                    f"SELECT max(key) FROM {table} WHERE key BETWEEN ? AND ?",  # noqa: S608
                    (number << SEQUENCE_BITS, number << SEQUENCE_BITS | LAST),
                )
            )
            (epoch,) = db.execute("SELECT epoch FROM spaces WHERE number = ?", (number,)).fetchone()
            if epoch != found.epoch:
                return False  # What another collection deleted would come back.
            since = list(self._latest(db, number, space, last, found.last))
            if touches(since, found.dead, gone):
                return False
            low = number << SEQUENCE_BITS
            for one in found.replaced:
                if not db.execute(
                    "SELECT 1 FROM segments WHERE key = ? AND first = ?",
                    (low | one.last, one.first),
                ).fetchone():
                    return False
            db.executemany(
                "UPDATE segments SET head = ?, data = ? WHERE key = ?",
                [(one.head, one.data, low | one.last) for one in found.replaced],
            )
            db.executemany(
                "DELETE FROM commits WHERE prefix = ? AND key = ?",
                sorted((prefix(id), low | sequence) for id, sequence in found.gone),
            )
            db.executemany(
                "UPDATE packed SET id = NULL WHERE key = ? AND id = ?",
                sorted((low | sequence, id) for id, sequence in found.gone),
            )
            named = found.named | names_of(since)
            noted = db.execute("SELECT id FROM named WHERE space = ?", (number,))
            lost = [(id, number) for (id,) in noted if id not in named]
            db.executemany("DELETE FROM named WHERE id = ? AND space = ?", lost)
            db.execute("UPDATE spaces SET epoch = epoch + 1 WHERE number = ?", (number,))
            return True

        done = self._database.write(work)
        if done and found.replaced:
            self._give_back_pages()
        return done

    def _names_more(self, space: str, named: set[ObjectId]) -> bool:
        def ask(db: sqlite3.Connection) -> bool:
            rows = db.execute("SELECT id FROM named WHERE space = ?", (number_of(db, space),))
            return any(id not in named for (id,) in rows)

        return self._database.read(ask)

    def _collect_shared(self, named: set[ObjectId] | None) -> tuple[int, int]:
        if named is not None:
            free = self._database.read(lambda db: packs.unreached(db, self._packs, named))
            return len(free), sum(free.values())

        def work(db: sqlite3.Connection) -> tuple[int, int, list[Path]]:
            packs.remove_orphans(db, self._packs, self._disk)
            return packs.collect(db, self._packs, self._disk)

        # Files are removed after it, for good: a power loss must not bring back rows that name
        # them.
        count, size, files = self._database.write(work, through=True)
        self._disk.discard(files)
        if count:
            self._give_back_pages()
        return count, size

    def _discard(self, ids: Sequence[ObjectId]) -> None:
        def work(db: sqlite3.Connection) -> list[Path]:
            return packs.remove(db, self._packs, self._disk, ids)

        self._disk.discard(self._database.write(work, through=True))

    def _count_shared(self) -> tuple[int, int]:
        found: tuple[int, int] = self._database.read(
            lambda db: db.execute("SELECT count(*), coalesce(sum(size), 0) FROM shared").fetchone(),
            once=True,
        )
        return found

    def _give_back_pages(self) -> None:
        def work(db: sqlite3.Connection) -> bool:
            free = schema.pragma(db, "freelist_count")
            db.execute(f"PRAGMA incremental_vacuum({_PAGES_AT_A_TIME})").fetchall()
            return 0 < schema.pragma(db, "freelist_count") < free

        while self._database.write(work):
            pass  # In portions, so that others can write in between.

    # Care.

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        if read_data:
            for problem in self._database.read(schema.find_damage):
                yield str(self.path / DATABASE), problem


def has_bytes(file: Path) -> bool:
    """Whether there is a file that is not empty."""
    return file.exists() and file.stat().st_size > 0
