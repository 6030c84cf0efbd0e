"""A whole value is recorded at each step: lists that grow, edits, keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import accumulate, count, islice, pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import Bounds, Stopwatch, block_bytes, folder_bytes, growth
from bench._environment import ROOT
from bench._model import PEAK, Engine, EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._text import Text, message, payload_bytes, record, section
from bench.scenarios._sides import (
    EVERY,
    EVERY_ON_DISK,
    OURS,
    OURS_ON_DISK,
    PEERS_ON_DISK,
    PICKLE_ON_DISK,
    TOLD_ON_DISK,
)

Step = Callable[[Engine], None]
"""Records one version with an engine."""


class Work(ABC):
    """A value, and the steps in which it changes. It checks itself what was recorded."""

    def begin(self, engine: Engine) -> bool:
        """Record the first version; False if the steps begin with nothing."""
        return False

    @abstractmethod
    def steps(self) -> Iterator[Step]:
        """Change the value, again and again without end; each step records one change."""

    @abstractmethod
    def check(self, engine: Engine) -> None:
        """Raise AssertionError if the newest version does not read back."""

    @abstractmethod
    def payload(self) -> int:
        """The raw bytes of the value, once."""


def nothing() -> None:
    """What is done between steps, if nothing is."""


def take(
    steps: Iterable[Step],
    engine: Engine,
    watch: Stopwatch,
    bounds: Bounds,
    after: Callable[[], None] = nothing,
) -> str | None:
    """Take steps, each on the watch, until a cap is reached; which, in words."""
    for step in steps:
        watch(partial(step, engine))
        after()
        if cap := bounds.reached():
            return cap
    return None


MARKS = 20

AMPLIFICATION = Metric("amplification", "folder / payload", "x", 3)
RESTART = Metric("restart_ms", "CPU of the first commit after reopening", "ms", 1)


def metrics(*before_times: Metric) -> tuple[Metric, ...]:
    """The figures of every workload on disk, with some of its own among them."""
    return (
        Metric("commits", "commits", digits=0),
        Metric("folder_mb", "folder after close", "MB", 1),
        *before_times,
        Metric("kb", "new bytes per commit, mean", "KB", 1),
        Metric("worst_kb", "new bytes, worst commit", "KB", 1),
        Metric("commits_cpu", "CPU of all commits and the close", "s"),
        Metric("cpu_ms", "CPU per commit", "ms", 3),
        Metric("growth", "growth per commit already made", "us", 3),
        Metric("wall_ms", "wall per commit", "ms", 3),
        Metric("wall_s", "wall of all commits and the close", "s"),
        Metric("open_mb", "largest folder while open", "MB", 1),
        Metric("blocks_mb", "blocks on disk after close", "MB", 1),
        PEAK,
    )


NOTES = (
    "Bytes are the sizes of all files in the folder after the side was closed; what reads back "
    "is read after opening it again. The worst commit is the largest of a few more, after each "
    "of which the side is closed and its folder measured.",
    "Times per commit are medians. Every side runs at its durable setting, as its note says.",
)

Closed = Callable[[EngineInfo, Place], Mapping[str, float]]


def no_more(info: EngineInfo, place: Place) -> Mapping[str, float]:
    """Figures of the closed folder, if a scenario has none of its own."""
    return {}


@dataclass
class _Start:
    """A side that is open and has recorded what the steps begin with."""

    engine: Engine
    stored: int = 0
    """Bytes in the folder before the first step."""
    steps: int = 0
    """How many steps were taken since, which are not on the watch."""
    figures: dict[str, float] = field(default_factory=dict)


def run_on_disk(
    info: EngineInfo,
    work: Work,
    commits: int,
    size: Mapping[str, int],
    closed: Closed = no_more,
) -> Measured:
    """Take the steps in a folder of their own, close it, look at it, and read it back."""
    with TemporaryDirectory() as name:
        place, steps, watch = Place(Path(name)), work.steps(), Stopwatch()
        start = _start(info, place, work, steps)
        bounds = Bounds(size["seconds"], folder=place.folder)
        cap = take(islice(steps, commits), start.engine, watch, bounds)
        taken = len(watch.cpu)
        watch(start.engine.close)
        figures = start.figures | times(watch, taken) | _bytes(place.folder, work, start, taken)
        figures["open_mb"] = max(bounds.largest, folder_bytes(place.folder)) / 1e6
        figures |= closed(info, place)
        _reopen_and_check(info, place, work)
        figures["worst_kb"] = _worst(info, place, steps, size["worst"]) / 1e3
    notes = [f"stopped at {taken} of {commits} commits by {cap}"] if cap else []
    return Measured(figures, notes, {"commits_cpu": marks(watch.cpu[:taken], commits)})


def _start(info: EngineInfo, place: Place, work: Work, steps: Iterator[Step]) -> _Start:
    engine, load, restart = info.open(place), Stopwatch(), Stopwatch()
    if not load(partial(work.begin, engine)):
        return _Start(engine)
    engine.close()
    stored = folder_bytes(place.folder)
    engine = info.open(place)
    restart(partial(next(steps), engine))
    figures = {"load_s": load.cpu[0], "restart_ms": restart.cpu[0] * 1e3}
    return _Start(engine, stored, 1, figures)


def times(watch: Stopwatch, taken: int) -> dict[str, float]:
    """What the commits cost, which come first on the watch."""
    tenth = max(1, taken // 10)
    first, last = median(watch.cpu[:tenth]), median(watch.cpu[:taken][-tenth:])
    return {
        "commits": taken,
        "commits_cpu": sum(watch.cpu),
        "cpu_ms": median(watch.cpu[:taken]) * 1e3,
        "first_ms": first * 1e3,
        "last_ms": last * 1e3,
        "grown": last / first,
        "growth": growth(watch.cpu[:taken]),
        "wall_ms": median(watch.wall[:taken]) * 1e3,
        "wall_s": sum(watch.wall),
    }


def _bytes(folder: Path, work: Work, start: _Start, taken: int) -> dict[str, float]:
    stored = folder_bytes(folder)
    return {
        "folder_mb": stored / 1e6,
        "blocks_mb": block_bytes(folder) / 1e6,
        "amplification": stored / work.payload(),
        "kb": (stored - start.stored) / (taken + start.steps) / 1e3,
    }


def marks(seconds: list[float], planned: int) -> list[float]:
    """The sum of the steps at each twentieth of the planned ones, as far as it came."""
    sums = list(accumulate(seconds))
    ends = sorted({max(1, planned * mark // MARKS) for mark in range(1, MARKS + 1)})
    return [sums[end - 1] for end in ends if end <= len(sums)]


def _reopen_and_check(info: EngineInfo, place: Place, work: Work) -> None:
    engine = info.open(place)
    work.check(engine)
    engine.close()


def _worst(info: EngineInfo, place: Place, steps: Iterator[Step], count: int) -> int:
    """The most bytes that one of a few further commits adds to the closed folder."""
    stored = [folder_bytes(place.folder)]
    for step in islice(steps, count):
        engine = info.open(place)
        step(engine)
        engine.close()
        stored.append(folder_bytes(place.folder))
    return max(after - before for before, after in pairwise(stored))


class Chat(Work):
    """A list of messages that grows by one at each step."""

    def __init__(self) -> None:
        self._text = Text(1)
        self.messages: list[Any] = []

    def steps(self) -> Iterator[Step]:
        while True:
            self.messages.append(message(self._text, len(self.messages)))
            yield self._record

    def _record(self, engine: Engine) -> None:
        engine.change(self.messages, (len(self.messages) - 1,), self.messages[-1])

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.messages, "the list did not read back"

    def payload(self) -> int:
        return payload_bytes(self.messages)


def run_chat(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Grow the list, then check that it reads back."""
    engine, work, watch = info.open(), Chat(), Stopwatch()
    steps = islice(work.steps(), size["messages"])
    cap = take(steps, engine, watch, Bounds(size["seconds"]))
    work.check(engine)
    messages = work.messages
    stored, payload = engine.stored_bytes(), work.payload()
    tail = max(1, len(messages) // 10)
    figures = {
        "messages": len(messages),
        "amplification": stored / payload,
        "stored_mb": stored / 1e6,
        "growth": growth(watch.cpu),
        "first_ms": median(watch.cpu[:tail]) * 1e3,
        "last_ms": median(watch.cpu[-tail:]) * 1e3,
        "commits_cpu": sum(watch.cpu),
    }
    notes = [f"stopped at {len(messages)} messages by {cap}"] if cap else []
    return Measured(figures, notes)


def run_chat_disk(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Grow the list."""
    return run_on_disk(info, Chat(), size["messages"], size)


class Edit(Work):
    """A nested value of so many sections of 100 KB; each step changes one field."""

    def __init__(self, sections: int) -> None:
        self._text = Text(4)
        found = [section(self._text, at) for at in range(sections)]
        self.value: dict[str, Any] = {"name": "work", "sections": found}

    def begin(self, engine: Engine) -> bool:
        engine.commit(self.value)
        return True

    def steps(self) -> Iterator[Step]:
        for number in count():
            path, new = self._field(number)
            part: Any = self.value
            for step in path[:-1]:
                part = part[step]
            part[path[-1]] = new
            yield partial(self._record, path, new)

    def _record(self, path: tuple[str | int, ...], new: Any, engine: Engine) -> None:
        engine.change(self.value, path, new)

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.value, "the value did not read back"

    def payload(self) -> int:
        return payload_bytes(self.value)

    def _field(self, number: int) -> tuple[tuple[str | int, ...], Any]:
        # Around the middle, each time in another part, in turn a text, a flag and a number.
        middle = len(self.value["sections"]) // 2 + number % 3 - 1
        path = ("sections", middle, "parts", number % 20)
        part = self.value["sections"][middle]["parts"][number % 20]
        step = (*path, "steps", number % 10)
        if number % 3 == 0:
            return (*step, "note"), self._text.prose(460)
        if number % 3 == 1:
            return (*step, "done"), not part["steps"][number % 10]["done"]
        return (*path, "rank"), part["rank"] + 1000


def run_edit(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the value, edit it, and check that it reads back."""
    engine, work, watch = info.open(), Edit(size["sections"]), Stopwatch()
    work.begin(engine)
    stored = [engine.stored_bytes()]
    cap = take(
        islice(work.steps(), size["edits"]),
        engine,
        watch,
        Bounds(size["seconds"]),
        after=lambda: stored.append(engine.stored_bytes()),
    )
    work.check(engine)
    grown = [after - before for before, after in pairwise(stored)]
    figures = {
        "edits": len(grown),
        "worst_kb": max(grown) / 1e3,
        "kb": median(grown) / 1e3,
        "cpu_ms": median(watch.cpu) * 1e3,
    }
    return Measured(figures, [f"stopped at {len(grown)} edits by {cap}"] if cap else [])


def run_edit_disk(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the value and edit it."""
    return run_on_disk(info, Edit(size["sections"]), size["edits"], size)


def _bytes_edit_disk(side: str, text: str) -> tuple[Target, ...]:
    return (
        Target("kb", 48.0, f"new bytes per commit{text}", side=side),
        Target("worst_kb", 48.0, f"new bytes of the worst commit{text}", side=side),
    )


def _cpu(side: str, text: str) -> Target:
    what = f"CPU per commit of the best peer over ours{text}"
    return Target("cpu_ms", 10.0, what, "at least", side=side, under=PEERS_ON_DISK)


class Keys(Work):
    """So many keys with a small record each; each step changes one."""

    def __init__(self, keys: int) -> None:
        self._text = Text(5)
        self.pairs = {f"key-{number:06}": record(self._text, number) for number in range(keys)}
        self.changed = ""

    def begin(self, engine: Engine) -> bool:
        engine.load(self.pairs)
        return True

    def steps(self) -> Iterator[Step]:
        names = list(self.pairs)
        for number in count(len(names)):
            key = self.changed = self._text.random.choice(names)
            self.pairs[key] = record(self._text, number)
            yield partial(self._record, key)

    def _record(self, key: str, engine: Engine) -> None:
        engine.put(key, self.pairs[key])

    def check(self, engine: Engine) -> None:
        """Look at the key that changed last, and at the first one."""
        for key in (self.changed, next(iter(self.pairs))):
            assert engine.get(key) == self.pairs[key], f"{key} did not read back"

    def payload(self) -> int:
        return payload_bytes(self.pairs)


def run_keys(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Load the keys, then change one at a time."""
    engine, work, load, watch = info.open(), Keys(size["keys"]), Stopwatch(), Stopwatch()
    load(partial(work.begin, engine))
    stored = [engine.stored_bytes()]

    def after() -> None:
        stored.append(engine.stored_bytes())
        if len(stored) % 10 == 0:
            work.check(engine)

    steps = islice(work.steps(), size["changes"])
    cap = take(steps, engine, watch, Bounds(size["seconds"]), after)
    grown = [after - before for before, after in pairwise(stored)]
    figures = {
        "changes": len(grown),
        "worst_kb": max(grown) / 1e3,
        "kb": median(grown) / 1e3,
        "cpu_ms": median(watch.cpu) * 1e3,
        "load_s": load.cpu[0],
    }
    return Measured(figures, [f"stopped at {len(grown)} changes by {cap}"] if cap else [])


OPENED = (
    "The store is opened in a fresh process each time, by wall time without the start of the "
    "interpreter: once with all modules loaded, once with the side's own imports in it. Its "
    "files are in the memory of the system."
)


def run_keys_disk(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Load the keys, change one at a time, and open the store in fresh processes."""
    work = Keys(size["keys"])
    closed = partial(_open_and_read, work, size["opens"])
    return run_on_disk(info, work, size["changes"], size, closed)


def _open_and_read(work: Keys, opens: int, info: EngineInfo, place: Place) -> dict[str, float]:
    """Open the store and read one key, each time in a fresh process."""
    key = work.changed
    found = [_fresh(info, place, key) for _ in range(opens)]
    assert all(one["value"] == work.pairs[key] for one in found), f"{key} did not read back"
    return {name: median(one[name] for one in found) for name in ("open_ms", "cold_ms")}


def _fresh(info: EngineInfo, place: Place, key: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench._open", info.name, str(place.folder), key]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"the store did not open in a fresh process: {done.stderr[-300:]}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _grown(info: EngineInfo, messages: list[Any]) -> Engine:
    engine = info.open()
    for length in range(1, len(messages) + 1):
        engine.commit(messages[:length])
    return engine


def _at_once(info: EngineInfo, messages: list[Any]) -> Engine:
    engine = info.open()
    engine.commit(messages)
    return engine


def _blob(value: Any) -> Callable[[], Any]:
    """Reads one blob of msgpack under zstd, after checking the hash of the msgpack."""
    import ormsgpack
    import zstandard

    content = ormsgpack.packb(value)
    data, digest = zstandard.ZstdCompressor(level=3).compress(content), sha256(content).digest()
    expand = zstandard.ZstdDecompressor().decompress

    def read() -> Any:
        found = expand(data)
        if sha256(found).digest() != digest:
            raise AssertionError("the blob is damaged")
        return ormsgpack.unpackb(found)

    return read


def run_read(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Read in turn from the grown value, from the value written at once, and from the blob."""
    text = Text(1)
    messages = [message(text, number) for number in range(size["messages"])]
    sides = {
        "grown": _grown(info, messages).read,
        "at_once": _at_once(info, messages).read,
        "blob": _blob(messages),
    }
    watches = {name: Stopwatch() for name in sides}
    for name, read in sides.items():
        assert read() == messages, f"{name} did not read back"
    for _ in range(size["reads"]):
        for name, read in sides.items():
            watches[name](read)
    figures = {f"{name}_ms": median(watch.cpu) * 1e3 for name, watch in watches.items()}
    figures["ratio"] = figures["grown_ms"] / figures["blob_ms"]
    figures["at_once_ratio"] = figures["at_once_ms"] / figures["blob_ms"]
    return Measured(figures)


SCENARIOS = (
    Scenario(
        name="chat",
        title="A list grows to 2,000 messages of about 1 KB, one commit each, in memory",
        run=run_chat,
        engines=EVERY,
        metrics=(
            Metric("messages", "messages", digits=0),
            Metric("amplification", "stored / payload", "x"),
            Metric("stored_mb", "stored", "MB", 1),
            Metric("growth", "growth per message already there", "us", 3),
            Metric("first_ms", "CPU per commit, first tenth", "ms", 3),
            Metric("last_ms", "CPU per commit, last tenth", "ms", 3),
            Metric("commits_cpu", "CPU of all commits", "s"),
            PEAK,
        ),
        size={"messages": 2000, "seconds": 60},
        quick={"messages": 300, "seconds": 20},
        targets=(
            Target("amplification", 1.5, "new frames over raw payload"),
            Target("growth", 1.0, "growth of CPU time per commit for each message already there"),
        ),
        notes=(
            "The payload is the messages once, as compact JSON. A side that stores the whole list "
            "at each step stores about half the number of messages times the payload.",
            "Growth is the least-squares slope over medians of 20 runs of steps.",
        ),
        order=10,
        repeat=3,
    ),
    Scenario(
        name="chat-disk",
        title="A list grows to 2,000 messages of about 1 KB, one durable commit each",
        run=run_chat_disk,
        engines=EVERY_ON_DISK,
        metrics=metrics(AMPLIFICATION),
        size={"messages": 2000, "worst": 10, "seconds": 60},
        quick={"messages": 200, "worst": 3, "seconds": 20},
        targets=(
            Target("amplification", 2.0, "folder after close over raw payload", side=OURS_ON_DISK),
            Target(
                "commits_cpu",
                5.0,
                "CPU of pickle-into-SQLite over ours",
                "at least",
                side=OURS_ON_DISK,
                under=(PICKLE_ON_DISK,),
            ),
            Target(
                "commits_cpu",
                2.0,
                "CPU of the best peer over ours",
                "at least",
                side=OURS_ON_DISK,
                under=PEERS_ON_DISK,
            ),
        ),
        notes=(
            *NOTES,
            "A side that stopped early is compared at the last twentieth of the messages that it "
            "reached.",
        ),
        order=110,
        repeat=3,
    ),
    Scenario(
        name="edit",
        title="One field changed in the middle of a 10 MB nested value",
        run=run_edit,
        engines=EVERY,
        metrics=(
            Metric("edits", "edits", digits=0),
            Metric("worst_kb", "new bytes, worst edit", "KB", 1),
            Metric("kb", "new bytes, median", "KB", 1),
            Metric("cpu_ms", "CPU per commit", "ms"),
            PEAK,
        ),
        size={"sections": 100, "edits": 30, "seconds": 20},
        quick={"sections": 20, "edits": 6, "seconds": 20},
        targets=(Target("worst_kb", 32.0, "new frames of the worst edit"),),
        notes=("A change is in turn a text of 460 characters, a flag or a number.",),
        order=40,
        repeat=3,
    ),
    Scenario(
        name="edit-disk",
        title="One field changed in the middle of a 10 MB nested value, committed durably",
        run=run_edit_disk,
        engines=(OURS_ON_DISK, TOLD_ON_DISK, *EVERY_ON_DISK[1:]),
        metrics=metrics(RESTART),
        size={"sections": 100, "edits": 100, "worst": 10, "seconds": 60},
        quick={"sections": 20, "edits": 6, "worst": 3, "seconds": 20},
        targets=(
            *_bytes_edit_disk(OURS_ON_DISK, ""),
            *_bytes_edit_disk(TOLD_ON_DISK, ", told the path"),
            _cpu(OURS_ON_DISK, ", the whole value handed over"),
            _cpu(TOLD_ON_DISK, ", told the path"),
        ),
        notes=(
            *NOTES,
            "A change is in turn a text of 460 characters, a flag or a number. Ropewalk is shown "
            "twice: handed the whole value without being told what changed, as every peer is; and "
            "told the path, for which the peers have no way.",
        ),
        order=140,
        repeat=3,
    ),
    Scenario(
        name="keys",
        title="One of 100,000 keys of a map changed",
        run=run_keys,
        engines=EVERY,
        metrics=(
            Metric("changes", "changes", digits=0),
            Metric("worst_kb", "new bytes, worst change", "KB", 1),
            Metric("kb", "new bytes, median", "KB", 1),
            Metric("cpu_ms", "CPU per commit", "ms", 3),
            Metric("load_s", "CPU to load all keys", "s"),
            PEAK,
        ),
        size={"keys": 100_000, "changes": 60, "seconds": 20},
        quick={"keys": 10_000, "changes": 20, "seconds": 20},
        targets=(
            Target("worst_kb", 8.0, "new frames of the worst change"),
            Target("cpu_ms", 2.0, "CPU per commit"),
        ),
        notes=(
            "Ropewalk, kvgit and agex are told the key that changed. The others have no keys: they "
            "are handed their whole dict.",
        ),
        order=50,
        repeat=3,
    ),
    Scenario(
        name="keys-disk",
        title="One of 100,000 keys of a map changed and committed durably",
        run=run_keys_disk,
        engines=EVERY_ON_DISK,
        metrics=metrics(
            Metric("open_ms", "open and read one key", "ms", 1),
            Metric("cold_ms", "the same with its imports", "ms", 1),
            Metric("load_s", "CPU to load all keys", "s"),
        ),
        size={"keys": 100_000, "changes": 100, "worst": 5, "opens": 5, "seconds": 40},
        quick={"keys": 5_000, "changes": 10, "worst": 2, "opens": 1, "seconds": 20},
        targets=(
            Target("kb", 16.0, "new bytes per commit", side=OURS_ON_DISK),
            Target("worst_kb", 16.0, "new bytes of the worst commit", side=OURS_ON_DISK),
            Target("open_ms", 50.0, "opening the store and reading one key", side=OURS_ON_DISK),
        ),
        notes=(
            *NOTES,
            "Ropewalk, kvgit and agex are told the key that changed, and so is the bare "
            "transaction. The others have no keys: they are handed their whole dict.",
            OPENED,
        ),
        order=150,
        repeat=3,
    ),
    Scenario(
        name="read",
        title="The list of 2,000 messages (2 MB) read back and verified",
        run=run_read,
        engines=(OURS,),
        metrics=(
            Metric("ratio", "grown by commits / blob", "x"),
            Metric("at_once_ratio", "written at once / blob", "x"),
            Metric("grown_ms", "CPU, grown by 2,000 commits", "ms"),
            Metric("at_once_ms", "CPU, written at once", "ms"),
            Metric("blob_ms", "CPU, one blob", "ms"),
        ),
        size={"messages": 2000, "reads": 60},
        quick={"messages": 300, "reads": 20},
        targets=(Target("ratio", 2.0, "reading it over reading one blob"),),
        notes=(
            "The blob is msgpack under zstd level 3; the SHA-256 of the msgpack is checked before "
            "it is decoded. The sides read in turn in one process.",
        ),
        order=60,
    ),
)
