"""A store on a Redis or Valkey server. See design note 033."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Unpack

import ormsgpack

from ropewalk.errors import Corrupt, FormatError, InvalidInput, MissingObjects, NotFound, RefMoved
from ropewalk.store.collection import Sweep, names_of, touches, unreached
from ropewalk.store.contract import StoreOptions
from ropewalk.store.log import LogStore, Moved
from ropewalk.store.model import (
    KEY,
    REMEMBERED_WRITES,
    Capabilities,
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
    encode_header,
)
from ropewalk.store.quota import expect_room
from ropewalk.store.record import GROUP, Append, Place, Row, fenced_off, sequence_of
from ropewalk.store.redis.address import (
    DEFAULT_NAME,
    Address,
    check_asked,
    check_store_name,
    evicted,
    gone,
    read_address,
)
from ropewalk.store.redis.layout import (
    MARKS,
    NO_ROW,
    OVERHEAD,
    Layout,
    SpaceRow,
    checksum,
    damaged_space,
    decode_segment,
    encode_segment,
    index_digits,
    listed_in,
    pairs,
    write_mark,
)
from ropewalk.store.redis.scratch import RedisScratch
from ropewalk.store.retry import limit_retries
from ropewalk.store.scratch import Scratch
from ropewalk.store.segment import Packed
from ropewalk.store.validation import expect, expect_seconds, expect_whole
from ropewalk.store.watch import WAKE, Watchers
from ropewalk.tree.objects import ID_SIZE, ObjectId

_PAGE: Final = 1000
_JUST_NOW: Final = 4
"""A commit that was sent twice because an answer was late is among this many latest records."""
_STAGED_AGAIN: Final = 2
_ATTEMPTS: Final = 64


class RedisStore(LogStore):
    """A store on a Redis server, version 6 or newer, or a Valkey server.

    `url` is `redis://user:password@host:port/number`, `rediss://` for TLS, or `unix:///path`.
    `name` distinguishes several stores in one database; all keys of one begin with
    `{ropewalk:name}`. With `create=False` nothing is created, and `NotFound` is raised if there is
    no store. `durability="full"`, the default, raises `NotAllowed` unless the server is configured
    to keep every acknowledged commit; `"relaxed"` accepts any server that does not evict live
    data. Both can be set in the URL: `?name=team&durability=relaxed`.

    A call that gets no answer for `timeout` seconds raises `Unavailable`. At most `connections`
    are open at once. `size_limit` counts records, segments and shared objects, including the
    approximate overhead of Redis.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=True)
    poll_seconds: ClassVar[float | None] = 0.5

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        create: bool = True,
        durability: Literal["full", "relaxed"] | None = None,
        timeout: float = 10.0,
        connections: int = 32,
        **options: Unpack[StoreOptions],
    ) -> None:
        options.setdefault("backend_id", "redis")
        super().__init__(**options)
        expect_seconds(timeout, "timeout")
        expect(timeout > 0, "timeout is more than 0", timeout)
        expect_whole(connections, 1, "connections")
        address = _address(url)
        named = address.name if name is None else name
        self.name = check_store_name(DEFAULT_NAME if named is None else named)
        from ropewalk.store.redis.listener import RedisPubSub  # These import the driver.
        from ropewalk.store.redis.objects import Objects
        from ropewalk.store.redis.server import Server

        asked = check_asked(durability or address.durability or "full")
        self._layout = Layout(f"{{ropewalk:{self.name}}}")
        self._server = Server(address, self._layout, asked, timeout, connections)
        self._objects = Objects(self._server)
        self._watchers = Watchers()
        self._header = self._open(create)
        self.pubsub = RedisPubSub(
            address, self._header.store_id.hex(), wake=self._layout.key("wake")
        )
        """What listens, for who watches and for the buses of this store."""
        self.pubsub.attach(self._watchers)

    def _open(self, create: bool) -> Header:
        new = encode_header(Header(os.urandom(16))) if create else b""
        try:
            header = self._server.open(new)
            if header is None:
                raise NotFound(f"there is no store {self.name!r} at {self._server.where}")
        except BaseException:
            self._server.close()
            raise
        return header

    @property
    def header(self) -> Header:
        """The store's id, format and algorithm."""
        return self._header

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives: `none` if the server is not persistent."""
        return self._server.durability

    def _make_scratch(self) -> Scratch:
        return RedisScratch(self._server)

    def _close(self) -> None:
        with limit_retries(0.0):  # Unpacked records only take more space.
            self._close_packer()
        self.pubsub.detach(self._watchers)
        self.pubsub.close()
        self._server.close()

    # Committing.

    def _commit(self, batch: Append) -> Operation:  # noqa: C901 - one story: each answer of the script
        space, cache = batch.space, self._space(batch.space)
        dictionary, known = cache.dictionary(batch)
        frame = batch.frame(known)
        brought = self._stage(batch) if batch.shared else {}
        latest = _JUST_NOW if batch.fresh else REMEMBERED_WRITES
        tries = _STAGED_AGAIN
        while True:
            match self._send(batch, dictionary, frame, brought, latest):
                case [b"done", int(sequence), int(epoch)]:
                    break
                case [b"alone"]:
                    dictionary, frame = None, batch.frame(None)
                case [b"repeated", int(sequence)]:
                    batch.recorded = self._find_write(batch, [self._record(space, sequence)])
                    if batch.recorded is not None:
                        return batch.recorded
                    latest = 0  # A hash collision of two write ids.
                case [b"unstaged", bytes()]:
                    if not tries:
                        raise evicted(self._server.where)
                    tries -= 1
                    self._objects.stage([(id, frame) for id, (frame, _) in brought.items()])
                case [b"lost", int(at)]:
                    raise fenced_off(space, batch.fences[at - 1])
                case [b"moved", int(at), bytes(actual)]:
                    move = batch.moves[at - 1]
                    raise RefMoved(move.name, move.expected, actual or None)
                case [b"epoch", int(epoch)]:
                    raise Moved(epoch)
                case [b"missing", bytes(ids)]:
                    absent = [ids[at : at + ID_SIZE] for at in range(0, len(ids), ID_SIZE)]
                    raise MissingObjects(sorted(absent or batch.missing))
                case [b"full", int(used), int(more)]:
                    expect_room(used, more, self._size_limit)
                case reply:
                    raise Corrupt(
                        f"the store at {self._server.where} is not as it must be: a script of "
                        f"Ropewalk gave {reply!r:.80}. Run check."
                    )
        self._landed(batch, sequence)
        self._watchers.wake(space)
        self._watch_tail(cache, space, sequence, len(frame))
        return Operation(
            space, sequence, batch.moves, batch.write_id, batch.time, epoch, batch.metadata
        )

    def _stage(self, batch: Append) -> Mapping[ObjectId, tuple[bytes, bytes]]:
        """Send missing shared objects ahead; returns the descriptions of all the commit needs."""
        brought = self._objects.describe(batch.shared.values())
        there = self._objects.about(brought)
        absent = [(id, frame) for id, (frame, _) in brought.items() if id not in there]
        if self._size_limit is not None:
            size = sum([len(frame) for _, frame in absent])
            expect_room(self._disk_bytes(), size, self._size_limit)
        self._objects.stage(absent)
        return brought

    def _send(
        self,
        batch: Append,
        dictionary: int | None,
        frame: bytes,
        brought: Mapping[ObjectId, tuple[bytes, bytes]],
        latest: int,
    ) -> Any:
        key = batch.metadata.get(KEY)
        listed = key if isinstance(key, bytes) else b""
        spelled: list[bytes | str | int] = [
            batch.known_epoch,
            "" if dictionary is None else dictionary,
            write_mark(batch.write_id),
            latest,
            bytes((len(listed),)) + listed,
            checksum(frame) + frame,
            int(bool(batch.missing)),
            int(bool(batch.objects or brought)),
            "" if self._size_limit is None else self._size_limit,
            len(batch.fences),
        ]
        for fence in batch.fences:
            spelled += (fence.name, str(fence.token))
        spelled.append(len(batch.moves))
        for name, expected, target in batch.moves:
            spelled += (name, expected or b"", target or b"")
        spelled.append(len(batch.names))
        spelled += batch.names
        spelled.append(len(brought))
        for id, (data, about) in brought.items():
            spelled += (id, len(data) + OVERHEAD, about)
        instead = [*spelled[:3], REMEMBERED_WRITES, *spelled[4:]]
        return self._server.commit(batch.space, spelled, instead)

    # The log.

    def _row(self, space: str) -> tuple[SpaceRow, int]:
        """The row of a space, and the server's restart count."""
        text, *known = self._asked(space, ("HGET", self._layout.key("space", space), ""))
        return self._read_row(space, text, *known)

    def _asked(self, space: str, command: tuple[bytes | str, ...]) -> list[Any]:
        """The answer to a command, with the row of its space."""
        key = self._layout.key
        # The command comes last: whatever was listed before has a row, and an epoch is never too
        # high.
        *known, found = self._server.ask_at_once(
            [
                ("GET", key("header")),
                ("GET", key("server")),
                ("SISMEMBER", key("spaces"), space),
                command,
            ]
        )
        return [found, *known]

    def _read_row(
        self, space: str, text: bytes | None, header: bytes, server: bytes | None, listed: int
    ) -> tuple[SpaceRow, int]:
        if header != self._layout.header:
            raise gone(self._server.where)
        try:
            runs = int((server or b"").partition(b" ")[0])
        except ValueError:
            raise damaged_space(space) from None
        if text is not None:
            return self._layout.read_row(space, text), runs
        if listed:
            raise damaged_space(space)
        return NO_ROW, runs

    def _expect_there(self) -> None:
        """Raise if nothing was found because the server was emptied."""
        if self._server.ask("GET", self._layout.key("header")) != self._layout.header:
            raise gone(self._server.where)

    def _epoch(self, space: str) -> int:
        row, runs = self._row(space)
        return row.epoch + runs

    def _span(self, space: str) -> tuple[int, int]:
        row, _ = self._row(space)
        return row.packed, row.last

    def _rows(self, space: str, first: int, last: int) -> list[Row]:
        found = self._loaded(space, first, last)
        return found if isinstance(found, list) else []

    def _load(self, space: str, sequence: int) -> list[Row] | Packed | None:
        return self._loaded(space, (sequence - 1) // GROUP * GROUP + 1, sequence)

    def _loaded(self, space: str, first: int, last: int) -> list[Row] | Packed | None:
        """Records of the tail, or the segment that contains the last of them."""
        start, found = self._server.run("load", space, first, last)
        if start < 0:
            return None if found is None else decode_segment(space, found)
        read = self._layout.read_entry
        return [read(space, start + at, entry) for at, entry in enumerate(found)]

    def _locate(self, space: str, ids: Sequence[ObjectId]) -> dict[ObjectId, int]:
        if not ids:
            return {}
        places = [index_digits(b"commit", id) for id in ids]
        buckets = self._server.ask(
            "HMGET", self._layout.key("index", space), *[bucket for bucket, _ in places]
        )
        found: dict[ObjectId, int] = {}
        for id, (_, name), bucket in zip(ids, places, buckets, strict=True):
            if bucket is not None and (listed := listed_in(bucket, name)):
                found[id] = listed[-1]
        return found

    def _find(self, space: str, key: bytes) -> list[int]:
        found: list[int] | None
        found = self._server.run("find", space, key, *index_digits(b"key", key))
        return super()._find(space, key) if found is None else found

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        for ref in self._view(space, name).refs:
            if ref.name == name:
                return ref
        return None

    def _view(self, space: str, prefix: str) -> View:
        found, *known = self._asked(space, ("HGETALL", self._layout.key("space", space)))
        fields = dict(pairs(found))
        row, runs = self._read_row(space, fields.get(b""), *known)
        refs = self._layout.read_refs(space, row, fields)
        named = tuple([ref for ref in refs if ref.name.startswith(prefix)])
        return View(row.last, row.epoch + runs, named)

    def _spaces(self, prefix: str) -> list[str]:
        listed, spaces = ("GET", self._layout.key("listed")), self._layout.key("spaces")
        before, after, names = b"", None, list[bytes]()
        while before != after:  # One may be added in between.
            before, names, after = self._server.ask_at_once([listed, ("SMEMBERS", spaces), listed])
        self._expect_there()
        marks = sum([self._layout.mark(name) for name in names])
        if str(marks % MARKS).encode() != (after or b"0"):
            raise Corrupt(
                f"the list of spaces of the store at {self._server.where} is damaged. Restore the "
                "store from a copy."
            )
        return sorted([name for one in names if (name := one.decode()).startswith(prefix)])

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        remove = self._watchers.add(space, wake)
        self.pubsub.touch(WAKE)

        def stop() -> None:
            remove()
            self.pubsub.touch(WAKE)

        return stop

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        data = self._server.ask("HGET", self._layout.key("leases", space), name)
        return None if data is None else _decode_lease(name, data)

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        found = pairs(self._server.ask("HGETALL", self._layout.key("leases", space)))
        held = [_decode_lease(name.decode(), data) for name, data in found if name]
        return sorted(one for one in held if one.name.startswith(prefix))

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        before = b"" if expected is None else _encode_lease(expected)
        after = _lease_tail(0, duration, holder)
        # Not retried automatically: a holder that releases a lease must know whether it still held
        # it.
        granted = self._server.run("lease", space, name, before, after, 1, again=False)
        return None if granted is None else _decode_lease(name, granted)

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        after = b"" if record is None else _encode_lease(record)
        before = _encode_lease(expected)
        done = self._server.run("lease", space, expected.name, before, after, 0, again=False)
        return done is not None

    # Segments and collection.

    def _settle(
        self, space: str, packed: Packed, commits: Sequence[tuple[ObjectId, Place]]
    ) -> bool:
        token = self._stage_segment(packed)
        listed: list[bytes | int] = []
        for id, place in commits:
            listed += (b"".join(index_digits(b"commit", id)), sequence_of(place))
        done = self._server.run(
            "pack", space, packed.first, packed.last, token, len(commits), *listed
        )
        return bool(done == 1)

    def _stage_segment(self, packed: Packed) -> str:
        token = os.urandom(12).hex()
        self._server.run("stage", token, encode_segment(packed))
        return token

    def _replace(self, space: str, found: Sweep) -> bool:
        gone = {id for id, _ in found.gone}
        noted = self._noted([space])
        staged: list[int | str] = []
        for one in found.replaced:
            staged += (one.last, self._stage_segment(one))
        for _ in range(_ATTEMPTS):
            last = self._span(space)[1]
            since = self._records_after(space, found.last, last)
            if touches(since, found.dead, gone):
                return False
            lost = (noted - found.named) - names_of(since)
            done = self._server.run(
                "replace", space, found.epoch, last, b"".join(lost), len(found.replaced), *staged
            )
            if done != 2:  # More records were added since.
                return bool(done == 1)
        return False

    def _noted(self, spaces: Sequence[str]) -> set[ObjectId]:
        """Shared objects listed for spaces."""
        found: set[ObjectId] = set()
        for at in range(0, len(spaces), _PAGE):
            some = spaces[at : at + _PAGE]
            asked = [("SMEMBERS", self._layout.key("names", space)) for space in some]
            found.update(*self._server.ask_at_once(asked))
        return found

    def _names_more(self, space: str, named: set[ObjectId]) -> bool:
        return not self._noted([space]) <= named

    # Shared objects.

    def _read_shared(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        found = self._objects.frames(ids)
        if len(found) < len(ids):
            self._expect_there()
            listed: Mapping[ObjectId, bytes] = {}
            for _ in range(2):  # It may be stored or collected in between.
                listed = self._objects.about([id for id in ids if id not in found])
                found |= self._objects.frames(listed)
            found |= {id: b"" for id in listed if id not in found}
        return found

    def _present_shared(self, ids: Sequence[ObjectId]) -> set[ObjectId]:
        return set(self._objects.about(ids))

    def _leading_shared(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        return self._objects.leading(ids)

    def _scan_shared(self) -> Iterator[Stored]:
        return self._objects.scan()

    def _count_shared(self) -> tuple[int, int]:
        sizes = [one.stored for one in self._objects.scan()]
        return len(sizes), sum(sizes)

    def _collect_shared(self, named: set[ObjectId] | None) -> tuple[int, int]:
        while True:
            there = {one.id: one.stored for one in self._objects.scan()}
            doomed = unreached(self, there, self._named() if named is None else named)
            if named is not None or not doomed:
                return len(doomed), sum(doomed.values())
            # From now on, a commit that references one of them clears its mark.
            mark = os.urandom(8).hex()
            self._objects.change_some("condemn", mark, doomed)
            doomed = unreached(self, doomed, self._named())
            leading = self._objects.leading(doomed)
            # Those with links are removed in one step, or not at all.
            done = self._objects.change("delete all", mark, sorted(leading))
            if done is not None:
                count, size = self._objects.change_some("delete", mark, doomed.keys() - leading)
                return done[0] + count, done[1] + size

    def _named(self) -> set[ObjectId]:
        """The shared objects that spaces reference."""
        return self._noted(self._spaces(""))

    def _discard(self, ids: Sequence[ObjectId]) -> None:
        self._objects.change_some("discard", "", ids)

    # Care.

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        for space in self._spaces(""):
            index, row, again = dict[bytes, bytes](), NO_ROW, self._row(space)[0]
            while row.packed != again.packed or row is NO_ROW:  # It was packed in between.
                row = again
                listed = self._server.ask("HGETALL", self._layout.key("index", space))
                index, again = dict(pairs(listed)), self._row(space)[0]
            if len(index) != row.buckets or any(
                bucket[:8] != self._layout.check(space.encode(), name, bucket[8:])[:8]
                for name, bucket in index.items()
            ):
                yield space, "its index of commits and keys is damaged"
            try:
                self._leases(space, "")
            except FormatError as error:
                yield space, str(error)

    def _disk_bytes(self) -> int:
        """The approximate memory it takes."""
        return int(self._server.ask("GET", self._layout.key("bytes")) or 0)


def _address(url: str) -> Address:
    try:
        return read_address(url)
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"a store on Redis needs the package {error.name!r}: pip install 'ropewalk[redis]'"
        ) from error


def _encode_lease(record: LeaseRecord) -> bytes:
    return str(record.token).encode() + _lease_tail(record.beat, record.duration, record.holder)


def _lease_tail(beat: int, duration: float, holder: str) -> bytes:
    """A lease's record after its token, which the server prepends."""
    return b" " + ormsgpack.packb([beat, duration, holder])


def _decode_lease(name: str, data: bytes) -> LeaseRecord:
    token, _, tail = data.partition(b" ")
    try:
        match ormsgpack.unpackb(tail):
            case [int(beat), int() | float() as duration, str(holder)] if token.isdigit():
                return LeaseRecord(name, holder, int(token), beat, duration)
    except ValueError:
        pass
    raise FormatError(f"the record of lease {name!r} is not Ropewalk's")
