"""The log of a space: one line of JSON for each record, and how it is read.

    {"space": "team/agent", "log": 2, "after": 0, "check": "..."}
    {"sequence": 1, ..., "durability": "full", "frame": "...", "check": "..."}
    {"synced": 1}

The first line says whose log it is, and up to which record the space was packed when it began.
A record's line is appended whole. Its frame, in base64, holds everything; what stands before it
is for people, and for who wants to know the refs without opening frames. `synced` is written
after a sync: what stands before it has survived every power loss since. It is a witness, and
holds nothing that must be kept.

After a power loss the end of a log may be torn: a line is missing or broken, and nothing
behind it was ever acknowledged as durable. Such an end is passed over. A line that is
broken although a witness stands behind it is damage.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from binascii import Error as BadText
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from zlib import crc32

from ropewalk.errors import FormatError, NewerFormat
from ropewalk.store.log import Append, Row
from ropewalk.store.model import KEY, Durability, Move, Scalar
from ropewalk.tree.objects import ID_SIZE, ObjectId

VERSION: Final = 2
LONGEST_WITNESS: Final = 40

_FRAME: Final = b',"frame":"'
_CHECK: Final = b',"check":"'
_SEAL: Final = len(_CHECK) + 8 + 3
_spell: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Entry(NamedTuple):
    """A record in the tail of a log, without its frame."""

    sequence: int
    dictionary: int | None
    """The record whose body is the dictionary of this one."""
    moves: tuple[Move, ...]
    key: bytes | None
    """What it is found by."""
    names: tuple[ObjectId, ...]
    """Shared objects that it leads to."""
    durable: bool
    """Whether it was not acknowledged before it was synced."""
    start: int
    """Where its line begins in the log."""
    end: int


class Lines(NamedTuple):
    """What a stretch of a log says."""

    entries: list[Entry]
    end: int
    """Where the sound part ends; what is behind it is torn."""
    synced: int
    """The last record that a witness speaks for; 0 if there is none."""


class Broken(Exception):
    """A log is damaged from this place on. The reader looks again before it says so."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


# Writing.


def encode_start(space: str, after: int) -> bytes:
    """The first line of a log."""
    return seal({"space": space, "log": VERSION, "after": after})


def encode_line(
    append: Append,
    sequence: int,
    epoch: int,
    dictionary: int | None,
    frame: bytes,
    durability: Durability,
) -> bytes:
    """The line of a record."""
    spelled: dict[str, object] = {
        "sequence": sequence,
        "time": datetime.fromtimestamp(append.time / 1_000_000, UTC).isoformat(),
        "epoch": epoch,
        "write_id": append.write_id,
        "moves": [
            [name, expected and expected.hex(), target and target.hex()]
            for name, expected, target in append.moves
        ],
        "operation": {key: _encode_scalar(one) for key, one in append.metadata.items()},
    }
    step = append.step
    if step is not None:
        said = {
            "id": step.id.hex(), "branch": step.branch, "status": step.status, "agent": step.agent,
            "logic_step": step.logic_step, "description": step.description, "error": step.error,
        }  # fmt: skip
        spelled["step"] = {key: one for key, one in said.items() if one}
    if append.names:
        spelled["names"] = [id.hex() for id in sorted(append.names)]
    if dictionary is not None:
        spelled["dictionary"] = dictionary
    spelled["durability"] = durability
    spelled["length"] = len(frame)
    body = b"%s%s%s" % (_bytes_of(spelled), _FRAME, b64encode(frame))
    body += b'"'
    return b'%s%s%08x"}\n' % (body, _CHECK, crc32(body))


def encode_witness(sequence: int) -> bytes:
    """The line that says what is durable."""
    return b'{"synced":%d}\n' % sequence


def seal(spelled: Mapping[str, object]) -> bytes:
    """One line of JSON that ends with a checksum of the rest."""
    body = _bytes_of(spelled)
    return b'%s%s%08x"}\n' % (body, _CHECK, crc32(body))


def _bytes_of(spelled: Mapping[str, object]) -> bytes:
    """JSON without the bracket that closes it."""
    return _spell(spelled).encode("utf-8", "surrogatepass")[:-1]


# Reading.


def unseal(line: bytes) -> dict[str, Any] | None:
    """What such a line says; None if it is not as it was written."""
    body = _sealed(line)
    return None if body is None else _read_json(body)


