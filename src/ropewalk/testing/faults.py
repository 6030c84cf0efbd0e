"""Stores that fail on demand, at one call or at every call in turn."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ropewalk.errors import InvalidInput, RopewalkError, StoreFull, Unavailable
from ropewalk.store import Store
from ropewalk.store.engine import Stored
from ropewalk.store.validation import expect, expect_whole
from ropewalk.store.wrappers import WrapperStore

R = TypeVar("R")

METHODS = frozenset(
    "read missing scan commit find ref view spaces operations lease leases grant_lease swap_lease "
    "gc check stats carry free discard examine disk_bytes".split()
)
"""The methods of a store that are counted and can fail."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What fails, and when: at call number `at`, counting from 1.

    With a `method`, only calls of that method are counted. Reads through a `reader` count as
    `read`.
    """

    kind: Literal["error", "lost reply", "full", "delay", "dead"]
    at: int
    method: str | None = None
    raises: Exception | None = None
    seconds: float = 0.0
    until: int | None = None
    """The first call that a dead server answers again."""

    def __post_init__(self) -> None:
        expect_whole(self.at, 1, "at")
        if self.method is not None and self.method not in METHODS:
            names = ", ".join(sorted(METHODS))
            raise InvalidInput(f"no call of a store is named {self.method!r}; there are: {names}")
        if self.until is not None:
            expect_whole(self.until, self.at + 1, "until")
        expect(self.seconds >= 0, "a delay is a number of seconds", self.seconds)

    @classmethod
    def error(cls, at: int, *, method: str | None = None, raises: Exception | None = None) -> Fault:
        """The call is not made. It raises `Unavailable`, or the given error."""
        return cls("error", at, method, raises=raises)

    @classmethod
    def lost_reply(cls, at: int, *, method: str | None = None) -> Fault:
        """The call is made, but raises `Unavailable` instead of returning its result."""
        return cls("lost reply", at, method)

    @classmethod
    def full(cls, at: int, *, method: str | None = None) -> Fault:
        """The call is not made, and raises `StoreFull`."""
        return cls("full", at, method)

    @classmethod
    def delay(cls, at: int, seconds: float, *, method: str | None = None) -> Fault:
        """The call is delayed."""
        return cls("delay", at, method, seconds=seconds)

    @classmethod
    def dead(cls, at: int, *, method: str | None = None, until: int | None = None) -> Fault:
        """From this call on none is made; each raises `Unavailable`."""
        return cls("dead", at, method, until=until)

    def meets(self, number: int) -> bool:
        """Whether the fault applies to this call, by the fault's own count."""
        if self.kind != "dead":
            return number == self.at
        return number >= self.at and (self.until is None or number < self.until)

    def exception(self, method: str, number: int) -> Exception:
        """The exception to raise."""
        call = f"call {number} ({method})"
        if self.raises is not None:
            return self.raises
        if self.kind == "full":
            return StoreFull(f"a test made the store full at {call}. Nothing was written.")
        if self.kind == "lost reply":
            return Unavailable(
                f"a test lost the reply to {call}. It may have happened; if it was a commit, send "
                "it again with the same write id."
            )
        return Unavailable(f"a test made {call} fail. Try again; a commit with the same write id.")


