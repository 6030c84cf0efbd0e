"""From objects to frames: which object is stored whole, and which against another."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ropewalk.store._frames import MAX_DEPTH, encode_delta, encode_whole
from ropewalk.store.forking import freed_after_fork
from ropewalk.tree.objects import Object, ObjectId

DEFAULT_CACHE_BYTES = 16 * 1024 * 1024
_SMALLEST_DELTA = 192  # Below this, the id of a base eats the gain.


class Framed(NamedTuple):
    """An object as a frame."""

    id: ObjectId
    frame: bytes
    base: ObjectId | None
    depth: int


class Known(NamedTuple):
    """What must be known of an object to store another against it."""

    payload: bytes
    depth: int
    anchor: ObjectId
    """The whole object at the start of its chain: itself at depth 0."""


BaseReader: TypeAlias = Callable[[Sequence[ObjectId]], Mapping[ObjectId, Known]]
"""Fetches verified bases; leaves out what is missing or damaged."""


class FrameWriter:
    """Turns objects into frames, with a bounded memory of what was written last.

    An object whose `base` is at hand is stored against it when that helps. A chain
    that is as long as it may be goes back to the whole object at its start, and
    begins anew when that has become too different. Safe to share between threads.
    """

    def __init__(self, read_bases: BaseReader, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._read_bases = read_bases
        self.cache_bytes = cache_bytes
        self._cache: OrderedDict[ObjectId, Known] = OrderedDict()
        self._held = 0
        self._lock = freed_after_fork(threading.Lock())

    def frame(
        self, objects: Sequence[Object], whole: Collection[ObjectId] = ()
    ) -> tuple[list[Framed], dict[ObjectId, Known]]:
        """The objects' frames, and what to `remember` of them once they are stored.

        Objects in `whole` are stored without a base.
        """
        bases = {
            one.base
            for one in objects
            if one.base is not None and len(one.payload) >= _SMALLEST_DELTA and one.id not in whole
        }
        # A base in the same commit counts only if it comes first: `fresh` has it then.
        known = self._find(bases.difference(one.id for one in objects) if bases else bases)
        known |= self._find({base.anchor for base in known.values() if base.depth == MAX_DEPTH})
        framed: list[Framed] = []
        fresh: dict[ObjectId, Known] = {}
        for one in objects:
            base = None if one.id in whole else _choose_base(one, fresh, known)
            made = _frame(one, base)
            framed.append(made)
            anchor = one.id if made.base is None or base is None else base[1].anchor
            fresh[one.id] = Known(one.payload, made.depth, anchor)
        return framed, fresh

    def remember(self, fresh: Mapping[ObjectId, Known]) -> None:
        """Keep what was stored, as bases for what comes next."""
        with self._lock:
            for id, known in fresh.items():
                self._drop(id)
                if len(known.payload) <= self.cache_bytes // 8:
                    self._cache[id] = known
                    self._held += len(known.payload)
            while self._held > self.cache_bytes:
                self._held -= len(self._cache.popitem(last=False)[1].payload)

    def forget(self, ids: Collection[ObjectId]) -> None:
        """Drop what turned out to be otherwise in the store."""
        with self._lock:
            for id in ids:
                self._drop(id)

    def _drop(self, id: ObjectId) -> None:
        gone = self._cache.pop(id, None)
        if gone is not None:
            self._held -= len(gone.payload)

    def _find(self, ids: Collection[ObjectId]) -> dict[ObjectId, Known]:
        if not ids:
            return {}
        found: dict[ObjectId, Known] = {}
        with self._lock:
            for id in ids:
                known = self._cache.get(id)
                if known is not None:
                    self._cache.move_to_end(id)
                    found[id] = known
        absent = [id for id in ids if id not in found]
        if absent:
            read = self._read_bases(absent)
            self.remember(read)
            found.update(read)
        return found


def _choose_base(
    one: Object, fresh: Mapping[ObjectId, Known], known: Mapping[ObjectId, Known]
) -> tuple[ObjectId, Known] | None:
    id = one.base
    if id is None or id == one.id or len(one.payload) < _SMALLEST_DELTA:
        return None
    base = fresh.get(id) or known.get(id)
    if base is not None and base.depth == MAX_DEPTH:
        id = base.anchor
        base = fresh.get(id) or known.get(id)
    # An anchor is whole, unless the store changed under us.
    return None if base is None or base.depth >= MAX_DEPTH or id == one.id else (id, base)


def _frame(one: Object, base: tuple[ObjectId, Known] | None) -> Framed:
    if base is None:
        return Framed(one.id, encode_whole(one.kind, one.payload), None, 0)
    id, known = base
    depth = known.depth + 1
    delta = encode_delta(one.kind, one.payload, id, known.payload, depth)
    # A delta of less than half is clearly good; only else is a second look worth its time.
    if 2 * len(delta) > len(one.payload):
        whole = encode_whole(one.kind, one.payload)
        went_back = id != one.base
        if went_back or 4 * len(whole) <= 5 * len(delta):
            return Framed(one.id, whole, None, 0)
    return Framed(one.id, delta, id, depth)
