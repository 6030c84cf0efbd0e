"""A state is held by a handle and changed in place, in memory and on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import Bounds, Stopwatch, folder_bytes
from bench._environment import ROOT
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._text import Text, payload_bytes, record, short_message
from bench.engines.states import SMALL, VALUE, Held, held
from bench.scenarios._sides import (
    EVERY_HELD,
    EVERY_HELD_ON_DISK,
    HELD,
    HELD_ON_DISK,
    HELD_RELAXED,
    PEERS_HELD,
    PEERS_HELD_ON_DISK,
    TYPED_ON_DISK,
)
from bench.scenarios.values import (
    AMPLIFICATION,
    OPENED,
    RESTART,
    Keys,
    Step,
    Work,
    marks,
    run_keys_disk,
    run_on_disk,
    take,
    times,
)

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


Rounds = tuple[Work, int, More]
"""The work of a scenario, how many rounds it has, and what is measured after them."""


def twins(
    name: str,
    title: str,
    rounds: Callable[[Mapping[str, int]], Rounds],
    own: tuple[Metric, ...],
    size: Mapping[str, int],
    quick: Mapping[str, int],
    beside: Sequence[tuple[str, str, tuple[float, float]]],
    orders: tuple[int, int],
    *,
    worst: int = 1,
    notes: tuple[str, ...] = (),
    more: Callable[[str, str], tuple[Target, ...]] = lambda side, peer: (),
) -> Iterator[Scenario]:
    """The same work on a state in memory and on disk.

    The title has a place for where it is. `beside` are metrics that are compared with those of
    peers, and how many times the best of them must be above us, in memory and on disk.
    """

    def run(on_disk: bool, info: EngineInfo, size: Mapping[str, int]) -> Measured:
        work, steps, then = rounds(size)
        return (run_in_folder if on_disk else run_in_memory)(info, work, steps, size, then)

    for on_disk in (False, True):
        side, peer = (HELD_ON_DISK, "agex-state-disk") if on_disk else (HELD, "agex-state")
        compared = [targets(key, what, ratio[on_disk], on_disk) for key, what, ratio in beside]
        yield Scenario(
            name=f"{name}-disk" if on_disk else name,
            title=title.format(" on disk" if on_disk else ""),
            run=partial(run, on_disk),
            engines=EVERY_HELD_ON_DISK if on_disk else EVERY_HELD,
            metrics=metrics(*own, on_disk=on_disk),
            size={**size, "worst": worst} if on_disk else size,
            quick={**quick, "worst": 1} if on_disk else quick,
            targets=(bytes_target(side), *more(side, peer), *chain(*compared)),
            notes=(*NOTES, *(DISK_NOTES if on_disk else ()), *notes),
            order=orders[on_disk],
            repeat=3,
        )


TENTHS = (
    Metric("first_ms", "CPU per round, first tenth", "ms", 3),
    Metric("last_ms", "CPU per round, last tenth", "ms", 3),
)
AT_THE_END = (
    "The object is assigned again when the list is long, so it compares with the last tenth."
)


class Appends(Changing):
    """A list that begins empty; each step appends a message."""

    def __init__(self) -> None:
        self._text = Text(7)
        self.value: list[Any] = []

    def next_change(self) -> Change:
        message = short_message(self._text, len(self.value))
        return lambda messages: messages.append(dict(message))

    def payload(self) -> int:
        return payload_bytes(self.value)


def _append(size: Mapping[str, int]) -> Rounds:
    work = Appends()
    return work, size["appends"], partial(work.assigned, size["assigned"])


class Edits(Changing):
    """A list of so many small dicts; each step changes a field of one."""

    def __init__(self, records: int) -> None:
        self._text = Text(6)
        self.value = [record(self._text, number) for number in range(records)]

    def next_change(self) -> Change:
        at = self._text.random.randrange(len(self.value))
        return partial(_set_score, at, round(self._text.random.random() * 100, 3))

    def payload(self) -> int:
        return payload_bytes(self.value)


def _set_score(at: int, score: float, records: Any) -> None:
    records[at]["score"] = score


def _edit(size: Mapping[str, int]) -> Rounds:
    work = Edits(size["records"])
    return work, size["edits"], partial(work.assigned, size["assigned"])


LOAD = Metric("load_s", "CPU to set and commit all keys", "s")
KEYED = (
    "A round assigns one key and commits. AgentRef has no keys: they are one dict in its field, "
    "which is read, changed and assigned again. To read one key kvgit opens a snapshot, which is "
    "cheaper than its worktree; to change one it needs the worktree, as the first round shows.",
)


def run_keys(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Load the keys, change one at a time, and open the state to read one."""
    work = Keys(size["keys"])
    more = partial(_open_and_read, work, size["opens"])
    return run_in_memory(info, work, size["changes"], size, more)


