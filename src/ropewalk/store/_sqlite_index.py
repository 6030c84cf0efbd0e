"""Where objects, operations and writes are: tables that follow the log, and its tail.

To put every object into a table at once would change one page for each. So a commit only
adds its row to the log. The last rows, the tail, are read from the log and kept in memory;
when there are many, whoever commits puts them into the tables together.

What a tail holds never changes while it grows, and it ends with its tables' next change:
each id is in it at most once. So a reader may share it with whoever is ahead of it, and
passes over the rows that are later than its own moment.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, TypeVar

from ropewalk.errors import Corrupt, FormatError
from ropewalk.store._decide import Presence
from ropewalk.store._forking import freed_after_fork
from ropewalk.store._sqlite_entries import (
    ENTRY,
    ORDINAL_BITS,
    Entry,
    living_ids,
    prefix,
    read_entry,
)
from ropewalk.store._sqlite_schema import SEQUENCE_BITS
from ropewalk.tree._objects import ObjectId

T = TypeVar("T")

LONGEST_TAIL = 1024
"""Objects and rows that are looked for in memory, not yet in the tables."""

MOMENT = "epoch, indexed, (SELECT max(number) FROM log), EXISTS (SELECT 1 FROM condemned)"

_ORDINAL = (1 << ORDINAL_BITS) - 1
_AT_A_TIME = 256
_SIZES = (1, 2, 3, 4, 6, 8, 16, 64, _AT_A_TIME)
_FEW = 8


class Row(NamedTuple):
    """What the tables take from a row of the log."""

    number: int
    space: int | None
    sequence: int | None
    write: int | None
    entries: bytes | None
    bases: bytes | None


class Found(NamedTuple):
    """An object, and where it is."""

    place: int
    entry: Entry

    @property
    def number(self) -> int:
        """The row of its pack."""
        return self.place >> ORDINAL_BITS


# Blobs in any case: damage may make a text of one, which could not be read at all.
_COLUMNS = "number, space, sequence, write, CAST(entries AS BLOB), CAST(bases AS BLOB)"


class Tail:
    """The rows of the log after those that are in the tables."""

    def __init__(self, indexed: int) -> None:
        self.indexed = self.last = indexed
        self.rows: dict[int, Row] = {}
        self.places: dict[ObjectId, int] = {}
        self.operations: dict[int, tuple[int, list[int]]] = {}
        """By space: the first operation, and the rows of it and those that follow."""
        self.writes: dict[int, list[int]] = {}
        self._lock = freed_after_fork(threading.Lock())

    def __len__(self) -> int:
        return len(self.places) + len(self.rows)

    def add(self, rows: Iterable[Row]) -> None:
        """Take in the rows that follow, in order; known ones are passed over."""
        with self._lock:
            for row in rows:
                if row.number > self.last:
                    self._add(row)

    def _add(self, row: Row) -> None:
        number, space, sequence, write, entries, _ = row
        self.rows[number] = row
        place = number << ORDINAL_BITS
        for ordinal, id in living_ids(entries):
            self.places[id] = place | ordinal
        if space is not None and sequence is not None and write is not None:
            # Lists, which others may read while they grow.
            self.operations.setdefault(space, (sequence, []))[1].append(number)
            self.writes.setdefault(write, []).append(number)
        self.last = number


class Tails:
    """The tail that this process knows, shared by its threads."""

    def __init__(self) -> None:
        self._newest = Tail(0)

    def at(self, db: sqlite3.Connection, indexed: int, last: int) -> Tail:
        """The tail of a moment: it may go on after that."""
        tail = self._newest
        if tail.indexed != indexed:
            tail = Tail(indexed)
            self.publish(tail)
        if tail.last < last:
            tail.add(_read_rows(db, tail.last, last))
        return tail

    def publish(self, tail: Tail) -> None:
        """Share a tail, unless there is a newer one."""
        # Two threads at once may leave the older one; then it is read again.
        if tail.indexed >= self._newest.indexed:
            self._newest = tail


class Moment:
    """The log as one transaction sees it, and what the transaction adds."""

    def __init__(
        self,
        db: sqlite3.Connection,
        tails: Tails,
        epoch: int,
        indexed: int,
        last: int,
        marked: bool,
    ) -> None:
        self.db = db
        self._tails = tails
        self.tail = tails.at(db, indexed, last)
        self.epoch = epoch
        self.last = last
        self.marked = marked
        """Whether anything is condemned."""
        self._rows: dict[int, Row] = {}
        self._added: list[Row] = []
        self._more: Tail | None = None
        """What was added, for those who look for it: most transactions do not."""

    @property
    def more(self) -> Tail:
        """What this transaction added, as a tail."""
        if not self._added:
            return _NOTHING
        if self._more is None:
            self._more = Tail(self._added[0].number - 1)
        self._more.add(self._added)
        return self._more

    def find(self, ids: Iterable[ObjectId]) -> dict[ObjectId, Found]:
        """Objects that are there, condemned or not."""
        found: dict[ObjectId, Found] = {}
        others: dict[int, list[ObjectId]] = {}
        added, tail = self.more.places, self.tail.places
        for id in ids:
            place = tail.get(id) or added.get(id)
            if place is None or place >> ORDINAL_BITS > self.last:
                others.setdefault(prefix(id), []).append(id)
            else:
                found[id] = Found(place, self.entry(place))
        if others:
            places = list(self._select(others))
            self._look_ahead(place >> ORDINAL_BITS for _, place in places)
            for number, place in places:
                entry = self.entry(place)
                if entry.id in others[number]:
                    found[entry.id] = Found(place, entry)
        return found

    def _look_ahead(self, numbers: Iterable[int]) -> None:
        """Read rows together that will be asked for one by one."""
        known = (self.tail.rows, self._rows, self.more.rows)
        wanted = {number for number in numbers if not any(number in rows for rows in known)}
        if len(wanted) > 1:
            for some in portions(wanted):
                asking = statement(_COLUMNS, "log", "number", len(some))
                self._rows.update((row[0], Row(*row)) for row in self.db.execute(asking, some))

    def entry(self, place: int) -> Entry:
        """The entry at a place."""
        row = self.row(place >> ORDINAL_BITS)
        return read_entry(row.entries or b"", row.bases, place & _ORDINAL)

    def row(self, number: int) -> Row:
        """A row of the log."""
        known = self.tail.rows.get(number) or self._rows.get(number)
        if known is None:
            known = self.more.rows.get(number)
        if known is None:
            (known,) = _read_rows(self.db, number - 1, number) or [_absent(number)]
            self._rows[number] = known
        return known

    def presence(self, ids: Iterable[ObjectId]) -> dict[ObjectId, Presence]:
        """Depth and condemnation of objects, without those that are absent."""
        found = self.find(ids)
        marked = read_condemned(self.db, found) if found and self.marked else ()
        return {id: Presence(one.entry.depth, id in marked) for id, one in found.items()}

    def last_operation(self, space: int, indexed: int) -> int:
        """The sequence number of a space's last operation, if the tables know this one."""
        for tail in (self.more, self.tail):
            if space in tail.operations:
                first, rows = tail.operations[space]
                count = len(rows)
                while count and rows[count - 1] > self.last:
                    count -= 1
                if count:
                    return first + count - 1
        return indexed

    def row_of_operation(self, space: int, sequence: int) -> int:
        """The row of an operation that the tables do not have yet."""
        first, rows = self.tail.operations.get(space, (0, []))
        if not 0 <= sequence - first < len(rows):
            raise Corrupt(
                f"the log is damaged: operation {sequence} of a space has no row. Restore the "
                "store from a copy; other spaces are not affected."
            )
        return rows[sequence - first]

    def rows_of_write(self, write: int, indexed: bool) -> list[int]:
        """The rows whose write id has this hash; `indexed` says that the tables know some."""
        numbers = [*self.tail.writes.get(write, ()), *self.more.writes.get(write, ())]
        if indexed:
            rows = self.db.execute("SELECT number FROM writes WHERE write = ?", (write,))
            numbers += [number for (number,) in rows]
        return [number for number in numbers if number <= self.last]

    # What only a transaction that writes may do.

    def add(self, row: Row) -> None:
        """Take in a row that this transaction wrote."""
        self._added.append(row)
        self.last = row.number
        entries = len(row.entries or b"") // ENTRY.size
        if len(self.tail) + len(self._added) + entries > LONGEST_TAIL:
            self.flush()

    def changed(self, row: Row) -> None:
        """Take note of a row of before the tail that this transaction changed."""
        self._rows[row.number] = row

    def flush(self) -> None:
        """Put the tail into the tables."""
        rows = [*self.tail.rows.values(), *self._added]
        if rows:
            flush_rows(self.db, rows)
        self.tail = Tail(self.last)
        self._added, self._more = [], None

    def save(self) -> tuple[Tail, list[Row], int]:
        """What `restore` needs."""
        return self.tail, list(self._added), self.last

    def restore(self, saved: tuple[Tail, list[Row], int]) -> None:
        """Forget what was added since."""
        self.tail, rows, self.last = saved
        self._added, self._more = list(rows), None
        self._rows.clear()

    def landed(self) -> None:
        """The transaction is committed: share what it added."""
        self.tail.add(self._added)
        self._added, self._more = [], None
        self._rows.clear()
        self._tails.publish(self.tail)

    def _select(self, prefixes: Collection[int]) -> Iterable[tuple[int, int]]:
        if len(prefixes) <= _FEW:
            asking = statement("prefix, place", "objects", "prefix", len(prefixes))
            return self.db.execute(asking, tuple(prefixes)).fetchall()
        return self._select_many(prefixes)

    def _select_many(self, prefixes: Iterable[int]) -> Iterator[tuple[int, int]]:
        for some in portions(prefixes):
            yield from self.db.execute(
                statement("prefix, place", "objects", "prefix", len(some)), some
            ).fetchall()


