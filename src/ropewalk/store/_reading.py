"""From frames back to objects: chains are resolved, every object is verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import NoReturn, TypeAlias

from ropewalk.errors import Corrupt, DamagedObject, FormatError, MissingObjects
from ropewalk.store._frames import MAX_DEPTH, FrameHeader, decode_frame, parse_header
from ropewalk.store._framing import Known
from ropewalk.tree.objects import KIND_BYTES, Kind, Object, ObjectId, object_id

FrameReader: TypeAlias = Callable[[Sequence[ObjectId]], Mapping[ObjectId, bytes]]
"""Fetches frames; leaves out what is missing, and may add the frames of bases."""

_WRONG_HASH = "its bytes do not match its hash"
_FIRST_DELTA = 0x40  # Frames that begin with a smaller byte are whole.


def read_objects(ids: Sequence[ObjectId], fetch: FrameReader) -> list[Object]:
    """The objects, verified, in the order asked for.

    Raises `MissingObjects` with all that are absent, and `DamagedObject` for the
    first whose bytes are not what its name says.
    """
    distinct = list(dict.fromkeys(ids))
    frames = fetch_chains(distinct, fetch)
    missing = [id for id in distinct if id not in frames]
    if missing:
        raise MissingObjects(missing)
    chains = Chains(frames)
    read: dict[ObjectId, Object] = {}
    for id in distinct:
        frame = frames[id]
        if not frame or frame[0] >= _FIRST_DELTA:
            kind, payload = chains.verified(id)
        else:
            kind, payload = _verified_whole(id, frame)
        read[id] = Object(id, kind, payload)
    return [read[id] for id in ids]


def read_bases(ids: Sequence[ObjectId], fetch: FrameReader) -> dict[ObjectId, Known]:
    """What a writer must know of these objects; leaves out the missing and the damaged."""
    chains = Chains(fetch_chains(ids, fetch))
    known: dict[ObjectId, Known] = {}
    for id in ids:
        try:
            if id in chains.frames:
                payload = chains.verified(id)[1]
                chain = chains.chain(id)
                known[id] = Known(payload, chains.header(id).depth, chain[-1])
        except Corrupt:
            continue
    return known


def fetch_chains(ids: Sequence[ObjectId], fetch: FrameReader) -> dict[ObjectId, bytes]:
    """The frames of these objects and of everything they are stored against."""
    frames: dict[ObjectId, bytes] = {}
    wanted = list(ids)
    for _ in range(MAX_DEPTH + 1):
        if not wanted:
            break
        found = fetch(wanted)
        frames.update(found)
        deltas = [frame for frame in found.values() if frame and frame[0] >= _FIRST_DELTA]
        bases = {_base_or_none(frame) for frame in deltas}
        wanted = [base for base in bases if base is not None and base not in frames]
    return frames


class Chains:
    """Frames with everything that they are stored against."""

    def __init__(self, frames: Mapping[ObjectId, bytes]) -> None:
        self.frames = frames
        self._headers: dict[ObjectId, FrameHeader] = {}
        self._decoded: dict[ObjectId, tuple[Kind, bytes]] = {}

    def verified(self, id: ObjectId) -> tuple[Kind, bytes]:
        """Kind and payload of an object, checked against its name."""
        decoded = kind, payload = self._decode(id)
        if object_id(kind, payload) != id:
            self._blame(id)
        return decoded

    def header(self, id: ObjectId) -> FrameHeader:
        """The header of a frame, parsed once."""
        found = self._headers.get(id)
        if found is None:
            try:
                found = self._headers[id] = parse_header(self.frames[id])
            except FormatError as error:
                raise DamagedObject(id, str(error)) from error
        return found

    def chain(self, id: ObjectId) -> list[ObjectId]:
        """The object and what it is stored against, down to a whole one."""
        chain = [id]
        header = self.header(id)
        while header.base is not None:
            if header.base not in self.frames:
                raise DamagedObject(
                    chain[-1], f"object {header.base.hex()[:12]}, its base, is missing"
                )
            below = self.header(header.base)
            # Depths that only fall keep hostile frames from making a circle.
            if below.depth >= header.depth:
                raise DamagedObject(chain[-1], "its base is not nearer to a whole object")
            chain.append(header.base)
            header = below
        return chain

    def _decode(self, id: ObjectId) -> tuple[Kind, bytes]:
        frame = self.frames[id]
        if not frame or frame[0] < _FIRST_DELTA:
            return _decoded(id, frame, None)
        payload: bytes | None = None
        for one in reversed(self.chain(id)):
            found = self._decoded.get(one)
            if found is None:
                try:
                    frame, header = self.frames[one], self.header(one)
                    found = self._decoded[one] = _decoded(one, frame, payload, header)
                except DamagedObject:
                    self._blame_below(one)
                    raise
            payload = found[1]
        return self._decoded[id]

    def _blame(self, id: ObjectId) -> NoReturn:
        self._blame_below(id)
        raise DamagedObject(id, _WRONG_HASH)

    def _blame_below(self, id: ObjectId) -> None:
        """Raise for the first damaged object under this one, which may itself be sound."""
        for one in reversed(self.chain(id)[1:]):
            kind, payload = self._decode(one)
            if object_id(kind, payload) != one:
                raise DamagedObject(one, _WRONG_HASH)


def _verified_whole(id: ObjectId, frame: bytes) -> tuple[Kind, bytes]:
    """Kind and payload of a whole frame, checked: the way that most reads take."""
    try:
        decoded = kind, payload = decode_frame(frame)
    except FormatError as error:
        raise DamagedObject(id, str(error)) from error
    if sha256(KIND_BYTES[kind] + payload).digest() != id:
        raise DamagedObject(id, _WRONG_HASH)
    return decoded


def _decoded(
    id: ObjectId, frame: bytes, base_payload: bytes | None, header: FrameHeader | None = None
) -> tuple[Kind, bytes]:
    try:
        return decode_frame(frame, base_payload, header)
    except FormatError as error:
        raise DamagedObject(id, str(error)) from error


def _base_or_none(frame: bytes) -> ObjectId | None:
    try:
        return parse_header(frame).base
    except FormatError:
        return None  # Decoding will say which object it is.
