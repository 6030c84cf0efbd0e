"""News of what others commit: Postgres' LISTEN and NOTIFY, and looking where that is not to be had.

NOTIFY inside a commit would make all commits of the database wait for each other: Postgres
lets one transaction that notifies end at a time, sync and all. So a commit only looks whether
somebody listens to its space, and then its client notifies afterwards, from a thread of its
own. News may be lost, so who waits looks at the log now and then in any case.
"""

from __future__ import annotations

import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from ropewalk.errors import RopewalkError, StoreClosed
from ropewalk.store.forking import freed_after_fork
from ropewalk.store.postgres.pool import Connection, Pool
from ropewalk.store.watch import Listeners

_LOOKS = 0.05  # Seconds between two looks where LISTEN is not to be had.
_LASTS, _RENEWED = 90, 30.0  # Seconds that a watch counts, and after which it is renewed.
_LINGERS = 5.0  # Seconds that a connection stays although nobody waits any more.
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 5.0


class Listening:
    """Who waits for which space, and one thread with one connection for all of them."""

    def __init__(self, pool: Pool, schema: str, channel: str, listen_dsn: str | None) -> None:
        self._pool = pool
        self._watches = f"{schema}.watches"
        self._spaces_table = f"{schema}.spaces"
        self._channel = channel
        self._dsn = listen_dsn
        self._listeners = Listeners()
        self._lock = freed_after_fork(threading.Lock())
        self._wanted: dict[str, int] = {}
        self._changed = False
        self._closed = freed_after_fork(threading.Event())
        self._thread: threading.Thread | None = None
        self._bell: socket.socket | None = None
        self._ring: socket.socket | None = None
        self._process = os.getpid()

    def wake(self, space: str) -> None:
        """Wake who waits for a space in this store object."""
        self._listeners.wake(space)

    def add(self, space: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when there may be news of a space; the way to stop that."""
        remove = self._listeners.add(space, wake)
        with self._lock:
            self._wanted[space] = self._wanted.get(space, 0) + 1
            self._changed = True
            if self._thread is None or not self._thread.is_alive():
                self._start()
        self._rouse()

        def stop() -> None:
            remove()
            with self._lock:
                self._wanted[space] -= 1
                if not self._wanted[space]:
                    del self._wanted[space]

        return stop

    def close(self) -> None:
        """End the thread and its connection."""
        self._closed.set()
        self._rouse()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_PAUSE)
        for one in (self._bell, self._ring):
            if one is not None:
                one.close()

    def _start(self) -> None:
        if self._bell is None or self._process != os.getpid():
            # After a fork, the parent's bell would be heard by one of both.
            self._process = os.getpid()
            self._bell, self._ring = socket.socketpair()
            self._bell.setblocking(False)
            self._ring.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="ropewalk-listening", daemon=True)
        self._thread.start()

    # The thread.

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._over():
            try:
                with self._connected() as connection:
                    pause = _FIRST_PAUSE
                    connection.look()
                    if connection.direct:
                        self._listen(connection)
                        continue
                self._look()
            except StoreClosed:
                return
            except (psycopg.Error, RopewalkError, OSError):
                # Meanwhile who waits looks at the log.
                self._closed.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311
                pause = min(2 * pause, _LAST_PAUSE)

    def _over(self) -> bool:
        """Whether the thread is to end, because nobody waits; then the next one starts anew."""
        if self._closed.is_set():
            return True
        with self._lock:
            if not self._wanted:
                self._thread = None
                return True
        return False

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        connection = self._pool.connect(self._dsn)
        try:
            connection.deadline = time.monotonic() + self._pool.settings.timeout
            yield connection
        finally:
            connection.close()

    def _listen(self, connection: Connection) -> None:
        connection.execute(f'LISTEN "{self._channel}"'.encode())
        renewed, idle_since = -_RENEWED, time.monotonic()
        while not self._closed.is_set():
            now = time.monotonic()
            connection.deadline = now + self._pool.settings.timeout
            with self._lock:
                changed, self._changed = self._changed, False
                spaces = list(self._wanted)
            if spaces:
                idle_since = now
            elif now - idle_since > _LINGERS:
                return
            if spaces and (changed or now - renewed > _RENEWED):
                self._register(connection, spaces)
                renewed = now
            self._wait(connection, _RENEWED if spaces else _LINGERS)
            for notice in connection.notifies(timeout=0):
                self._listeners.wake(notice.payload)

    def _register(self, connection: Connection, spaces: list[str]) -> None:
        """Say that somebody listens, and wake all: there may have been news before."""
        connection.execute(
            f"INSERT INTO {self._watches} (until, space) "
            f"SELECT now() + interval '{_LASTS} seconds', s FROM unnest(%s::text[]) s ORDER BY s "
            "ON CONFLICT (space) DO UPDATE SET until = EXCLUDED.until".encode(),
            (spaces,),
        )
        for space in spaces:
            self._listeners.wake(space)

    def _wait(self, connection: Connection, seconds: float) -> None:
        """Until the server says something, or somebody in this process, or the time is over."""
        assert self._bell is not None
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._bell.fileno(), select.POLLIN)
        poll.poll(1000 * seconds)
        with suppress(OSError):
            while self._bell.recv(4096):
                pass

    def _look(self) -> None:
        """Look at the spaces again and again: a pooler between keeps no LISTEN."""
        seen: dict[str, int] = {}
        while not self._over():
            with self._lock:
                spaces = list(self._wanted)
            rows = self._pool.rows(
                f"SELECT name, sequence FROM {self._spaces_table} WHERE name = ANY (%b::text[])",
                [spaces],
            )
            for space, sequence in rows:
                if seen.get(space, 0) != sequence:
                    self._listeners.wake(space)
            seen = dict(rows)
            self._closed.wait(_LOOKS)

    def _rouse(self) -> None:
        if self._ring is not None:
            with suppress(OSError):
                self._ring.send(b".")


class Notifier:
    """Tells others of commits, several at once, from a thread of its own."""

    def __init__(self, pool: Pool, channel: str) -> None:
        self._pool = pool
        self._channel = channel
        self._lock = freed_after_fork(threading.Lock())
        self._spaces: set[str] = set()
        self._news = freed_after_fork(threading.Event())
        self._closed = False
        self._thread: threading.Thread | None = None

    def tell(self, space: str) -> None:
        """Let who listens to a space know, soon."""
        with self._lock:
            self._spaces.add(space)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="ropewalk-notifying", daemon=True
                )
                self._thread.start()
        self._news.set()

    def close(self) -> None:
        """Tell what is left to tell, and end."""
        self._closed = True
        self._news.set()
        thread = self._thread
        if thread is not None:
            thread.join(_LAST_PAUSE)

    def _run(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            with self._lock:
                spaces, self._spaces = self._spaces, set()
            if spaces:
                with suppress(RopewalkError, psycopg.Error):  # Who waits looks at the log.
                    self._pool.rows(
                        "SELECT pg_notify(%b::text, s) FROM unnest(%b::text[]) s",
                        [self._channel, sorted(spaces)],
                        repeatable=False,
                    )
            elif self._closed:
                return
