"""Shared objects in Redis: each has a key of its own and an entry in one hash.

Frames are sent before the commit's script, to keys that expire, and the script makes them
permanent. A frame's key is the hash of its content, so it does not matter who sends it, or how
often, and a killed writer leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from ropewalk.errors import FormatError
from ropewalk.store.compression import compress
from ropewalk.store.model import Stored
from ropewalk.store.redis.layout import pairs, read_about
from ropewalk.store.redis.server import Command, Server
from ropewalk.tree.nodes import links
from ropewalk.tree.objects import Object, ObjectId

AT_A_TIME: Final = 4 * 1024 * 1024
"""Approximate bytes of frames per request."""

_STAGED_SECONDS: Final = 3600
_READ_AT_A_TIME: Final = 64
_ASKED_AT_A_TIME: Final = 500
_SCANNED_AT_A_TIME: Final = 1000


class Objects:
    """The shared objects of one store."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listed = server.layout.key("objects")
        self._key = server.layout.key("object") + b":"

    def frames(self, ids: Iterable[ObjectId]) -> dict[ObjectId, bytes]:
        """The frames of objects, without missing ones."""
        found: dict[ObjectId, bytes] = {}
        for some in _portions(ids, _READ_AT_A_TIME):
            replies = self._server.ask("MGET", *[self._key + id for id in some])
            found.update(_there(some, replies))
        return found

    def about(self, ids: Iterable[ObjectId]) -> dict[ObjectId, bytes]:
        """The descriptions of objects, without missing ones."""
        found: dict[ObjectId, bytes] = {}
        for some in _portions(ids, _ASKED_AT_A_TIME):
            replies = self._server.ask("HMGET", self._listed, *some)
            found.update(
                (id, one) for id, one in zip(some, replies, strict=True) if one is not None
            )
        return found

    def leading(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        """Those of some objects that may have links."""
        found: set[ObjectId] = set()
        for id, about in self.about(ids).items():
            with suppress(FormatError):
                if not read_about(id, about)[3]:
                    continue
            found.add(id)
        return found

    def scan(self) -> Iterator[Stored]:
        """Every object, once; raises `FormatError` if a description is damaged."""
        seen: set[ObjectId] = set()
        cursor = b"0"
        while True:
            cursor, found = self._server.ask(
                "HSCAN", self._listed, cursor, "COUNT", _SCANNED_AT_A_TIME
            )
            for id, said in pairs(found):
                if id not in seen:  # HSCAN may return a field twice while the hash is resized.
                    seen.add(id)
                    kind, length, stored, _ = read_about(id, said)
                    yield Stored(id, kind, length, stored)
            if cursor in (b"0", 0):
                return

    # Writing.

    def describe(self, objects: Iterable[Object]) -> dict[ObjectId, tuple[bytes, bytes]]:
        """The frames of objects, and their descriptions."""
        found: dict[ObjectId, tuple[bytes, bytes]] = {}
        for one in objects:
            frame = bytes((one.kind,)) + compress(one.payload)
            about = (one.kind, len(one.payload), len(frame), bool(_links(one)))
            found[one.id] = frame, b"%d %d %d %d" % about
        return found

    def stage(self, frames: Iterable[tuple[ObjectId, bytes]]) -> None:
        """Send frames ahead of the commit that references them."""
        commands: list[Command] = []
        held = 0
        for id, frame in frames:
            commands.append(("SET", self._key + id, frame, "EX", _STAGED_SECONDS, "NX"))
            held += len(frame)
            if held > AT_A_TIME:
                self._server.ask_at_once(commands)
                commands, held = [], 0
        if commands:
            self._server.ask_at_once(commands)

    def change(self, step: str, mark: str, ids: Sequence[ObjectId]) -> tuple[int, int] | None:
        """A step of a collection: see collect.lua. Returns how many objects it changed, and their
        bytes.

        Never retried automatically: a delayed request must not condemn objects that a collection
        has checked since.
        """
        found: tuple[int, int] | None
        found = self._server.run("collect", "", step, mark, b"".join(ids), again=False)
        return None if found is None else (found[0], found[1])

    def change_some(self, step: str, mark: str, ids: Iterable[ObjectId]) -> tuple[int, int]:
        """The same for any number of objects, in batches."""
        done = [
            self.change(step, mark, some) or (0, 0) for some in _portions(ids, _ASKED_AT_A_TIME)
        ]
        return sum([count for count, _ in done]), sum([size for _, size in done])


def _links(one: Object) -> Sequence[ObjectId]:
    try:
        return links(one)
    except FormatError:
        return ()  # Not one of ours: it has no links.


def _there(
    ids: Sequence[ObjectId], replies: Sequence[bytes | None]
) -> Iterator[tuple[ObjectId, bytes]]:
    return ((id, one) for id, one in zip(ids, replies, strict=True) if one is not None)


def _portions(ids: Iterable[ObjectId], most: int) -> Iterator[list[ObjectId]]:
    remaining = iter(ids)
    while some := list(islice(remaining, most)):
        yield some
