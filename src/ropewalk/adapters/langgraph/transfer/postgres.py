"""The database of a `PostgresSaver`, or of a shallow one, read with psycopg."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ropewalk.adapters.langgraph.transfer.databases import (
    Checkpointed,
    Counts,
    Key,
    LeftOut,
    PendingWrite,
    WriteKey,
    check_checkpoint,
)
from ropewalk.adapters.langgraph.transfer.values import Unreadable, ValueDecoder
from ropewalk.errors import InvalidInput, NotAllowed, Unavailable

try:
    import psycopg
    from psycopg import conninfo, sql

    from ropewalk.store.postgres.errors import bad_dsn, from_connecting, said
except ModuleNotFoundError as missing:
    raise ImportError(
        "a database of Postgres needs psycopg: pip install 'ropewalk[postgres]'"
    ) from missing

_TABLES: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
_TASKS: Final = "__pregel_tasks"
_FIRST_VERSION: Final = f"{1:032}.{0:016}"
_KEPT: Final = 64 * 2**20
_OWN_OPTIONS: Final = ("schema", "durability")


class PostgresDatabase:
    """Three tables of a schema, read in one snapshot: concurrent writes are not seen."""

    label = "Postgres"

    def __init__(self, url: str, schema: str | None = None) -> None:
        self._connection, self._place = connected(url)
        try:
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._schema = schema or self._found_schema()
            self._columns = {table: self._columns_of(table) for table in _TABLES}
            self._check_columns()
        except BaseException as error:
            self.close()
            if isinstance(error, psycopg.Error):
                raise self._translated(error) from error
            raise
        # A shallow saver keeps only the last checkpoint of a thread, and no versions of blobs.
        self._shallow = "checkpoint_id" not in self._columns["checkpoints"]
        self._blobs = _Blobs()

    def _found_schema(self) -> str:
        found = self._connection.execute(
            "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = to_regclass('checkpoints')"
        ).fetchone()
        if found is None:
            raise InvalidInput(
                f"{self._place} has no table checkpoints: name the schema that holds the tables "
                "of the PostgresSaver"
            )
        return str(found[0])

    def _columns_of(self, table: str) -> set[str]:
        rows = self._connection.execute(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s",
            (self._schema, table),
        )
        return {str(row[0]) for row in rows}

    def _check_columns(self) -> None:
        needed = {
            "checkpoints": {"thread_id", "checkpoint_ns", "checkpoint", "metadata"},
            "checkpoint_blobs": {"thread_id", "checkpoint_ns", "channel", "type", "blob"},
            "checkpoint_writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "blob"},
        }
        for table, columns in needed.items():
            missing = columns - self._columns[table]
            if missing:
                raise InvalidInput(
                    f"no PostgresSaver of langgraph-checkpoint-postgres 2 or 3 wrote schema "
                    f"{self._schema!r} of {self._place}: its table {table} has no "
                    f"{', '.join(sorted(missing))}"
                )

    # Listing.

    def size(self) -> int:
        """The bytes of the tables, with their indexes."""
        total = 0
        for table in _TABLES:
            name = sql.Identifier(self._schema, table).as_string(self._connection)
            (row,) = self._ask("SELECT pg_total_relation_size(%s::regclass)", name)
            total += int(row[0])
        return total

    def threads(self) -> list[str]:
        """The ids of all threads."""
        found: set[str] = set()
        for table in ("checkpoints", "checkpoint_writes"):
            found.update(row[0] for row in self._ask(f"SELECT DISTINCT thread_id FROM {{{table}}}"))
        return sorted(found)

    def counts(self, threads: Iterable[str] | None = None) -> Counts:
        """The number of rows, of some threads or of all."""
        chosen = self.threads() if threads is None else list(threads)
        counted = []
        for table in ("checkpoints", "checkpoint_writes"):
            asked = f"SELECT count(*) FROM {{{table}}} WHERE thread_id = ANY(%s)"
            counted.append(int(next(self._ask(asked, chosen))[0]))
        return Counts(len(chosen), counted[0], counted[1])

    def keys(self, thread_id: str) -> list[Key]:
        """The checkpoints of a thread, by id."""
        names = (
            "checkpoint ->> 'id', NULL" if self._shallow else "checkpoint_id, parent_checkpoint_id"
        )
        asked = f"SELECT checkpoint_ns, {names} FROM {{checkpoints}} WHERE thread_id = %s"
        found = [Key(*row) for row in self._ask(asked, thread_id)]
        return sorted(found, key=lambda key: (key.id or "", key.namespace))

    def write_keys(self, thread_id: str) -> list[WriteKey]:
        """The pending writes of a thread."""
        asked = (
            "SELECT checkpoint_ns, checkpoint_id, task_id, idx FROM {checkpoint_writes} "
            "WHERE thread_id = %s"
        )
        return sorted(WriteKey(*row) for row in self._ask(asked, thread_id))

    # Rows.

    def checkpoint(self, thread_id: str, key: Key, decoder: ValueDecoder) -> Checkpointed | LeftOut:
        """A checkpoint; unreadable parts are reported, not raised."""
        one = "" if self._shallow else " AND checkpoint_id = %s"
        asked = (
            "SELECT checkpoint, metadata, octet_length(checkpoint::text), CASE WHEN "
            "jsonb_typeof(checkpoint -> 'channel_versions') = 'object' THEN (SELECT "
            "jsonb_object_agg(v.key, v.value) FROM jsonb_each_text(checkpoint -> "
            "'channel_versions') v) END FROM {checkpoints} "
            f"WHERE thread_id = %s AND checkpoint_ns = %s{one}"
        )
        given = (thread_id, key.namespace) + (() if self._shallow else (key.id,))
        checkpoint, metadata, size, versions = next(self._ask(asked, *given))
        what = "the checkpoint"
        try:
            if not isinstance(checkpoint, dict):
                raise Unreadable("damaged", "it is no checkpoint")
            check_checkpoint({"channel_values": {}, "versions_seen": {}, **checkpoint}, key)
            values = dict(checkpoint.get("channel_values") or {})
            for channel, kind, data in self._blobs_of(thread_id, key, versions or {}):
                what = f"the channel {channel!r}"
                if kind != "empty":
                    values[channel] = self._blobs.decoded(channel, kind, data, decoder)
                    size += len(data or b"")
            made = {**checkpoint, "channel_values": values}
            self._add_sends(thread_id, key, made, decoder)
        except Unreadable as error:
            return LeftOut(error.reason, thread_id, key.namespace, key.id, what, str(error))
        about = metadata if isinstance(metadata, dict) else {}
        return Checkpointed(key, made, about, size)

    def _blobs_of(
        self, thread_id: str, key: Key, versions: Mapping[str, str]
    ) -> Iterator[tuple[str, str, bytes | None]]:
        """The blobs of a checkpoint; those shared with the previous one are not read again."""
        self._blobs.turn_to(thread_id, key.namespace)
        if self._shallow:
            asked = (
                "SELECT channel, type, blob FROM {checkpoint_blobs} "
                "WHERE thread_id = %s AND checkpoint_ns = %s AND channel = ANY(%s)"
            )
            yield from self._ask(asked, thread_id, key.namespace, list(versions))
            return
        asked = (
            "SELECT type, blob FROM {checkpoint_blobs} WHERE thread_id = %s "
            "AND checkpoint_ns = %s AND channel = %s AND version = %s"
        )
        for channel, version in versions.items():
            found = self._blobs.get(channel, version)
            if found is None:
                found = next(self._ask(asked, thread_id, key.namespace, channel, version), None)
                found = ("empty", None) if found is None else found
                self._blobs.put(channel, version, found)
            yield channel, *found

    def _add_sends(
        self, thread_id: str, key: Key, checkpoint: dict[str, Any], decoder: ValueDecoder
    ) -> None:
        """Migrate sends from before format 4 to their channel, as the saver does."""
        version = checkpoint.get("v")
        if not isinstance(version, int) or version >= 4 or not (self._shallow or key.parent_id):
            return
        asked = (
            "SELECT type, blob FROM {checkpoint_writes} WHERE thread_id = %s AND channel = %s AND "
        )
        if self._shallow:
            asked, given = asked + "checkpoint_ns = %s", key.namespace
        else:
            asked, given = asked + "checkpoint_id = %s", str(key.parent_id)
        order = " ORDER BY task_path, task_id, idx" if self._has_path else " ORDER BY task_id, idx"
        sends = [decoder.decode(*row) for row in self._ask(asked + order, thread_id, _TASKS, given)]
        if sends:
            versions = dict(checkpoint["channel_versions"])
            versions[_TASKS] = max(versions.values()) if versions else _FIRST_VERSION
            checkpoint["channel_values"][_TASKS] = sends
            checkpoint["channel_versions"] = versions

    @property
    def _has_path(self) -> bool:
        return "task_path" in self._columns["checkpoint_writes"]

    def writes(
        self, thread_id: str, namespace: str, checkpoint_id: str, decoder: ValueDecoder
    ) -> Iterator[PendingWrite | LeftOut]:
        """The pending writes of a checkpoint."""
        path = "task_path" if self._has_path else "''"
        asked = (
            f"SELECT task_id, {path}, idx, channel, type, blob FROM {{checkpoint_writes}} "
            "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s ORDER BY 2, 1, 3"
        )
        for task, task_path, idx, channel, kind, data in self._ask(
            asked, thread_id, namespace, checkpoint_id
        ):
            try:
                value = decoder.decode(kind, data)
            except Unreadable as error:
                what = f"the write {idx} of task {task} to {channel!r}"
                yield LeftOut(error.reason, thread_id, namespace, checkpoint_id, what, str(error))
            else:
                yield PendingWrite(task, task_path, idx, channel, value, len(data or b""))

    # Statements.

    def _ask(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Run a query; `{checkpoints}` in it stands for the table of the schema."""
        named = {table: sql.Identifier(self._schema, table) for table in _TABLES}
        composed = sql.SQL(statement).format(**named)
        try:
            with self._connection.cursor(binary=True) as cursor:
                yield from cursor.execute(composed, values)
        except psycopg.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: psycopg.Error) -> Exception:
        if error.sqlstate == "42501":
            return NotAllowed(f"{self._place} may not be read: {said(error)}. Ask for SELECT.")
        return Unavailable(f"{self._place}: {said(error)}")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


