"""The one place where the benchmarks touch Ropewalk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from bench._model import Engine, Place
from ropewalk.codec import default_codec
from ropewalk.history import Branch, History
from ropewalk.store import FileStore, MemoryStore, Move, SqliteStore, Store, ref_name, space_name
from ropewalk.tree import Edited, Map, ObjectId, Reader, TreeWriter, load, put

_SPACE = space_name("bench", "value")
SHARED_SPACE = space_name("bench", "shared")
_REF = ref_name("branch", "main")


class Ropewalk(Engine):
    """Versions of one value in a memory store: each commit moves one ref."""

    def __init__(self) -> None:
        super().__init__()
        self._store = MemoryStore()
        self._writer = TreeWriter(default_codec)

    def commit(self, value: Any) -> None:
        written = self._writer.write(value)
        move = Move(_REF, self._writer.root, written.root)
        self._store.commit(_SPACE, written.objects, written.needs, [move])
        self._writer.accept(written)

    def read(self) -> Any:
        return load(self._root(), self._store.reader(_SPACE), default_codec)

    def stored_bytes(self) -> int:
        # All frames that were ever written, also those that another has replaced.
        return self._store.sizes.written_bytes

    def load(self, pairs: Mapping[str, Any]) -> None:
        self._move(None, Map.empty())
        self._edit(pairs)

    def put(self, key: str, value: Any) -> None:
        self._edit({key: value})

    def get(self, key: str) -> Any:
        return Map(self._root(), self._store.reader(_SPACE), default_codec)[key]

    def _edit(self, changes: Mapping[str, Any]) -> None:
        # Opened from the store each time: nothing is remembered between commits.
        root = self._root()
        self._move(root, Map(root, self._store.reader(_SPACE), default_codec).edit(changes))

    def _move(self, before: ObjectId | None, edited: Edited) -> None:
        move = Move(_REF, before, edited.root)
        self._store.commit(_SPACE, edited.objects, edited.needs, [move])

    def _root(self) -> ObjectId:
        ref = self._store.ref(_SPACE, _REF)
        assert ref is not None, "nothing was committed"
        return ref.target


def sqlite_store(place: Place) -> Store:
    """The embedded store in the folder of a place."""
    return SqliteStore(place.folder, durability=place.durability)


def file_store(place: Place) -> Store:
    """The store of plain files in the folder of a place."""
    return FileStore(place.folder, durability=place.durability)


class RopewalkDisk(Engine):
    """A branch of a history in a store on disk. It is not told what changed."""

    def __init__(self, place: Place, open_store: Callable[[Place], Store]) -> None:
        super().__init__()
        self._history = History(open_store(place), _SPACE)
        self._name = place.branch

    @cached_property
    def _branch(self) -> Branch:
        """The handle of who writes, which goes on from the newest value."""
        branch = self._history.open(self._name)
        if branch.head is not None:
            branch.read()
        return branch

    def commit(self, value: Any) -> None:
        self._branch.commit(value)

    def read(self) -> Any:
        return self._history.value(self._name)

    def load(self, pairs: Mapping[str, Any]) -> None:
        self._update(lambda root, read: Map.empty())
        self._update(lambda root, read: _map(root, read).edit(pairs))

    def put(self, key: str, value: Any) -> None:
        self._update(lambda root, read: _map(root, read).edit({key: value}))

    def get(self, key: str) -> Any:
        return self._history.map(self._name)[key]

    def close(self) -> None:
        self._history.store.close()

    def _update(self, edit: Callable[[ObjectId | None, Reader], Edited]) -> None:
        # The whole value is never read for this.
        self._editing.update(edit)

    @cached_property
    def _editing(self) -> Branch:
        return self._history.open(self._name)


class RopewalkTold(RopewalkDisk):
    """The same, told the path of what changed, as by a user who knows it."""

    def change(self, value: Any, path: tuple[str | int, ...], new: Any) -> None:
        self._update(lambda root, read: put(_expected(root), path, new, read, default_codec))


def _map(root: ObjectId | None, read: Reader) -> Map:
    return Map(_expected(root), read, default_codec)


def _expected(root: ObjectId | None) -> ObjectId:
    assert root is not None, "nothing was committed"
    return root
