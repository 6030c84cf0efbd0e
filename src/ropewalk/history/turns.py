"""Turns: who moves a branch next, of those who write to it at once.

Writers race for a branch, and who loses merges again. Left to that, who has just won
knows the head first, and wins again. So the handles of one process queue, first come
first served; and processes that have met each other there queue too, if their engine
has something for that. A turn is a courtesy: nothing is wrong if it is not kept, so
nobody waits long for one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from ropewalk.history.commits import Backoff
from ropewalk.store import Store
from ropewalk.store._turns import Queue, Turn
from ropewalk.store.forking import freed_after_fork
from ropewalk.tree import ObjectId

_COURTESY = 1.0  # Seconds to wait for who may be slow, or gone.
_CROWDED = 1.0  # Seconds for which who met others expects to meet them again.


class Place:
    """A branch, as the handles of one process share it."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.head: ObjectId | None = None
        """Where the last of them left it: who knows another head should look again."""
        self._crowded_until = 0.0

    @property
    def crowded(self) -> bool:
        """Whether other processes wrote to it a moment ago."""
        return time.monotonic() < self._crowded_until

    def met_others(self) -> None:
        """Note that another process moved the branch."""
        self._crowded_until = time.monotonic() + _CROWDED


class Hold:
    """One writer's turn at a place."""

    def __init__(self, store: Store, place: Place) -> None:
        self.place = place
        self._store = store
        self._turn: Turn | None = None
        self._backoff = Backoff()
        if place.crowded:
            self._queue_up()

    def lost(self) -> None:
        """Somebody was faster: wait, for the turn or a little."""
        self.place.met_others()
        if self._turn is None and self._queue_up():
            return
        self._backoff.wait()

    def close(self) -> None:
        """Let the next process come."""
        if self._turn is not None:
            self._turn.close()

    def _queue_up(self) -> bool:
        turns = self._store._turns()
        if turns is None:
            return False
        # Who has just finished finds the place of the next one taken, and queues.
        self._turn, following = turns
        try:
            following.take(_COURTESY)
            self._turn.take(_COURTESY)
        except BaseException:  # An interrupt: nobody may wait for a turn that nobody uses.
            self._turn.close()
            raise
        finally:
            following.close()
        return True


_lock = freed_after_fork(threading.Lock())
_places: WeakKeyDictionary[Store, dict[tuple[int, str, str], Place]] = WeakKeyDictionary()


@contextmanager
def turn(store: Store, space: str, ref: str, wait: bool = True) -> Iterator[Hold]:
    """Be the only one who moves a ref, mostly; wait for the others of this process, or not."""
    # A child of a fork must not wait for a thread that it does not have.
    key = os.getpid(), space, ref
    with _lock:
        place = _places.setdefault(store, {}).setdefault(key, Place())
    got = wait and place.queue.enter(_COURTESY)
    try:
        hold = Hold(store, place)
        try:
            yield hold
        finally:
            hold.close()
    finally:
        if got:
            place.queue.leave()
