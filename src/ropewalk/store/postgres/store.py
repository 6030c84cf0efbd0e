"""A store in a Postgres database, for as many processes and machines as it serves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from ropewalk.errors import (
    Corrupt,
    FormatError,
    InvalidInput,
    MissingObjects,
    RefMoved,
    RopewalkError,
)
from ropewalk.store.collection import Sweep, names_of, touches
from ropewalk.store.compression import compress
from ropewalk.store.group import Member, SendingGroup
from ropewalk.store.log import LogStore, Moved
from ropewalk.store.model import (
    Capabilities,
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
)
from ropewalk.store.postgres import commit
from ropewalk.store.postgres.commit import Answer, Draft, bigints, byteas, prefix_of
from ropewalk.store.postgres.schema import AFTER_NAMES, script
from ropewalk.store.postgres.scratch import PostgresScratch
from ropewalk.store.postgres.search_index import PostgresTextIndex
from ropewalk.store.record import GROUP, Append, Place, Row, fenced_off, same_group, sequence_of
from ropewalk.store.reserved import CONTENT_SPACE, Content, Pruned, contents
from ropewalk.store.retry import limit_retries
from ropewalk.store.scratch import BestEffort, Scratch
from ropewalk.store.search_index import TextIndex
from ropewalk.store.segment import Packed
from ropewalk.store.validation import expect, expect_seconds, expect_whole
from ropewalk.tree.nodes import links
from ropewalk.tree.objects import ID_SIZE, Kind, Object, ObjectId

if TYPE_CHECKING:
    from ropewalk.store.postgres.database import Database
    from ropewalk.store.pubsub import PubSub

_LEASE: Final = "bytea bigint bigint float8"
_AT_A_TIME: Final = 1000
_COLLECTED_AT_A_TIME: Final = 10_000
_SENT_AT_A_TIME: Final = 4 << 20
_TRIES: Final = 20
_SMALL_TAIL: Final = 64 << 20
_VACUUMED_AFTER: Final = 1024
"""This many packed rows leave enough space for new ones to justify a vacuum."""

_GROUP_BYTES: Final = 256 * 1024
_LEADS_AFTER: Final = 0.05  # Seconds that a thread waits for a leader before it leads as well.

LOCK_MILLISECONDS: Final = 200
"""How long a group waits for a locked space, so that its other members are not delayed."""


class Look(NamedTuple):
    """A snapshot of a space, with some of its refs."""

    sound: bool
    epoch: int
    last: int
    packed: int
    complete: bool | None
    names: str | None
    targets: bytes | None
    moved: str | None

    def refs(self) -> tuple[Ref, ...]:
        """The refs, by name."""
        if self.names is None or self.targets is None or self.moved is None:
            return ()
        targets = self.targets
        return tuple(
            Ref(name, targets[at * ID_SIZE : (at + 1) * ID_SIZE], int(moved))
            for at, (name, moved) in enumerate(
                zip(self.names.split(" "), self.moved.split(" "), strict=True)
            )
        )


class PostgresStore(LogStore):
    """A store in one schema of a Postgres database.

    `dsn` is a connection string: a URL `postgresql://user:password@host/database` or `key=value`
    pairs; without one, Postgres' own defaults apply. The tables are created on first use, unless
    `create=False`. With `durability="full"` a commit that returned survives a power loss of the
    server; `"relaxed"` may lose the last moments, but never half a commit.

    A call takes at most `timeout` seconds, and two more to diagnose a failed connection; then it
    raises `Unavailable`. Until then, whatever is safe to repeat is retried; a commit is, by its
    write id. At most `max_connections` are open, and one more while there are watchers. PgBouncer
    in transaction mode may be in between; `listen_dsn` then leads to the server itself, for faster
    notifications.

    `default_ttl_seconds` is how long the content of references is kept; `contents()` lists it, and
    `prune_expired()` releases what has expired. `update_last_accessed` records when content is
    read, which costs a second statement per read.
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
    ) -> None:
        super().__init__(
            backend_id=backend_id,
            backend_aliases=backend_aliases,
            clock=clock,
            threads=threads,
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
            from ropewalk.store.postgres import database as databases  # Imports the driver.
            from ropewalk.store.postgres.errors import DATA_ERRORS
            from ropewalk.store.postgres.pool import Settings
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
        self._group: SendingGroup[Draft, Answer] = SendingGroup(
            self._send_together,
            _GROUP_BYTES,
            patience=_LEADS_AFTER,
            gathers=True,
            resend=self._send_again,
        )
        self._best_effort = BestEffort(lambda: DATA_ERRORS)
        self._unvacuumed = 0

    @staticmethod
    def sql(schema: str = "ropewalk") -> str:
        """The SQL that creates the schema, its tables and functions, to be run by hand."""
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

    @property
    def pubsub(self) -> PubSub:
        """The listener behind `watch` and the buses of this store."""
        return self._database.pubsub

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<{type(self).__name__} {self.backend_id!r}: {self._database.shown}{state}>"

    def _close(self) -> None:
        with limit_retries(0):  # Do not wait for a server that is gone.
            self._close_packer()
            if self._unvacuumed:
                self._vacuum("")
        self._database.close()

    # Beside history.

    def _make_text_index(self) -> TextIndex:
        return PostgresTextIndex(self._database, self._best_effort)

    def _make_scratch(self) -> Scratch:
        return PostgresScratch(self._database, self._best_effort)

    def _ask(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._database.rows(statement, *parameters)

    # The content of references.

    def read(self, ids: Iterable[ObjectId]) -> list[Object]:
        """The objects with these ids, in this order, each verified against its hash.

        As on every store; with `update_last_accessed`, reads of content are recorded.
        """
        found = super().read(ids)
        if self._notes_accesses:
            self._note_accesses([one.id for one in found])
        return found

    def contents(self) -> Iterator[Content]:
        """The content kept for references: when each was stored, was last read, and expires."""
        self._check_open()
        rows = self._ask("SELECT hash, at FROM {s}.accesses")
        return contents(self, {hash.hex(): at for hash, at in rows})

    def prune_expired(
        self, limit: int | None = None, *, now: int | None = None, grace: float = 0.0
    ) -> Pruned:
        """Drop expired references, and delete what only they kept, as every store does."""
        done = super().prune_expired(limit, now=now, grace=grace)
        for some in _portions([bytes.fromhex(hash) for hash in done.hashes]):
            self._ask("DELETE FROM {s}.accesses WHERE hash = ANY (%b::bytea[])", byteas(some))
        return done

    def _note_accesses(self, ids: Sequence[ObjectId]) -> None:
        # Roots of pinned content; no other reads have an entry.
        with suppress(RopewalkError):  # Best effort: losing this record is harmless.
            self._ask(
                "INSERT INTO {s}.accesses (at, hash) SELECT now(), i.id "
                "FROM unnest(%b::bytea[]) i(id) JOIN {s}.spaces s ON s.name = %b::text "
                "JOIN {s}.refs r ON r.space = s.number AND r.name = 'pin/' || encode(i.id, 'hex') "
                "GROUP BY i.id ORDER BY i.id ON CONFLICT (hash) DO UPDATE SET at = EXCLUDED.at",
                byteas(list(ids)),
                CONTENT_SPACE,
            )

    # Committing.

    def _commit(self, batch: Append) -> Operation:  # noqa: C901 - one case for each answer
        if batch.shared:
            self._share(batch.shared)
        space = batch.space
        cache = self._space(space)
        dictionary, known = cache.dictionary(batch)
        draft = Draft(batch, cache.tip.last, dictionary, batch.frame(known))
        while True:
            member = Member(draft, len(draft.frame))
            answer = self._send([draft])[0] if draft.alone else self._group.run(member)
            match answer.status:
                case commit.MADE:
                    break
                case commit.RECORDED:
                    record = self._record(space, answer.said)
                    recorded = self._find_write(batch, [record])
                    if recorded is not None:
                        batch.recorded = recorded
                        return recorded
                    draft.look = False  # A hash collision of two write ids.
                case commit.FENCED:
                    raise fenced_off(space, batch.fences[answer.said])
                case commit.MOVED:
                    move = batch.moves[answer.said]
                    raise RefMoved(move.name, move.expected, answer.actual)
                case commit.EPOCH:
                    raise Moved(answer.said)
                case commit.MISSING:
                    raise MissingObjects(sorted(batch.missing))
                case commit.GONE:
                    gone = batch.names.difference(batch.shared)
                    if gone := gone - self._present_shared(list(gone)):
                        raise MissingObjects(sorted(gone))
                    self._share(batch.shared)  # Collected since the check.
                case _:
                    last, dictionary = answer.said, draft.dictionary
                    frame = draft.frame
                    if dictionary is not None and not (
                        answer.packed < dictionary and same_group(last + 1, dictionary)
                    ):
                        dictionary, frame = None, batch.frame(None)
                    draft.frame_for(last, dictionary, frame, GROUP)
        self._landed(batch, answer.said)
        self._database.changed(space, answer.watched)
        self._watch_tail(cache, space, answer.said, len(draft.frame))
        return Operation(
            space, answer.said, batch.moves, batch.write_id, batch.time, batch.known_epoch,
            batch.metadata,
        )  # fmt: skip

    def _send_again(self, draft: Draft) -> Answer:
        """Send commits again that may have been made already."""
        draft.look = True
        return self._send([draft])[0]

    def _send_together(self, drafts: Sequence[Draft]) -> list[Answer]:
        # Spaces are locked in a fixed order, so that two groups never deadlock.
        ordered = sorted(drafts, key=lambda draft: draft.batch.space)
        answers = dict(zip(map(id, ordered), self._send(ordered), strict=True))
        return [answers[id(draft)] for draft in drafts]

    def _send(self, drafts: Sequence[Draft]) -> list[Answer]:
        sent = False

        def given() -> list[Any]:
            nonlocal sent
            again, sent = sent, True
            return commit.parameters_of(drafts, again=again, encoding=self._database.encoding)

        patience = None if len(drafts) == 1 else LOCK_MILLISECONDS
        answers, actual = self._database.call("commit_3", commit.TYPES, given, patience=patience)
        return commit.answers_from(answers, actual)

    # Shared objects.

    def _share(self, objects: Mapping[ObjectId, Object]) -> None:
        """Store missing shared objects, before the commit that references them."""
        there = self._present_shared(list(objects))
        absent = [one for id, one in objects.items() if id not in there]
        while absent:
            some: list[Object] = []
            frames: list[bytes] = []
            size = 0
            while absent and size < _SENT_AT_A_TIME:
                some.append(absent.pop())
                frames.append(bytes((some[-1].kind,)) + compress(some[-1].payload))
                size += len(frames[-1])
            self._ask(  # The commit syncs it.
                "INSERT INTO {s}.shared (kind, length, id, leads, frame) SELECT * FROM unnest("
                "%b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[]) "
                "o(kind, length, id) ORDER BY o.id ON CONFLICT (id) DO NOTHING",
                bigints([one.kind for one in some]),
                bigints([len(one.payload) for one in some]),
                byteas([one.id for one in some]),
                byteas([b"".join(_links(one)) or None for one in some]),
                byteas(frames),
            )

    def _read_shared(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        asked = "SELECT id, frame FROM {s}.shared WHERE id = ANY (%b::bytea[])"
        return {
            id: frame for some in _portions(ids) for id, frame in self._ask(asked, byteas(some))
        }

    def _present_shared(self, ids: Sequence[ObjectId]) -> set[ObjectId]:
        asked = "SELECT id FROM {s}.shared WHERE id = ANY (%b::bytea[])"
        return {id for some in _portions(ids) for (id,) in self._ask(asked, byteas(some))}

    def _leading_shared(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        asked = "SELECT id FROM {s}.shared WHERE id = ANY (%b::bytea[]) AND leads IS NOT NULL"
        return {id for some in _portions(list(ids)) for (id,) in self._ask(asked, byteas(some))}

    def _scan_shared(self) -> Iterator[Stored]:
        after = b""
        while rows := self._ask(
            "SELECT id, kind, length, octet_length(frame) FROM {s}.shared "
            "WHERE id > %b::bytea ORDER BY id LIMIT %b::bigint",
            after,
            _AT_A_TIME,
        ):
            try:
                for id, kind, length, size in rows:
                    yield Stored(id, Kind(kind), length, size)
            except ValueError as error:
                raise Corrupt(f"a row of the list of shared objects is damaged: {error}") from error
            after = rows[-1][0]

    def _count_shared(self) -> tuple[int, int]:
        asked = "SELECT count(*), coalesce(sum(octet_length(frame)), 0)::bigint FROM {s}.shared"
        ((number, size),) = self._ask(asked)
        return number, size

    def _discard(self, ids: Sequence[ObjectId]) -> None:
        for some in _portions(ids):
            self._ask("DELETE FROM {s}.shared WHERE id = ANY (%b::bytea[])", byteas(some))

    # The log.

    def _look(self, space: str, first: str | None = None, after: str | None = None) -> Look:
        """A space, and its refs in a range of names; raises `Corrupt`."""
        (row,) = self._database.ask("view_1", "text text text", space, first, after)
        look = Look(*row)
        if not look.sound:
            raise _damaged_space(space)
        if look.complete is False:
            raise Corrupt(
                f"the refs of {space!r} are damaged: one was changed or is gone, or records that "
                "moved it are lost. Restore the store from a copy; other spaces are not affected."
            )
        self._note(space, look.epoch, look.last)
        return look

    def _epoch(self, space: str) -> int:
        return self._look(space).epoch

    def _span(self, space: str) -> tuple[int, int]:
        look = self._look(space)
        return look.packed, look.last

    def _rows(self, space: str, first: int, last: int) -> list[Row]:
        rows = self._loaded(space, first, last)
        return [Row(at, lean, frame) for at, lean, head, frame in rows if head is None]

    def _load(self, space: str, sequence: int) -> list[Row] | Packed | None:
        rows = self._loaded(space, (sequence - 1) // GROUP * GROUP + 1, sequence)
        if rows and rows[-1][2] is not None:
            packed = Packed(*rows.pop())
            return packed if packed.first <= sequence else None
        return [Row(at, lean, frame) for at, lean, _, frame in rows]

    def _loaded(self, space: str, first: int, last: int) -> list[tuple[Any, ...]]:
        return self._database.ask("load_1", "text integer integer", space, first, last)

    def _locate(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, int]:
        found: dict[ObjectId, int] = {}
        for some in _portions(ids):
            rows = dict(
                self._ask(
                    "SELECT c.prefix, c.sequence FROM {s}.spaces s JOIN {s}.commits c "
                    "ON c.space = s.number WHERE s.name = %b::text "
                    "AND c.prefix = ANY (%b::bigint[])",
                    space,
                    bigints([prefix_of(id) for id in some]),
                )
            )
            found.update((id, rows[prefix_of(id)]) for id in some if prefix_of(id) in rows)
        return found

    def _find(self, space: str, key: bytes) -> list[int]:
        rows = self._ask(
            "SELECT r.sequence FROM {s}.spaces s JOIN {s}.packed r ON r.space = s.number "
            "WHERE s.name = %b::text AND r.find = %b::bytea UNION "
            "SELECT r.sequence FROM {s}.spaces s JOIN {s}.tail r ON r.space = s.number "
            "WHERE s.name = %b::text AND r.find = %b::bytea ORDER BY 1",
            space, key, space, key,
        )  # fmt: skip
        return [sequence for (sequence,) in rows]

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        refs = self._look(space, name, name + "\x01").refs()
        return refs[0] if refs else None

    def _view(self, space: str, prefix: str) -> View:
        look = self._look(space, prefix, prefix + AFTER_NAMES)
        return View(look.last, look.epoch, look.refs())

    def _spaces(self, prefix: str) -> list[str]:
        rows = self._ask(
            "SELECT name, s.sequence, s.sound AND n.there "
            "FROM (SELECT name, sequence, mark = {s}.space_mark_1(o) AS sound "
            "FROM {s}.spaces o WHERE name >= %b::text AND name < %b::text) s "
            "FULL JOIN (SELECT name, true AS there FROM {s}.names "
            "WHERE name >= %b::text AND name < %b::text) n USING (name) ORDER BY name",
            prefix, prefix + AFTER_NAMES, prefix, prefix + AFTER_NAMES,
        )  # fmt: skip
        for name, _, sound in rows:
            if not sound:
                raise _damaged_space(name)
        return [name for name, sequence, _ in rows if sequence]

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
        (token,) = self._database.call("grant_2", f"text text {_LEASE} bytea float8", given)
        return None if token is None else LeaseRecord(name, holder, token, 0, duration)

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        change = "DELETE FROM {s}.leases l USING {s}.spaces s"
        after: tuple[object, ...] = ()
        if record is not None:
            change = (
                "UPDATE {s}.leases l SET holder = %b::bytea, token = %b::bigint, "
                "beat = %b::bigint, duration = %b::float8 FROM {s}.spaces s"
            )
            after = _columns(record)
        # A retry would find its own record and report that another holder was faster.
        return bool(
            self._database.change(
                f"{change} WHERE s.name = %b::text AND l.space = s.number AND l.name = %b::text "
                "AND l.holder = %b::bytea AND l.token = %b::bigint AND l.beat = %b::bigint "
                "AND l.duration = %b::float8 RETURNING 1",
                *after,
                space,
                expected.name,
                *_columns(expected),
            )
        )

    # Segments and collection.

    def _settle(
        self, space: str, packed: Packed, commits: Sequence[tuple[ObjectId, Place]]
    ) -> bool:
        given = (
            space, packed.first, packed.last, packed.head, packed.data,
            bigints([prefix_of(id) for id, _ in commits]),
            bigints([sequence_of(place) for _, place in commits]),
        )  # fmt: skip
        types = "text integer integer bytea bytea bigint[] bigint[]"
        # It needs no sync: a power loss undoes all of it.
        (done,) = self._database.call("settle_1", types, given, durable=False)
        if done:
            self._unvacuumed += packed.last - packed.first + 1
            if self._unvacuumed >= _VACUUMED_AFTER:
                self._vacuum("(TRUNCATE off)")
        return bool(done)

    def _vacuum(self, options: str) -> None:
        """Free space in the tail for new rows, earlier than autovacuum would."""
        self._unvacuumed = 0
        with suppress(RopewalkError):
            ((size,),) = self._ask("SELECT pg_relation_size('{s}.tail')")
            if size < _SMALL_TAIL:  # In a large one, most pages did not change.
                self._ask(f"VACUUM {options} {{s}}.tail")

    def _replace(self, space: str, found: Sweep) -> bool:
        gone = {id for id, _ in found.gone}
        types = (
            "text integer integer bigint[] bigint[] bytea[] bytea[] bytea[] bigint[] bigint[] "
            "bytea[]"
        )
        for _ in range(_TRIES):
            last = self._span(space)[1]
            since = self._records_after(space, found.last, last)
            if touches(since, found.dead, gone):
                return False
            lost = self._named_by(space) - found.named - names_of(since)
            given = (
                space, found.epoch, last,
                bigints([one.first for one in found.replaced]),
                bigints([one.last for one in found.replaced]),
                byteas([one.head for one in found.replaced]),
                byteas([one.data for one in found.replaced]),
                byteas([id for id, _ in found.gone]),
                bigints([prefix_of(id) for id, _ in found.gone]),
                bigints([sequence for _, sequence in found.gone]),
                byteas(sorted(lost)),
            )  # fmt: skip
            # A retry would find the epoch it raised itself.
            (done,) = self._database.call("replace_1", types, given, repeatable=False)
            if done != 1:  # Another operation came in between.
                return bool(done)
        return False

    def _named_by(self, space: str) -> set[ObjectId]:
        asked = (
            "SELECT n.id FROM {s}.named n JOIN {s}.spaces s ON s.number = n.space "
            "WHERE s.name = %b::text"
        )
        return {id for (id,) in self._ask(asked, space)}

    def _names_more(self, space: str, named: set[ObjectId]) -> bool:
        return not self._named_by(space) <= named

    def _collect_shared(self, named: set[ObjectId] | None) -> tuple[int, int]:
        number = size = 0
        after: bytes | None = b""
        types = "bytea[] bytea integer"
        while after is not None:
            given = (
                None if named is None else byteas(sorted(named)), after, _COLLECTED_AT_A_TIME
            )  # fmt: skip
            after, more, bytes_more = self._database.call("collect_2", types, given)
            number, size = number + more, size + bytes_more
        return number, size

    # Care.

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        invalid = self._ask(
            "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %b::text AND NOT (i.indisvalid AND i.indisready)",
            self.schema,
        )
        for (name,) in invalid:
            yield name, "this index is not valid. Run REINDEX on it."

    def _disk_bytes(self) -> int:
        ((size,),) = self._ask(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %b::text AND c.relkind = 'r'",
            self.schema,
        )
        return int(size)


def _columns(record: LeaseRecord | None) -> tuple[Any, ...]:
    """Holder, token, heartbeat and duration of a lease."""
    if record is None:
        return (None, None, None, None)
    return (_encoded(record.holder), record.token, record.beat, record.duration)


def _encoded(holder: str) -> bytes:
    return holder.encode("utf-8", "surrogatepass")  # A holder's name may be any text.


def _lease_record(name: str, holder: bytes, token: int, beat: int, duration: float) -> LeaseRecord:
    try:
        who = holder.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Corrupt(
            f"lease {name} is damaged: its holder is no text. Delete its row: whoever holds it is "
            "told that it is lost."
        ) from error
    return LeaseRecord(name, who, token, beat, duration)


def _portions(ids: Sequence[ObjectId]) -> Iterator[list[ObjectId]]:
    for start in range(0, len(ids), _AT_A_TIME):
        yield list(ids[start : start + _AT_A_TIME])


def _links(one: Object) -> Sequence[ObjectId]:
    try:
        return links(one)
    except FormatError:
        return ()  # Not one of ours: it has no links.


def _damaged_space(space: str) -> Corrupt:
    return Corrupt(
        f"the row of {space!r} in the list of spaces is damaged. Restore the store from a copy; "
        "other spaces are not affected."
    )
