"""Stores that can be damaged: files in a folder, objects in a bucket, rows, values."""

from __future__ import annotations

import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import redis

from ropewalk.store import CachedStore, FileStore, PostgresStore, RedisStore, SqliteStore, Store
from tests.damage.harm import LOG_FRAME, log_ends
from tests.damage.sample import MOST_BYTES, fill
from tests.store.files.contract import EagerFileStore
from tests.store.postgres_contract import EagerStore as EagerPostgresStore
from tests.store.redis.contract import EagerRedisStore
from tests.store.s3_memory import EagerS3Store, MemoryBucket, MemoryS3Store
from tests.store.sqlite.contract import EagerStore


class Impossible(Exception):
    """The medium refuses such damage."""


class Medium(ABC):
    """A sound store as pieces, and stores in which some of them are others."""

    pieces: Mapping[str, bytes]

    @abstractmethod
    def opened(self, harm: Mapping[str, bytes | None]) -> Any:
        """A store, opened in a block, whose pieces are damaged so."""

    def is_lost(self, harm: Mapping[str, bytes | None]) -> bool:
        """Whether it cannot be told from what a crash leaves, as the documents say."""
        return False

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of what it holds."""

    def expect_small(self) -> None:
        """Damage is looked for in every part, so there must not be much."""
        assert 0 < sum(map(len, self.pieces.values())) <= MOST_BYTES


class Files(Medium):
    """A store in a folder."""

    def __init__(
        self,
        open_store: Callable[[Path], Store],
        folder: Path,
        counts: Callable[[str], bool],
        killed: bool = False,
    ) -> None:
        self._open_store, self._work = open_store, folder / "work"
        self._sound = folder / "sound"
        store = open_store(folder / "made")
        fill(store)
        if killed:
            shutil.copytree(folder / "made", self._sound)
        store.close()
        if not killed:
            shutil.copytree(folder / "made", self._sound)
        self.pieces = {
            path.relative_to(self._sound).as_posix(): path.read_bytes()
            for path in sorted(self._sound.rglob("*"))
            if path.is_file() and counts(path.name)
        }

    def copied(self) -> Path:
        """A folder to damage."""
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._sound, self._work)
        return self._work

    @contextmanager
    def opened(self, harm: Mapping[str, bytes | None]) -> Iterator[Store]:
        folder = self.copied()
        for name, data in harm.items():
            if data is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(data)
        with self._open_store(folder) as store:
            yield store


class KilledWriter(Files):
    """An embedded store whose writer was killed: all of it is in SQLite's log."""

    def __init__(self, folder: Path) -> None:
        super().__init__(SqliteStore, folder, lambda name: name == "store.db-wal", killed=True)
        self._log = self.pieces["store.db-wal"]

    def is_lost(self, harm: Mapping[str, bytes | None]) -> bool:
        """A bad frame in the last transaction, or at the end of the one before, is a torn end."""
        sure = log_ends(self._log)[-2] - 2 * LOG_FRAME
        data = harm["store.db-wal"]
        return data is not None and data[:sure] == self._log[:sure]


class SqliteRows(Medium):
    """The rows of an embedded store, changed by SQL. A piece is a column of a row."""

    def __init__(self, folder: Path, engine: type[SqliteStore] = SqliteStore) -> None:
        self._files = Files(engine, folder, lambda name: name == "store.db")
        self.pieces = {}
        self._cells: dict[str, tuple[str, str, tuple[Any, ...], type]] = {}
        with closing(sqlite3.connect(self._files.copied() / "store.db")) as db:
            for table, keys in _TABLES.items():
                self._read(db, table, keys)

    def _read(self, db: sqlite3.Connection, table: str, keys: tuple[str, ...]) -> None:
        key = ", ".join(keys)
        rows = db.execute(f"SELECT {key}, * FROM {table} ORDER BY {key}")
        columns = [column for column, *_ in rows.description][len(keys) :]
        for row in rows.fetchall():
            for column, value in zip(columns, row[len(keys) :], strict=True):
                if value is not None:
                    name = f"{table}.{column}|{row[: len(keys)]}"
                    self._cells[name] = table, column, row[: len(keys)], type(value)
                    self.pieces = {**self.pieces, name: to_bytes(value)}

    @contextmanager
    def opened(self, harm: Mapping[str, bytes | None]) -> Iterator[Store]:
        folder = self._files.copied()
        with closing(sqlite3.connect(folder / "store.db")) as db:
            for name, data in harm.items():
                table, column, key, made = self._cells[name]
                where = " AND ".join(f"{part} = ?" for part in _TABLES[table])
                if data is None:
                    db.execute(f"DELETE FROM {table} WHERE {where}", key)
                else:
                    db.execute(
                        f"UPDATE OR REPLACE {table} SET {column} = ? WHERE {where}",
                        (from_bytes(data, made), *key),
                    )
            db.commit()
        with SqliteStore(folder) as store:
            yield store


