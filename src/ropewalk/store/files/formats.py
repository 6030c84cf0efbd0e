"""Paths and formats of the files in a folder.

A log has one line of JSON per record:

    {"space": "team/agent", "log": 2, "after": 0, "check": "..."}
    {"sequence": 1, ..., "durability": "full", "frame": "...", "check": "..."}
    {"synced": 1}

The first line names the space, and the record up to which it was packed when the log began. A
record's line is appended whole. Its frame, in base64, holds everything; the fields before it are
for people, and for readers that need the refs without opening frames. `synced` is a witness,
written after a sync: everything before it has survived every power loss since. It holds nothing
that must be kept.

After a power loss the end of a log may be torn: a line is missing or broken, and nothing after it
was ever acknowledged as durable. Such an end is ignored. A broken line with a witness after it is
damage.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from binascii import Error as BadText
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from os import urandom
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import ormsgpack

from ropewalk.errors import FormatError, NewerFormat, NotAllowed
from ropewalk.store.folder import Filesystem
from ropewalk.store.model import (
    KEY,
    Durability,
    Header,
    LeaseRecord,
    Move,
    Ref,
    Scalar,
    decode_header,
)
from ropewalk.store.record import Append, Row
from ropewalk.tree.objects import ID_SIZE, ObjectId

HEADER = "ropewalk.json"
OBJECTS = "objects"
SPACES = "spaces"
NEW = "new"

LOG = "log"
STATE = "state.json"
SPACE = "space.json"
LIST = "spaces.list"
LEASES = "leases.json"
SEGMENTS = "segments"

_LONGEST = 100
_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_PLAIN = re.compile(r"[a-z0-9_~-](?:[a-z0-9._~-]*[a-z0-9_~-])?")
# Device names of Windows.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")


def temporary(root: Path) -> Path:
    """A temporary name for a file that is renamed later."""
    return root / NEW / urandom(16).hex()


def object_path(objects: Path, id: ObjectId) -> Path:
    """The file of a shared object."""
    name = id.hex()
    return objects / name[:2] / name[2:]


def space_folder(spaces: Path, space: str) -> Path:
    """The folder of a space: two nested ones for the two parts of its name."""
    tenant, _, name = space.partition("/")
    return spaces / folder_name(tenant) / folder_name(name)


def plain_space(folder: Path) -> str | None:
    """The name of the space of a folder, if the folder's name determines it."""
    tenant, name = folder.parent.name, folder.name
    return None if "=" in tenant + name else f"{tenant}/{name}"


def folder_name(part: str) -> str:
    """Encode a part of a name as a folder name that is unique on every file system.

    Most stay as they are. One that is long, has capitals, or begins or ends with a dot is
    shortened and gets a hash after `=`, which no part contains.
    """
    letters = _ESCAPE.sub("_", part)
    if len(part) <= _LONGEST and _PLAIN.fullmatch(letters) and not _DEVICES.fullmatch(part):
        return part
    shown = part[:_LONGEST].strip(".")
    return f"{shown}={sha256(part.encode()).hexdigest()[:32]}"


LAYOUT: Final = 2
"""The version of the folder's layout and formats."""

_KIND: Final = "file store"


class Leases(NamedTuple):
    """The leases of a space, and the last token given out."""

    tokens: int
    records: Mapping[str, LeaseRecord]


class Extent(NamedTuple):
    """The valid length of an append-only file, and the checksum of that content."""

    file: str
    size: int = 0
    crc: int = 0


class Packing(NamedTuple):
    """The packed part of a space: everything except the tail of its log."""

    generation: int
    """Increases each time this is replaced."""
    epoch: int
    packed: int
    """The last record in a segment."""
    log: str
    """The file of the tail."""
    refs: tuple[Ref, ...]
    """The refs at the last packed record."""
    segments: Extent
    """The list of segments."""
    lookup: Extent
    """The index of packed commits and keys."""
    names: Extent
    """The shared objects that packed records reference."""


