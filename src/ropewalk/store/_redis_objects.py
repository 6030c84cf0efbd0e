"""Objects in Redis: frames in one hash, and large ones in keys of their own.

In the hash stands for a large frame its stub: the byte 255, its length in 4 bytes, and its
beginning. Large frames are sent before the script of a commit, to keys that end by
themselves, and the script gives them their names. So a killed writer leaves nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.errors import FormatError, RopewalkError
from ropewalk.store._decide import Presence
from ropewalk.store._frames import frame_base, parse_header
from ropewalk.store._framing import Framed
from ropewalk.store._records import Stored
from ropewalk.tree.objects import ID_SIZE, ObjectId

if TYPE_CHECKING:
    from ropewalk.store._redis_server import Server

LARGE = 64 * 1024
"""Frames of more bytes have a key of their own."""
IN_A_SCRIPT = 1024 * 1024
"""Bytes of frames that the script of a commit takes: nobody else is served while it runs."""
AT_A_TIME = 4 * 1024 * 1024
"""About how many bytes of frames one request sends or asks for."""
OVERHEAD = 120
"""About what Redis takes for an object beside its frame, in bytes."""

_STAGED_SECONDS = 3600
_ASKED_AT_A_TIME = 256
_CHANGED_AT_A_TIME = 500
_SCANNED_AT_A_TIME = 100
_STUB = 255
_STUB_HEADER = 5  # The byte that says so, and the length.


class Staged(NamedTuple):
    """Frames that were sent before the script of their commit."""

    token: str
    """A part of their keys."""
    ids: frozenset[ObjectId]


class Objects:
    """The objects of one store."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._frames_key = f"{server.root}:frames"
        self._apart_key = f"{server.root}:apart:".encode()
        self._staged_key = f"{server.root}:staged:"

    # Reading.

    def frames(self, ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        """The frames of objects, and those of their bases."""
        found: dict[ObjectId, bytes] = {}
        for some in _portions(ids, _ASKED_AT_A_TIME):
            replies = self._server.ask("HMGET", self._frames_key, *some)
            read = {id: frame for id, frame in zip(some, replies, strict=True) if frame is not None}
            bases = {base for frame in read.values() if (base := _base(frame)) is not None}
            below = bases.difference(read, found)
            if below:
                chains = self._server.run("chains", b"".join(below))
                read.update(zip(chains[::2], chains[1::2], strict=True))
            found.update(self._with_large(read))
        return found

    def _with_large(self, read: dict[ObjectId, bytes]) -> dict[ObjectId, bytes]:
        """Put frames in the places of stubs. What was changed meanwhile is read again."""
        while stubs := {id: frame for id, frame in read.items() if _is_stub(frame)}:
            for some in _by_size((id, _length(stub)) for id, stub in stubs.items()):
                keys = [self._apart_key + id for id in some]
                frames = self._server.ask("MGET", *keys)
                for id, frame in zip(some, frames, strict=True):
                    if frame is not None:
                        read[id] = frame
                    elif self._server.ask("HGET", self._frames_key, id) == stubs[id]:
                        read[id] = b""  # Its bytes are gone: a damaged object.
                    else:
                        del read[id]
                        read.update(self.frames([id]))
        return read

    def presence(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Presence]:
        """Depth and condemnation of objects, without those that are absent."""
        found: dict[ObjectId, Presence] = {}
        for some in _portions(ids, _ASKED_AT_A_TIME):
            letters = self._server.run("presence", b"".join(some)).decode()
            for id, letter in zip(some, letters, strict=True):
                if letter != "-":
                    found[id] = Presence(ord(letter.lower()) - ord("a"), letter.isupper())
        return found

    def scan(self) -> Iterator[Stored]:
        """Every object, once."""
        for id, start, size, condemned in self.look():
            with suppress(FormatError):  # `examine` tells of it.
                header = parse_header(start)
                yield Stored(id, header.kind, header.length, size, header.base, condemned)

    def look(self) -> Iterator[tuple[ObjectId, bytes, int, bool]]:
        """Of every object the id, the beginning of its frame, its bytes, whether condemned."""
        seen: set[ObjectId] = set()
        cursor = b"0"
        while True:
            cursor, *found = self._server.run("scan", cursor, _SCANNED_AT_A_TIME)
            for at in range(0, len(found), 4):
                id, start, size, condemned = found[at : at + 4]
                if id not in seen:  # A part may come twice while the hash grows or shrinks.
                    seen.add(id)
                    yield id, start, size, condemned == 1
            if cursor == b"0":
                return

    def examine(self) -> Iterator[tuple[str, str]]:
        """Frames that are none, and large ones whose bytes are not there."""
        for id, start, size, _ in self.look():
            if len(id) != ID_SIZE:
                yield id.hex(), "its id has not the length of an id"
                continue
            try:
                parse_header(start)
            except FormatError as error:
                yield id.hex(), f"its frame cannot be read: {error}"
            if size > LARGE and not self._is_whole(id, size):
                yield id.hex(), f"its frame of {size} bytes is not there"

    def _is_whole(self, id: ObjectId, size: int) -> bool:
        if self._server.ask("STRLEN", self._apart_key + id) == size:
            return True
        # Deleted since it was found, or stored in another way.
        return bool(self._server.ask("HSTRLEN", self._frames_key, id) in (0, size))

    # Writing.

    def stage(self, frames: Sequence[Framed]) -> Staged:
        """Send what is too large for the script of a commit, and remember where it is."""
        staged: dict[ObjectId, bytes] = {}
        together = 0
        for framed in frames:
            size = len(framed.frame)
            together += size if size <= LARGE else 0
            if size > LARGE or together > IN_A_SCRIPT:
                staged[framed.id] = framed.frame
        token = os.urandom(12).hex()
        key = f"{self._staged_key}{token}:".encode()
        for some in _by_size((id, len(frame)) for id, frame in staged.items()):
            commands = [("SET", key + id, staged[id], "EX", _STAGED_SECONDS) for id in some]
            self._server.ask_at_once(commands)
        return Staged(token, frozenset(staged))

    def unstage(self, staged: Staged) -> None:
        """Remove what a commit left; what cannot be removed now ends by itself."""
        key = f"{self._staged_key}{staged.token}:".encode()
        with suppress(RopewalkError):
            for some in _portions(staged.ids, _ASKED_AT_A_TIME):
                self._server.ask("UNLINK", *(key + id for id in some), again=False)

    def change(self, step: str, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        """Condemn, revive or delete; the ids of those that this changed.

        Never sent again by itself: a request that arrives late must not condemn what a
        collection has looked at since.
        """
        changed: list[ObjectId] = []
        for some in _portions(ids, _CHANGED_AT_A_TIME):
            joined = b"".join(some)
            reply = self._server.run(
                "collect", step, str(collection), joined, OVERHEAD, again=False
            )
            changed += split_ids(reply)
        return changed


def stub_of(frame: bytes) -> bytes:
    """What stands for a large frame."""
    start = parse_header(frame).start
    return bytes((_STUB,)) + len(frame).to_bytes(_STUB_HEADER - 1, "big") + frame[:start]


def split_ids(joined: bytes) -> list[ObjectId]:
    """Ids that stand one behind the other."""
    return [joined[at : at + ID_SIZE] for at in range(0, len(joined), ID_SIZE)]


def _is_stub(frame: bytes) -> bool:
    return frame[:1] == b"\xff"


def _length(stub: bytes) -> int:
    return int.from_bytes(stub[1:_STUB_HEADER], "big")


def _base(frame: bytes) -> ObjectId | None:
    try:
        return frame_base(frame[_STUB_HEADER:] if _is_stub(frame) else frame)
    except FormatError:
        return None  # Whoever reads it says which object it is.


def _portions(ids: Iterable[ObjectId], most: int) -> Iterator[list[ObjectId]]:
    remaining = iter(ids)
    while some := list(islice(remaining, most)):
        yield some


def _by_size(sizes: Iterable[tuple[ObjectId, int]]) -> Iterator[list[ObjectId]]:
    """Portions of about as many bytes as one request should hold."""
    some: list[ObjectId] = []
    held = 0
    for id, size in sizes:
        if some and (held + size > AT_A_TIME or len(some) >= _ASKED_AT_A_TIME):
            yield some
            some, held = [], 0
        some.append(id)
        held += size
    if some:
        yield some
