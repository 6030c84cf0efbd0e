"""The contract of stores for the engine of plain files, and ways to damage what it stores."""

from __future__ import annotations

from pathlib import Path

from ropewalk.store import FileStore, Store
from ropewalk.store.files.paths import OBJECTS, SPACES, object_path, space_folder
from ropewalk.store.log import SpaceCache
from ropewalk.store.packer import pack
from ropewalk.testing import StoreContract
from ropewalk.testing._stores._base import SPACE
from ropewalk.tree import ObjectId


class EagerFileStore(FileStore):
    """Packs the whole tail after every commit."""

    def _watch_tail(self, cache: SpaceCache, space: str, sequence: int, size: int) -> None:
        pack(self, space, whole=True)


class FileContract(StoreContract):
    """What every store promises, with ways to damage what this engine stores."""

    def damage(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, FileStore)
        path = object_path(store.path / OBJECTS, id)
        if path.exists():
            flip(path, -1)
        else:
            damage_record(store.path, id)
        return True

    def lose(self, store: Store, id: ObjectId) -> bool:
        assert isinstance(store, FileStore)
        path = object_path(store.path / OBJECTS, id)
        path.unlink(missing_ok=True)
        return not path.exists()


def flip(path: Path, at: int) -> None:
    """Change a bit of a file."""
    changed = bytearray(path.read_bytes())
    changed[at] ^= 1
    path.write_bytes(changed)


def damage_record(folder: Path, id: ObjectId, space: str = SPACE) -> None:
    """Change the record of a space that brings a node, or the segment that it is in."""
    with FileStore(folder) as looking:  # One that remembers nothing of it.
        record = next(
            record
            for record in looking.records(space)
            if any(node is not None and node.id == id for node in record.nodes())
        )
        with looking._log.looking(space) as found:
            log, entries, packed = found.log, found.entries, found.packing.packed
            segments = found.segments()
    if record.sequence > packed:
        flip(log, entries[record.sequence - packed - 1].end - 60)
        return
    (listed,) = (one for one in segments if one.first <= record.sequence <= one.last)
    path = space_folder(folder / SPACES, space) / listed.file
    data = path.read_bytes()
    with FileStore(folder) as looking:
        segment = looking._segment(space, record.sequence)
        assert segment is not None
    begin = len(data) - len(segment.data)
    path.write_bytes(data[:begin] + bytes(byte ^ 1 for byte in data[begin:]))
