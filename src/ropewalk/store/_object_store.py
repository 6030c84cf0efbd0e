"""Stores that find every object by its hash: those on servers, in plain files and in memory."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ropewalk.errors import StoreFull
from ropewalk.store._checks import expect_whole
from ropewalk.store._contract import Store
from ropewalk.store._decide import Batch, Presence, Reframe, digest_of
from ropewalk.store._framing import DEFAULT_CACHE_BYTES, FrameWriter, Known
from ropewalk.store._names import check_space
from ropewalk.store._reading import fetch_chains, read_bases, read_objects
from ropewalk.store._records import Operation, Ref, Stored, check_ids
from ropewalk.store.asynchronous import twin
from ropewalk.tree.objects import Object, ObjectId, Reader

if TYPE_CHECKING:
    from ropewalk.store._checking import Report
    from ropewalk.store._collecting import Collected, Progress
    from ropewalk.store._statistics import Stats


class ObjectStore(Store):
    """A store that keeps each object in a frame of its own, and an index of all of them."""

    def __init__(self, *, cache_bytes: int = DEFAULT_CACHE_BYTES, **options: Any) -> None:
        super().__init__(**options)
        expect_whole(cache_bytes, 0, "cache_bytes")
        self._frame_writer = FrameWriter(self._read_bases, cache_bytes)

    # What an engine supplies.

    @abstractmethod
    def _commit(self, batch: Batch) -> Operation:
        """Apply a batch in one atomic step, durably.

        The space's operations get the next number in the same step. Whoever subscribed is woken.
        """

    @abstractmethod
    def _frames(self, ids: Sequence[ObjectId]) -> Mapping[ObjectId, bytes]:
        """The frames of objects, condemned or not, without those that are absent.

        May add the frames of their bases, which saves the caller further calls.
        """

    @abstractmethod
    def _presence(self, ids: Sequence[ObjectId]) -> Mapping[ObjectId, Presence]:
        """Depth and condemnation of objects, without those that are absent."""

    @abstractmethod
    def _scan(self) -> Iterator[Stored]:
        """Every object, once."""

    @abstractmethod
    def _condemn(self, ids: Sequence[ObjectId], collection: int) -> None:
        """Mark objects as condemned by a collection; absent ones are passed over.

        The number takes the place of an earlier collection's.
        """

    @abstractmethod
    def _revive(self, ids: Sequence[ObjectId]) -> None:
        """Take the mark away; absent ones are passed over."""

    def _clear_doubt(self, found: Sequence[Stored]) -> None:
        """Let commits need objects that were in doubt, if they are still as `scan` found them.

        Only for an engine that stores objects in one step and moves refs in another.
        """

    @abstractmethod
    def _raise_epochs(self) -> int:
        """Raise every space's epoch, and that of spaces to come, to one new number."""

    @abstractmethod
    def _delete(self, ids: Sequence[ObjectId], collection: int) -> list[ObjectId]:
        """Delete objects that bear the mark of this collection at this moment; their ids.

        Packs that are less than half alive then are rewritten. A frame may be made
        whole by that, but never deeper.
        """

    def _arrange(self, batch: Batch, objects: Sequence[Object]) -> tuple[Batch, Sequence[Object]]:
        """A commit and its objects in the order in which they are to be framed and stored.

        Only for an engine that does not store them in one step. Asks nobody.
        """
        return batch, objects

    # Objects.

    def read(self, ids: Iterable[ObjectId]) -> list[Object]:
        """The shared objects with these ids, in this order, each verified against its hash.

        What is not shared is found by the `reader` of its space.
        Raises `MissingObjects` with all that are absent, `DamagedObject` for the
        first that is not what its name says. A condemned object can still be read.
        """
        self._check_open()
        return read_objects(check_ids(ids, "what is read"), self._frames)

    def reader(self, space: str) -> Reader:
        """A function that reads objects of a space, and shared ones, as `read` does.

        What a space holds is found by going through that space; what was committed in
        another one is not promised to be found. Asks nobody before it is called.
        """
        self._check_open()
        check_space(space)
        return self.read

    def missing(self, ids: Iterable[ObjectId], space: str | None = None) -> list[ObjectId]:
        """Those of the ids that a commit to a space could not name in its needs.

        Without a space: those that are no shared objects of the store.
        """
        self._check_open()
        if space is not None:
            check_space(space)
        asked = list(dict.fromkeys(check_ids(ids, "ids")))
        found = self._presence(asked)
        return [id for id in asked if id not in found or found[id].condemned]

    def scan(self) -> Iterator[Stored]:
        """Every object, in no order; what is written meanwhile may be left out."""
        self._check_open()
        return self._scan()

    def condemn(self, ids: Iterable[ObjectId], collection: int = 1) -> list[ObjectId]:
        """Mark objects for deletion; the ids that are condemned now.

        What a living object is stored against stays alive. A condemned object can be
        read, but no new commit can need it; writing it again revives it. `collection`
        tells collections apart: what one condemned, another cannot `delete`.
        """
        self._check_open()
        expect_whole(collection, 1, "collection")
        asked = list(dict.fromkeys(check_ids(ids, "what is condemned")))
        self._condemn(asked, collection)
        self._revive_bases()
        found = self._presence(asked)
        return [id for id in asked if id in found and found[id].condemned]

    def revive(self, ids: Iterable[ObjectId]) -> None:
        """Take back a condemnation, also of everything these are stored against."""
        self._check_open()
        asked = check_ids(ids, "what is revived")
        self._revive(list(fetch_chains(asked, self._frames)))

    def settle(self, found: Iterable[Stored]) -> None:
        """Let commits need objects that `scan` found in doubt and that refs reach.

        The refs must have been looked at after the scan. An object that was written anew
        since is passed over.
        """
        self._check_open()
        doubted = [one for one in found if one.doubt]
        if doubted:
            self._clear_doubt(doubted)

    def raise_epochs(self) -> int:
        """Raise the epoch of every space; the new number.

        Whatever commits after this looks up its needs, unless it learned of them after.
        """
        self._check_open()
        return self._raise_epochs()

    def delete(self, ids: Iterable[ObjectId], collection: int = 1) -> list[ObjectId]:
        """Delete those of the objects that this collection condemned last; their ids."""
        self._check_open()
        expect_whole(collection, 1, "collection")
        asked = list(dict.fromkeys(check_ids(ids, "what is deleted")))
        self._frame_writer.forget(asked)
        return self._delete(asked, collection)

    def discard(self, ids: Iterable[ObjectId]) -> None:
        """Take damaged objects out, so that they can be stored anew.

        What other objects are stored against cannot be taken out, and stays damaged.
        """
        collection = secrets.randbelow(2**62) + 1
        self.delete(self.condemn(ids, collection), collection)

    # Care.

    def _free(self, dropped: Sequence[Ref], recent: int, grace: float) -> tuple[int, int]:
        from ropewalk.store._contents import free_objects

        return free_objects(self, dropped, recent, grace)

    def _gc(self, recent: int, grace: float, dry_run: bool, progress: Progress | None) -> Collected:
        from ropewalk.store._collecting import collect

        return collect(self, recent, grace, dry_run, progress)

    def _check(self, read_data: bool, progress: Progress | None) -> Report:
        from ropewalk.store._checking import check

        return check(self, read_data, progress)

    def _stats(self, recent: int, progress: Progress | None) -> Stats:
        from ropewalk.store._statistics import statistics

        return statistics(self, recent, progress)

    # Inside.

    def _land(self, batch: Batch, objects: Sequence[Object]) -> Operation:
        """Commit a batch; if the store is full, again as long as a collection frees something."""
        ids = [one.id for one in objects]
        batch.digest = digest_of(batch.space, ids, batch.moves, batch.metadata)
        batch, objects = self._arrange(batch, objects)
        while True:
            try:
                return self._framed(batch, objects)
            except StoreFull:
                if not self._room.make():
                    raise

    def _framed(self, batch: Batch, objects: Sequence[Object]) -> Operation:
        """Commit a batch; frames that the engine cannot take are made again, whole."""
        whole: frozenset[ObjectId] = frozenset()
        while True:
            frames, fresh = self._frame_writer.frame(objects, whole)
            try:
                operation = self._commit(batch.with_frames(frames))
            except Reframe as again:
                ids = again.ids
            else:
                self._frame_writer.remember(fresh)
                return operation
            assert not ids <= whole, "an engine refused a whole frame"
            self._frame_writer.forget({one.base for one in frames if one.id in ids and one.base})
            whole |= ids

    def _read_bases(self, ids: Sequence[ObjectId]) -> dict[ObjectId, Known]:
        return read_bases(ids, self._frames)

    def _revive_bases(self) -> None:
        """Keep alive what living objects are stored against.

        A commit may have stored a frame against an object just before that was
        condemned. None can do so after, so one look at all objects is enough.
        """
        found = {one.id: one for one in self._scan()}
        condemned = {one.base for one in found.values() if not one.condemned}
        needed: set[ObjectId] = set()
        for base in condemned:
            while base is not None and base in found and found[base].condemned:
                needed.add(base)
                base = found[base].base
        if needed:
            self._revive(sorted(needed))

    # The asynchronous face.

    acondemn = twin(condemn)
    arevive = twin(revive)
    asettle = twin(settle)
    araise_epochs = twin(raise_epochs)
    adelete = twin(delete)