_TABLES = {
    "facts": ("rowid",),
    "spaces": ("number",),
    "refs": ("space", "name"),
    "tail": ("key",),
    "segments": ("key",),
    "commits": ("prefix", "key"),
    "packs": ("number",),
    "shared": ("id",),
    "named": ("id", "space"),
}
"""All tables but that of leases, and those that only say again what records say."""


class PostgresRows(Medium):
    """The rows of a store in Postgres, changed by SQL."""

    def __init__(self, url: str, engine: type[PostgresStore] = PostgresStore) -> None:
        self._url = url
        with engine(url) as store:
            fill(store)
        self._db = psycopg.connect(url, autocommit=True)
        self.pieces = {}
        self._cells: dict[str, tuple[str, str, int, type]] = {}
        tables = self._db.execute(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = 'ropewalk' AND table_type = 'BASE TABLE' ORDER BY table_name"
        ).fetchall()
        self._db.execute("CREATE SCHEMA sound")
        for (table,) in tables:
            self._keep(table)

    def _keep(self, table: str) -> None:
        self._run(f"CREATE TABLE sound.{table} AS SELECT * FROM ropewalk.{table}")
        rows = self._run(f"SELECT row_number() OVER (ORDER BY ctid), * FROM sound.{table}")
        assert rows.description is not None
        columns = [column.name for column in rows.description][1:]
        for number, *row in rows.fetchall():
            for column, value in zip(columns, row, strict=True):
                if isinstance(value, bytes | str | int) and not isinstance(value, bool):
                    name = f"{table}.{column}|{number}"
                    self._cells[name] = table, column, number, type(value)
                    self.pieces = {**self.pieces, name: to_bytes(value)}

    @contextmanager
    def opened(self, harm: Mapping[str, bytes | None]) -> Iterator[Store]:
        touched = {self._cells[name][0] for name in harm}
        try:
            try:
                for name, data in harm.items():
                    self._change(name, data)
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                raise Impossible from error
            with PostgresStore(self._url) as store:
                yield store
        finally:
            for table in touched:
                self._run(f"DELETE FROM ropewalk.{table}")
                order = f"SELECT * FROM sound.{table} ORDER BY ctid"
                self._run(f"INSERT INTO ropewalk.{table} OVERRIDING SYSTEM VALUE {order}")

    def _change(self, name: str, data: bytes | None) -> None:
        table, column, number, made = self._cells[name]
        # Rows are in the order in which they were put back.
        place = (
            f"ctid = (SELECT ctid FROM (SELECT ctid, row_number() OVER (ORDER BY ctid) AS at "
            f"FROM ropewalk.{table}) AS rows WHERE at = {number})"
        )
        if data is None:
            self._run(f"DELETE FROM ropewalk.{table} WHERE {place}")
        else:
            self._run(
                f"UPDATE ropewalk.{table} SET {column} = %s WHERE {place}",
                (from_bytes(data, made),),
            )

    def _run(self, statement: str, values: tuple[object, ...] = ()) -> Any:
        return self._db.execute(statement.encode(), values or None)

    def close(self) -> None:
        """Let go of the server."""
        self._db.close()