class FaultStore(WrapperStore):
    """A wrapper around a store that fails on demand, and otherwise behaves like it.

    Each fault applies at its own call, so the same calls in the same order always end the same
    way. `calls` lists the calls made. Threads may share it; which of them makes the n-th call is
    then up to them. Closing it closes the wrapped store, and never fails.
    """

    def __init__(
        self,
        store: Store,
        faults: Iterable[Fault] = (),
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(store)
        self.faults = tuple(faults)
        for fault in self.faults:
            expect(isinstance(fault, Fault), "a fault is made by Fault", fault)
        self._sleep = sleep
        self._calls: list[str] = []
        self._met: list[Fault] = []
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()

    @property
    def calls(self) -> list[str]:
        """The calls on the wrapped store, in order, including failed ones."""
        with self._counting:
            return list(self._calls)

    @property
    def met(self) -> list[Fault]:
        """The faults that occurred, in order; a dead server once for each call."""
        with self._counting:
            return list(self._met)

    # Counting.

    def _call(self, method: str, call: Callable[[], R]) -> R:
        reply_is_lost = self._go_ahead(method)
        if reply_is_lost is None:
            return call()
        try:
            call()
        except Exception as error:
            raise reply_is_lost from error  # Loses this reply, too.
        raise reply_is_lost

    def _go_ahead(self, method: str) -> Exception | None:
        """Delay or raise before a call; returns the error to raise after it."""
        self.inner._check_open()
        number, met = self._count(method)
        lost: Exception | None = None
        for fault in sorted(met, key=lambda one: one.kind != "delay"):
            if fault.kind == "delay":
                self._sleep(fault.seconds)
            elif fault.kind == "lost reply":
                lost = fault.exception(method, number)
            else:
                raise fault.exception(method, number)
        return lost

    def _count(self, method: str) -> tuple[int, list[Fault]]:
        with self._counting:
            self._calls.append(method)
            self._counts[method] += 1
            number, own = len(self._calls), self._counts[method]
            met = [
                one
                for one in self.faults
                if one.method in (None, method) and one.meets(own if one.method else number)
            ]
            self._met += met
        return number, met

    def scan(self) -> Iterator[Stored]:
        """Every object, in no order, possibly followed by a lost reply."""
        reply_is_lost = self._go_ahead("scan")
        return self._scanned(reply_is_lost)

    def _scanned(self, reply_is_lost: Exception | None) -> Iterator[Stored]:
        yield from self.inner.scan()
        if reply_is_lost is not None:
            raise reply_is_lost  # Everything arrived, except the end of the iteration.


FAULTS: tuple[Callable[[int], Fault], ...] = (
    Fault.error,
    Fault.lost_reply,
    Fault.full,
    Fault.dead,
)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """How a piece of work under a fault ended: with a result, or with an error."""

    fault: Fault | None
    """None in the run that only counts."""
    result: R | None
    error: RopewalkError | None
    calls: Sequence[str]
    """The methods that the work called on the store, in order."""


def fail_every_call(
    fresh: Callable[[], Callable[[], Store]],
    work: Callable[[Store], R],
    check: Callable[[Store, Outcome[R]], None],
    *,
    faults: Sequence[Callable[[int], Fault]] = FAULTS,
) -> int:
    """Run work once per engine call in it and per kind of fault; returns the number of runs.

    `fresh` prepares a new place for a store and returns a function that opens it: for memory
    `lambda: MemoryStore().another`. The work gets a store that fails once. Errors of Ropewalk are
    kept in the outcome; any other ends the test. Then the store is reopened without faults, and
    `check` gets it with the outcome. First of all the work runs without a fault, to count its
    calls, and is checked too.
    """
    calls = _run(fresh, work, check, None).calls
    for make in faults:
        for number in range(1, len(calls) + 1):
            _run(fresh, work, check, make(number))
    return len(faults) * len(calls)


def _run(
    fresh: Callable[[], Callable[[], Store]],
    work: Callable[[Store], R],
    check: Callable[[Store, Outcome[R]], None],
    fault: Fault | None,
) -> Outcome[R]:
    open_store = fresh()
    result: R | None = None
    caught: RopewalkError | None = None
    try:
        with FaultStore(open_store(), [] if fault is None else [fault]) as store:
            try:
                result = work(store)
            except RopewalkError as error:
                caught = error
            outcome = Outcome(fault, result, caught, store.calls)
            assert fault is None or store.met, (
                f"the work made only {len(store.calls)} calls this time; it must make the same "
                "calls whenever it is done"
            )
        with open_store() as again:
            check(again, outcome)
    except BaseException as error:
        error.add_note(f"in the run with {fault or 'no fault'}")
        raise
    return outcome
