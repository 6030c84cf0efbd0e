"""Runs agents in processes, does them harm, and tells what they recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.coherence import CoherenceCore
from ropewalk.errors import Unavailable
from ropewalk.store import Store
from tests.coherence.histories.agents import STARTS, Watched, after, begun
from tests.coherence.histories.recording import Operation, Record, Recorder, Version, load
from tests.coherence.histories.worker import FAULTS, PATIENCE, Settings, open_store, sharing
from tests.proxy import Proxy

ROOT = Path(__file__).parent.parent.parent.parent
DEAF = 2
"""The process that gets no message at all, and only reads, so that it learns nothing by writing: a
bound that holds only thanks to messages is none."""
TIMEOUT = 2.0
"""Seconds after which who is behind a network gives up."""
RATES = (1.0, 1.05, 1.0, 0.95)
"""How fast the clocks of the processes run."""


@dataclass
class Campaign:
    """What is run: which agents, on what, for how long, and what is done to them."""

    folder: Path
    engine: str
    place: str
    strategies: Sequence[str]
    """One for each process, over and over."""
    seed: str
    seconds: float
    harms: Sequence[str] = ("kill", "pause", "collect")
    restart: Callable[[], object] | None = None
    """Ends the server and starts it again."""
    networks: Mapping[int, Network] = field(default_factory=dict)
    """Between a process and the server; the others are beside it."""
    processes: int = 4
    agents: int = 8
    told: list[str] = field(default_factory=list)
    """What was done, for whoever looks into a failure."""
    counts: Counter[str] = field(default_factory=Counter)
    """How often each was done."""

    def settings(self, number: int, *, life: int = 0) -> Settings:
        """Those of a process in one of its lives."""
        names = [f"agent {one}" for one in range(number, self.agents, self.processes)]
        network = self.networks.get(number)
        return Settings(
            folder=str(self.folder),
            engine=self.engine,
            place=self.place if network is None else network.place,
            strategy=self.strategies[number % len(self.strategies)],
            process=f"p{number}l{life}",
            agents=tuple(names),
            seed=f"{self.seed} {number} {life}",
            rate=RATES[number % len(RATES)],
            recover=life > 0,
            # One name for all lives, or another for each.
            instance=f"process {number}" if number % 2 else None,
            faults={"lose": 1.0} if number == DEAF else FAULTS,
            reads_only=number == DEAF,
            timeout=10.0 if network is None else TIMEOUT,
        )


class Network(NamedTuple):
    """A network between one process and the server, and the server's address by that way."""

    proxy: Proxy
    place: str


class Nursery:
    """Starts processes of agents, and waits for their ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.coherence.histories.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        self._lock = threading.Lock()

    def start(self, settings: Settings) -> int:
        """Start a process; its number."""
        return self._ask(f"start {settings.write()}")

    def wait(self, number: int) -> int:
        """How a process ended, as soon as it has."""
        return self._ask(f"wait {number}")

    def close(self) -> None:
        """Start no more."""
        self._process.communicate()

    def _ask(self, line: str) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())


class Process:
    """One process of agents, which may be killed and started again."""

    def __init__(self, campaign: Campaign, nursery: Nursery, number: int) -> None:
        self._campaign, self._nursery, self._number = campaign, nursery, number
        self._life = -1
        self._running = 0
        self._start()

    def _start(self) -> None:
        self._life += 1
        self.settings = self._campaign.settings(self._number, life=self._life)
        self._running = self._nursery.start(self.settings)

    def wait_until_ready(self) -> None:
        """Wait until its agents work."""
        path = self._campaign.folder / f"{self.settings.process}.history"
        until = time.monotonic() + PATIENCE
        while not path.exists():
            assert time.monotonic() < until, f"{self.settings.process} does not begin"
            assert self._is_alive(), self.errors()
            time.sleep(0.005)

    def kill(self) -> None:
        """End it as a crash would, and start another in its place."""
        os.kill(self._running, signal.SIGKILL)
        self._nursery.wait(self._running)
        self._start()
        self.wait_until_ready()

    def pause(self, seconds: float) -> None:
        """Stop it for a while: for itself no time passes."""
        os.kill(self._running, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self._running, signal.SIGCONT)

    def end(self) -> str:
        """Wait for its end; what went wrong with it."""
        until = time.monotonic() + PATIENCE
        while self._is_alive() and time.monotonic() < until:
            time.sleep(0.005)
        if self._is_alive():
            os.kill(self._running, signal.SIGABRT)  # It says where its threads are.
        status, self._running = self._nursery.wait(self._running), 0
        return f"{self.settings.process} ended with {status}: {self.errors()}" if status else ""

    def errors(self) -> str:
        """What it wrote for people."""
        path = self._campaign.folder / f"{self.settings.process}.errors"
        return path.read_text(errors="replace") if path.exists() else ""

    def destroy(self) -> None:
        """End it whatever it does."""
        if self._running:
            os.kill(self._running, signal.SIGKILL)
            self._nursery.wait(self._running)

    def _is_alive(self) -> bool:
        """Whether it runs: one that has ended waits for somebody to ask how."""
        state = Path(f"/proc/{self._running}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"


def run(
    campaign: Campaign, nursery: Nursery, harm: Callable[[Sequence[Process]], list[str]]
) -> tuple[Record, list[str]]:
    """Let agents work and do them harm; what they recorded, and what went wrong beside."""
    begin(campaign)
    watcher = Watcher(campaign)
    processes = [Process(campaign, nursery, number) for number in range(campaign.processes)]
    try:
        for process in processes:
            process.wait_until_ready()
        trouble = harm(processes)
        (campaign.folder / "stop").touch()
        trouble += [told for process in processes if (told := process.end())]
        trouble += crashes(campaign)
    finally:
        for process in processes:
            process.destroy()
    record = finish(campaign)
    return record, trouble + watcher.end(record.versions)


def crashes(campaign: Campaign) -> list[str]:
    """What ended threads of any process, also of one that was killed later."""
    texts = {
        path.stem: path.read_text(errors="replace") for path in campaign.folder.glob("*.errors")
    }
    return [f"{name}: {text}" for name, text in sorted(texts.items()) if "Traceback" in text]


class Watcher:
    """Watches from the beginning to the end: it is told of each version once, and in order."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._told: list[tuple[str, int, bool]] = []
        self._is_ready, self._is_over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        # Before any harm is done: only who watches is told of an engine that is away.
        assert self._is_ready.wait(PATIENCE), "nobody watches"

    def end(self, versions: Sequence[Version]) -> list[str]:
        """Wait until it has seen everything; what it was told wrongly."""
        self._is_over.set()
        self._thread.join(PATIENCE)
        there = [(one.artifact, one.version, one.deleted) for one in versions]
        told = sorted(self._told, key=lambda one: one[0])  # Keeps the order within an artifact.
        if told == sorted(there):
            return []
        wrong = sorted(set(there) ^ set(told))[:10]
        return [f"watch told of {len(told)} versions, and there are {len(there)}: {wrong}"]

    def _run(self) -> None:
        position, was_over = 0, False
        with client(self._campaign, "watcher") as (core, _, _):
            self._is_ready.set()
            while not was_over:
                was_over = self._is_over.is_set()
                try:
                    for one in core.watch(after=position, timeout=0.1):
                        self._told.append((one.artifact, one.version, one.deleted))
                        position = one.sequence
                except Unavailable:
                    time.sleep(0.02)
                    was_over = False


