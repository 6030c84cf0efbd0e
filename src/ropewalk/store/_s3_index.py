"""Which pack holds which object: what one store object has learned of a bucket.

Packs never change, so what was learned of one stays true until it is gone. The truth about
which packs there are is the listing of their folder. Index files only save time: each repeats
the rows of many packs, and whoever finds no file for a pack reads the end of the pack itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.errors import FormatError
from ropewalk.store._decide import Presence
from ropewalk.store._frames import MAX_DEPTH
from ropewalk.store._key_value_calls import Cells
from ropewalk.store._key_value_cells import damaged, unseal
from ropewalk.store._key_value_cells import seal as seal_cell
from ropewalk.store._s3_catalog import Catalog, State, read_catalog
from ropewalk.store._s3_cells import INDEXES, PACKS
from ropewalk.store._s3_packs import (
    Row,
    epoch_of,
    name_before,
    pack_name,
    read_rows,
    rows_size,
    seal_rows,
)
from ropewalk.store.forking import freed_after_fork
from ropewalk.tree.objects import ObjectId

if TYPE_CHECKING:
    from ropewalk.store._s3_bucket import Bucket

SMALL = 64 * 1024
"""A pack of so many bytes is read as a whole."""

_SKEW = 60_000  # Milliseconds by which the clocks of writers may differ, as a first guess.
_INDEXED = 64  # Packs without an index file, from which on one is written.
_CACHE_BYTES = 16 * 1024 * 1024


class Copy(NamedTuple):
    """A frame of an object in a pack."""

    pack: str
    epoch: int
    row: Row


class Index:
    """Finds objects in packs. Safe to share between threads."""

    def __init__(self, bucket: Bucket, cells: Cells) -> None:
        self._bucket, self._cells = bucket, cells
        self._refreshing = freed_after_fork(threading.Lock())
        self._lock = freed_after_fork(threading.Lock())
        self._catalog = Catalog(0)
        self._packs: dict[str, tuple[Row, ...] | None] = {}
        """The packs that there are; None for one whose rows are not known yet."""
        self._copies: dict[ObjectId, tuple[Copy, ...]] = {}
        self._unsound: dict[str, str] = {}
        self._files: set[str] = set()
        self._unindexed: set[str] = set()
        """Packs whose rows are known, and are in no index file that is known."""
        self._newest = ""
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached = 0

    @property
    def catalog(self) -> Catalog:
        """The catalog as it was last seen."""
        return self._catalog

    @property
    def unsound(self) -> Mapping[str, str]:
        """Packs whose rows cannot be read, and why."""
        return self._unsound

    # What is known.

    def known(self, ids: Iterable[ObjectId]) -> dict[ObjectId, Presence]:
        """What this store object knows of objects, without asking."""
        found: dict[ObjectId, Presence] = {}
        for id in ids:
            best = self.best(id)
            if best is not None:
                copy, state = best
                found[id] = Presence(copy.row.depth, state is State.CONDEMNED)
        return found

    def best(self, id: ObjectId, below: int = MAX_DEPTH + 1) -> tuple[Copy, State] | None:
        """A copy of an object that can be read, and what it is worth; a living one first.

        A frame is worth no more than what it is stored against. A pack that no commit came
        to name may hold frames against something that is gone: they count for nothing.
        """
        return min(
            self._sound(id, below), key=lambda one: (one[1].value, one[0].row.depth), default=None
        )

    def nearest(self, id: ObjectId) -> Copy | None:
        """The copy to read: the one that is nearest to a whole one.

        Whatever is stored against the object can be read with this copy of it.
        """
        found = self._sound(id, MAX_DEPTH + 1)
        return min((copy for copy, _ in found), key=lambda copy: copy.row.depth, default=None)

    def _sound(self, id: ObjectId, below: int) -> Iterator[tuple[Copy, State]]:
        """The copies of an object, less deep than this, that can be read."""
        catalog = self._catalog
        for copy in self._copies.get(id, ()):
            state, row = catalog.state(id, copy.pack, copy.epoch), copy.row
            if state is State.DEAD or row.depth >= below:
                continue
            if row.base is not None:
                base = self.best(row.base, row.depth)
                if base is None:
                    continue
                state = max(state, base[1], key=lambda one: one.value)
            yield copy, state

    def copies(self, id: ObjectId) -> tuple[Copy, ...]:
        """All copies of an object that are known."""
        return self._copies.get(id, ())

    def packs(self) -> dict[str, tuple[Row, ...]]:
        """The rows of all packs that are known, in order."""
        with self._lock:
            return {name: rows for name, rows in sorted(self._packs.items()) if rows is not None}

    def ids(self) -> list[ObjectId]:
        """Every object that has a copy."""
        with self._lock:
            return list(self._copies)

    # Learning.

    def sync(self, epoch: int) -> None:
        """Know at least what was so when this epoch began."""
        if self._catalog.epoch < epoch:
            self.refresh()

    def find(self, ids: Iterable[ObjectId]) -> None:
        """Look for objects until they are known to be alive, or not to be."""
        wanted = list(ids)
        for look in (self._load, self._peek, self.refresh):
            wanted = [id for id in wanted if not self._is_alive(id)]
            if not wanted:
                return
            look()

    def refresh(self) -> None:
        """Learn of every pack that there is now, and of the catalog."""
        # A pack that was listed, and is gone when it is read, was moved to one that was not.
        # One that is listed again although it is gone was only removed a moment ago.
        seen: set[str] = set()
        while (gone := self._refresh()) - seen:
            seen |= gone

    def _refresh(self) -> set[str]:
        with self._refreshing:
            while True:
                # First the catalog: a copy that it does not mark any more may be gone.
                catalog = read_catalog(self._cells)[1]
                with self._lock:
                    before = set(self._packs)
                listed = self._listed(None)
                if max(map(_epoch, listed), default=0) <= catalog.epoch:
                    break
            self._take(catalog)
            self._forget(before - set(listed))
            self._learn_of(listed)
        return self._load()

    def look(self) -> None:
        """Learn of the catalog; of packs too if it has changed."""
        catalog = read_catalog(self._cells)[1]
        if catalog.revision != self._catalog.revision:
            self.refresh()

    def _peek(self) -> None:
        """Learn of packs that came lately, as far as names tell: a guess that is often right."""
        if not self._newest:
            return
        listed = self._listed(f"{PACKS}/{name_before(self._newest, _SKEW)}")
        if max(map(_epoch, listed), default=0) <= self._catalog.epoch:
            self._learn_of(listed)
            self._load()

    def _listed(self, after: str | None) -> list[str]:
        places = self._bucket.listing(PACKS, after)
        names = (place.removeprefix(f"{PACKS}/") for place, _ in places)
        return [name for name in names if epoch_of(name) is not None]

    def take(self, catalog: Catalog) -> None:
        """See the catalog so from now on: this store object has just changed it."""
        with self._lock:
            if catalog.revision == self._catalog.revision + 1:
                self._catalog = catalog
                return
        # Others changed it too. What they did to packs is to be known before it counts.
        self.refresh()

    def _take(self, catalog: Catalog) -> None:
        with self._lock:
            if catalog.revision >= self._catalog.revision:
                self._catalog = catalog

    def _learn_of(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._packs.setdefault(name, None)
                self._newest = max(self._newest, name)

    def _load(self) -> set[str]:
        """Learn the rows of all packs that are known by name; those that are gone."""
        pending = self._pending()
        if len(pending) > 1:
            self._load_files()
            pending = self._pending()
        read = dict(zip(pending, self._bucket.each(self._read_rows, pending), strict=True))
        for name, rows in read.items():
            if rows is None:
                self._forget([name])
            else:
                self.add(name, rows)
        return {name for name, rows in read.items() if rows is None}

    def _pending(self) -> list[str]:
        with self._lock:
            return [name for name, rows in self._packs.items() if rows is None]

    def _read_rows(self, name: str) -> tuple[Row, ...] | None:
        """The rows of a pack; None if it is gone."""
        found = self._bucket.get(f"{PACKS}/{name}", SMALL)
        try:
            if found is not None and rows_size(found.data) > len(found.data):
                found = self._bucket.get(f"{PACKS}/{name}", rows_size(found.data))
            if found is None:
                return None
            rows = read_rows(found.data)
        except FormatError as error:
            self._unsound[name] = str(error)
            return ()
        if len(found.data) == found.size:
            self.keep(name, found.data)
        return rows

    def add(self, name: str, rows: Sequence[Row], *, indexed: bool = False) -> None:
        """Know the rows of a pack."""
        epoch = _epoch(name)
        with self._lock:
            if self._packs.get(name) is not None:
                return
            self._packs[name] = tuple(rows)
            self._newest = max(self._newest, name)
            if not indexed:
                self._unindexed.add(name)
            for row in rows:
                copies = self._copies.get(row.id, ())
                self._copies[row.id] = (*copies, Copy(name, epoch, row))

    def drop(self, names: Iterable[str]) -> None:
        """Forget packs that are gone."""
        self._forget(names)

    def _forget(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._unsound.pop(name, None)
                self._unindexed.discard(name)
                self._cached -= len(self._cache.pop(name, b""))
                for row in self._packs.pop(name, None) or ():
                    rest = tuple(one for one in self._copies.get(row.id, ()) if one.pack != name)
                    if rest:
                        self._copies[row.id] = rest
                    else:
                        self._copies.pop(row.id, None)

    def _is_alive(self, id: ObjectId) -> bool:
        best = self.best(id)
        return best is not None and best[1] is State.ALIVE

    # Index files.

    def _load_files(self) -> None:
        files = [place for place, _ in self._bucket.listing(INDEXES) if place not in self._files]
        for place, found in zip(files, self._bucket.each(self._bucket.get, files), strict=True):
            self._files.add(place)
            if found is not None:
                with suppress(FormatError):  # The packs say the same.
                    for name, rows in _decode_file(place, found.data):
                        if name in self._packs:
                            self.add(name, rows, indexed=True)

    def write_file(self, *, least: int = _INDEXED) -> None:
        """Write an index file, if there are enough packs without one."""
        with self._lock:
            if len(self._unindexed) < least:
                return
            names, self._unindexed = sorted(self._unindexed), set()
            rows = {name: self._packs.get(name) or () for name in names}
        place = f"{INDEXES}/{pack_name(self._catalog.epoch)}"
        self._bucket.put(place, _encode_file(place, rows))
        self._files.add(place)

    def replace_files(self) -> None:
        """Write one index file in the place of all, when packs were rewritten."""
        before = [place for place, _ in self._bucket.listing(INDEXES)]
        with self._lock:
            self._unindexed = {name for name, rows in self._packs.items() if rows}
        self.write_file(least=1)
        self._bucket.delete(before)
        self._files.difference_update(before)

    # Bytes.

    def keep(self, name: str, data: bytes) -> None:
        """Keep the bytes of a small pack at hand."""
        if len(data) > SMALL:
            return
        with self._lock:
            self._cached += len(data) - len(self._cache.pop(name, b""))
            self._cache[name] = data
            while self._cached > _CACHE_BYTES:
                self._cached -= len(self._cache.popitem(last=False)[1])

    def clear(self) -> None:
        """Let go of bytes that were kept at hand."""
        with self._lock:
            self._cache.clear()
            self._cached = 0

    def read(self, copies: Iterable[Copy]) -> dict[ObjectId, bytes | None]:
        """The frames of copies; None where the pack is gone."""
        by_pack: dict[str, list[Row]] = {}
        for copy in copies:
            by_pack.setdefault(copy.pack, []).append(copy.row)
        found: dict[ObjectId, bytes | None] = {}
        for frames in self._bucket.each(lambda one: self._read_pack(*one), by_pack.items()):
            found.update(frames)
        return found

    def _read_pack(self, name: str, rows: list[Row]) -> dict[ObjectId, bytes | None]:
        with self._lock:
            data = self._cache.get(name)
            if data is not None:
                self._cache.move_to_end(name)
        if data is None:
            data = self._read_whole(name)
        if data is not None:
            return {row.id: data[row.offset : row.offset + row.length] for row in rows}
        pieces = self._bucket.ranges(f"{PACKS}/{name}", [(row.offset, row.length) for row in rows])
        if pieces is None:
            return {row.id: None for row in rows}
        return {row.id: piece for row, piece in zip(rows, pieces, strict=True)}

    def _read_whole(self, name: str) -> bytes | None:
        """The bytes of a pack, if it is small."""
        with self._lock:
            known = self._packs.get(name) or ()
        if not known or known[-1].offset + known[-1].length > SMALL // 2:
            return None
        found = self._bucket.get(f"{PACKS}/{name}")
        if found is None:
            return None
        self.keep(name, found.data)
        return found.data


def _epoch(name: str) -> int:
    epoch = epoch_of(name)
    assert epoch is not None, "only packs are listed"
    return epoch


def _encode_file(place: str, packs: Mapping[str, Sequence[Row]]) -> bytes:
    return seal_cell(place, [[name, seal_rows(rows)] for name, rows in packs.items()])


def _decode_file(place: str, data: bytes) -> Iterator[tuple[str, tuple[Row, ...]]]:
    listed = unseal(place, data)
    if not isinstance(listed, list):
        raise damaged(place)
    for one in listed:
        match one:
            case [str(name), bytes(rows)]:
                yield name, read_rows(rows)
            case _:
                raise damaged(place)
