"""The one place where the benchmarks touch Holdfast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench._model import Engine
from holdfast.codec import default_codec
from holdfast.store import MemoryStore, Move, ref_name, space_name
from holdfast.tree import Edited, Map, ObjectId, TreeWriter, load

_SPACE = space_name("bench", "value")
_REF = ref_name("branch", "main")


class Holdfast(Engine):
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
        return load(self._root(), self._store.read, default_codec)

    def stored_bytes(self) -> int:
        # All frames that were ever written, also those that another has replaced.
        return self._store.sizes.written_bytes

    def load(self, pairs: Mapping[str, Any]) -> None:
        self._move(None, Map.empty())
        self._edit(pairs)

    def put(self, key: str, value: Any) -> None:
        self._edit({key: value})

    def get(self, key: str) -> Any:
        return Map(self._root(), self._store.read, default_codec)[key]

    def _edit(self, changes: Mapping[str, Any]) -> None:
        # Opened from the store each time: nothing is remembered between commits.
        root = self._root()
        self._move(root, Map(root, self._store.read, default_codec).edit(changes))

    def _move(self, before: ObjectId | None, edited: Edited) -> None:
        move = Move(_REF, before, edited.root)
        self._store.commit(_SPACE, edited.objects, edited.needs, [move])

    def _root(self) -> ObjectId:
        ref = self._store.ref(_SPACE, _REF)
        assert ref is not None, "nothing was committed"
        return ref.target
