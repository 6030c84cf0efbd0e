"""A store in a Postgres database, for as many processes and machines as it serves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast
from uuid import UUID

from ropewalk.errors import FormatError, InvalidInput, RopewalkError
from ropewalk.store import _postgres_group
from ropewalk.store._aside import Scratch, TextIndex
from ropewalk.store._checks import expect, expect_seconds, expect_whole
from ropewalk.store._contents import Content, Pruned, contents
from ropewalk.store._decide import Batch, Presence
from ropewalk.store._frames import parse_header
from ropewalk.store._framing import DEFAULT_CACHE_BYTES
from ropewalk.store._object_store import ObjectStore
from ropewalk.store._own import CONTENT_SPACE
from ropewalk.store._postgres_arrays import KEY_SIZE, byteas, keys
from ropewalk.store._postgres_beside import Beside, PostgresScratch, PostgresTextIndex
from ropewalk.store._postgres_commit import (
    TYPES,
    Answer,
    base_of,
    frame_of,
    is_taken,
    operation_from,
    parameters_of,
    read_operation,
)
from ropewalk.store._postgres_sql import AFTER_NAMES, script
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
from ropewalk.tree.objects import ID_SIZE, Object, ObjectId

if TYPE_CHECKING:
    from ropewalk.store._postgres_database import Database

_LEASE = "bytea bigint bigint float8"
_AT_A_TIME = 1000
_SCANNED_AT_A_TIME = 2000
_HEAD = 64  # Bytes at the front of a frame that say what it is.


class PostgresStore(ObjectStore):
    """A store in one schema of a Postgres database.

    `dsn` is what Postgres connects with: a URL `postgresql://user:password@host/database`
    or `key=value` pairs; without one, Postgres' own defaults hold. The tables are made on
    first use, unless `create=False`. With `durability="full"` a commit that returned
    survives a power loss of the server; `"relaxed"` may lose its last moments, and nothing
    is ever half there.

    A call takes at most `timeout` seconds, and two more to find out why there is no
    connection; then it is `Unavailable`. Until then, what can be repeated without harm is:
    a commit is, by its write id. At most `max_connections` are open, and one more while
    somebody watches. PgBouncer may be between, in transaction mode; `listen_dsn` then leads
    to the server itself, for sooner news.

    `default_ttl_seconds` is how long the content of references is kept, `contents()` tells
    of it, and `prune_expired()` lets go what is over. `update_last_accessed` notes when
    content is read, which costs a second statement each time.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=True)
    poll_seconds: ClassVar[float | None] = 1.0

    def __init__(  # noqa: PLR0913 - each by name
        self,
        dsn: str | None = None,
        *,
        schema: str | None = None,
        backend_id: str = "postgres",
        backend_aliases: Iterable[str] = (),
        default_ttl_seconds: float | None = None,
        update_last_accessed: bool = False,
        durability: Literal["full", "relaxed"] | None = None,
        create: bool = True,
        min_connections: int = 1,
        max_connections: int = 10,
        timeout: float = 30.0,
        listen_dsn: str | None = None,
        connect_timeout: float = 10.0,
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
            default_ttl_seconds=default_ttl_seconds,
        )
        expect(dsn is None or isinstance(dsn, str), "dsn is a text", type(dsn))
        expect_whole(min_connections, 0, "min_connections")
        expect_whole(max_connections, max(min_connections, 1), "max_connections")
        expect_seconds(timeout, "timeout")
        expect(timeout > 0, "timeout is more than 0", timeout)
        expect_seconds(connect_timeout, "connect_timeout")
        self._notes_accesses = bool(update_last_accessed)
        try:
            from ropewalk.store import _postgres_database as databases  # Brings the driver.
            from ropewalk.store._postgres_pool import Settings
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"a store on Postgres needs the package {error.name!r}: "
                "pip install 'ropewalk[postgres]'"
            ) from error
        self._database: Database = databases.Database(
            dsn or "",
            databases.Asked(schema, durability, create, listen_dsn),
            Settings(min_connections, max_connections, timeout, connect_timeout),
        )
        self._beside = Beside(self._database)
        self._group = _postgres_group.Group(self._together)

    @staticmethod
    def sql(schema: str = "ropewalk") -> str:
        """What makes the schema, its tables and functions, for who does that by hand."""
        return script(schema)

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._database.header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""
        return self._database.durability

    @property
    def schema(self) -> str:
        """The schema that holds the tables."""
        return self._database.schema

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<{type(self).__name__} {self.backend_id!r}: {self._database.shown}{state}>"

    def _close(self) -> None:
        self._database.close()

    # Beside history.

    def _make_text_index(self) -> TextIndex:
        return PostgresTextIndex(self._beside)

    def _make_scratch(self) -> Scratch:
        return PostgresScratch(self._beside)

    def _ask(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._database.rows(statement, parameters)

    # The content of references.

    def read(self, ids: Iterable[ObjectId]) -> list[Object]:
        """The objects with these ids, in this order, each verified against its hash.

        As on every store; with `update_last_accessed` it is noted which content was read.
        """
        found = super().read(ids)
        if self._notes_accesses:
            self._note_accesses([one.id for one in found])
        return found

    def contents(self) -> Iterator[Content]:
        """What is kept for references: when each was stored, last read, and is over."""
        self._check_open()
        rows = self._ask("SELECT hash, at FROM {s}.accesses")
        return contents(self, {hash.hex(): at for hash, at in rows})

    def prune_expired(
        self, limit: int | None = None, *, now: int | None = None, grace: float = 0.0
    ) -> Pruned:
        """Drop expired references, and delete what only they held, as every store does."""
        done = super().prune_expired(limit, now=now, grace=grace)
        for some in _portions([bytes.fromhex(hash) for hash in done.hashes]):
            self._ask("DELETE FROM {s}.accesses WHERE hash = ANY (%b::bytea[])", byteas(some))
        return done

    def _note_accesses(self, ids: Sequence[ObjectId]) -> None:
        # Roots of content that is pinned; whatever else is read has no such name.
        with suppress(RopewalkError):  # It is only a note.
            self._ask(
                "INSERT INTO {s}.accesses (at, hash) SELECT now(), i.id "
                "FROM unnest(%b::bytea[]) i(id) JOIN {s}.spaces s ON s.name = %b::text "
                "JOIN {s}.refs r ON r.space = s.number AND r.name = 'pin/' || encode(i.id, 'hex') "
                "GROUP BY i.id ORDER BY i.id ON CONFLICT (hash) DO UPDATE SET at = EXCLUDED.at",
                byteas(list(ids)),
                CONTENT_SPACE,
            )

    # Objects.

    def _frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        found: dict[ObjectId, bytes] = {}
        for some in _portions(ids):
            asked = "SELECT id, base, frame FROM {s}.frames_1(%b::uuid[])"
            rows = self._database.rows(asked, (keys(some),), prepare=True)
            rests = {id[:KEY_SIZE]: id[KEY_SIZE:] for id, _, _ in rows}
            for id, base, piece in rows:
                known = None if base is None else rests.get(base.bytes)
                found[id] = frame_of(piece, base_of(base, known))
        return found

    def _presence(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Presence]:
        found: dict[ObjectId, Presence] = {}
        for some in _portions(ids):
            rows = self._ask(
                "SELECT uuid_send(o.key) || o.rest, o.depth, c.key IS NOT NULL FROM {s}.objects o "
                "LEFT JOIN {s}.condemned c ON c.key = o.key WHERE o.key = ANY (%b::uuid[])",
                keys(some),
            )
            found.update((id, Presence(depth, marked)) for id, depth, marked in rows)
        return found

    # Commits.

    def _commit(self, batch: Batch) -> Operation:
        share = _postgres_group.can_share(batch)
        answer = self._group.answer(batch, self._alone) if share else self._alone(batch)
        operation = operation_from(batch, answer)
        if answer.status == 0:
            self._database.changed(batch.space, answer.watched)
        return operation

    def _alone(self, batch: Batch) -> Answer:
        for attempt in count():
            given = parameters_of(batch, attempt)
            answer = Answer(*self._database.call("commit_2", TYPES, given))
            if not is_taken(batch, answer):
                break
        return answer

    def _together(self, parameters: Sequence[Any]) -> list[int] | None:
        types, patience = _postgres_group.TYPES, _postgres_group.LOCK_MILLISECONDS
        (answers,) = self._database.call("commits_1", types, parameters, once_for=patience)
        return cast(list[int] | None, answers)

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        rows = self._ask(
            "SELECT r.name, r.target, r.sequence FROM {s}.refs r JOIN {s}.spaces s "
            "ON s.number = r.space WHERE s.name = %b::text AND r.name = %b::text",
            space,
            name,
        )
        return Ref(*rows[0]) if rows else None

    def _view(self, space: str, prefix: str) -> View:
        rows = self._ask(
            "SELECT coalesce(s.sequence, 0), f.epoch, r.name, r.target, r.sequence "
            "FROM {s}.facts f LEFT JOIN {s}.spaces s ON s.name = %b::text "
            "LEFT JOIN {s}.refs r ON r.space = s.number "
            "AND r.name >= %b::text AND r.name < %b::text ORDER BY r.name",
            space,
            prefix,
            prefix + AFTER_NAMES,
        )
        sequence, epoch = rows[0][:2]
        return View(sequence, epoch, tuple(Ref(*row[2:]) for row in rows if row[2] is not None))

    def _spaces(self, prefix: str) -> list[str]:
        rows = self._ask(
            "SELECT name FROM {s}.spaces WHERE sequence > 0 "
            "AND name >= %b::text AND name < %b::text ORDER BY name",
            prefix,
            prefix + AFTER_NAMES,
        )
        return [name for (name,) in rows]

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        rows = self._ask(
            "SELECT o.sequence, o.epoch, o.record FROM {s}.operations o JOIN {s}.spaces s "
            "ON s.number = o.space WHERE s.name = %b::text AND o.sequence > %b::bigint "
            "ORDER BY o.sequence LIMIT %b::bigint",
            space,
            after,
            limit,
        )
        return [read_operation(space, *row) for row in rows]

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self._database.listen(space, wake)

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        rows = self._ask(
            "SELECT l.name, l.holder, l.token, l.beat, l.duration FROM {s}.leases l "
            "JOIN {s}.spaces s ON s.number = l.space WHERE s.name = %b::text AND l.name = %b::text",
            space,
            name,
        )
        return _lease_record(*rows[0]) if rows else None

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        rows = self._ask(
            "SELECT l.name, l.holder, l.token, l.beat, l.duration FROM {s}.leases l "
            "JOIN {s}.spaces s ON s.number = l.space WHERE s.name = %b::text "
            "AND l.name >= %b::text AND l.name < %b::text ORDER BY l.name",
            space,
            prefix,
            prefix + AFTER_NAMES,
        )
        return [_lease_record(*row) for row in rows]

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        given = (space, name, *_columns(expected), _encoded(holder), duration)
        (token,) = self._database.call("grant_1", f"text text {_LEASE} bytea float8", given)
        return None if token is None else LeaseRecord(name, holder, token, 0, duration)

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        given = (space, expected.name, *_columns(expected), *_columns(record))
        types = f"text text {_LEASE} {_LEASE}"
        # Sent again, it would find its own record and say that somebody else was faster.
        (swapped,) = self._database.call("swap_1", types, given, repeatable=False)
        return bool(swapped)

    # Collection.

    def _scan(self) -> Iterator[Stored]:
        for _, stored in self._rows():
            if stored is not None:
                yield stored

    def _rows(self) -> Iterator[tuple[ObjectId, Stored | None]]:
        """Every object; None for one whose frame says nothing."""
        last = UUID(int=0)
        while True:
            rows = self._ask(
                "SELECT o.key, o.rest, o.base, b.rest, "
                "substring(o.frame FROM 1 FOR %b::integer), "
                "octet_length(o.frame), c.key IS NOT NULL "
                "FROM {s}.objects o LEFT JOIN {s}.condemned c ON c.key = o.key "
                "LEFT JOIN {s}.objects b ON b.key = o.base "
                "WHERE o.key > %b::uuid ORDER BY o.key LIMIT %b::bigint",
                _HEAD,
                last,
                _SCANNED_AT_A_TIME,
            )
            for key, rest, base, base_rest, *row in rows:
                id = key.bytes + rest
                yield id, _stored(id, base_of(base, base_rest), *row)
            if len(rows) < _SCANNED_AT_A_TIME:
                return
            last = rows[-1][0]

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        invalid = self._ask(
            "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %b::text AND NOT (i.indisvalid AND i.indisready)",
            self.schema,
        )
        for (name,) in invalid:
            yield name, "this index is not valid. Run REINDEX on it."
        if read_data:
            for id, stored in self._rows():
                if stored is None:
                    yield id.hex(), "the frame of this object begins with what is none"

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        for some in _portions(ids):
            self._database.call("condemn_1", "uuid[] bigint", (keys(some), collection))

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        for some in _portions(ids):
            self._database.call("revive_1", "uuid[]", (keys(some),))

    def _raise_epochs(self) -> int:
        return int(self._database.call("raise_1", "", ())[0])

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        deleted: set[bytes] = set()
        for some in _portions(ids):
            given = (keys(some), collection)
            (gone,) = self._database.call("delete_1", "uuid[] bigint", given, repeatable=False)
            deleted.update(key.bytes for key in gone)
        return [id for id in ids if id[:KEY_SIZE] in deleted]

    def _disk_bytes(self) -> int:
        ((size,),) = self._ask(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %b::text AND c.relkind = 'r'",
            self.schema,
        )
        return int(size)


def _stored(
    id: ObjectId, base: ObjectId | None, head: bytes, size: int, condemned: bool
) -> Stored | None:
    try:
        header = parse_header(frame_of(head, base))
    except FormatError:
        return None
    stored = size + (0 if base is None else ID_SIZE)
    return Stored(id, header.kind, header.length, stored, header.base, condemned)


def _columns(record: LeaseRecord | None) -> tuple[Any, ...]:
    """Holder, token, beat and duration of a lease."""
    if record is None:
        return (None, None, None, None)
    return (_encoded(record.holder), record.token, record.beat, record.duration)


def _encoded(holder: str) -> bytes:
    return holder.encode("utf-8", "surrogatepass")  # Any text may name a holder.


def _lease_record(name: str, holder: bytes, token: int, beat: int, duration: float) -> LeaseRecord:
    return LeaseRecord(name, holder.decode("utf-8", "surrogatepass"), token, beat, duration)


def _portions(ids: Sequence[ObjectId]) -> Iterator[list[ObjectId]]:
    for start in range(0, len(ids), _AT_A_TIME):
        yield list(ids[start : start + _AT_A_TIME])
