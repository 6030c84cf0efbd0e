"""Helpers for tests of stores: names, objects, a clock, threads, processes. Needs no pytest."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ropewalk.store import Move, Operation, Store, ref_name, space_name
from ropewalk.tree import Kind, Object, ObjectId, load, make_object

Opener: TypeAlias = Callable[[Callable[[], float]], Store]
"""Opens one more store object, with this clock, on the data of the running test."""

SPACE = space_name("test", "one")
OTHER_SPACE = space_name("test", "two")
MAIN = ref_name("branch", "main")
PATIENCE = 30.0
"""The timeout in seconds of a test that waits for another thread."""


class Clock:
    """A clock that is advanced by hand."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds


def value(text: str | bytes) -> Object:
    """An object with this payload."""
    payload = text.encode() if isinstance(text, str) else text
    return make_object(Kind.VALUE, payload)


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size)


def growing(steps: int, seed: int = 0, size: int = 200) -> list[Object]:
    """Versions of a growing payload."""
    versions: list[Object] = []
    payload = noise(size, seed)
    for step in range(steps):
        payload += noise(size // 4, seed * 1000 + step + 1)
        versions.append(value(payload))
    return versions


def read(store: Store, ids: Sequence[ObjectId], space: str = SPACE) -> list[Object]:
    """Objects of a space."""
    return list(store.reader(space)(ids))


def load_value(store: Store, root: ObjectId, space: str = SPACE) -> object:
    """A value of a space."""
    return load(root, store.reader(space))


def point(
    store: Store, target: Object, name: str = MAIN, expected: ObjectId | None = None
) -> Operation:
    """Store an object and move a ref to it."""
    return store.commit(SPACE, [target], moves=[Move(name, expected, target.id)])


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run functions in threads that start together; raises the first error."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(PATIENCE)
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # Frequent switches between threads, to provoke races.
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10 * PATIENCE)
    finally:
        sys.setswitchinterval(usual)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)


def lines_until_killed(process: subprocess.Popen[str], count: int) -> list[str]:
    """Kill a process after it printed so many lines; returns all whole lines that it printed.

    It may have printed more than were read by then. `Popen.communicate` would leave out those
    that were read ahead.
    """
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(count)]
    finally:
        process.kill()
    lines += process.stdout.readlines()
    return [line[:-1] for line in lines if line.endswith("\n")]
