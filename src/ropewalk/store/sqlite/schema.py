"""What an embedded store looks like inside: its tables, its views, and how it is recognised.

spaces    a number for each space, its epoch, and its counter of fencing tokens
refs      name and target, and the record that last moved it
tail      the last records of each space: what plain columns say of the step, and the record
packed    the plain columns of records that are in segments, but for `find`, which `keys` has
segments  records of one space packed together, by the number of the last
keys      where what `find` looks for is in segments
commits   which records in segments bring a commit, by the first bytes of its id
shared    where each shared object is, in a pack
named     which spaces lead to a shared object
packs     frames of shared objects; a large one is a file, which is named here
leases    what was granted and not given back
facts     one row: the header

`probe` is a hash of a space's name, its first byte one of the tenant's: a name that is not found,
or not listed, but whose hash is, was changed.
The key of a record is its space's number, and in the low bits its own. `mark` is a checksum of a
row; `tail.refs` is the sum of the marks of all refs of the space at that moment, so that a row
that is gone is noticed. The views are for people: see docs/in-depth/embedded.md.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final

from ropewalk.errors import Corrupt, FormatError, NewerFormat, NotAllowed
from ropewalk.store.model import Header, decode_header, encode_header

APPLICATION_ID: Final = 0x52574442  # "RWDB", in the file's own header.
LAYOUT: Final = 2
"""The version of these tables, in the file's own header too."""

SEQUENCE_BITS: Final = 32
LAST: Final = (1 << SEQUENCE_BITS) - 1

_FREE: Final = 64 * 1024
"""More free bytes than this are given back, however large the file is."""

# Rows that are larger than a page go on in pages of their own, which they fill: so small
# pages leave the least unused, and a small commit writes the fewest bytes.
BEFORE_TABLES: Final = ("PRAGMA page_size = 1024", "PRAGMA auto_vacuum = INCREMENTAL")

_STEP: Final = """id BLOB, parent INTEGER, time INTEGER NOT NULL, branch TEXT, status TEXT,
    agent TEXT, step TEXT, description TEXT, action TEXT, find BLOB"""
SAID_COLUMNS: Final = "id, parent, time, branch, status, agent, step, description, action"
STEP_COLUMNS: Final = f"{SAID_COLUMNS}, find"

# Blobs are in a table with a rowid: without one they spill to overflow pages early, which
# doubles size and time. Small rows that are found by a key need no second tree.
_TABLES: Final = f"""
CREATE TABLE facts (header BLOB NOT NULL);
CREATE TABLE spaces (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, probe INTEGER NOT NULL UNIQUE,
    epoch INTEGER NOT NULL, tokens INTEGER NOT NULL, mark INTEGER NOT NULL
);
CREATE TABLE refs (
    space INTEGER NOT NULL, name TEXT NOT NULL, target BLOB NOT NULL, sequence INTEGER NOT NULL,
    mark INTEGER NOT NULL, PRIMARY KEY (space, name)
) WITHOUT ROWID;
CREATE TABLE tail (
    key INTEGER PRIMARY KEY, dictionary INTEGER, refs INTEGER NOT NULL, {_STEP},
    frame BLOB NOT NULL
);
CREATE TABLE packed (key INTEGER PRIMARY KEY, {_STEP});
CREATE TABLE segments (
    key INTEGER PRIMARY KEY, first INTEGER NOT NULL, refs INTEGER NOT NULL, head BLOB NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE keys (
    find BLOB NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (find, key)
) WITHOUT ROWID;
CREATE TABLE commits (
    prefix INTEGER NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (prefix, key)
) WITHOUT ROWID;
CREATE TABLE packs (number INTEGER PRIMARY KEY, size INTEGER NOT NULL, file TEXT, data BLOB);
CREATE TABLE shared (
    id BLOB PRIMARY KEY, pack INTEGER NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL,
    length INTEGER NOT NULL, kind INTEGER NOT NULL, leads INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE named (
    id BLOB NOT NULL, space INTEGER NOT NULL, PRIMARY KEY (id, space)
) WITHOUT ROWID;
CREATE INDEX named_by ON named (space);
CREATE TABLE leases (
    space INTEGER NOT NULL, name TEXT NOT NULL, holder BLOB NOT NULL, token INTEGER NOT NULL,
    beat INTEGER NOT NULL, duration REAL NOT NULL,
    PRIMARY KEY (space, name)
) WITHOUT ROWID;
CREATE VIEW records AS
    SELECT key, {STEP_COLUMNS} FROM packed UNION ALL SELECT key, {STEP_COLUMNS} FROM tail;
CREATE VIEW operations AS
    SELECT name AS space, key & {LAST} AS number,
        strftime('%Y-%m-%d %H:%M:%f', time / 1000000.0, 'unixepoch') AS time,
        action, lower(hex(id)) AS id
    FROM records JOIN spaces ON spaces.number = records.key >> {SEQUENCE_BITS};
CREATE VIEW steps AS
    SELECT name AS space, branch, key & {LAST} AS number, lower(hex(id)) AS id, parent,
        strftime('%Y-%m-%d %H:%M:%f', time / 1000000.0, 'unixepoch') AS time,
        agent, coalesce(status, 'active') AS status, step, description
    FROM records JOIN spaces ON spaces.number = records.key >> {SEQUENCE_BITS}
    WHERE id IS NOT NULL;
CREATE VIEW branches AS
    SELECT spaces.name AS space, substr(refs.name, 8) AS branch, lower(hex(target)) AS id,
        refs.sequence AS number,
        (SELECT strftime('%Y-%m-%d %H:%M:%f', time / 1000000.0, 'unixepoch') FROM records
            WHERE key = (spaces.number << {SEQUENCE_BITS}) + refs.sequence) AS time
    FROM refs JOIN spaces ON spaces.number = refs.space WHERE refs.name GLOB 'branch/*';
CREATE VIEW threads AS
    SELECT spaces.name AS space, count(*) AS steps,
        strftime('%Y-%m-%d %H:%M:%f', min(time) / 1000000.0, 'unixepoch') AS began,
        strftime('%Y-%m-%d %H:%M:%f', max(time) / 1000000.0, 'unixepoch') AS changed
    FROM records JOIN spaces ON spaces.number = records.key >> {SEQUENCE_BITS}
    WHERE spaces.name GLOB 'langgraph/*' OR spaces.name GLOB 'threads*/*'
    GROUP BY spaces.number;
"""  # noqa: S608 - numbers and names of our own