_NOTHING = Tail(0)


def open_moment(db: sqlite3.Connection, tails: Tails) -> Moment:
    """The log as this transaction sees it."""
    row = db.execute(f"SELECT {MOMENT} FROM facts").fetchone()  # noqa: S608
    return make_moment(db, tails, row)


def make_moment(db: sqlite3.Connection, tails: Tails, row: Sequence[int] | None) -> Moment:
    """The same, for who has asked for the columns of `MOMENT` already."""
    if row is None:
        raise FormatError("the store has no epoch")
    epoch, indexed, last, marked = row
    return Moment(db, tails, epoch, indexed, last or 0, bool(marked))


def read_condemned(db: sqlite3.Connection, ids: Iterable[ObjectId]) -> dict[ObjectId, int]:
    """Those of the ids that are marked for deletion, and by which collection."""
    marked: dict[ObjectId, int] = {}
    for some in portions(ids):
        marked.update(db.execute(statement("id, collection", "condemned", "id", len(some)), some))
    return marked


def flush_rows(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Put rows of the log into the tables that follow it."""
    places = [
        (prefix(id), row.number << ORDINAL_BITS | ordinal)
        for row in rows
        for ordinal, id in living_ids(row.entries)
    ]
    done = [row for row in rows if row.space is not None]
    # In the order of the tables, so that each page is changed once.
    db.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?)", sorted(places))
    db.executemany(
        "INSERT OR REPLACE INTO operations VALUES (?, ?)",
        sorted((operation_key(row.space or 0, row.sequence or 0), row.number) for row in done),
    )
    db.executemany(
        "INSERT OR REPLACE INTO writes VALUES (?, ?)",
        sorted((row.write or 0, row.number) for row in done),
    )
    db.execute("UPDATE facts SET indexed = ?", (rows[-1].number,))


def operation_key(space: int, sequence: int) -> int:
    """The key of an operation."""
    return (space << SEQUENCE_BITS) + sequence


def _read_rows(db: sqlite3.Connection, after: int, last: int) -> list[Row]:
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM log WHERE number > ? AND number <= ? ORDER BY number",  # noqa: S608
        (after, last),
    )
    return [Row(*row) for row in rows]


def _absent(number: int) -> Row:
    raise FormatError(f"the index names pack {number}, which is not there")


def portions(ids: Iterable[T]) -> Iterator[list[T]]:
    """So many at a time as one statement takes; the last is there several times."""
    remaining = iter(ids)
    while chunk := list(islice(remaining, _AT_A_TIME)):
        size = next(size for size in _SIZES if size >= len(chunk))
        # Few different statements, so that each is prepared once.
        yield chunk + chunk[-1:] * (size - len(chunk))


@lru_cache
def statement(columns: str, table: str, key: str, size: int) -> str:
    """A statement that asks for the rows with these keys, of a size that `portions` gives."""
    select = f"SELECT {columns} FROM {table} WHERE {key}"  # noqa: S608
    if size <= _FEW:  # For a list, SQLite makes a table first.
        return " UNION ALL ".join([f"{select} = ?"] * size)
    return f"{select} IN ({', '.join('?' * size)})"
