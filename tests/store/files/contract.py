"""The contract of stores for the engine of plain files, and ways to damage what it stores."""

from __future__ import annotations

from pathlib import Path

from ropewalk.store import FileStore, Store
from ropewalk.store.files.paths import OBJECTS, SPACES, object_path, space_folder
from ropewalk.store.files.space import Space
from ropewalk.store.log import SpaceCache
from ropewalk.store.packer import heads_of, pack
from ropewalk.store.record import place_of, settled_header
from ropewalk.store.segment import build, without
from ropewalk.testing import StoreContract
from ropewalk.tree import ObjectId


class EagerFileStore(FileStore):
    """Packs the whole tail after every commit."""

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        pack(self, space, whole=True)


class FileContract(StoreContract):
    """What every store promises, with ways to damage what this engine stores."""

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, FileStore)
        damage(store.path, id)
        return True

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, FileStore)
        lose(store.path, id)
        return True


def damage(folder: Path, id: ObjectId) -> None:
    """Change a bit of a shared object, or of the record or segment that brings a node."""
    path = object_path(folder / OBJECTS, id)
    if path.exists():
        flip(path, -1)
    else:
        damage_record(folder, id)


def lose(folder: Path, id: ObjectId) -> None:
    """Delete a shared object, or write the segment of a node without it."""
    path = object_path(folder / OBJECTS, id)
    if path.exists():
        path.unlink()
        return
    with FileStore(folder) as looking:
        space, sequence, at = _find(looking, id)
        pack(looking, space, whole=True)
        records = looking._stretch(space, sequence)
        (one,) = (record for record in records if record.sequence == sequence)
        header = settled_header(one, lambda position: position != at)
        records[records.index(one)] = without(
            one, header, lambda place: place != place_of(sequence, at)
        )
        listed = looking._log.write_segment(space, build(space, records, heads_of(records)))
        with looking._writing():
            assert looking._log.replace(
                space, looking._epoch(space), [listed], looking._ask(space, Space.names)
            )


def _find(store: FileStore, id: ObjectId) -> tuple[str, int, int]:
    """Where a node is: its space, its record, and its position there."""
    return next(
        (space, record.sequence, at)
        for space in store.spaces()
        for record in store.records(space)
        for at, node in enumerate(record.nodes())
        if node is not None and node.id == id
    )


def flip(path: Path, at: int) -> None:
    """Change a bit of a file."""
    changed = bytearray(path.read_bytes())
    changed[at] ^= 1
    path.write_bytes(changed)


def damage_record(folder: Path, id: ObjectId) -> None:
    """Change the record that brings a node, or the segment that it is in."""
    with FileStore(folder) as looking:  # One that remembers nothing of it.
        space, sequence, _ = _find(looking, id)
        with looking._log.looking(space) as found:
            log, entries, packed = found.log, found.entries, found.packing.packed
            segments = found.segments()
    if sequence > packed:
        flip(log, entries[sequence - packed - 1].end - 60)
        return
    (listed,) = (one for one in segments if one.first <= sequence <= one.last)
    path = space_folder(folder / SPACES, space) / listed.file
    data = path.read_bytes()
    with FileStore(folder) as looking:
        segment = looking._segment(space, sequence)
        assert segment is not None
    begin = len(data) - len(segment.data)
    path.write_bytes(data[:begin] + bytes(byte ^ 1 for byte in data[begin:]))
