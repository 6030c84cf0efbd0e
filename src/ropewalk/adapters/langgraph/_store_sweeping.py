"""Deleting items whose time is over. They are never read again, swept or not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Final
from weakref import WeakMethod

from ropewalk.adapters.langgraph._store_expiry import Expiry
from ropewalk.adapters.langgraph._store_keys import Name, to_name
from ropewalk.adapters.langgraph._store_snapshot import Snapshot
from ropewalk.errors import RopewalkError, StoreClosed

TOGETHER: Final = 500
"""How many items one commit deletes, at most."""

_log = logging.getLogger("ropewalk.langgraph")


def over(snapshot: Snapshot, expiry: Expiry, moment: int) -> Iterator[list[Name]]:
    """The items whose time is over, some at a time; namespaces without an end are not read."""
    for namespace, counted in snapshot.namespaces(()):
        if counted.items == counted.lasting:
            continue
        entries = snapshot.within(namespace)
        while some := list(islice(entries, TOGETHER)):
            living = {key for key, _ in expiry.living(some, moment)}
            if names := [to_name(key) for key, _ in some if key not in living]:
                yield names


class Sweeper:
    """Sweeps again and again on a thread, until it is stopped or its memory is gone."""

    def __init__(self, sweep: Callable[[], int], seconds: float) -> None:
        self._sweep, self._seconds = WeakMethod(sweep), seconds
        self._stopped = threading.Event()
        self.future: Future[None] = Future()
        self.future.add_done_callback(self._cancelled)
        self._thread = threading.Thread(target=self._run, name="ropewalk-sweeper", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it will sweep again."""
        return self._thread.is_alive() and not self._stopped.is_set()

    def stop(self, timeout: float | None = None) -> bool:
        """Let it end; False if it had not after so many seconds."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _cancelled(self, future: Future[None]) -> None:
        if future.cancelled():
            self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            sweep = self._sweep()
            if sweep is None:
                break
            try:
                sweep()
            except StoreClosed:
                break
            except RopewalkError as error:
                _log.warning("items could not be swept, and will be tried again: %s", error)
            del sweep  # Nothing here keeps the memory alive while it waits.
        if not self.future.done():
            self.future.set_result(None)
