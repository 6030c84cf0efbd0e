"""Packing: a background thread turns the tail of a log into segments."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ropewalk.errors import RopewalkError
from ropewalk.store.pace import Pace, pause
from ropewalk.store.record import GROUP, Place, Record, moved_in, place_of
from ropewalk.store.segment import build, commits_in
from ropewalk.tree.read import uncollected

if TYPE_CHECKING:
    from ropewalk.store.log import LogStore
    from ropewalk.tree.objects import ObjectId

TAIL_RECORDS: Final = 128
TAIL_BYTES: Final = 256 * 1024
"""A tail of so many records, or bytes, is packed."""
SEGMENT_RECORDS: Final = 128
FEWEST_AT_CLOSE: Final = 16

_TRIES: Final = 8

_log = logging.getLogger("ropewalk.store")


class Packer:
    """Packs spaces on a thread of its own, which is started when it is first needed."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._lock = threading.Condition(threading.Lock())
        self._waiting: dict[str, None] = {}
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._closed = False
        self.packed = 0
        """How many records it has packed."""
        self._pace = Pace()

    def request(self, space: str) -> None:
        """Pack a space soon."""
        if self._process != os.getpid():
            self.__init__(self._store)  # type: ignore[misc] # A child has none of our threads.
        with self._lock:
            if self._closed:
                return
            self._waiting[space] = None
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ropewalk-packer", daemon=True
                )
                self._thread.start()
            else:
                self._lock.notify()

    def close(self) -> None:
        """Finish what is being packed."""
        with self._lock:
            self._closed = self._pace.hurried = True
            thread, self._thread = self._thread, None
            self._lock.notify()
        if thread is not None and self._process == os.getpid():
            thread.join()

    def _run(self) -> None:
        self._pace.keep()
        while True:
            with self._lock:
                while not self._waiting and not self._closed:
                    self._lock.wait()
                if self._closed:
                    return
                space = next(iter(self._waiting))
                del self._waiting[space]
                self._pace.hurried = bool(self._waiting)
            try:
                self.packed += pack(self._store, space)
            except RopewalkError as error:
                # An unpacked tail is only larger. If it is damaged, its readers get the error.
                _log.warning("the log of %s could not be packed: %s", space, error)


def pack(store: LogStore, space: str, *, whole: bool = False) -> int:
    """Pack the tail of a space: its whole groups, or all of it; how many records were packed."""
    done = 0
    packed, last = store._span(space)
    end = last if whole else last // GROUP * GROUP
    while packed < end:
        stop = min(end, (packed + SEGMENT_RECORDS) // GROUP * GROUP)
        rows = store._rows(space, packed + 1, stop)
        if len(rows) != stop - packed:
            return done  # Another process has packed some of it.
        found: list[tuple[ObjectId, Place]] = []
        with uncollected():
            records = store._decode(space, rows)
            for record in records:
                found += commits_in(record)
            pause()
            segment = build(space, records, heads_of(records))
        if not store._settle(space, segment, found):
            return done
        done += len(rows)
        packed = stop
    return done


def pack_whole(store: LogStore, space: str) -> None:
    """Pack all of a tail, as far as others who pack or write let it come to an end."""
    for attempt in range(_TRIES):
        pack(store, space, whole=True)
        packed, last = store._span(space)
        if packed == last:
            return
        time.sleep(0.001 * attempt)  # The packer of this or another process is at work.


def heads_of(records: Sequence[Record]) -> list[Place]:
    """What the newest move of each ref in some records leads to, and the last node of all."""
    seen: set[str] = set()
    found: list[Place] = []
    for record in reversed(records):
        for name, at in moved_in(record):
            if name not in seen:
                seen.add(name)
                found.append(place_of(record.sequence, at))
    last = records[-1]
    if last.pieces:
        found.append(place_of(last.sequence, len(last.pieces) - 1))
    return found


def pack_all(store: LogStore, spaces: Iterable[str], fewest: int) -> int:
    """Pack those of the spaces that have so many records in their tails; how many were packed."""
    done = 0
    for space in spaces:
        packed, last = store._span(space)
        if last - packed >= fewest:
            done += pack(store, space, whole=True)
    return done