class RedisValues(Medium):
    """The values of a store in Redis, changed by commands. A piece is a value or a part of one."""

    def __init__(self, url: str, engine: type[RedisStore] = RedisStore) -> None:
        self._url = url
        self._client = redis.Redis.from_url(url)
        with engine(url, durability="relaxed") as store:
            fill(store)
        self._sound = {key: self._client.dump(key) for key in self._client.scan_iter()}
        self.pieces = {}
        self._parts: dict[str, tuple[bytes, bytes | int | None]] = {}
        for key in sorted(self._sound):
            for part, value in self._parts_of(key):
                family = b":".join(key.split(b":")[:3]).decode()
                name = f"{family}|{key!r} {part!r}"
                self._parts[name] = key, part
                self.pieces = {**self.pieces, name: value}

    def _parts_of(self, key: bytes) -> Iterator[tuple[bytes | int | None, bytes]]:
        client: Any = self._client
        match client.type(key):
            case b"string":
                yield None, client.get(key)
            case b"hash":
                yield from sorted(client.hgetall(key).items())
            case b"list":
                yield from enumerate(client.lrange(key, 0, -1))
            case b"set":
                yield from ((member, member) for member in sorted(client.smembers(key)))
            case b"zset":
                yield from ((member, member) for member in client.zrange(key, 0, -1))

    @contextmanager
    def opened(self, harm: Mapping[str, bytes | None]) -> Iterator[Store]:
        try:
            for name, data in harm.items():
                self._change(*self._parts[name], data)
            with RedisStore(self._url, durability="relaxed") as store:
                yield store
        finally:
            for key in {self._parts[name][0] for name in harm}:
                sound = self._sound[key]
                assert isinstance(sound, bytes)
                self._client.restore(key, 0, sound, replace=True)

    def _change(self, key: bytes, part: bytes | int | None, data: bytes | None) -> None:
        client: Any = self._client
        match client.type(key):
            case b"string" if data is None:
                client.delete(key)
            case b"string":
                client.set(key, data)
            case b"hash" if data is None:
                client.hdel(key, part)
            case b"hash":
                client.hset(key, part, data)
            case b"list" if data is None:
                client.lset(key, part, b"\0gone\0")
                client.lrem(key, 1, b"\0gone\0")
            case b"list":
                client.lset(key, part, data)
            case b"set":
                client.srem(key, part)
                if data is not None:
                    client.sadd(key, data)
            case b"zset":
                score = client.zscore(key, part)
                client.zrem(key, part)
                if data is not None:
                    client.zadd(key, {data: score})

    def close(self) -> None:
        """Let go of the server."""
        self._client.close()


class Bucket(Medium):
    """The objects of a store in a bucket."""

    def __init__(self, engine: type[MemoryS3Store] = MemoryS3Store) -> None:
        data: dict[str, bytes] = {}
        with engine(MemoryBucket(data)) as store:
            fill(store)
        self.pieces = data

    @contextmanager
    def opened(self, harm: Mapping[str, bytes | None]) -> Iterator[Store]:
        changed = {**self.pieces, **harm}
        data = {name: data for name, data in changed.items() if data is not None}
        with MemoryS3Store(MemoryBucket(data)) as store:
            yield store


def media(  # noqa: C901 - one case for each
    name: str, folder: Path, url: Callable[[str], str]
) -> Medium:
    """A medium by its name."""
    match name:
        case "sqlite":
            return Files(SqliteStore, folder, lambda name: name.endswith((".db", ".pack")))
        case "sqlite, killed writer":
            return KilledWriter(folder)
        case "files":
            return Files(FileStore, folder, lambda name: not name.startswith("lock"))
        case "packed files":
            return Files(EagerFileStore, folder, lambda name: not name.startswith("lock"))
        case "cache before files":
            return Files(
                lambda path: CachedStore(FileStore(path)), folder, lambda name: len(name) == 62
            )
        case "bucket":
            return Bucket()
        case "packed bucket":
            return Bucket(EagerS3Store)
        case "sqlite rows":
            return SqliteRows(folder)
        case "packed sqlite rows":
            return SqliteRows(folder, EagerStore)
        case "postgres rows":
            return PostgresRows(url("postgres_url"))
        case "packed postgres rows":
            return PostgresRows(url("postgres_url"), EagerPostgresStore)
        case "redis values":
            return RedisValues(url("redis_url"))
        case "packed redis values":
            return RedisValues(url("redis_url"), EagerRedisStore)
    raise AssertionError(name)


MEDIA = (
    "sqlite",
    "sqlite, killed writer",
    "files",
    "packed files",
    "cache before files",
    "bucket",
    "packed bucket",
    "sqlite rows",
    "packed sqlite rows",
    "postgres rows",
    "packed postgres rows",
    "redis values",
    "packed redis values",
)


def to_bytes(value: bytes | str | int) -> bytes:
    """A value of a column as bytes that can be damaged."""
    match value:
        case bytes():
            return value
        case str():
            return value.encode()
        case int():
            return value.to_bytes(8, "big", signed=True)


def from_bytes(data: bytes, made: type) -> bytes | str | int:
    """Such bytes as a value of a column."""
    if made is str:
        return data.decode("utf-8", "replace").replace("\0", "?")
    if made is int:
        return int.from_bytes(data[:8], "big", signed=True)
    return data
