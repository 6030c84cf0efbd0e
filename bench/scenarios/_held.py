"""A state that a program holds: what its commits cost, in memory and on disk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

from bench._clock import Bounds, Stopwatch
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Place, Target
from bench.engines.states import VALUE, Held, held
from bench.scenarios._on_disk import AMPLIFICATION, RESTART, marks, run_on_disk, times
from bench.scenarios._sides import (
    HELD,
    HELD_ON_DISK,
    HELD_RELAXED,
    PEERS_HELD,
    PEERS_HELD_ON_DISK,
)
from bench.scenarios._work import Step, Work, take

CPU = Metric("commits_cpu", "CPU of all rounds", "s")
PER_COMMIT = Metric("cpu_ms", "CPU per round", "ms", 3)
OWN_OBJECT = "the program's own object assigned again"
ASSIGNED = Metric("assigned_ms", f"CPU per round, {OWN_OBJECT}", "ms", 3)

Change = Callable[[Any], None]
"""Changes a value in place."""

Reopened = Callable[[], Held]
"""Gives a new handle on what was committed; who has it closes it."""

More = Callable[[Reopened], Mapping[str, float]]
"""Measures more after the rounds."""


def metrics(*own: Metric, on_disk: bool) -> tuple[Metric, ...]:
    """The figures of every state, with those of a scenario among them."""
    stored = Metric("folder_mb", "folder after close" if on_disk else "stored", "MB", 1)
    wall = (Metric("wall_ms", "wall per round", "ms", 3),) if on_disk else ()
    return (
        Metric("commits", "rounds", digits=0),
        stored,
        AMPLIFICATION if on_disk else Metric("amplification", "stored / payload", "x", 3),
        Metric("kb", "new bytes per commit, mean", "KB", 1),
        CPU,
        PER_COMMIT,
        Metric("grown", "last tenth / first tenth", "x"),
        *own,
        RESTART,
        *wall,
        PEAK,
    )


NOTES = (
    "A round is all that a program does for one commit: it reads the value from the handle, "
    "changes it or not, and commits. kvgit and AgentRef detect no change, so there the value is "
    "assigned again where it changed. The state was made by another handle; the first round, "
    "which loads the value, is a column of its own.",
    "Per round is the median; the ratio is that of the sums of all rounds, on disk with the close.",
)
DISK_NOTES = (
    "Bytes are the sizes of all files in the folder after the side was closed.",
    "The targets are for Ropewalk at its durable setting, although no peer waits for the disk as "
    "it does; the relaxed setting, which is that of diskcache, is judged beside it. AgentState "
    "is shown beside AgentRef, which does the same.",
)


class Changing(Work):
    """A value under one name, changed in place at each step."""

    value: Any

    def begin(self, engine: Engine) -> bool:
        engine.commit(self.value)
        return True

    @abstractmethod
    def next_change(self) -> Change:
        """The next change, to be made to our value and to that of a side."""

    def steps(self) -> Iterator[Step]:
        while True:
            change = self.next_change()
            change(self.value)
            yield partial(_change_in_place, change)

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.value, "the value did not read back"

    def assigned(self, rounds: int, reopened: Reopened) -> Mapping[str, float]:
        """Rounds of a program that keeps the object itself and assigns it again."""
        engine, watch = reopened(), Stopwatch()
        own = engine.look(VALUE)
        for at in range(rounds + 1):
            change = self.next_change()
            change(self.value)
            change(own)
            if at:
                watch(partial(engine.commit, own))
            else:
                engine.commit(own)
        engine.close()
        return {"assigned_ms": median(watch.cpu) * 1e3}


def _change_in_place(change: Change, engine: Engine) -> None:
    state = held(engine)
    value = state.look(VALUE)
    change(value)
    state.changed(VALUE, value)
    state.save()


def run_in_memory(
    info: EngineInfo, work: Work, rounds: int, size: Mapping[str, int], more: More
) -> Measured:
    """Make the state, take the rounds with a new handle, and read it back."""
    state, load, restart, watch = held(info.open()), Stopwatch(), Stopwatch(), Stopwatch()
    load(partial(work.begin, state))
    begun, steps = state.stored_bytes(), work.steps()
    state.reopen()
    restart(partial(next(steps), state))
    cap = take(islice(steps, rounds), state, watch, Bounds(size["seconds"]))
    taken, stored = len(watch.cpu), state.stored_bytes()
    figures = times(watch, taken) | {
        "load_s": load.cpu[0],
        "restart_ms": restart.cpu[0] * 1e3,
        "folder_mb": stored / 1e6,
        "amplification": stored / work.payload(),
        "kb": (stored - begun) / (taken + 1) / 1e3,
    }
    figures |= more(partial(_again, state))
    work.check(_again(state))
    notes = [f"stopped at {taken} of {rounds} rounds by {cap}"] if cap else []
    return Measured(figures, notes, {"commits_cpu": marks(watch.cpu, rounds)})


def _again(state: Held) -> Held:
    state.reopen()
    return state


def run_in_folder(
    info: EngineInfo, work: Work, rounds: int, size: Mapping[str, int], more: More
) -> Measured:
    """The same in a folder, which is closed between."""

    def closed(info: EngineInfo, place: Place) -> Mapping[str, float]:
        return more(lambda: held(info.open(place)))

    return run_on_disk(info, work, rounds, size, closed)


def bytes_target(side: str) -> Target:
    """How much may be stored for the payload."""
    return Target("amplification", 2.0, "stored bytes over payload", side=side)


def targets(metric: str, what: str, ratio: float, on_disk: bool) -> tuple[Target, ...]:
    """How many times the best peer must be above us."""
    if not on_disk:
        return (_beside(metric, what, ratio, HELD, PEERS_HELD),)
    return (
        _beside(metric, what, ratio, HELD_ON_DISK, PEERS_HELD_ON_DISK),
        _beside(metric, f"{what}, relaxed", ratio, HELD_RELAXED, PEERS_HELD_ON_DISK),
    )


def _beside(metric: str, what: str, ratio: float, side: str, peers: tuple[str, ...]) -> Target:
    return Target(metric, ratio, what, "at least", side=side, under=peers)