def _open_and_read(work: Keys, opens: int, reopened: Reopened) -> Mapping[str, float]:
    state, watch = reopened(), Stopwatch()
    for _ in range(opens):
        watch(partial(state.get, work.changed))  # With a new handle each time.
    return {"open_ms": median(watch.cpu) * 1e3}


MORE = (
    Metric("reopened_ms", "CPU per round, a new handle each", "ms", 3),
    Metric("caught", "in-place change caught", "yes/no"),
)
UNCHANGED = (
    "With a new handle for each round, which is what a program does that starts again for each "
    "step, a round opens the state, reads the value, sets the number, commits and closes.",
    "Only Ropewalk and agex look whether the value was changed. kvgit and AgentRef never do: a "
    "change in place of which they are not told is lost, as the column says. AgentRef keeps the "
    "loaded object, so that its rounds with one handle do nothing but write a line, in which "
    "nothing can be below it; the target is judged beside agex, and beside all three.",
)


class Reads(Work):
    """A list of so many small dicts, and a number that goes up."""

    def __init__(self, records: int) -> None:
        self._text = Text(6)
        self.records = [record(self._text, number) for number in range(records)]
        self.number = 0

    def begin(self, engine: Engine) -> bool:
        state = held(engine)
        state.set(VALUE, self.records)
        state.set(SMALL, self.number)
        state.save()
        return True

    def steps(self) -> Iterator[Step]:
        for number in count(1):
            self.number = number
            at = self._text.random.randrange(len(self.records))
            yield partial(self._round, at, number)

    def _round(self, at: int, number: int, engine: Engine) -> None:
        state = held(engine)
        assert state.look(VALUE)[at]["id"] == at, "the wrong record was read"
        state.set(SMALL, number)
        state.save()

    def check(self, engine: Engine) -> None:
        state = held(engine)
        assert state.look(VALUE) == self.records, "the value did not read back"
        assert state.look(SMALL) == self.number, "the number did not read back"

    def payload(self) -> int:
        return payload_bytes(self.records)

    def more(self, rounds: int, reopened: Reopened) -> Mapping[str, float]:
        """Rounds with a new handle each, and whether a change in place is caught."""
        watch = Stopwatch()
        for step in islice(self.steps(), rounds):
            watch(partial(_open_and_close, reopened, step))
        return {"reopened_ms": median(watch.cpu) * 1e3, "caught": self._caught(reopened)}

    def _caught(self, reopened: Reopened) -> float:
        at, new = len(self.records) // 2, "changed in place"
        state = reopened()
        state.look(VALUE)[at]["name"] = new
        state.save()
        state.close()
        state = reopened()
        found: Any = state.look(VALUE)[at]["name"]
        state.close()
        if found == new:
            self.records[at]["name"] = new
        return float(found == new)


def _open_and_close(reopened: Reopened, step: Step) -> None:
    state = reopened()
    step(state)
    state.close()


def _read(size: Mapping[str, int]) -> Rounds:
    work = Reads(size["records"])
    return work, size["rounds"], partial(work.more, size["reopened"])


def _looking(side: str, peer: str) -> tuple[Target, ...]:
    """What every side should do, and its cost beside the one peer that looks too."""
    what = "CPU of agex, which looks for changes too, over ours"
    return (
        Target("caught", 1.0, "a change made in place is caught", "at least", side=side),
        Target("commits_cpu", 1.0, what, "at least", side=side, under=(peer,)),
    )


_PIECE = 1_000_000


