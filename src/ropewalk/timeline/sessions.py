"""A timeline as one file: everything that its refs and its log lead to, and the log.

    magic     "RWSESS" and the version
    the rest  compressed with zstd and a checksum: msgpack values, each behind its length (8 bytes):
              a dict about the session, then the operations as one list, then objects,
              as [kind, payload], in no order, then their number

Reading believes nothing: ids are made anew from the bytes, and everything that an object
points to must be there too.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from struct import Struct
from typing import IO, Any

import ormsgpack
import zstandard

from ropewalk.errors import (
    Conflict,
    FormatError,
    Full,
    NewerFormat,
    NotAllowed,
    NotFound,
    Unavailable,
)
from ropewalk.history import History
from ropewalk.store import Move, Operation, Progress, SqliteStore, migrate, split_name
from ropewalk.store._collecting import ends, operations
from ropewalk.store._own import OWN_SPACE
from ropewalk.store._reaching import walk
from ropewalk.store._records import decode_operation, encode_operation
from ropewalk.store._system_errors import FORBIDDEN, NO_ROOM
from ropewalk.tree import Kind, Object, ObjectId, links, make_object

_MAGIC = b"RWSESS"
_VERSION = 1
_LENGTH = Struct("<Q")
_LONGEST = 1 << 30
_BATCH_BYTES = 4 << 20
_TOLD_AFTER = 1000


def write_session(
    history: History, path: str | PathLike[str], progress: Progress | None = None
) -> int:
    """Write a history to a file that is not there yet; how many bytes it has."""
    target = Path(fspath(path))
    if target.exists():
        raise Conflict(f"{target} exists already: choose another name, or remove it")
    log = list(operations(history.store, history.space, 0))
    if not log:
        raise NotFound(f"{history.space!r} has nothing to export yet")
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    with _told_of(target):
        try:
            _write_file(history, log, partial, progress or _quiet)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        return target.stat().st_size


def _write_file(history: History, log: list[Operation], partial: Path, tell: Progress) -> None:
    with open(partial, "xb") as file:
        file.write(_MAGIC + bytes([_VERSION]))
        # The log is covered by no hash of ours, so the whole is covered by a checksum.
        packed = zstandard.ZstdCompressor(level=3, write_checksum=True)
        with packed.stream_writer(file, closefd=False) as out:
            _write_all(history, log, out, tell)
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True)
class Session:
    """A file that was looked into."""

    path: Path
    name: str
    """The name of the timeline that was written."""

    def copy_to(self, history: History, progress: Progress | None = None) -> None:
        """Bring everything into a history that has nothing yet."""
        if history.store.view(history.space).sequence:
            raise Conflict(f"{history.space!r} has a history already: choose another name")
        with (
            tempfile.TemporaryDirectory(prefix="ropewalk-import-") as folder,
            SqliteStore(Path(folder) / "store", durability="relaxed") as unpacked,
        ):
            _unpack(self.path, unpacked, history.space, progress or _quiet)
            migrate(unpacked, history.store, progress=progress)


def read_session(path: str | PathLike[str]) -> Session:
    """Look into a file that `write_session` wrote; raises `FormatError`."""
    source = Path(fspath(path))
    with _told_of(source):
        if not source.is_file():
            raise NotFound(f"there is no file {source}")
        about = next(_values(source), None)
    match about:
        case {"name": str(name)}:
            return Session(source, name)
    raise FormatError(f"{source} is not a session of Ropewalk's")


def _write_all(history: History, log: list[Operation], out: Any, tell: Progress) -> None:
    def put(value: Any) -> None:
        packed = ormsgpack.packb(value)
        out.write(_LENGTH.pack(len(packed)))
        out.write(packed)

    put({"name": split_name(history.space)[1]})
    put([encode_operation(operation) for operation in log])
    view = history.store.view(history.space)
    roots = [ref.target for ref in view.refs]
    seen: set[ObjectId] = set()
    written = 0
    for strict, starts in ((True, roots), (False, [id for one in log for id in ends(one)])):
        for visit in walk(starts, history.store._frames, seen):
            if visit.problem is None:
                read = visit.object or history.read([visit.id])[0]
                put([int(read.kind), read.payload])
                written += 1
                if written % _TOLD_AFTER == 0:
                    tell("writing", written)
            elif strict:
                raise visit.problem
            else:
                seen.discard(visit.id)
    put(len(seen))


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Raise what the file system says of a session's file as Ropewalk's."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in NO_ROOM:
            raise Full(f"there is no room for {path}: {reason}. Nothing is left of it.") from error
        if error.errno in FORBIDDEN:
            raise NotAllowed(f"{path} cannot be used: {reason}") from error
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise NotFound(f"there is no folder {path.parent}") from error
        raise Unavailable(f"{path!s:.200} cannot be used: {reason}") from error


def _quiet(step: str, done: int) -> None:
    pass


def _values(path: Path) -> Iterator[Any]:
    with open(path, "rb") as file:
        head = file.read(len(_MAGIC) + 1)
        if head[:-1] != _MAGIC:
            raise FormatError(f"{path} is not a session of Ropewalk's")
        if head[-1] > _VERSION:
            raise NewerFormat(f"{path} has version {head[-1]}; install a newer Ropewalk")
        try:
            yield from _stream(file)
        except (zstandard.ZstdError, ValueError, EOFError) as error:
            raise FormatError(f"{path} is damaged or torn: {error}") from error


def _stream(file: IO[bytes]) -> Iterator[Any]:
    with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as source:
        while head := source.read(_LENGTH.size):
            if len(head) != _LENGTH.size:
                raise EOFError("it ends too early")
            (length,) = _LENGTH.unpack(head)
            if length > _LONGEST:
                raise ValueError("a length is too large")
            packed = source.read(length)
            if len(packed) != length:
                raise EOFError("it ends too early")
            yield ormsgpack.unpackb(packed)


def _unpack(path: Path, store: SqliteStore, space: str, tell: Progress) -> None:
    values = _values(path)
    next(values)
    log = _log(path, space, next(values, None))
    found: set[ObjectId] = set()
    wanted: set[ObjectId] = set()
    batch: list[Object] = []
    size = 0
    for value in values:
        if value == len(found) and next(values, None) is None:
            break
        made = _object(value)
        found.add(made.id)
        wanted.update(links(made))
        batch.append(made)
        size += len(made.payload)
        if size > _BATCH_BYTES:
            store.commit(OWN_SPACE, batch)
            batch, size = [], 0
        if len(found) % _TOLD_AFTER == 0:
            tell("reading", len(found))
    else:
        raise FormatError(f"{path} is torn: its end is missing")
    store.commit(OWN_SPACE, batch)
    if not wanted <= found:
        raise FormatError(f"{path} is not whole: {len(wanted - found)} object(s) are missing")
    _replay(store, space, log, found)


def _log(path: Path, space: str, value: object) -> list[Operation]:
    try:
        return [decode_operation(space, record) for record in _records(value)]
    except FormatError as error:
        raise FormatError(f"{path} is damaged: {error}") from error


def _records(value: object) -> list[bytes]:
    if isinstance(value, list) and all(isinstance(record, bytes) for record in value):
        return value
    raise FormatError("a session has no log")


def _object(value: object) -> Object:
    match value:
        case [int(kind), bytes(payload)] if kind in list(Kind):
            return make_object(Kind(kind), payload)
    raise FormatError("a session holds something that is no object")


def _replay(store: SqliteStore, space: str, log: list[Operation], found: set[ObjectId]) -> None:
    """Do again what the log says, as far as what it leads to is there."""
    refs: dict[str, ObjectId] = {}
    for operation in log:
        moves = []
        for name, _, target in operation.moves:
            reached = target if target in found else None
            before = refs.get(name)
            if reached is None and before is None:
                continue
            moves.append(Move(name, before, reached))
            refs.pop(name, None)
            if reached is not None:
                refs[name] = reached
        store.commit(space, moves=moves, operation=operation.metadata)
