"""A store on a Redis or Valkey server. Design note 011 says what stands where, and why."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import ormsgpack

from ropewalk.errors import FormatError, InvalidInput, NotFound
from ropewalk.store._aside import Scratch
from ropewalk.store._checks import expect, expect_seconds, expect_whole
from ropewalk.store._decide import Batch, Presence
from ropewalk.store._framing import DEFAULT_CACHE_BYTES
from ropewalk.store._object_store import ObjectStore
from ropewalk.store._records import (
    Capabilities,
    Durability,
    Header,
    LeaseRecord,
    Operation,
    Ref,
    Stored,
    View,
    decode_operation,
    encode_header,
)
from ropewalk.store._redis_address import (
    DEFAULT_NAME,
    Address,
    check_store_name,
    gone,
    read_address,
)
from ropewalk.store._redis_commit import Committer
from ropewalk.store._redis_durability import check_asked
from ropewalk.store._redis_listener import Listener
from ropewalk.store._redis_objects import Objects
from ropewalk.store._redis_scratch import RedisScratch
from ropewalk.tree.objects import ID_SIZE, ObjectId

DIGEST_SIZE = 32
"""Bytes before an operation in the log: the digest of the write that it was."""

_PAGE = 1000
_FARTHEST = 2**53


class RedisStore(ObjectStore):
    """A store on a Redis server, version 6 or newer, or a Valkey server.

    `url` is `redis://user:password@host:port/number`, `rediss://` for TLS, or
    `unix:///path`. `name` tells several stores in one database apart; all keys of one begin
    with `{ropewalk:name}`. With `create=False` nothing is made: raises `NotFound` if there
    is no store. `durability="full"`, the default, is `NotAllowed` unless the server says that
    it keeps every acknowledged commit; `"relaxed"` takes what the server gives, but never one
    that evicts live data. Both can stand in the URL: `?name=team&durability=relaxed`.

    A call that gets no answer for `timeout` seconds is `Unavailable`. At most `connections`
    are open at once. `size_limit` counts frames, the log, and about what Redis adds.
    """

    capabilities = Capabilities(persists=True, shared=True, wakes=True)
    poll_seconds: ClassVar[float | None] = 0.5

    def __init__(  # noqa: PLR0913 - each by name
        self,
        url: str,
        *,
        name: str | None = None,
        create: bool = True,
        durability: Literal["full", "relaxed"] | None = None,
        timeout: float = 10.0,
        connections: int = 32,
        backend_id: str = "redis",
        backend_aliases: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        threads: int = 16,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        size_limit: int | None = None,
        default_ttl_seconds: float | None = None,
    ) -> None:
        super().__init__(
            backend_id=backend_id,
            backend_aliases=backend_aliases,
            clock=clock,
            threads=threads,
            cache_bytes=cache_bytes,
            size_limit=size_limit,
            default_ttl_seconds=default_ttl_seconds,
        )
        expect_seconds(timeout, "timeout")
        expect(timeout > 0, "timeout is more than 0", timeout)
        expect_whole(connections, 1, "connections")
        address = _address(url)
        named = address.name if name is None else name
        self.name = check_store_name(DEFAULT_NAME if named is None else named)
        self._root = f"{{ropewalk:{self.name}}}"
        from ropewalk.store._redis_server import Server  # Brings the driver.

        asked = check_asked(durability or address.durability or "full")
        self._server = Server(address, self._root, asked, timeout, connections)
        self._objects = Objects(self._server)
        self._committer = Committer(self._server, self._objects, size_limit)
        self._listener = Listener(self._server)
        self._header = self._open(create)

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
        """What an acknowledged commit survives: `none` where the server keeps nothing."""
        return self._server.durability

    # Objects and commits.

    def _frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        return self._objects.frames(ids)

    def _presence(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Presence]:
        return self._objects.presence(ids)

    def _commit(self, batch: Batch) -> Operation:
        operation = self._committer.commit(batch)
        self._listener.wake(batch.space)
        return operation

    # Spaces.

    def _ref(self, space: str, name: str) -> Ref | None:
        data = self._server.ask("HGET", self._key("refs", space), name)
        if data is None:
            self._expect_there()
            return None
        return _ref(name, data)

    def _view(self, space: str, prefix: str) -> View:
        sequence, epoch, *pairs = self._server.run("view", space, prefix, self._server.header_bytes)
        if epoch is None:
            raise gone(self._server.where)
        if not epoch.isdigit():
            raise FormatError(f"the epoch of the store is damaged: it is {epoch!r:.80}")
        refs = [_ref(_text_of(name), data) for name, data in _pairs(pairs)]
        return View(sequence, int(epoch), tuple(sorted(refs)))

    def _spaces(self, prefix: str) -> list[str]:
        names: set[str] = set()
        key, cursor = f"{self._root}:spaces", b"0"
        while True:
            cursor, found = self._server.ask("SSCAN", key, cursor, "COUNT", _PAGE)
            names.update(_text_of(name) for name in found)
            if cursor in (b"0", 0):
                if not names:
                    self._expect_there()
                return sorted(name for name in names if name.startswith(prefix))

    def _operations(self, space: str, after: int, limit: int) -> list[Operation]:
        found: list[Operation] = []
        until = min(after + limit, _FARTHEST)
        while after < until:
            last = min(after + _PAGE, until) - 1
            page = self._server.ask("LRANGE", self._key("log", space), after, last)
            found += [decode_operation(space, entry[DIGEST_SIZE:]) for entry in page]
            after += _PAGE
            if len(page) < _PAGE:
                break
        if not found:
            self._expect_there()
        return found

    def _subscribe(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        return self._listener.add(space, wake)

    # Leases.

    def _lease(self, space: str, name: str) -> LeaseRecord | None:
        data = self._server.ask("HGET", self._key("leases", space), name)
        return None if data is None else _decode_lease(name, data)

    def _leases(self, space: str, prefix: str) -> list[LeaseRecord]:
        found = self._server.ask("HGETALL", self._key("leases", space))
        held = [_decode_lease(name.decode(), data) for name, data in _pairs(found)]
        return sorted(one for one in held if one.name.startswith(prefix))

    def _grant_lease(
        self, space: str, name: str, expected: LeaseRecord | None, holder: str, duration: float
    ) -> LeaseRecord | None:
        before = b"" if expected is None else _encode_lease(expected)
        granted = self._swap(space, name, before, _lease_tail(0, duration, holder), grant=True)
        return None if granted is None else _decode_lease(name, granted)

    def _swap_lease(self, space: str, expected: LeaseRecord, record: LeaseRecord | None) -> bool:
        after = b"" if record is None else _encode_lease(record)
        before = _encode_lease(expected)
        return self._swap(space, expected.name, before, after, grant=False) is not None

    def _swap(
        self, space: str, name: str, before: bytes, after: bytes, *, grant: bool
    ) -> bytes | None:
        header = self._server.header_bytes
        # Not sent again by itself: who gives a lease back must know whether it was theirs.
        reply: bytes | None = self._server.run(
            "lease", header, space, name, before, after, int(grant), again=False
        )
        if reply == b"gone":
            raise gone(self._server.where)
        return reply

    # Collection and care.

    def _scan(self) -> Iterator[Stored]:
        return self._objects.scan()

    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        self._objects.change("condemn", ids, collection)

    def _revive(self, ids: Sequence[ObjectId]) -> None:
        self._objects.change("revive", ids, 0)

    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        return self._objects.change("delete", ids, collection)

    def _raise_epochs(self) -> int:
        epoch: int = self._server.run("raise")
        return epoch

    def _examine(self, read_data: bool) -> Iterator[tuple[str, str]]:
        if read_data:
            yield from self._objects.examine()

    def _disk_bytes(self) -> int:
        """About the memory that it takes there."""
        return int(self._server.ask("GET", f"{self._root}:bytes") or 0)

    def _make_scratch(self) -> Scratch:
        return RedisScratch(self._server)

    def _close(self) -> None:
        self._listener.close()
        self._server.close()

    def _expect_there(self) -> None:
        """Raise if nothing was found because the server was emptied."""
        if self._server.ask("GET", f"{self._root}:header") != self._server.header_bytes:
            raise gone(self._server.where)

    def _key(self, kind: str, space: str) -> str:
        return f"{self._root}:{kind}:{space}"


def _address(url: str) -> Address:
    try:
        return read_address(url)
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"a store on Redis needs the package {error.name!r}: pip install 'ropewalk[redis]'"
        ) from error


# How records are spelled.


def _text_of(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise FormatError(f"the store holds a name that is damaged: {name!r:.80}") from None


def _ref(name: str, data: bytes) -> Ref:
    target, sequence = data[:ID_SIZE], data[ID_SIZE:]
    if len(target) != ID_SIZE or not sequence.isdigit():
        raise FormatError(f"the record of ref {name!r} is not Ropewalk's")
    return Ref(name, target, int(sequence))


def _encode_lease(record: LeaseRecord) -> bytes:
    return str(record.token).encode() + _lease_tail(record.beat, record.duration, record.holder)


def _lease_tail(beat: int, duration: float, holder: str) -> bytes:
    """A lease's record behind its token, which the server puts in front of it."""
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


def _pairs(found: Any) -> Iterable[tuple[bytes, bytes]]:
    """The fields of a hash, which the driver gives as a dict or as a list."""
    if isinstance(found, dict):
        return found.items()
    return zip(found[::2], found[1::2], strict=True)
