"""Reading and landing commits in a store, with the retry loop that every write goes through.

Every commit of Ropewalk lands through `commit_loop` and `Commits.land`: those of branches,
conversations, artifacts and pins. An attempt builds a commit on the head that was last read
and sends it as a compare-and-swap. Failures are handled here, once:

- no answer: resend with the same write id, which the store treats as an idempotency key;
- a ref has moved: back off, read the head again and rebuild;
- garbage collection deleted something the commit needs: resend the whole value;
- the write id belongs to an earlier write: return that one, if it was the same write.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from ropewalk.errors import (
    Conflict,
    InvalidInput,
    MissingObjects,
    NotFound,
    RefMoved,
    StoreClosed,
    Unavailable,
    WriteIdReused,
)
from ropewalk.store import Fence, Move, Operation, Store
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.retry import tries_for
from ropewalk.tree import Commit, Kind, Object, ObjectId, Reader, links, read_commit

if TYPE_CHECKING:
    from ropewalk.store.model import Scalar


BRANCH, TAG, PIN = "branch", "tag", "pin"
"""The kinds of refs that a history has."""

_REMEMBERED = 4096


class StepFields(TypedDict, total=False):
    """What a caller may say about a step: fields of its commit."""

    description: str
    logic_step: str
    status: str
    error: str
    agent: str
    branch: str
    extension: Mapping[str, Any]
    time: int


_FIELDS = frozenset(StepFields.__annotations__)


def check_fields(fields: StepFields) -> None:
    """Raise `InvalidInput` for a field that nobody knows."""
    unknown = fields.keys() - _FIELDS
    if unknown:
        known = ", ".join(StepFields.__annotations__)
        raise InvalidInput(f"a step has no {', '.join(sorted(unknown))}; it has {known}")


class Commits:
    """The commits of one space. Safe to share between threads."""

    def __init__(self, store: Store, space: str) -> None:
        self._store, self._space = store, space
        self._read = store.reader(space)
        self._known: OrderedDict[ObjectId, Commit] = OrderedDict()
        self._lock = freed_after_fork(threading.Lock())

    def find(self, id: ObjectId) -> Commit:
        """The commit with an id; raises `NotFound`."""
        with self._lock:
            found = self._known.get(id)
        if found is not None:
            return found
        try:
            (read,) = self._read([id])
        except MissingObjects:
            raise NotFound(f"there is no commit {id.hex()} in the store") from None
        if read.kind != Kind.COMMIT:
            raise NotFound(f"object {id.hex()} is not a commit")
        commit = read_commit(read)
        self.remember([commit])
        return commit

    def look_ahead(self, ids: Iterable[ObjectId]) -> None:
        """Prefetch commits into the cache in one read."""
        with self._lock:
            unknown = [id for id in ids if id not in self._known]
        try:
            read = self._read(unknown)
        except MissingObjects:
            return  # `find` reports the missing one.
        self.remember(read_commit(one) for one in read if one.kind == Kind.COMMIT)

    def remember(self, commits: Iterable[Commit]) -> None:
        """Cache commits."""
        with self._lock:
            for commit in commits:
                self._known[commit.id] = commit
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def land(
        self,
        objects: Sequence[Object],
        needs: Sequence[ObjectId],
        moves: Sequence[Move],
        metadata: Mapping[str, Scalar],
        *,
        write_id: str | None = None,
        fence: Sequence[Fence] | None = None,
        share: bool = False,
        step: Commit | None = None,
    ) -> Operation:
        """Send one write, and resend it while no answer comes; options as for `Store.commit`.

        An engine may report an object as missing because a collection has marked it for
        deletion, although it can still be read. Such objects are read and sent along, which
        stores them again. Raises `MissingObjects` if one really is gone.
        """
        id = new_write_id() if write_id is None else write_id
        sending, needed = list(objects), list(needs)
        began, silent = time.monotonic(), 0
        while True:
            fresh = type(id) is NewWriteId and id.is_fresh
            if fresh:
                id.is_fresh = False  # type: ignore[attr-defined] # Whatever comes of it.
            try:
                return self._store.commit(
                    self._space,
                    sending,
                    needed,
                    moves,
                    operation=metadata,
                    write_id=str(id),
                    fence=fence,
                    share=share,
                    step=step,
                    fresh=fresh,
                )
            except (Conflict, MissingObjects) as error:
                if fresh:
                    id.is_fresh = True  # type: ignore[attr-defined] # It was refused.
                again = self._condemned(error.ids) if isinstance(error, MissingObjects) else None
                if again is None:
                    raise
                sending += again
                needed += [link for one in again for link in links(one)]
                began, silent = time.monotonic(), 0
            except StoreClosed:
                raise
            except Unavailable:
                # The write id makes resending harmless, and the answer says whether the first
                # one landed. After a long wait there is one more try, not a loop.
                if silent == _RESENDS:
                    raise
                if time.monotonic() - began > tries_for(_SOON):
                    silent = _RESENDS
                    continue
                time.sleep(_FIRST * 4**silent)
                silent += 1

    def _condemned(self, ids: Sequence[ObjectId]) -> list[Object] | None:
        """Missing objects that are still readable, with what they reach; None if one is gone."""
        found: dict[ObjectId, Object] = {}
        pending = list(ids)
        while pending:
            try:
                read = self._read(pending)
            except MissingObjects:
                return None
            found.update((one.id, one) for one in read)
            reached = {link for one in read for link in links(one)}
            pending = self._store.missing(reached.difference(found), self._space)
        return list(found.values())


class NewWriteId(str):
    """A write id that nobody else has."""

    __slots__ = ("is_fresh",)
    is_fresh: bool
    """Whether no write that may have landed was sent with it."""


def new_write_id() -> NewWriteId:
    """A write id that nobody else has."""
    made = NewWriteId(os.urandom(16).hex())
    made.is_fresh = True
    return made


def is_fresh(write_id: str) -> bool:
    """Whether it was generated here, and no write that may have landed was sent with it."""
    return isinstance(write_id, NewWriteId) and write_id.is_fresh


R = TypeVar("R")

_FIRST, _LONGEST = 0.0005, 0.02
_RESENDS = 3
_WHOLE_RESENDS = 8
"""How often a commit is rebuilt because a collection deleted what it needs."""
_SOON = 5.0
"""After so many seconds without an answer a write is resent only once more."""


class Backoff:
    """Exponential backoff with full jitter, up to a bound."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._span, self._sleep = _FIRST, sleep

    def wait(self) -> None:
        """Sleep before the next attempt."""
        self._sleep(random.uniform(0, self._span))  # noqa: S311
        self._span = min(2 * self._span, _LONGEST)