def run_memory(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the state here, take the steps in a fresh process, and read it back here."""
    value = _documents(size["megabytes"])
    with TemporaryDirectory() as name:
        place, watch = Place(Path(name)), Stopwatch()
        watch(partial(_make, info, place, value))
        stored = folder_bytes(place.folder)
        figures = _apart(info, place, size["steps"])
        grown = folder_bytes(place.folder) - stored
        _check(held(info.open(place)), value, size["steps"])
    figures["make_s"] = watch.cpu[0]
    figures["folder_mb"] = stored / 1e6
    figures["kb"] = grown / size["steps"] / 1e3
    return Measured(figures)


def _documents(count: int) -> list[dict[str, Any]]:
    random = Random(8)
    return [{"id": number, "data": random.randbytes(_PIECE)} for number in range(count)]


def _make(info: EngineInfo, place: Place, value: Any) -> None:
    state = held(info.open(place))
    state.set(VALUE, value)
    state.set(SMALL, 0)
    state.save()
    state.close()


def _apart(info: EngineInfo, place: Place, steps: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench._steps", info.name, str(place.folder), str(steps)]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"the steps failed in their own process: {done.stderr[-300:]}"
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _check(state: Held, value: Any, steps: int) -> None:
    assert state.look(SMALL) == steps, "the last step did not read back"
    assert state.look(VALUE) == value, "the value did not read back"
    state.close()


def _small(side: str, what: str) -> Target:
    return Target("above_mb", 30.0, f"memory above the interpreter, {what}", side=side)


_AGAIN = ("assigned_ms", f"the same, {OWN_OBJECT}", (1.0, 1.0))
_COMMITS = ("commits_cpu", "CPU of the best peer over ours", (1.0, 10.0))

SCENARIOS = (
    *twins(
        "state-append",
        "1,000 messages of about 570 bytes appended to a list in a state{}, a commit after each",
        _append,
        (*TENTHS, ASSIGNED),
        size={"appends": 1_000, "assigned": 50, "seconds": 60},
        quick={"appends": 100, "assigned": 5, "seconds": 20},
        beside=(_COMMITS, _AGAIN),
        orders=(230, 240),
        worst=3,
        notes=(AT_THE_END,),
    ),
    *twins(
        "state-edit",
        "One field changed in a 10 MB list of 112,000 small dicts in a state{}",
        _edit,
        (ASSIGNED,),
        size={"records": 112_000, "edits": 30, "assigned": 10, "seconds": 60},
        quick={"records": 12_000, "edits": 6, "assigned": 3, "seconds": 20},
        beside=(_COMMITS, _AGAIN),
        orders=(210, 220),
    ),
    Scenario(
        name="state-keys",
        title="One of 100,000 keys of a state changed",
        run=run_keys,
        engines=EVERY_HELD,
        metrics=metrics(
            Metric("open_ms", "CPU to open it and read one key", "ms", 3), LOAD, on_disk=False
        ),
        size={"keys": 100_000, "changes": 100, "opens": 20, "seconds": 10},
        quick={"keys": 5_000, "changes": 10, "opens": 3, "seconds": 20},
        targets=(
            bytes_target(HELD),
            *targets("commits_cpu", "CPU of the best peer over ours", 1.0, on_disk=False),
            *targets("open_ms", "opening it and reading one key: the same", 1.0, on_disk=False),
        ),
        notes=(*NOTES, *KEYED),
        order=250,
        repeat=3,
    ),
    Scenario(
        name="state-keys-disk",
        title="One of 100,000 keys of a state on disk changed",
        run=run_keys_disk,
        engines=(HELD_ON_DISK, HELD_RELAXED, *PEERS_HELD_ON_DISK),
        metrics=metrics(
            Metric("open_ms", "wall to open it and read one key", "ms", 1),
            Metric("cold_ms", "the same with its imports", "ms", 1),
            LOAD,
            on_disk=True,
        ),
        size={"keys": 100_000, "changes": 100, "worst": 1, "opens": 5, "seconds": 10},
        quick={"keys": 5_000, "changes": 10, "worst": 1, "opens": 1, "seconds": 20},
        targets=(
            bytes_target(HELD_ON_DISK),
            *targets("commits_cpu", "CPU of the best peer over ours", 1.0, on_disk=True),
            *targets("open_ms", "opening it and reading one key: the same", 1.0, on_disk=True),
        ),
        notes=(*NOTES, *DISK_NOTES, *KEYED, OPENED),
        order=260,
        repeat=3,
    ),
    *twins(
        "state-read",
        "A 10 MB list of 112,000 small dicts in a state{} read but not changed, "
        "beside a number that is set",
        _read,
        MORE,
        size={"records": 112_000, "rounds": 20, "reopened": 5, "seconds": 60},
        quick={"records": 12_000, "rounds": 5, "reopened": 2, "seconds": 20},
        beside=(
            ("commits_cpu", "CPU of the best peer over ours", (1.0, 1.0)),
            ("reopened_ms", "the same, a new handle each round", (1.0, 1.0)),
        ),
        orders=(200, 205),
        notes=UNCHANGED,
        more=_looking,
    ),
    Scenario(
        name="state-memory",
        title="100 steps over a state with a 100 MB value that no step reads",
        run=run_memory,
        engines=(TYPED_ON_DISK, HELD_ON_DISK, *PEERS_HELD_ON_DISK),
        metrics=(
            Metric("above_mb", "peak above the interpreter", "MB", 1),
            Metric("interpreter_mb", "the interpreter with the package", "MB", 1),
            Metric("cpu_ms", "CPU per step", "ms", 3),
            Metric("kb", "new bytes per step", "KB", 2),
            Metric("make_s", "CPU to store the value", "s"),
            Metric("folder_mb", "folder with the value", "MB", 1),
        ),
        size={"megabytes": 100, "steps": 100},
        quick={"megabytes": 10, "steps": 10},
        targets=(_small(TYPED_ON_DISK, "AgentState"), _small(HELD_ON_DISK, "Versioned")),
        notes=(
            "The value, documents of 1 MB of random bytes, is stored by one process. Another opens "
            "the state, sets a number and commits or checkpoints, at each step; its peak is "
            "compared with its own just after the import of the package, before the state is "
            "opened.",
            "There is no such figure for stores in memory, which hold the value itself.",
        ),
        order=270,
        repeat=3,
    ),
)