def unpacked(log: str) -> Packing:
    """The initial state of a space."""
    return Packing(0, 1, 0, log, (), Extent("catalog.0"), Extent("lookup.0"), Extent("names.0"))


def replace_file(
    disk: Filesystem, root: Path, path: Path, data: bytes, *, sync: bool = True
) -> None:
    """Replace a file atomically. With `sync` the rename is durable too."""
    new = temporary(root)
    try:
        if not new.parent.is_dir():
            disk.make_folder(root / NEW)
        disk.create(new, data, sync=True)
        disk.rename(new, path)
    except BaseException:
        disk.discard([new])
        raise
    if sync:
        disk.sync_folder(path.parent)


# The header.


def encode_header() -> bytes:
    """The header of a new store."""
    header = Header(urandom(16))
    spelled = {
        "ropewalk": _KIND,
        "layout": LAYOUT,
        "format": header.format,
        "algorithm": header.algorithm,
        "store_id": header.store_id.hex(),
    }
    return json.dumps(spelled, indent=2).encode() + b"\n"


def read_header(path: Path) -> Header:
    """Read the store's header; raises if it is missing, damaged or of a newer version."""
    with suppress(ValueError, KeyError, TypeError):
        spelled = json.loads(path.read_bytes())
        if isinstance(spelled, dict) and spelled.get("ropewalk") == _KIND:
            return _decode_header(path, spelled)
    raise FormatError(
        f"{path} is not the header of a store. Restore it from a copy, or choose another folder."
    )


def _decode_header(path: Path, spelled: Mapping[str, Any]) -> Header:
    layout = spelled["layout"]
    id = bytes.fromhex(spelled["store_id"])
    if isinstance(layout, int) and layout > LAYOUT:
        raise NewerFormat(
            f"the store's folder has version {layout}; this version reads up to {LAYOUT}. "
            "Install a newer Ropewalk."
        )
    if isinstance(layout, int) and 0 < layout < LAYOUT:
        raise NotAllowed(
            f"the store in {path.parent} has format {layout}, from before the first release, which "
            "this version does not read: choose another folder, or remove this one to begin anew."
        )
    return decode_header(ormsgpack.packb(["ropewalk", spelled["format"], spelled["algorithm"], id]))


# The packed part of a space.


def encode_packing(space: str, packing: Packing) -> bytes:
    """Encode the packed part of a space."""
    spelled: dict[str, object] = {"space": space, "layout": LAYOUT, **packing._asdict()}
    spelled["refs"] = [[ref.name, ref.target.hex(), ref.sequence] for ref in packing.refs]
    return seal(spelled)


def read_packing(path: Path, space: str) -> Packing:
    """Read the packed part of a space; raises `FileNotFoundError` if absent, and `FormatError`."""
    match unseal(path.read_bytes()):
        case {"layout": int(layout)} if layout > LAYOUT:
            raise NewerFormat(
                f"{path} has version {layout}; this version reads up to {LAYOUT}. Install a newer "
                "Ropewalk."
            )
        case {"space": str(name)} if name != space:
            raise FormatError(f"what is said of {space!r} is that of {name!r}")
        case {
            "generation": int(generation), "epoch": int(epoch), "packed": int(packed),
            "log": str(log), "refs": list(refs), "segments": [*segments], "lookup": [*lookup],
            "names": [*names],
        }:  # fmt: skip
            with suppress(ValueError, TypeError):
                found = tuple([Ref(name, bytes.fromhex(id), at) for name, id, at in refs])
                extents = Extent(*segments), Extent(*lookup), Extent(*names)
                return Packing(generation, epoch, packed, log, found, *extents)
    raise damaged(path)


def name_in(path: Path) -> str | None:
    """The space that such a file belongs to; None if it does not say."""
    with suppress(FileNotFoundError):
        data = path.read_bytes()
        spelled = unseal(data[: data.find(b"\n") + 1])
        if spelled is not None and isinstance(spelled.get("space"), str):
            return str(spelled["space"])
    return None


