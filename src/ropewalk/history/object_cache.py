"""Objects that an edit has just read or made: the next one on the way needs most of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from ropewalk.store.forking import freed_after_fork
from ropewalk.tree import Object, ObjectId, Reader

_MOST_BYTES = 4 << 20


class RecentObjects:
    """A bounded memory in front of a reader. Objects never change, so none gets stale.

    That an object is remembered says nothing about the store: a commit still names what
    it needs. Not for several threads at once.
    """

    def __init__(self, read: Reader, most_bytes: int = _MOST_BYTES) -> None:
        self._read, self._most = read, most_bytes
        self._known: OrderedDict[ObjectId, Object] = OrderedDict()
        self._held = 0

    @property
    def held(self) -> int:
        """How many bytes are remembered."""
        return self._held

    def read(self, ids: Sequence[ObjectId]) -> list[Object]:
        """Objects in the order asked for; raises `MissingObjects`."""
        absent = [id for id in ids if id not in self._known]
        found = {one.id: one for one in self._read(absent)} if absent else {}
        objects = []
        for id in ids:
            known = self._known.get(id)
            if known is not None:
                self._known.move_to_end(id)
            objects.append(known or found[id])
        self.remember(found.values())
        return objects

    def remember(self, objects: Iterable[Object]) -> None:
        """Keep objects at hand, in the place of those that were asked for longest ago."""
        for one in objects:
            if one.id not in self._known:
                self._known[one.id] = one
                self._held += len(one.payload)
        while self._held > self._most:
            self._held -= len(self._known.popitem(last=False)[1].payload)


class SharedObjects(RecentObjects):
    """Recent objects for several threads at once. Nobody waits while another reads the store."""

    def __init__(self, read: Reader, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__(read, most_bytes)
        self._lock = freed_after_fork(threading.Lock())

    def read(self, ids: Sequence[ObjectId]) -> list[Object]:
        """Objects in the order asked for; raises `MissingObjects`."""
        return self.read_through(self._read, ids)

    def read_through(self, read: Reader, ids: Sequence[ObjectId]) -> list[Object]:
        """The same; what is not remembered is read by the reader of another space."""
        with self._lock:
            found = {id: self._known[id] for id in ids if id in self._known}
            for id in found:
                self._known.move_to_end(id)
        absent = [id for id in ids if id not in found]
        if absent:
            fresh = read(absent)
            found.update((one.id, one) for one in fresh)
            self.remember(fresh)
        return [found[id] for id in ids]

    def remember(self, objects: Iterable[Object]) -> None:
        """Keep objects at hand, in the place of those that were asked for longest ago."""
        with self._lock:
            super().remember(objects)
