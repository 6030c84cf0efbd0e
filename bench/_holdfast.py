"""The one place where the benchmarks touch Holdfast."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from bench._model import Engine, Place
from holdfast.codec import default_codec
from holdfast.store import MemoryStore, Move, SqliteStore, Store, ref_name, space_name
from holdfast.tree import (
    Commit,
    Edited,
    Map,
    ObjectId,
    TreeWriter,
    load,
    make_commit,
    put,
    read_commit,
)

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


def sqlite_store(place: Place) -> Store:
    """The embedded store in the folder of a place."""
    return SqliteStore(place.folder, durability=place.durability)


class HoldfastDisk(Engine):
    """A branch of commits in a store on disk. It is not told what changed."""

    def __init__(self, place: Place, open_store: Callable[[Place], Store]) -> None:
        super().__init__()
        self._store = open_store(place)
        self._branch = place.branch
        self._ref = ref_name("branch", place.branch)
        self._writer = TreeWriter(default_codec)
        self._epoch: int | None = None
        self._head = self._found()

    def commit(self, value: Any) -> None:
        if self._head is not None and self._writer.root != self._head.root:
            self._writer.resume(self._head.root, self._store.read)
        written = self._writer.write(value)
        self._record(Edited(written.root, written.objects, written.needs))
        self._writer.accept(written)

    def read(self) -> Any:
        return load(self._root(), self._store.read, default_codec)

    def load(self, pairs: Mapping[str, Any]) -> None:
        empty = Map.empty()
        made = {one.id: [one] for one in empty.objects}
        edited = Map(empty.root, lambda ids: [made[id][0] for id in ids], default_codec).edit(pairs)
        self._record(edited)

    def put(self, key: str, value: Any) -> None:
        self._record(Map(self._root(), self._store.read, default_codec).edit({key: value}))

    def get(self, key: str) -> Any:
        return Map(self._root(), self._store.read, default_codec)[key]

    def close(self) -> None:
        self._store.close()

    def _record(self, edited: Edited) -> None:
        """Write a commit with a new root, and move the branch to it."""
        head = self._head
        parents, generation = ((), 1) if head is None else ((head.id,), head.generation + 1)
        commit, made = make_commit(
            edited.root,
            parents,
            base=head.id if head else None,
            generation=generation,
            time=time.time_ns() // 1000,
            branch=self._branch,
        )
        done = self._store.commit(
            _SPACE,
            [*edited.objects, made],
            [*edited.needs, *parents],
            [Move(self._ref, head.id if head else None, commit.id)],
            epoch=self._epoch,
        )
        self._epoch, self._head = done.epoch, commit

    def _found(self) -> Commit | None:
        ref = self._store.ref(_SPACE, self._ref)
        return None if ref is None else read_commit(self._store.read([ref.target])[0])

    def _root(self) -> ObjectId:
        assert self._head is not None, "nothing was committed"
        return self._head.root


class HoldfastTold(HoldfastDisk):
    """The same, told the path of what changed, as by a user who knows it."""

    def change(self, value: Any, path: tuple[str | int, ...], new: Any) -> None:
        self._record(put(self._root(), path, new, self._store.read, default_codec))
