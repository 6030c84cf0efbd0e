"""Work that is done again and again, and fails at another call each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ropewalk.errors import RopewalkError
from ropewalk.store import Store
from ropewalk.testing._faults import Fault, FaultStore

R = TypeVar("R")

FAULTS: tuple[Callable[[int], Fault], ...] = (
    Fault.error,
    Fault.lost_reply,
    Fault.full,
    Fault.dead,
)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """How a piece of work ended that met a fault: with a result, or with an error."""

    fault: Fault | None
    """None in the run that only counts."""
    result: R | None
    error: RopewalkError | None
    calls: Sequence[str]
    """The engine's methods that the work called, in order."""


def fail_every_call(
    fresh: Callable[[], Callable[[], Store]],
    work: Callable[[Store], R],
    check: Callable[[Store, Outcome[R]], None],
    *,
    faults: Sequence[Callable[[int], Fault]] = FAULTS,
) -> int:
    """Do work once for every engine call in it and every kind of fault; how often that was.

    `fresh` makes a new place for a store and gives a function that opens it: for memory
    `lambda: MemoryStore().another`. The work gets a store that fails once. What it raises
    of Ropewalk's errors is kept in the outcome, everything else ends the test. Then the
    store is opened again, without faults, and `check` gets it with the outcome. First of
    all the work is done without a fault, to count its calls, and checked too.
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
