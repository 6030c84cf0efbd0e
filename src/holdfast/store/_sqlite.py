"""The embedded store: one folder with an SQLite database, for one machine."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import ClassVar, Literal

from holdfast.errors import FormatError, InvalidInput
from holdfast.store import _sqlite_packs as packs
from holdfast.store import _sqlite_schema as schema
from holdfast.store import _sqlite_spaces as spaces
from holdfast.store._contract import Store
from holdfast.store._decide import Batch, Decision, Presence, decide
from holdfast.store._disk import Disk
from holdfast.store._framing import DEFAULT_CACHE_BYTES
from holdfast.store._records import (
    Capabilities,
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
    decode_operation,
)
from holdfast.store._sqlite_database import Database
from holdfast.store._sqlite_errors import translated
from holdfast.tree._objects import ObjectId

PACKS = "packs"

_SCANNED_AT_A_TIME = 1000
_CHANGED_AT_A_TIME = 10_000


class SqliteStore(Store):
    """A store in a folder of one machine, for several processes and threads at once.

    The folder is made if it is not there; the one that it is in must exist. With
    `durability="full"` a commit that returned survives a power loss. With `"relaxed"`
    the last moments before a power loss may be gone, but nothing is ever half there;
    the end of a process, even a killed one, takes nothing in either case.

    A commit waits for other writers, at most `busy_seconds`; then it is `Unavailable`.
    Reading waits for nobody.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=False)
    poll_seconds: ClassVar[float | None] = 0.02

    # What tests of crashes put their own in the place of.
    _disk: ClassVar[Disk] = Disk()
    _vfs: ClassVar[str | None] = None
    """The name of SQLite's own layer for files; None is its default."""

    def __init__(
        self,
        path: str | PathLike[str] = ".holdfast",
        *,
        durability: Literal["full", "relaxed"] = "full",
        busy_seconds: float = 30.0,
        backend_id: str = "sqlite",
        backend_aliases: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        threads: int = 16,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        super().__init__(
            backend_id=backend_id,
            backend_aliases=backend_aliases,
            clock=clock,
            threads=threads,
            cache_bytes=cache_bytes,
        )
        if durability not in ("full", "relaxed"):
            raise InvalidInput(f"durability is 'full' or 'relaxed', not {durability!r}")
        self.path = Path(path).absolute()
        self._durability: Durability = durability
        self._packs = self.path / PACKS
        self._listeners: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)
        self._listening = threading.Lock()
        self._database = Database(self.path, durability, busy_seconds, self._vfs)
        try:
            self._header = self._open()
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

    def _open(self) -> Header:
        self._make_folder()
        database = self._database
        database.create(schema.is_new)
        if database.read(schema.is_new):
            # Before anybody can commit to it, the names are safe from a power loss.
            with translated(self.path):
                self._disk.make_folder(self._packs)
                self._disk.sync_folder(self.path)
                self._disk.sync_folder(self.path.parent)
            database.write(schema.create)
        return database.read(schema.read_header)

    def _make_folder(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise FormatError(f"{self.path} is a file. A store is a folder; choose another name.")
        with translated(self.path):
            self._disk.make_folder(self.path)

    def _close(self) -> None:
        self._database.close()

    # Objects.

    def _frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        gone: set[str] = set()
        while True:
            found = self._database.read(lambda db: packs.read_frames(db, self._packs, ids))
            # A file may be moved by a collection after we learned of it: then a second look
            # leads elsewhere. If it leads to the same place, the file is lost.
            if found.gone <= gone:
                return found.frames
            gone = found.gone

    def _presence(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Presence]:
        return self._database.read(lambda db: packs.read_presence(db, ids))

    # Commits.

    def _commit(self, batch: Batch) -> Operation:
        ahead = self._write_ahead(batch)
        decision = self._database.write(partial(self._land_batch, batch, ahead))
        if not decision.repeated:
            self._wake(batch.space)
        return decision.operation

    def _write_ahead(self, batch: Batch) -> packs.Ahead | None:
        """Put a large pack into a file, before others have to wait for it."""
        if sum(len(one.frame) for one in batch.frames) <= packs.LARGE:
            return None
        present = self._presence([one.id for one in batch.frames])
        frames = [one for one in batch.frames if one.id not in present or present[one.id].condemned]
        if sum(len(one.frame) for one in frames) <= packs.LARGE:
            return None
        with translated(self.path):
            return packs.write_ahead(self._disk, self._packs, frames)

    def _land_batch(
        self, batch: Batch, ahead: packs.Ahead | None, db: sqlite3.Connection
    ) -> Decision:
        try:
            space = spaces.find_space(db, batch.space)
            facts = spaces.facts(db, space, batch)
            decision = decide(batch, facts)
            if not decision.repeated:
                spaces.apply(db, space, batch, decision, facts, ahead)
                return decision
        except BaseException:
            self._discard(ahead)
            raise
        self._discard(ahead)
        return decision

    def _discard(self, ahead: packs.Ahead | None) -> None:
        if ahead is not None:
            self._disk.discard([ahead.path])

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
        def ask(db: sqlite3.Connection) -> View:
            found = spaces.find_space(db, space)
            rows = db.execute(
                "SELECT name, target, sequence FROM refs "
                "WHERE space = ? AND name >= ? AND name < ? ORDER BY name",
                (found.number, prefix, prefix + spaces.AFTER_NAMES),
            )
            return View(found.sequence, found.epoch, tuple(Ref(*row) for row in rows))

        return self._database.read(ask)

    def _spaces(self, prefix: str) -> list[str]:
        rows = self._database.read_once(
            lambda db: db.execute(
                "SELECT name FROM spaces WHERE name >= ? AND name < ? AND EXISTS ("
                "SELECT 1 FROM operations WHERE key BETWEEN number << ? AND (number << ?) + ?"
                ") ORDER BY name",
                (
                    prefix,
                    prefix + spaces.AFTER_NAMES,
                    schema.SEQUENCE_BITS,
                    schema.SEQUENCE_BITS,
                    spaces.LAST,
                ),
            ).fetchall()
        )
        return [name for (name,) in rows]

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        if after >= spaces.LAST:
            return []
        rows = self._database.read_once(
            lambda db: db.execute(
                "SELECT record FROM operations, spaces WHERE spaces.name = ? "
                "AND key BETWEEN (number << ?) + ? AND (number << ?) + ? ORDER BY key LIMIT ?",
                (
                    space,
                    schema.SEQUENCE_BITS,
                    after + 1,
                    schema.SEQUENCE_BITS,
                    spaces.LAST,
                    min(limit, spaces.LAST),
                ),
            ).fetchall()
        )
        return [decode_operation(space, record) for (record,) in rows]

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Wakes for what this store object commits; what others commit is looked for."""
        with self._listening:
            self._listeners[space].append(wake)

        def stop() -> None:
            with self._listening:
                self._listeners[space].remove(wake)
                if not self._listeners[space]:
                    del self._listeners[space]

        return stop

    def _wake(self, space: str) -> None:
        if not self._listeners:
            return
        with self._listening:
            listeners = tuple(self._listeners.get(space, ()))
        for wake in listeners:
            wake()

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        return self._database.read(
            lambda db: spaces.read_lease(db, spaces.find_space(db, space).number, name)
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
            number = spaces.find_space(db, space).number
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
        after = b""
        while True:
            page = self._database.read_once(
                partial(packs.scan_after, after=after, limit=_SCANNED_AT_A_TIME)
            )
            yield from page
            if len(page) < _SCANNED_AT_A_TIME:
                return
            after = page[-1].id

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        for some in _portions(ids):
            self._database.write(partial(packs.mark, ids=some, collection=collection))

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        for some in _portions(ids):
            self._database.write(partial(packs.mark, ids=some, collection=0))

    def _raise_epochs(self) -> int:
        def work(db: sqlite3.Connection) -> int:
            db.execute("UPDATE facts SET value = value + 1 WHERE name = 'epoch'")
            raised: int = db.execute("SELECT value FROM facts WHERE name = 'epoch'").fetchone()[0]
            return raised

        return self._database.write(work)

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        self._database.write(lambda db: packs.remove_orphans(db, self._disk, self._packs))
        gone: list[ObjectId] = []
        for some in _portions(ids):
            # Files are removed after it, for good: a power loss must not bring back rows that
            # name them.
            deleted = self._database.write_through(
                partial(
                    packs.delete_objects,
                    disk=self._disk,
                    folder=self._packs,
                    ids=some,
                    collection=collection,
                )
            )
            self._disk.discard(self._packs / file for file in deleted.files)
            gone += deleted.ids
        return gone


def _portions(ids: Sequence[ObjectId]) -> Iterator[Sequence[ObjectId]]:
    """Few at a time, so that a large collection lets others write in between."""
    for start in range(0, len(ids), _CHANGED_AT_A_TIME):
        yield ids[start : start + _CHANGED_AT_A_TIME]
