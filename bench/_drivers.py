"""How long a server's own driver takes to carry a message to another process of this machine.

    seconds = carried("redis://127.0.0.1:6379/0", rounds=200)

Nothing of Ropewalk is on the way. A message is the moment at which it was sent: the monotonic
clock is one for all processes. Run as a program, this is the process that sends.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from bench._environment import ROOT

_NAME = "bench"
_PATIENCE = 30.0
_POLLS = 0.5

Heard = Callable[[bytes | str], None]


def carried(url: str, rounds: int) -> list[float]:
    """Seconds from sending to hearing, one for each round."""
    took: SimpleQueue[float] = SimpleQueue()
    ready, stop = threading.Event(), threading.Event()

    def heard(sent: bytes | str) -> None:
        took.put((time.monotonic_ns() - int(sent)) / 1e9)

    listen = threading.Thread(target=_driver(url).listen, args=(heard, ready, stop), daemon=True)
    listen.start()
    assert ready.wait(_PATIENCE), "the driver does not listen"
    try:
        with _sender(url) as send:
            return [_once(send, took) for _ in range(rounds)]
    finally:
        stop.set()


def _once(send: Callable[[], None], took: SimpleQueue[float]) -> float:
    send()
    return took.get(timeout=_PATIENCE)


class Driver(ABC):
    """One side of a server's own way to tell others something."""

    def __init__(self, url: str) -> None:
        self.url = url.partition("?")[0]  # What comes behind is for our stores.

    @abstractmethod
    def listen(self, heard: Heard, ready: threading.Event, stop: threading.Event) -> None:
        """Call `heard` with each message, from `ready` on."""

    @abstractmethod
    def open_sender(self) -> Callable[[bytes], None]:
        """What sends a message."""


class Redis(Driver):
    """Publish and subscribe."""

    def listen(self, heard: Heard, ready: threading.Event, stop: threading.Event) -> None:
        import redis

        client: Any = redis.Redis.from_url(self.url)
        with client.pubsub() as channel:
            channel.subscribe(_NAME)
            while not stop.is_set():
                message = channel.get_message(timeout=_POLLS)
                if message is None:
                    continue
                if message["type"] == "subscribe":
                    ready.set()
                else:
                    heard(message["data"])

    def open_sender(self) -> Callable[[bytes], None]:
        import redis

        client: Any = redis.Redis.from_url(self.url)
        return lambda message: client.publish(_NAME, message)


class Postgres(Driver):
    """LISTEN and NOTIFY, without a commit that waits for the disk."""

    def listen(self, heard: Heard, ready: threading.Event, stop: threading.Event) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"LISTEN {_NAME}")
            ready.set()
            while not stop.is_set():
                for found in connection.notifies(timeout=_POLLS, stop_after=1):
                    heard(found.payload)

    def open_sender(self) -> Callable[[bytes], None]:
        import psycopg

        connection = psycopg.connect(self.url, autocommit=True)
        connection.execute("SET synchronous_commit = off")

        def send(message: bytes) -> None:
            connection.execute("SELECT pg_notify(%s, %s)", (_NAME, message.decode()))

        return send


class Nats(Driver):
    """Publish and subscribe."""

    def listen(self, heard: Heard, ready: threading.Event, stop: threading.Event) -> None:
        import nats

        async def run() -> None:
            async def receive(message: Any) -> None:
                heard(message.data)

            client = await nats.connect(self.url)
            await client.subscribe(_NAME, cb=receive)
            await client.flush()
            ready.set()
            await asyncio.to_thread(stop.wait)
            await client.close()

        asyncio.run(run())

    def open_sender(self) -> Callable[[bytes], None]:
        import nats

        loop = asyncio.new_event_loop()
        client = loop.run_until_complete(nats.connect(self.url))

        async def publish(message: bytes) -> None:
            await client.publish(_NAME, message)
            await client.flush()

        return lambda message: loop.run_until_complete(publish(message))


_DRIVERS: dict[str, Callable[[str], Driver]] = {
    "redis": Redis,
    "postgresql": Postgres,
    "nats": Nats,
}


def _driver(url: str) -> Driver:
    return _DRIVERS[url.partition("://")[0]](url)


# The process that sends: a message for each line that it is told.


@contextmanager
def _sender(url: str) -> Iterator[Callable[[], None]]:
    command = [sys.executable, "-m", "bench._drivers", url]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    told, answers = process.stdin, process.stdout

    def send() -> None:
        told.write(b"send\n")
        told.flush()

    try:
        assert answers.readline() == b"ready\n", "the process that sends did not begin"
        yield send
    finally:
        told.close()
        process.wait(_PATIENCE)


def _main(url: str) -> None:
    send = _driver(url).open_sender()
    print("ready", flush=True)
    for _ in sys.stdin.buffer:
        send(str(time.monotonic_ns()).encode())
    os._exit(0)  # A driver may have threads that end in their own time.


if __name__ == "__main__":
    _main(sys.argv[1])