def is_new(db: sqlite3.Connection) -> bool:
    """Whether a database is empty; raises unless it is that or ours."""
    application, layout = pragma(db, "application_id"), pragma(db, "user_version")
    if application == APPLICATION_ID:
        if layout > LAYOUT:
            raise NewerFormat(
                f"the store's tables have version {layout}; this version reads up to {LAYOUT}. "
                "Install a newer Ropewalk."
            )
        if layout < LAYOUT:
            raise NotAllowed(
                f"the store has format {layout}, from before the first release, which this version "
                "does not read: choose another folder, or remove this one to begin anew."
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
    db.execute("INSERT INTO facts VALUES (?)", (encode_header(Header(os.urandom(16))),))
    db.execute(f"PRAGMA user_version = {LAYOUT}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def read_header(db: sqlite3.Connection) -> Header:
    """The store's header; raises if it is newer or none, or if rows of spaces are gone."""
    row = db.execute("SELECT header FROM facts").fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise FormatError("the store has no header")
    header = decode_header(row[0])
    count, highest = db.execute("SELECT count(*), coalesce(max(number), 0) FROM spaces").fetchone()
    used = [
        db.execute(f"SELECT coalesce(max(key), 0) >> {SEQUENCE_BITS} FROM {table}").fetchone()[0]  # noqa: S608
        for table in ("tail", "segments")
    ]
    used.append(db.execute("SELECT coalesce(max(space), 0) FROM refs").fetchone()[0])
    if count != highest or max(used) > highest:
        raise Corrupt(
            "the list of spaces is damaged: rows of it are gone. Restore the store from a copy."
        )
    return header


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
    pages = pragma(db, "page_count") - pragma(db, "freelist_count")
    files: int = db.execute(
        "SELECT coalesce(sum(size), 0) FROM packs WHERE file IS NOT NULL"
    ).fetchone()[0]
    return pages * pragma(db, "page_size") + files


def has_many_free_pages(db: sqlite3.Connection) -> bool:
    """Whether more than a tenth of the file is free, or 64 KB of it."""
    free = pragma(db, "freelist_count")
    return free * pragma(db, "page_size") > _FREE or 10 * free > pragma(db, "page_count")


def pragma(db: sqlite3.Connection, name: str) -> int:
    """A number that SQLite knows of its file."""
    found: int = db.execute(f"PRAGMA {name}").fetchone()[0]
    return found
