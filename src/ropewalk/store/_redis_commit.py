"""One commit as one script: how the batch is spelled, and what the answers mean."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from ropewalk.errors import Corrupt, MissingObjects, RefMoved
from ropewalk.store._decide import (
    Batch,
    Recorded,
    Reframe,
    check_repeated,
    fenced_off,
    operation_of,
)
from ropewalk.store._records import Operation, decode_operation, encode_operation
from ropewalk.store._redis_address import evicted, gone
from ropewalk.store._redis_objects import OVERHEAD, Objects, Staged, split_ids, stub_of
from ropewalk.store._room import expect_room

if TYPE_CHECKING:
    from ropewalk.store._redis_server import Server

Argument: TypeAlias = bytes | str | int

REMEMBERED = 1024
"""How many of a space's latest write ids are recognised, at least."""

_DIGEST = 32
_STAGED_AGAIN = 2  # Times that what was sent ahead is sent again, when the server dropped it.
_MARK = 8  # Bytes that are remembered of a write id. Two with one mark differ in their digests.
_SEQUENCE_AND_EPOCH = 3  # Bytes: the head of a list of six, and two zeros.


class Committer:
    """Commits to one store."""

    def __init__(self, server: Server, objects: Objects, size_limit: int | None) -> None:
        self._server, self._objects = server, objects
        self._size_limit = size_limit

    def commit(self, batch: Batch) -> Operation:
        """Do what `decide` decides, in one step on the server."""
        # While nothing was collected, needs are not looked up: then they are not sent either.
        with_needs = batch.epoch is None
        staged, tries = self._objects.stage(batch.frames), _STAGED_AGAIN
        try:
            while True:
                reply = self._send(batch, staged, with_needs)
                if reply[0] == b"stale":
                    with_needs = True
                elif reply[0] == b"unstaged" and tries:
                    tries -= 1
                    self._objects.unstage(staged)
                    staged = self._objects.stage(batch.frames)
                elif reply[0] == b"unstaged":
                    raise evicted(self._server.where)
                else:
                    return self._understand(batch, reply)
        finally:
            if staged.ids:
                self._objects.unstage(staged)

    def _send(self, batch: Batch, staged: Staged, with_needs: bool) -> list[Any]:
        spelled: list[Argument] = [
            self._server.header_bytes,
            batch.space,
            sha256(batch.write_id.encode()).digest()[:_MARK],
            batch.digest,
            "" if batch.epoch is None else str(batch.epoch),
            b"".join(batch.needs) if with_needs else b"-",
            b"".join(batch.targets),
            encode_operation(operation_of(batch, 0, 0))[_SEQUENCE_AND_EPOCH:],
            "" if self._size_limit is None else str(self._size_limit),
            OVERHEAD,
            REMEMBERED,
            staged.token,
            len(batch.fences),
        ]
        for fence in batch.fences:
            spelled += (fence.name, str(fence.token))
        spelled.append(len(batch.moves))
        for name, expected, target in batch.moves:
            spelled += (name, expected or b"", target or b"")
        spelled.append(len(batch.frames))
        for id, frame, base, _ in batch.frames:
            spelled += (id + (base or b""), stub_of(frame) if id in staged.ids else frame)
        reply: list[Any] = self._server.run("commit", *spelled)
        return reply

    def _understand(self, batch: Batch, reply: list[Any]) -> Operation:
        match reply:
            case [b"done", int(sequence), int(epoch)]:
                return operation_of(batch, sequence, epoch)
            case [b"repeated", bytes(entry)]:
                done = decode_operation(batch.space, entry[_DIGEST:])
                check_repeated(batch, Recorded(entry[:_DIGEST], done))
                return done
            case [b"lost", int(at)]:
                raise fenced_off(batch.space, batch.fences[at - 1])
            case [b"moved", int(at), bytes(actual)]:
                move = batch.moves[at - 1]
                raise RefMoved(move.name, move.expected, actual or None)
            case [b"missing", bytes(ids)]:
                raise MissingObjects(sorted(set(split_ids(ids))))
            case [b"reframe", bytes(ids)]:
                raise Reframe(split_ids(ids))
            case [b"full", int(used), int(more)]:
                expect_room(used, more, self._size_limit)
            case [b"gone"]:
                raise gone(self._server.where)
        raise Corrupt(
            f"the store at {self._server.where} is not as it must be: a script of Ropewalk gave "
            f"{reply!r:.80}. Run check."
        )
