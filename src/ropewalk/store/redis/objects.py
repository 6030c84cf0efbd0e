"""Shared objects in Redis: each has a key of its own, and is listed in one hash.

Frames are sent before the script of a commit, to keys that end by themselves, and the script makes
them stay. A frame is named by the hash of what is in it, so it does not matter who sends it, or
how often, and a killed writer leaves nothing behind.
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
"""About how many bytes of frames one request sends."""

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
        """The frames of objects, without absent ones."""
        found: dict[ObjectId, bytes] = {}
        for some in _portions(ids, _READ_AT_A_TIME):
            replies = self._server.ask("MGET", *[self._key + id for id in some])
            found.update(_there(some, replies))
        return found

    def about(self, ids: Iterable[ObjectId]) -> dict[ObjectId, bytes]:
        """What is said of objects, without absent ones."""
        found: dict[ObjectId, bytes] = {}
        for some in _portions(ids, _ASKED_AT_A_TIME):
            replies = self._server.ask("HMGET", self._listed, *some)
            found.update(
                (id, one) for id, one in zip(some, replies, strict=True) if one is not None
            )
        return found

    def leading(self, ids: Iterable[ObjectId]) -> set[ObjectId]:
        """Those of some objects that lead to others, or may."""
        found: set[ObjectId] = set()
        for id, about in self.about(ids).items():
            with suppress(FormatError):
                if not read_about(id, about)[3]:
                    continue
            found.add(id)
        return found

    def scan(self) -> Iterator[Stored]:
        """Every object, once; raises `FormatError` if what is said of one is damaged."""
        seen: set[ObjectId] = set()
        cursor = b"0"
        while True:
            cursor, found = self._server.ask(
                "HSCAN", self._listed, cursor, "COUNT", _SCANNED_AT_A_TIME
            )
            for id, said in pairs(found):
                if id not in seen:  # Some come twice while the hash grows or shrinks.
                    seen.add(id)
                    kind, length, stored, _ = read_about(id, said)
                    yield Stored(id, kind, length, stored)
            if cursor in (b"0", 0):
                return

    # Writing.

    def describe(self, objects: Iterable[Object]) -> dict[ObjectId, tuple[bytes, bytes]]:
        """The frames of objects, and what is said of them."""
        found: dict[ObjectId, tuple[bytes, bytes]] = {}
        for one in objects:
            frame = bytes((one.kind,)) + compress(one.payload)
            about = (one.kind, len(one.payload), len(frame), bool(_links(one)))
            found[one.id] = frame, b"%d %d %d %d" % about
        return found

    def stage(self, frames: Iterable[tuple[ObjectId, bytes]]) -> None:
        """Send frames ahead of the commit that brings them."""
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
        """A step of a collection: see collect.lua. How many it changed, and their bytes.

        Never sent again by itself: a request that arrives late must not condemn what a
        collection has looked at since.
        """
        found: tuple[int, int] | None
        found = self._server.run("collect", "", step, mark, b"".join(ids), again=False)
        return None if found is None else (found[0], found[1])

    def change_some(self, step: str, mark: str, ids: Iterable[ObjectId]) -> tuple[int, int]:
        """The same for as many as there are, in portions."""
        done = [
            self.change(step, mark, some) or (0, 0) for some in _portions(ids, _ASKED_AT_A_TIME)
        ]
        return sum([count for count, _ in done]), sum([size for _, size in done])


def _links(one: Object) -> Sequence[ObjectId]:
    try:
        return links(one)
    except FormatError:
        return ()  # None of ours: it leads nowhere.


def _there(
    ids: Sequence[ObjectId], replies: Sequence[bytes | None]
) -> Iterator[tuple[ObjectId, bytes]]:
    return ((id, one) for id, one in zip(ids, replies, strict=True) if one is not None)


def _portions(ids: Iterable[ObjectId], most: int) -> Iterator[list[ObjectId]]:
    remaining = iter(ids)
    while some := list(islice(remaining, most)):
        yield some