def commit_loop(
    attempt: Callable[[], R],
    *,
    look: Callable[[], bool] | None = None,
    resend: Callable[[MissingObjects], None] | None = None,
    earlier: Callable[[Conflict | WriteIdReused], R | None] | None = None,
) -> R:
    """Retry an attempt until it lands, and return its result.

    `attempt` builds a commit on the last known head and sends it. `look` reads the head again
    and returns whether it moved; without it `RefMoved` is raised. `resend` makes the next
    attempt send the whole value, because something it relied on was garbage collected; it may
    raise instead. `earlier` returns the result of an earlier write with the same write id, or
    None if there was none.
    """
    backoff: Backoff | None = None
    collected = 0
    while True:
        try:
            return attempt()
        except RefMoved as error:
            if look is not None:
                backoff = backoff or Backoff()
                backoff.wait()
                look()
                continue
            refused: Conflict | WriteIdReused = error
        except MissingObjects as error:
            collected += 1
            if resend is None or collected == _WHOLE_RESENDS:
                raise
            resend(error)
            continue
        except Conflict as error:
            if look is not None and look():
                continue  # The conflict was with a head that is outdated by now.
            refused = error
        except WriteIdReused as error:
            refused = error
        # A repeated write may conflict with what landed after the first one.
        made = None if earlier is None else earlier(refused)
        if made is None:
            raise refused
        return made


def looks_itself() -> bool:
    """The `look` for attempts that read the head themselves: only a moved ref is retried."""
    return False


# Caches of objects. An edit needs most of the nodes that the one before it read or wrote.


_MOST_BYTES = 4 << 20


class RecentObjects:
    """A bounded LRU cache in front of a reader. Objects are immutable, so no entry gets stale.

    A cached object may be gone from the store, so a commit still lists it in its needs. Not
    thread-safe.
    """

    def __init__(self, read: Reader, most_bytes: int = _MOST_BYTES) -> None:
        self._read, self._most = read, most_bytes
        self._known: OrderedDict[ObjectId, Object] = OrderedDict()
        self._held = 0

    @property
    def held(self) -> int:
        """How many bytes are cached."""
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
    """The same, thread-safe. The lock is not held while the store is read."""

    def __init__(self, read: Reader, most_bytes: int = _MOST_BYTES) -> None:
        super().__init__(read, most_bytes)
        self._lock = freed_after_fork(threading.Lock())

    def read(self, ids: Sequence[ObjectId]) -> list[Object]:
        """Objects in the order asked for; raises `MissingObjects`."""
        return self.read_through(self._read, ids)

    def read_through(self, read: Reader, ids: Sequence[ObjectId]) -> list[Object]:
        """The same, with cache misses read by the given reader, as of another space."""
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
