"""The contract of stores for the engine of plain files, and ways to damage what it stores."""

from __future__ import annotations

from pathlib import Path

from ropewalk.store import FileStore, Store
from ropewalk.store.files.formats import OBJECTS, SPACES, object_path, space_folder
from ropewalk.store.files.space import Space
from ropewalk.store.segment import Packed
from ropewalk.testing import StoreContract
from ropewalk.tree import ObjectId
from tests.store.logs import PacksAtOnce, find_node, flipped, segment_without


class EagerFileStore(PacksAtOnce, FileStore):
    """A store of plain files that packs at once."""


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
        space, packed = segment_without(looking, id)
        listed = looking._log.write_segment(space, packed)
        with looking._writing():
            assert looking._log.replace(
                space, looking._epoch(space), [listed], looking._ask(space, Space.names)
            )


def flip(path: Path, at: int) -> None:
    """Change a bit of a file."""
    path.write_bytes(flipped(path.read_bytes(), at))


def damage_record(folder: Path, id: ObjectId) -> None:
    """Change the record that brings a node, or the segment that it is in."""
    with FileStore(folder) as looking:  # One that remembers nothing of it.
        space, sequence, _ = find_node(looking, id)
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
        segment = looking._load(space, sequence)
        assert isinstance(segment, Packed)
    begin = len(data) - len(segment.data)
    path.write_bytes(data[:begin] + bytes(byte ^ 1 for byte in data[begin:]))
