"""What an embedded store looks like inside: its tables, and how it is recognised.

log         one row for each commit: its operation, and its frames as a pack. A large pack
            is a file, which is named here. Packs that a collection wrote have no operation
objects     where each object is; from here down to `writes`, tables follow the log
operations  the row of each operation; the key is the space's number and the operation's
writes      the rows of each write id, by a hash
condemned   what is marked for deletion, and by which collection
spaces      a number for each space, and its counter of fencing tokens
refs        name and target, and the operation that last moved it
leases      what was granted and not given back
facts       one row: the header, the epoch, up to which row the log is in the tables that
            follow it, and how many bytes are in files
"""

from __future__ import annotations

import os
import sqlite3

from ropewalk.errors import FormatError, NewerFormat
from ropewalk.store._records import Header, decode_header, encode_header

APPLICATION_ID = 0x52574442  # "RWDB", in the file's own header.
LAYOUT = 1
"""The version of these tables, in the file's own header too."""

SEQUENCE_BITS = 32
"""An operation's key is its space's number, and in this many low bits its own."""

# Rows that are larger than a page go on in pages of their own, which they fill: so small
# pages leave the least unused, and a small commit writes the fewest bytes.
BEFORE_TABLES = ("PRAGMA page_size = 1024", "PRAGMA auto_vacuum = INCREMENTAL")

# Blobs are in a table with a rowid: without one they spill to overflow pages early, which
# doubles size and time. Small rows that are found by a key need no second tree.
_TABLES = """
CREATE TABLE facts (
    header BLOB NOT NULL, epoch INTEGER NOT NULL, indexed INTEGER NOT NULL, files INTEGER NOT NULL
);
CREATE TABLE log (
    number INTEGER PRIMARY KEY, space INTEGER, sequence INTEGER, write INTEGER,
    record BLOB, entries BLOB, bases BLOB, file TEXT, data BLOB
);
CREATE TABLE objects (
    prefix INTEGER NOT NULL, place INTEGER NOT NULL, PRIMARY KEY (prefix, place)
) WITHOUT ROWID;
CREATE TABLE operations (key INTEGER PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE writes (
    write INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (write, number)
) WITHOUT ROWID;
CREATE TABLE condemned (id BLOB PRIMARY KEY, collection INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE spaces (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, tokens INTEGER NOT NULL
);
CREATE TABLE refs (
    space INTEGER NOT NULL, name TEXT NOT NULL, target BLOB NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (space, name)
) WITHOUT ROWID;
CREATE TABLE leases (
    space INTEGER NOT NULL, name TEXT NOT NULL, holder BLOB NOT NULL, token INTEGER NOT NULL,
    beat INTEGER NOT NULL, duration REAL NOT NULL,
    PRIMARY KEY (space, name)
) WITHOUT ROWID;
"""


def is_new(db: sqlite3.Connection) -> bool:
    """Whether a database is empty; raises unless it is that or ours."""
    application, layout = _number(db, "application_id"), _number(db, "user_version")
    if application == APPLICATION_ID:
        if layout > LAYOUT:
            raise NewerFormat(
                f"the store's tables have version {layout}; this version reads up to {LAYOUT}. "
                "Install a newer Ropewalk."
            )
        return False
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application or tables:
        raise FormatError("there is a database of another program where the store's would be")
    return True


def create(db: sqlite3.Connection) -> None:
    """Make the tables, unless somebody else did so a moment ago. Inside a transaction."""
    if not is_new(db):
        return
    for statement in _TABLES.split(";\n"):
        db.execute(statement)
    header = encode_header(Header(os.urandom(16)))
    db.execute("INSERT INTO facts VALUES (?, 1, 0, 0)", (header,))
    db.execute(f"PRAGMA user_version = {LAYOUT}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def read_header(db: sqlite3.Connection) -> Header:
    """The store's header; raises if it is newer or none."""
    row = db.execute("SELECT header FROM facts").fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise FormatError("the store has no header")
    return decode_header(row[0])


def find_damage(db: sqlite3.Connection) -> list[str]:
    """What is wrong with the pages, as SQLite finds, or with the tables; nothing if all is sound.

    SQLite takes a definition as it stands: a column whose type is another may read as NULL.
    """
    try:
        found = [line for (line,) in db.execute("PRAGMA integrity_check(20)") if line != "ok"]
        stored = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master")}
    except sqlite3.DatabaseError as error:
        return [str(error)]
    changed = [one for one in _TABLES.strip().split(";\n") if one.rstrip(";") not in stored]
    return found + [f"a table is not defined as {one.split(' (')[0]!r} was" for one in changed]


def used_bytes(db: sqlite3.Connection) -> int:
    """Bytes in use: pages that are not free, and files of packs."""
    pages = _number(db, "page_count") - _number(db, "freelist_count")
    files: int = db.execute("SELECT files FROM facts").fetchone()[0]
    return pages * _number(db, "page_size") + files


def _number(db: sqlite3.Connection, pragma: str) -> int:
    found: int = db.execute(f"PRAGMA {pragma}").fetchone()[0]
    return found