@contextmanager
def client(campaign: Campaign, process: str) -> Iterator[tuple[CoherenceCore, Watched, Store]]:
    """A client beside the agents: it is always fresh, and its bus is sound."""
    settings = replace(
        campaign.settings(0), process=process, strategy="lazy", rate=1.0, faults={}, instance=None
    )
    recorder = Recorder(campaign.folder / f"{process}.history", process)
    with (
        open_store(campaign.engine, campaign.place) as store,
        sharing(store, settings) as (core, _),
    ):
        yield core, Watched(core, recorder, process, {}), store
    recorder.close()


def begin(campaign: Campaign) -> None:
    """Register what the agents share."""
    with client(campaign, "first") as (core, first, _):
        for artifact in STARTS:
            register(core, first, artifact)


def register(core: CoherenceCore, first: Watched, artifact: str) -> None:
    """Let an artifact begin."""

    def call(name: str) -> Any:
        core.register_artifact(artifact, begun(artifact, name), agent_name=first.agent)
        return core.read(first.agent, artifact)

    assert first.write("register", artifact, call=call) is not None


def finish(campaign: Campaign) -> Record:
    """Let a new agent write everything, and take down what is there."""
    with client(campaign, "last") as (core, last, store):
        for artifact in STARTS:
            write_once_more(core, last, artifact)
        with ThreadPoolExecutor(len(STARTS)) as threads:  # A version is a request, or several.
            found = threads.map(lambda artifact: list(lines(core, artifact)), STARTS)
            versions = tuple(one for line in found for one in line)
        report = store.check(read_data=True)
        assert report.ok, report
    return Record(load(sorted(campaign.folder.glob("*.history"))), versions)


def write_once_more(core: CoherenceCore, last: Watched, artifact: str) -> None:
    """Write an artifact, as soon as whoever held it is given up."""
    until = time.monotonic() + PATIENCE

    def call(name: str) -> Any:
        return core.edit(
            last.agent,
            artifact,
            lambda value: after(artifact, value, name),
            default=STARTS[artifact],
        )

    while last.write("last", artifact, call=call) is None and time.monotonic() < until:
        time.sleep(0.05)


def lines(core: CoherenceCore, artifact: str) -> Iterator[Version]:
    """Every version of an artifact, as the authority has it."""
    for step in reversed(core.history(artifact).history(limit=None)):
        deleted = bool(step.commit.extension.get("deleted"))
        yield Version(artifact, step.commit.generation, None if deleted else step.state, deleted)


def versions_told(operations: Iterable[Operation]) -> Iterator[Version]:
    """Every version that was acknowledged, where no acknowledgement is ever lost."""
    for operation in operations:
        if operation.writes:
            for artifact, (number, value) in operation.seen.items():
                yield Version(artifact, number, value, operation.kind == "delete")
