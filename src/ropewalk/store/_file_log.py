"""The log of a space: one line of JSON for each operation, and how it is read.

    {"space": "team/agent", "log": 1, "check": "..."}
    {"sequence": 1, ..., "durability": "full", "check": "..."}
    {"synced": 1}

A line is appended whole. `synced` is written after a sync: what stands before it has
survived every power loss since. It is a witness, and holds nothing that must be kept.

After a power loss the end of a log may be torn: a line is missing or broken, and nothing
behind it was ever acknowledged as durable. Such an end is passed over. A line that is
broken although a witness stands behind it is damage.
"""

from __future__ import annotations

import json
import math
from binascii import Error as HexError
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from ropewalk.errors import FormatError, NewerFormat
from ropewalk.store._decide import Recorded
from ropewalk.store._records import Durability, Move, Operation, Scalar
from ropewalk.tree.objects import ID_SIZE, ObjectId

VERSION = 1

_CHECK = b',"check":"'
_CHECK_SIZE = 32
LONGEST_WITNESS = 40


class Line(NamedTuple):
    """An operation, and where its line stands in the log."""

    recorded: Recorded
    durable: bool
    """Whether it was not acknowledged before it was synced."""
    start: int
    end: int


class Lines(NamedTuple):
    """What a stretch of a log says."""

    lines: list[Line]
    end: int
    """Where the sound part ends; what is behind it is torn."""
    synced: int
    """The last operation that a witness speaks for; 0 if there is none."""


class Broken(Exception):
    """A log is damaged from this place on. The reader looks again before it says so."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


def encode_start(space: str) -> bytes:
    """The first line of a log."""
    return seal({"space": space, "log": VERSION})


def encode_line(recorded: Recorded, durability: Durability) -> bytes:
    """The line of an operation."""
    operation = recorded.operation
    return seal(
        {
            "sequence": operation.sequence,
            "epoch": operation.epoch,
            "time": operation.time,
            "write_id": operation.write_id,
            "digest": recorded.digest.hex(),
            "moves": [
                [name, expected and expected.hex(), target and target.hex()]
                for name, expected, target in operation.moves
            ],
            "metadata": {key: _encode_scalar(one) for key, one in operation.metadata.items()},
            "durability": durability,
        }
    )


def encode_witness(sequence: int) -> bytes:
    """The line that says what is durable."""
    return b'{"synced":%d}\n' % sequence


def read_start(line: bytes, space: str) -> None:
    """Check the first line of a log; `FormatError` if it is another space's or none."""
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


def read_lines(data: bytes, place: int, space: str, sequence: int) -> Lines:
    """The operations behind number `sequence`, from lines that begin at `place` of the log.

    Raises `Broken` where lines are missing that were acknowledged.
    """
    lines: list[Line] = []
    end, synced = place, 0
    torn: int | None = None
    start = 0
    while (stop := data.find(b"\n", start) + 1) > 0:
        line, at, start = data[start:stop], place + start, stop
        found = _read_line(line, space)
        if isinstance(found, int):
            if found > sequence:
                raise Broken(at if torn is None else torn)
            synced = found
            if torn is None:
                end = place + stop
        elif found is None:
            torn = at if torn is None else torn
        elif _follows(found[0], sequence, torn, at):
            lines.append(Line(*found, at, place + stop))
            sequence, end, torn = sequence + 1, place + stop, None
        elif found[1] or torn is None:
            raise Broken(at if torn is None else torn)
    return Lines(lines, end, synced)


def _follows(recorded: Recorded, sequence: int, torn: int | None, at: int) -> bool:
    # A witness is not synced itself, so a broken one may stand between two sound lines.
    near = torn is None or at - torn <= LONGEST_WITNESS
    return near and recorded.operation.sequence == sequence + 1


def _read_line(line: bytes, space: str) -> tuple[Recorded, bool] | int | None:
    """An operation, the number in a witness, or None for what is neither."""
    if line.startswith(b'{"synced":'):
        number = line[10:-2]
        sound = number.isdigit() and len(number) < 20 and line == encode_witness(int(number))
        return int(number) if sound else None
    spelled = unseal(line)
    try:
        return None if spelled is None else _decode_line(spelled, space)
    except FormatError:
        return None


def _decode_line(spelled: Mapping[str, Any], space: str) -> tuple[Recorded, bool] | None:
    match spelled:
        case {
            "sequence": int(sequence), "epoch": int(epoch), "time": int(time),
            "write_id": str(write_id), "digest": str(digest), "moves": list(moves),
            "metadata": dict(metadata), "durability": "full" | "relaxed" as durability,
        }:  # fmt: skip
            operation = Operation(
                space,
                sequence,
                tuple(_decode_move(move) for move in moves),
                write_id,
                time,
                epoch,
                {key: _decode_scalar(one) for key, one in metadata.items()},
            )
            return Recorded(_from_hex(digest), operation), durability == "full"
    return None


def seal(spelled: Mapping[str, object]) -> bytes:
    """One line of JSON that ends with a checksum of the rest."""
    body = json.dumps(spelled, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )[:-1]
    return b'%s%s%s"}\n' % (body, _CHECK, _checksum(body))


def unseal(line: bytes) -> dict[str, Any] | None:
    """What such a line says; None if it is not as it was written."""
    body = line[: -len(_CHECK) - _CHECK_SIZE - 3]
    if not body or line[len(body) :] != b'%s%s"}\n' % (_CHECK, _checksum(body)):
        return None
    try:
        spelled = json.loads((body + b"}").decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return spelled if isinstance(spelled, dict) else None


def _checksum(body: bytes) -> bytes:
    return sha256(body).hexdigest()[:_CHECK_SIZE].encode()


def _encode_scalar(value: Scalar) -> object:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _decode_scalar(spelled: object) -> Scalar:
    match spelled:
        case None | bool() | int() | float() | str():
            return spelled
        case {"bytes": str(text)}:
            return _from_hex(text)
        case {"float": "nan" | "inf" | "-inf" as text}:
            return float(text)
    raise FormatError("an operation's metadata holds more than plain values")


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
    except (ValueError, HexError) as error:
        raise FormatError(f"a log holds a wrong number: {error}") from None
    if size is not None and len(found) != size:
        raise FormatError(f"a log holds an id of {len(found)} bytes")
    return found
