"""Stores on cells that wait before each call, until the test lets them go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from ropewalk.store import KeyValueStore
from ropewalk.store.records.store import CellStore
from ropewalk.testing.helpers import PATIENCE
from tests.store.key_values import KeptKV
from tests.store.s3_memory import MemoryBucket, MemoryS3Store

Data = dict[str, bytes]


class Killed(BaseException):
    """What ends somebody who is killed."""


class Steps:
    """The calls that one store object makes, in a thread of its own."""

    def __init__(self) -> None:
        self.calls = 0
        self._allowed = 10**9
        self._changed = threading.Condition()
        self._waiting = self._ended = self._killed = False

    def run(self, action: Callable[[], object]) -> None:
        """Do something, and wait before the first call from now on."""
        self._allowed = self.calls = 0
        self.raised: list[BaseException] = []

        def work() -> None:
            try:
                action()
            except BaseException as error:  # noqa: BLE001 - raised again by the test
                self.raised.append(error)
            with self._changed:
                self._ended = True
                self._changed.notify_all()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def go_on(self, calls: int | None) -> None:
        """Let it make so many calls more, or all; return when it waits again or has ended."""
        with self._changed:
            self._allowed = 10**9 if calls is None else self._allowed + calls
            self._changed.notify_all()
            assert self._changed.wait_for(self._is_still, PATIENCE)
        if calls is None:
            self._thread.join(PATIENCE)
            if self.raised:
                raise self.raised[0]

    def kill(self) -> None:
        """Let it end at its next call."""
        with self._changed:
            self._killed = True
            self._allowed = 10**9
            self._changed.notify_all()
        self._thread.join(PATIENCE)
        if self.raised and not isinstance(self.raised[0], Killed):
            raise self.raised[0]

    def step(self) -> None:
        """Wait until the next call may be made."""
        with self._changed:
            self._waiting = self.calls >= self._allowed
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.calls < self._allowed, PATIENCE)
            self._waiting = False
            self.calls += 1
            if self._killed:
                raise Killed

    def _is_still(self) -> bool:
        return self._ended or (self._waiting and self.calls >= self._allowed)


class SteppingKV(KeptKV):
    """A key-value store that does so."""

    def __init__(self, data: Data, steps: Steps) -> None:
        super().__init__(data)
        self.steps = steps

    def get(self, key: str) -> bytes | None:
        self.steps.step()
        return super().get(key)

    def set(self, key: str, value: bytes) -> None:
        self.steps.step()
        super().set(key, value)

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        self.steps.step()
        return {key: self.data[key] for key in keys if key in self.data}

    def keys(self, prefix: str) -> Iterable[str]:  # type: ignore[override]
        self.steps.step()
        return list(super().keys(prefix))

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes | None) -> bool:
        self.steps.step()
        return super().compare_and_set(key, expected, value)


class KeyValues:
    """Stores on a dict of values."""

    def opened(self, data: Data) -> CellStore:
        """A store that waits for nobody."""
        return KeyValueStore(KeptKV(data))

    def stepping(self, data: Data) -> tuple[Steps, CellStore]:
        """One that waits when it is told to `run`."""
        steps = Steps()
        return steps, KeyValueStore(SteppingKV(data, steps))


class Buckets:
    """Stores in a bucket in memory."""

    def opened(self, data: Data) -> CellStore:
        """A store that waits for nobody."""
        return MemoryS3Store(MemoryBucket(data))

    def stepping(self, data: Data) -> tuple[Steps, CellStore]:
        """One that waits when it is told to `run`."""
        steps, bucket = Steps(), MemoryBucket(data)
        bucket.before = lambda request: steps.step()
        return steps, MemoryS3Store(bucket)


Engine = KeyValues | Buckets
ENGINES: dict[str, Engine] = {"key-value": KeyValues(), "s3": Buckets()}