def _sealed(line: bytes) -> bytes | None:
    body = line[:-_SEAL]
    if not body or line[len(body) :] != b'%s%08x"}\n' % (_CHECK, crc32(body)):
        return None
    return body


def _read_json(body: bytes) -> dict[str, Any] | None:
    try:
        spelled = json.loads((body + b"}").decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return spelled if isinstance(spelled, dict) else None


def read_start(line: bytes, space: str, after: int) -> None:
    """Check the first line of a log; `FormatError` if it is another log's or none."""
    start = unseal(line)
    if start is None:
        raise Broken(0)
    if isinstance(start.get("log"), int) and start["log"] > VERSION:
        raise NewerFormat(
            f"the log of {space!r} has version {start['log']}; this version reads up to "
            f"{VERSION}. Install a newer Ropewalk."
        )
    if start.get("space") != space:
        raise FormatError(f"the log of {space!r} is that of {start.get('space')!r}")
    if start.get("after") != after:
        raise FormatError(f"the log of {space!r} is an older one, from record {start.get('after')}")


def read_lines(data: bytes, place: int, sequence: int) -> Lines:
    """The records behind number `sequence`, from lines that begin at `place` of the log.

    Raises `Broken` where lines are missing that were acknowledged.
    """
    entries: list[Entry] = []
    end, synced = place, 0
    torn: int | None = None
    start = 0
    while (stop := data.find(b"\n", start) + 1) > 0:
        line, at, start = data[start:stop], place + start, stop
        found = _read_line(line, at)
        if isinstance(found, int):
            if found > sequence:
                raise Broken(at if torn is None else torn)
            synced = found
            if torn is None:
                end = place + stop
        elif found is None:
            torn = at if torn is None else torn
        elif found.sequence == sequence + 1 and (torn is None or at - torn <= LONGEST_WITNESS):
            # A witness is not synced itself, so a broken one may stand between two sound lines.
            entries.append(found)
            sequence, end, torn = sequence + 1, place + stop, None
        elif found.durable or torn is None:
            raise Broken(at if torn is None else torn)
    return Lines(entries, end, synced)


def read_row(line: bytes, entry: Entry) -> Row:
    """A record with its frame; raises `Broken` if the line is no longer what it was."""
    body = _sealed(line)
    try:
        if body is not None:
            at = body.rfind(_FRAME) + len(_FRAME)
            return Row(entry.sequence, entry.dictionary, b64decode(body[at:-1], validate=True))
    except BadText:
        pass
    raise Broken(entry.start)


def _read_line(line: bytes, at: int) -> Entry | int | None:
    """A record, the number in a witness, or None for what is neither."""
    if line.startswith(b'{"synced":'):
        number = line[10:-2]
        sound = number.isdigit() and len(number) < 20 and line == encode_witness(int(number))
        return int(number) if sound else None
    body = _sealed(line)
    if body is None:
        return None
    spelled = _read_json(body[: body.rfind(_FRAME)])
    try:
        return None if spelled is None else _decode_line(spelled, at, at + len(line))
    except FormatError:
        return None


def _decode_line(spelled: Mapping[str, Any], start: int, end: int) -> Entry | None:
    match spelled:
        case {
            "sequence": int(sequence), "moves": list(moves), "operation": dict(operation),
            "durability": "full" | "relaxed" as durability,
        }:  # fmt: skip
            key = operation.get(KEY)
            return Entry(
                sequence,
                spelled.get("dictionary"),
                tuple([_decode_move(move) for move in moves]),
                _from_hex(key["bytes"]) if isinstance(key, dict) and "bytes" in key else None,
                tuple([_from_hex(one, ID_SIZE) for one in spelled.get("names", ())]),
                durability == "full",
                start,
                end,
            )
    return None


def _encode_scalar(value: Scalar) -> object:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _decode_move(spelled: object) -> Move:
    match spelled:
        case [str(name), (None | str()) as expected, (None | str()) as target]:
            return Move(name, _decode_id(expected), _decode_id(target))
    raise FormatError("a ref move's record is not Ropewalk's")


def _decode_id(text: str | None) -> ObjectId | None:
    return None if text is None else _from_hex(text, ID_SIZE)


def _from_hex(text: str, size: int | None = None) -> bytes:
    try:
        found = bytes.fromhex(text)
    except (ValueError, TypeError) as error:
        raise FormatError(f"a log holds a wrong number: {error}") from None
    if size is not None and len(found) != size:
        raise FormatError(f"a log holds an id of {len(found)} bytes")
    return found
