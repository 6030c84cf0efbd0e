"""What an embedded store looks like inside: its tables, and how it is recognised.

packs       the frames of one commit; large ones are a file, which is named here
objects     where each object's frame is, and what must be known without reading it
spaces      a number for each space, and its counter of fencing tokens
refs        name and target, and the operation that last moved it
operations  the log; its key is the space's number and the operation's
leases      what was granted and not given back
facts       the header, and the epoch
"""

from __future__ import annotations

import os
import sqlite3

from holdfast.errors import FormatError, NewerFormat
from holdfast.store._records import Header, decode_header, encode_header

APPLICATION_ID = 0x48464442  # "HFDB", in the file's own header.
LAYOUT = 1
"""The version of these tables, in the file's own header too."""

SEQUENCE_BITS = 32
"""An operation's key is its space's number, and in this many low bits its own."""

# Blobs are in tables with a rowid: without one they spill to overflow pages early, which
# doubles size and time. Small rows that are found by a key need no second tree.
_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE packs (
    number INTEGER PRIMARY KEY, size INTEGER NOT NULL, alive INTEGER NOT NULL,
    file TEXT, data BLOB
);
CREATE TABLE objects (
    id BLOB PRIMARY KEY, pack INTEGER NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL,
    depth INTEGER NOT NULL, kind INTEGER NOT NULL, size INTEGER NOT NULL,
    condemned INTEGER NOT NULL, base BLOB
) WITHOUT ROWID;
CREATE TABLE spaces (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, tokens INTEGER NOT NULL
);
CREATE TABLE refs (
    space INTEGER NOT NULL, name TEXT NOT NULL, target BLOB NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (space, name)
) WITHOUT ROWID;
CREATE TABLE operations (
    key INTEGER PRIMARY KEY, write INTEGER NOT NULL, digest BLOB NOT NULL, record BLOB NOT NULL
);
CREATE INDEX writes ON operations (write);
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
                "Install a newer Holdfast."
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
    db.execute("INSERT INTO facts VALUES ('header', ?), ('epoch', 1)", (header,))
    db.execute(f"PRAGMA user_version = {LAYOUT}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def read_header(db: sqlite3.Connection) -> Header:
    """The store's header; raises if it is newer or none."""
    row = db.execute("SELECT value FROM facts WHERE name = 'header'").fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise FormatError("the store has no header")
    return decode_header(row[0])


def _number(db: sqlite3.Connection, pragma: str) -> int:
    found: int = db.execute(f"PRAGMA {pragma}").fetchone()[0]
    return found