# Leases.


def encode_leases(space: str, leases: Leases) -> bytes:
    """Encode leases."""
    listed = [list(one) for one in leases.records.values()]
    return seal({"space": space, "tokens": leases.tokens, "leases": listed})


def read_leases(path: Path, space: str | None = None) -> Leases:
    """The leases of a space; none if none was ever taken."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Leases(0, {})
    match unseal(data):
        case {"space": str(name), "tokens": int(tokens), "leases": list(spelled)} if space in (
            None,
            name,
        ):
            records = [_decode_lease(path, one) for one in spelled]
            return Leases(tokens, {one.name: one for one in records})
    raise damaged(path)


def _decode_lease(path: Path, spelled: object) -> LeaseRecord:
    match spelled:
        case [str(name), str(holder), int(token), int(beat), int() | float() as duration]:
            return LeaseRecord(name, holder, token, beat, duration)
    raise damaged(path)


def damaged(path: Path) -> FormatError:
    """The error for a small file that is missing or damaged."""
    return FormatError(f"{path} is damaged. Restore it from a copy of the store.")


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
    """The key that finds it."""
    names: tuple[ObjectId, ...]
    """Shared objects that it references."""
    durable: bool
    """Whether it was acknowledged only after it was synced."""
    start: int
    """The offset of its line in the log."""
    end: int


class Lines(NamedTuple):
    """The content of a range of a log."""

    entries: list[Entry]
    end: int
    """The end of the intact part; anything after it is torn."""
    synced: int
    """The last record covered by a witness; 0 if there is none."""


class Broken(Exception):
    """A log is damaged from this offset on. The reader reads again before reporting it."""

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
    """The line that records what is durable."""
    return b'{"synced":%d}\n' % sequence


def encode_end(sequence: int) -> bytes:
    """The line in a file beside a log that records where it ended when it was closed."""
    return seal({"last": sequence})


def read_end(path: Path) -> int:
    """The last record in such lines; 0 if there is no file, at least 1 if there is one.

    The file is created after a record became durable.
    """
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return 0
    found = [said.get("last") for line in lines if (said := unseal(line)) is not None]
    return max([one for one in found if type(one) is int], default=1)


def encode_began(name: str) -> bytes:
    """The line that records that a space began."""
    return seal({"began": name})


def seal(spelled: Mapping[str, object]) -> bytes:
    """One line of JSON that ends with a checksum of the rest."""
    body = _bytes_of(spelled)
    return b'%s%s%08x"}\n' % (body, _CHECK, crc32(body))


def _bytes_of(spelled: Mapping[str, object]) -> bytes:
    """JSON without the closing bracket."""
    return _spell(spelled).encode("utf-8", "surrogatepass")[:-1]


# Reading.


def unseal(line: bytes) -> dict[str, Any] | None:
    """Decode such a line; None if it is damaged."""
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
    """Check the first line of a log; `FormatError` if it belongs to another log or is damaged."""
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
    """The records after number `sequence`, from lines that begin at offset `place` of the log.

    Raises `Broken` where acknowledged lines are missing.
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
            # Witnesses are not synced, so a broken one may be between two intact lines.
            entries.append(found)
            sequence, end, torn = sequence + 1, place + stop, None
        elif found.durable or torn is None:
            raise Broken(at if torn is None else torn)
    return Lines(entries, end, synced)


def read_row(line: bytes, entry: Entry) -> Row:
    """A record with its frame; raises `Broken` if its line has changed."""
    body = _sealed(line)
    try:
        if body is not None:
            at = body.rfind(_FRAME) + len(_FRAME)
            return Row(entry.sequence, entry.dictionary, b64decode(body[at:-1], validate=True))
    except BadText:
        pass
    raise Broken(entry.start)


def _read_line(line: bytes, at: int) -> Entry | int | None:
    """A record, the number in a witness, or None for anything else."""
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
