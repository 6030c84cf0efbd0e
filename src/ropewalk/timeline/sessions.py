"""A timeline as one file: its log, and everything that this and its refs lead to.

    magic     "RWSESS" and the version
    the rest  compressed with zstd and a checksum: msgpack values, each behind its length (8 bytes):
              a dict about the session, then for each operation [operation, number of objects] and
              the objects that it brought, as [kind, payload], each after what it points to;
              then how many operations there were

Reading believes nothing: ids are computed from the bytes, and everything that an object
points to must be there too.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
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
from ropewalk.store.folder import FORBIDDEN, NO_ROOM
from ropewalk.store.migration import closure, ends, operations
from ropewalk.store.model import decode_operation, encode_operation
from ropewalk.tree import Kind, Object, ObjectId, links, make_object

_MAGIC = b"RWSESS"
_VERSION = 1
_LENGTH = Struct("<Q")
_LONGEST = 1 << 30
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
    refs = {ref.target for ref in history.store.view(history.space).refs}
    written: set[ObjectId] = set()
    # What operations led to and a collection took is left out: looked for all at once.
    named = {id for one in log for id in ends(one)} | refs
    written.update(history.store.missing(named, history.space))
    for operation in log:
        objects, _ = closure(
            _targets(operation),
            history.read,
            lambda ids: [id for id in ids if id not in written],
        )
        put([encode_operation(operation), len(objects)])
        for one in objects.values():
            put([int(one.kind), one.payload])
            written.add(one.id)
            if len(written) % _TOLD_AFTER == 0:
                tell("writing", len(written))
    _, lost = closure(refs, history.read, lambda ids: [id for id in ids if id not in written])
    for problem in lost:
        raise problem.error
    history.read(list(refs))  # Raises for one that is missing.
    put(len(log))


def _targets(operation: Operation) -> list[ObjectId]:
    """What an operation may have brought: where it moved refs to, and a step of no ref."""
    step = operation.metadata.get("step")
    found = [move.target for move in operation.moves if move.target is not None]
    return [*found, step] if isinstance(step, bytes) else found


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
    """Do again what the log says, as far as what it leads to is there."""
    for _ in _values(path):
        pass  # The checksum stands at the end.
    values = _values(path)
    next(values)
    found: set[ObjectId] = set()
    refs: dict[str, ObjectId] = {}
    done = 0
    for value in values:
        if value == done and next(values, None) is None:
            return
        operation, count = _step(path, space, value)
        objects = [_object(one) for one in islice(values, count)]
        found.update(one.id for one in objects)
        if len(objects) != count:
            break
        wanted = {id for one in objects for id in links(one)}
        if not wanted <= found:
            missing = len(wanted - found)
            raise FormatError(f"{path} is not whole: {missing} object(s) are missing")
        moves: list[Move] = []
        for name, _, target in operation.moves:
            if target is not None and target not in found:
                continue  # A collection took it.
            if target != refs.get(name):
                moves.append(Move(name, refs.get(name), target))
        refs.update({name: target for name, _, target in moves if target is not None})
        refs = {name: id for name, id in refs.items() if Move(name, id, None) not in moves}
        needs = [id for id in wanted if id not in {one.id for one in objects}]
        store.commit(space, objects, needs, moves, operation=operation.metadata)
        done += 1
        tell("reading", len(found))
    raise FormatError(f"{path} is torn: its end is missing")


def _step(path: Path, space: str, value: object) -> tuple[Operation, int]:
    match value:
        case [bytes(packed), int(count)] if count >= 0:
            try:
                return decode_operation(space, packed), count
            except FormatError as error:
                raise FormatError(f"{path} is damaged: {error}") from error
    raise FormatError(f"{path} is damaged: it holds something that is no operation")


def _object(value: object) -> Object:
    match value:
        case [int(kind), bytes(payload)] if kind in list(Kind):
            return make_object(Kind(kind), payload)
    raise FormatError("a session holds something that is no object")
