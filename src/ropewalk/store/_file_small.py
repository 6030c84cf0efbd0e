"""The small files of a `FileStore`: header, epoch, leases. Each is replaced whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from os import urandom
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack

from ropewalk.errors import FormatError, NewerFormat
from ropewalk.store._file_log import seal, unseal
from ropewalk.store._file_paths import NEW, temporary
from ropewalk.store._filesystem import Filesystem
from ropewalk.store._records import Header, LeaseRecord, decode_header

LAYOUT = 1
"""The version of the folder: what is where, and how it is spelled."""

_KIND = "file store"


class Leases(NamedTuple):
    """The leases of a space, and the last token that was given."""

    tokens: int
    records: Mapping[str, LeaseRecord]


NO_LEASES = Leases(0, {})


def replace_file(
    disk: Filesystem, root: Path, path: Path, data: bytes, *, sync: bool = True
) -> None:
    """Put a file in the place of another, whole. With `sync` its name is durable then too."""
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
    """The store's header; raises if it is newer or none."""
    with suppress(ValueError, KeyError, TypeError):
        spelled = json.loads(path.read_bytes())
        if isinstance(spelled, dict) and spelled.get("ropewalk") == _KIND:
            return _decode_header(spelled)
    raise FormatError(
        f"{path} is not the header of a store. Restore it from a copy, or choose another folder."
    )


def _decode_header(spelled: Mapping[str, Any]) -> Header:
    layout = spelled["layout"]
    if isinstance(layout, int) and layout > LAYOUT:
        raise NewerFormat(
            f"the store's folder has version {layout}; this version reads up to {LAYOUT}. "
            "Install a newer Ropewalk."
        )
    id = bytes.fromhex(spelled["store_id"])
    return decode_header(ormsgpack.packb(["ropewalk", spelled["format"], spelled["algorithm"], id]))


def encode_epoch(epoch: int) -> bytes:
    """Spell an epoch."""
    return seal({"epoch": epoch})


def read_epoch(path: Path) -> int:
    """The store's epoch."""
    match unseal(path.read_bytes()):
        case {"epoch": int(epoch)}:
            return epoch
    raise damaged(path)


def encode_leases(leases: Leases) -> bytes:
    """Spell leases."""
    return seal({"tokens": leases.tokens, "leases": [list(one) for one in leases.records.values()]})


def read_leases(path: Path) -> Leases:
    """The leases of a space; none if nobody ever took one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return NO_LEASES
    match unseal(data):
        case {"tokens": int(tokens), "leases": list(spelled)}:
            records = [_decode_lease(path, one) for one in spelled]
            return Leases(tokens, {one.name: one for one in records})
    raise damaged(path)


def _decode_lease(path: Path, spelled: object) -> LeaseRecord:
    match spelled:
        case [str(name), str(holder), int(token), int(beat), int() | float() as duration]:
            return LeaseRecord(name, holder, token, beat, duration)
    raise damaged(path)


def damaged(path: Path) -> FormatError:
    """What is said of a small file that is gone or is not as it was written."""
    return FormatError(f"{path} is damaged. Restore it from a copy of the store.")
