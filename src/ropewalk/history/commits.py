"""Commits in a store: found with few reads, landed with one write, and the loop around it.

Every commit of Ropewalk lands through `commit_loop` and `Commits.land`: those of branches,
conversations, artifacts and pins. An attempt looks at what was last seen, builds a commit on
it and sends it by compare-and-swap. What can go wrong is handled here, once:

- no answer: it is sent again under the same write id, which the store recognises;
- a ref has moved: look again after a short, random wait, and build anew;
- objects are gone, because a collection took them: send the whole value;
- the write id stands for an earlier write: that one is the answer, if it was the same.
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
        """Read commits together that will be asked for one by one."""
        with self._lock:
            unknown = [id for id in ids if id not in self._known]
        try:
            read = self._read(unknown)
        except MissingObjects:
            return  # Whoever asks for the one that is missing is told.
        self.remember(read_commit(one) for one in read if one.kind == Kind.COMMIT)

    def remember(self, commits: Iterable[Commit]) -> None:
        """Keep commits at hand."""
        with self._lock:
            for commit in commits:
                self._known[commit.id] = commit
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def land(  # noqa: PLR0913 - as `Store.commit`
        self,
        objects: Sequence[Object],
        needs: Sequence[ObjectId],
        moves: Sequence[Move],
        metadata: Mapping[str, Scalar],
        *,
        write_id: str | None = None,
        epoch: int | None = None,
        fence: Sequence[Fence] | None = None,
        share: bool = False,
        step: Commit | None = None,
    ) -> Operation:
        """One write, sent again if no answer came; options as those of `Store.commit`.

        What it needs may be condemned, although refs reach it: a collection has yet to
        see that, or was killed before it could. Then it is sent along, and so revived.
        Raises `MissingObjects` if something is gone.
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
                    epoch=epoch,
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
                # The store recognises a write that it has, so to send it again is harmless, and
                # tells whether it was done. A server that is silent is asked twice, not for ever.
                if silent == _RESENDS:
                    raise
                if time.monotonic() - began > tries_for(_SOON):
                    silent = _RESENDS
                    continue
                time.sleep(_FIRST * 4**silent)
                silent += 1

    def _condemned(self, ids: Sequence[ObjectId]) -> list[Object] | None:
        """Objects that are there but condemned, and all such that they reach; or None."""
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
    """Whether no write was sent with it yet, but for such that were refused."""


def new_write_id() -> NewWriteId:
    """A write id that nobody else has."""
    made = NewWriteId(os.urandom(16).hex())
    made.is_fresh = True
    return made


def is_fresh(write_id: str) -> bool:
    """Whether it is new, and no write was sent with it yet, but for such that were refused."""
    return isinstance(write_id, NewWriteId) and write_id.is_fresh


R = TypeVar("R")

_FIRST, _LONGEST = 0.0005, 0.02
_RESENDS = 3
_WHOLE_RESENDS = 8
"""How often collections may take what a commit needs before it gives up."""
_SOON = 5.0
"""Whoever has waited longer than this for an answer sends only once more."""


class Backoff:
    """Waits of random length, longer with each attempt up to a bound.

    Whoever lost a race waits a little, and two who lost together do not keep step.
    """

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._span, self._sleep = _FIRST, sleep

    def wait(self) -> None:
        """Let others finish."""
        self._sleep(random.uniform(0, self._span))  # noqa: S311
        self._span = min(2 * self._span, _LONGEST)


def commit_loop(
    attempt: Callable[[], R],
    *,
    look: Callable[[], bool] | None = None,
    resend: Callable[[MissingObjects], None] | None = None,
    earlier: Callable[[Conflict | WriteIdReused], R | None] | None = None,
) -> R:
    """Attempt a commit until it lands; what the attempt that landed gives.

    `attempt` builds on what was last seen and sends that. `look` sees where things are now,
    and says whether they have moved; without it a moved ref is raised. `resend` has the next
    attempt send everything, because what it relied on was collected; or raises. `earlier`
    gives what an earlier write with the same id made; None if there was none.
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
                continue  # The conflict was with what is no longer there.
            refused = error
        except WriteIdReused as error:
            refused = error
        # A write that was made before may meet what came after it.
        made = None if earlier is None else earlier(refused)
        if made is None:
            raise refused
        return made


def looks_itself() -> bool:
    """The `look` for attempts that look themselves: no conflict is with what is gone."""
    return False


# Objects that an edit has just read or made: the next one on the way needs most of them.


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