class _Blobs:
    """A cache of a thread's recent blobs, which many checkpoints share."""

    def __init__(self) -> None:
        self._place: tuple[str, str] | None = None
        self._found: OrderedDict[tuple[str, str], tuple[str, bytes | None]] = OrderedDict()
        self._values: dict[str, tuple[bytes | None, Any]] = {}
        self._room = _KEPT

    def turn_to(self, thread_id: str, namespace: str) -> None:
        """Evict the blobs of another thread."""
        if self._place != (thread_id, namespace):
            self._place, self._room = (thread_id, namespace), _KEPT
            self._found.clear()
            self._values.clear()

    def get(self, channel: str, version: str) -> tuple[str, bytes | None] | None:
        """A cached blob."""
        return self._found.get((channel, version))

    def put(self, channel: str, version: str, found: tuple[str, bytes | None]) -> None:
        """Cache a blob, as far as there is room."""
        self._found[channel, version] = found
        self._room -= len(found[1] or b"")
        while self._room < 0 and len(self._found) > 1:
            _, (_, data) = self._found.popitem(last=False)
            self._room += len(data or b"")

    def decoded(self, channel: str, kind: str, data: bytes | None, decoder: ValueDecoder) -> Any:
        """The decoded value of a blob; the last one of each channel is cached."""
        last = self._values.get(channel)
        if last is None or last[0] is not data:
            last = (data, decoder.decode(kind, data))
            self._values[channel] = last
        return last[1]


def connected(url: str, **options: Any) -> tuple[psycopg.Connection[Any], str]:
    """A connection, and its target without a password."""
    try:
        told = conninfo.conninfo_to_dict(_without_own(url))
    except psycopg.Error:
        raise bad_dsn() from None
    place = f"the database {told.get('dbname', '')!r} on {told.get('host', 'this machine')}"
    try:
        given: dict[str, Any] = {**told, "client_encoding": "utf8"}
        given.setdefault("connect_timeout", 10)
        connection = psycopg.connect("", prepare_threshold=None, **options, **given)
    except psycopg.Error as error:
        raise from_connecting(place, error) from error
    return connection, place


def _without_own(url: str) -> str:
    place, question, options = url.partition("?")
    kept = [one for one in options.split("&") if one.partition("=")[0] not in _OWN_OPTIONS]
    return f"{place}?{'&'.join(kept)}" if question and any(kept) else place
