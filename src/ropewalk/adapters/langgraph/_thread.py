"""One thread of a graph in a store: what it holds now, and how it is changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from ropewalk.adapters.langgraph._codec import GraphCodec, SharingGraphCodec
from ropewalk.adapters.langgraph._entries import Address, Entry
from ropewalk.adapters.langgraph._index import Index, Listed
from ropewalk.adapters.langgraph._names import CHECKPOINTS, space_of
from ropewalk.adapters.langgraph._reading import Found, History
from ropewalk.adapters.langgraph._requests import Put, Request, Requests, Writes
from ropewalk.adapters.langgraph._types import GraphTypes
from ropewalk.adapters.langgraph._writing import Coder, Landing, OnConflict, Seen, Work
from ropewalk.codec import default_codec
from ropewalk.errors import MissingObjects, RefMoved, RopewalkError
from ropewalk.history.commits import Backoff, Commits
from ropewalk.history.object_cache import SharedObjects
from ropewalk.store import Move, Operation, Store
from ropewalk.tree import Object, ObjectId

_RESENDS: Final = 8
T = TypeVar("T")


class GraphThread:
    """A thread. Safe to share between threads of the program."""

    def __init__(self, store: Store, name: str, types: GraphTypes, on_conflict: OnConflict) -> None:
        self.space, self.name = space_of(name), name
        self._store = store
        self._objects = SharedObjects(store.reader(self.space))
        self._commits = Commits(store, self.space)
        self._types = types
        self._seen = Seen(Index(None, self._objects.read), None)
        self._coding = threading.RLock()
        """Held while values are encoded or decoded with what is remembered of them."""
        self._coder = Coder(
            self.space,
            name,
            GraphCodec(types),
            self._objects.read,
            self._objects.remember,
            on_conflict,
        )
        self._requests = Requests(self._serve)

    @property
    def is_idle(self) -> bool:
        """Whether nobody is writing."""
        return self._requests.is_idle

    @property
    def held(self) -> int:
        """About how many bytes are held of it."""
        warm = sum(one.held for one in [*self._coder.warm.values()])
        return self._objects.held + self._coder.codec.memo.size + warm

    # Reading.

    def look(self) -> Seen:
        """The thread as it is now."""
        view = self._store.view(self.space, CHECKPOINTS)
        root = next((ref.target for ref in view.refs if ref.name == CHECKPOINTS), None)
        known = self._seen
        if known.checkpoints.root == root:
            return known
        # Others wrote. What is warm need not be reached any more: the epoch of this view
        # says nothing about it, so the next write looks up all that it needs.
        self._seen = seen = Seen(Index(root, self._objects.read), None)
        return seen

    def find(self, namespace: str, id: str | None) -> Found | None:
        """A checkpoint by its id, or the newest one; None if there is none."""
        return self._at_one_moment(lambda seen: self._find(seen.checkpoints, namespace, id))

    def _find(self, index: Index, namespace: str, id: str | None) -> Found | None:
        with self._coding:
            found = self._listed(index, namespace, id)
            if found is None:
                return None
            address, entry, writes = found
            reader = History(self._coder.loader())
            record = reader.record(entry)
            if index.root == self._seen.checkpoints.root:
                values = self._values(namespace, entry)
            else:
                values = reader.values(entry)  # Of a moment that is past: not to be kept warm.
            return Found(address, record, values, reader.pending(writes))

    def _listed(self, index: Index, namespace: str, id: str | None) -> Listed | None:
        if id is not None:
            address = Address(namespace, id)
            entry = index.get(address)
            return None if entry is None else Listed(address, entry, index.writes(address))
        return index.newest(namespace, self._coder.loader())

    def _values(self, namespace: str, entry: Entry) -> dict[str, Any]:
        warm = self._coder.warmed(namespace)
        if warm.part == entry.values:
            return warm.kept.values(entry.values, self._objects.read, self._coder.codec)
        return warm.load(entry.values)

    def history(self, namespace: str | None, before: str | None) -> Iterator[Listed]:
        """The checkpoints, the newest first, as they are now."""
        return self.look().checkpoints.newest_first(namespace, before)

    def reader(self) -> History:
        """What reads many checkpoints, and shares what they share."""
        return History.of(self._objects.read, SharingGraphCodec(self._types))

    def _at_one_moment(self, call: Callable[[Seen], T]) -> T:
        """What a call gives; again, if what it read was replaced and collected meanwhile."""
        gone: ObjectId | None = None
        while True:
            seen = self.look()
            try:
                return call(seen)
            except MissingObjects:
                if seen.checkpoints.root == gone:
                    raise
                gone = seen.checkpoints.root

    def notes(self) -> dict[str, Any]:
        """What concerns the whole thread."""
        return self._at_one_moment(lambda seen: seen.checkpoints.notes(default_codec))

    # Writing.

    def send(self, wanted: Put | Writes) -> None:
        """Store a checkpoint or writes."""
        self._requests.send(wanted)

    def send_all(self, wanted: Sequence[Put | Writes]) -> None:
        """Store many checkpoints and writes at once."""
        self._requests.send_all(wanted)

    def change(self, call: Callable[[Work, Seen], None], action: str) -> bool:
        """Make other changes; whether there were any. The call may be made several times."""
        while True:
            with self._coding:
                seen = self.look()
                work = Work(self._coder, seen)
                call(work, seen)
                landing = work.landing()
                if landing is None:
                    return False
                self._coder.forget()
            try:
                self._land(landing, None, action)
            except RefMoved:
                continue
            return True

    def delete(self) -> None:
        """Remove all that leads to the thread."""
        while True:
            with self._coding:
                self._coder.forget()
                seen = self.look()
            root = seen.checkpoints.root
            if root is None:
                return
            moves = [Move(CHECKPOINTS, root, None)]
            try:
                self._land(Landing([], [], moves, Index(None, self._objects.read)), None, "delete")
            except RefMoved:
                continue
            return

    def _serve(self, batch: list[Request]) -> None:
        backoff, missing = Backoff(), 0
        unsent: Sequence[Object] = ()
        while True:
            try:
                with self._coding:
                    seen = self._seen
                    work = self._worked(batch, Work(self._coder, seen, unsent))
                    landing = work.landing()
                if landing is None:
                    return
                operation = self._land(landing, seen.epoch, "put")
                if operation.epoch != seen.epoch:
                    self._cool(batch)
                return
            except RefMoved:
                assert landing is not None
                unsent = landing.objects
                self.look()
                self._seen = self._seen._replace(epoch=None)
                backoff.wait()
            except MissingObjects:
                # Collected since they were written: then everything is sent again.
                missing += 1
                if missing == _RESENDS:
                    raise
                unsent = ()
                self._start_anew()
            except BaseException:
                self._start_anew()
                raise

    def _cool(self, batch: list[Request]) -> None:
        """Keep warm only what was just written: nobody looked whether the rest is still there."""
        written = {request.wanted.address.namespace for request in batch if request.is_put}
        with self._coding:
            for namespace in self._coder.warm.keys() - written:
                del self._coder.warm[namespace]

    def _start_anew(self) -> None:
        with self._coding:
            self._coder.forget()
        self.look()
        self._seen = self._seen._replace(epoch=None)

    def _worked(self, batch: list[Request], work: Work) -> Work:
        for request in batch:
            if request.is_done:
                continue
            wanted = request.wanted
            try:
                if isinstance(wanted, Put):
                    work.put(wanted)
                    self._coder.codec.memo.turn()
                else:
                    work.put_writes(wanted)
            except MissingObjects:
                raise
            except RopewalkError as error:
                request.finish(self._coder.named(wanted, error))  # The others go on.
            except Exception as error:  # noqa: BLE001 - a class of the user's own may raise anything
                self._coder.warm.pop(wanted.address.namespace, None)
                request.finish(error)
        return work

    def _land(self, landing: Landing, epoch: int | None, action: str) -> Operation:
        operation = self._commits.land(
            landing.objects, landing.needs, landing.moves, {"action": action}, epoch=epoch
        )
        # Only a put leaves all that is warm where the thread reaches it.
        self._seen = Seen(landing.checkpoints, operation.epoch if action == "put" else None)
        return operation
