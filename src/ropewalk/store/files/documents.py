"""The small files of a `FileStore`: its header, and what a space is and leases. Each is replaced
whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from os import urandom
from pathlib import Path
from typing import Any, Final, NamedTuple

import ormsgpack

from ropewalk.errors import FormatError, NewerFormat, NotAllowed
from ropewalk.store.files.entry import seal, unseal
from ropewalk.store.files.paths import NEW, temporary
from ropewalk.store.folder import Filesystem
from ropewalk.store.model import Header, LeaseRecord, Ref, decode_header

LAYOUT: Final = 2
"""The version of the folder: what is where, and how it is spelled."""

_KIND: Final = "file store"


class Leases(NamedTuple):
    """The leases of a space, and the last token that was given."""

    tokens: int
    records: Mapping[str, LeaseRecord]


class Extent(NamedTuple):
    """How much of a file counts, to which there is only added; and what that must be."""

    file: str
    size: int = 0
    crc: int = 0


class Packing(NamedTuple):
    """What a space is without the tail of its log."""

    generation: int
    """Goes up each time that this is replaced."""
    epoch: int
    packed: int
    """The last record that is in a segment."""
    log: str
    """The file of the tail."""
    refs: tuple[Ref, ...]
    """As the last packed record left them."""
    segments: Extent
    """Which segments there are."""
    lookup: Extent
    """In which packed records commits and keys are."""
    names: Extent
    """The shared objects that packed records lead to."""


def unpacked(log: str) -> Packing:
    """What a space is at first."""
    return Packing(0, 1, 0, log, (), Extent("catalog.0"), Extent("lookup.0"), Extent("names.0"))


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
    """The store's header; raises if it is newer, older or none."""
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


# What a space is.


def encode_packing(space: str, packing: Packing) -> bytes:
    """Spell what a space is."""
    spelled: dict[str, object] = {"space": space, "layout": LAYOUT, **packing._asdict()}
    spelled["refs"] = [[ref.name, ref.target.hex(), ref.sequence] for ref in packing.refs]
    return seal(spelled)


def read_packing(path: Path, space: str) -> Packing:
    """What a space is. Raises `FileNotFoundError` if it was never packed, and `FormatError`."""
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
    """The space that such a file is about; None if it does not say."""
    with suppress(FileNotFoundError):
        spelled = unseal(path.read_bytes())
        if spelled is not None and isinstance(spelled.get("space"), str):
            return str(spelled["space"])
    return None


# Leases.


def encode_leases(space: str, leases: Leases) -> bytes:
    """Spell leases."""
    listed = [list(one) for one in leases.records.values()]
    return seal({"space": space, "tokens": leases.tokens, "leases": listed})


def read_leases(path: Path, space: str | None = None) -> Leases:
    """The leases of a space; none if nobody ever took one."""
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
    """What is said of a small file that is gone or is not as it was written."""
    return FormatError(f"{path} is damaged. Restore it from a copy of the store.")
