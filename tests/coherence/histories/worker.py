"""A process with agents, which others pause and kill.

    python -m tests.coherence.histories.worker

Reads what to do line by line: `start SETTINGS` forks a process of agents and says its number,
`wait NUMBER` says how it ended. Forked, because starting Python takes longer than a whole slice
of a campaign. Agents work until there is a file `stop` beside their settings.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ropewalk.coherence import CoherenceCore, CrashRecoveryConfig, choose_bus, record_to
from ropewalk.store import FileStore, PostgresStore, RedisStore, SqliteStore, Store, space_name
from ropewalk.testing import FaultyBus
from tests.coherence.histories.agents import MERGERS, Agent, Reader
from tests.coherence.histories.recording import Recorder
from tests.patience import patiently

SET = "shared"
SPACE = space_name("coherence", SET)
TICK = 0.15
"""Seconds; short, so that leases end and grants are reclaimed while a test looks on."""
RECOVERY = CrashRecoveryConfig(enabled=True, heartbeat_timeout_ticks=3, max_hold_ticks=12)
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "lazy": {},
    "eager": {},
    "lease": {"ttl_ticks": 2},
    "access_count": {"max_accesses": 7},
    "broadcast": {},
}
FAULTS = {"lose": 0.1, "delay": 0.1, "duplicate": 0.1, "reorder": 0.1}
PATIENCE = 60.0
"""Seconds after which what does not begin or end is stuck. Far more than any lease, because
machines are slow."""
_NOTED = 0.2  # Seconds after which a process writes down again what was done to its messages.


@dataclass(frozen=True)
class Settings:
    """What a process needs to know."""

    folder: str
    """Where histories are written, and where `stop` says that it is enough."""
    engine: str
    place: str
    strategy: str
    process: str
    agents: tuple[str, ...]
    seed: str
    rate: float = 1.0
    """How fast its clock runs."""
    recover: bool = False
    """Whether an earlier process of these agents was killed."""
    reads_only: bool = False
    instance: str | None = None
    faults: Mapping[str, float] = field(default_factory=lambda: dict(FAULTS))
    timeout: float = 10.0
    """Seconds after which it gives up a server that says nothing."""

    def write(self) -> Path:
        """Write this where the process finds it."""
        path = Path(self.folder) / f"{self.process}.settings"
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> Settings:
        """What was written."""
        found = json.loads(path.read_text())
        return cls(**{**found, "agents": tuple(found["agents"])})


def open_store(
    engine: str, place: str, clock: Callable[[], float] = time.monotonic, timeout: float = 10.0
) -> Store:
    """A store object on what the processes share."""
    if engine == "sqlite":
        return SqliteStore(place, durability="relaxed", clock=clock)
    if engine == "files":
        return FileStore(place, durability="relaxed", clock=clock)
    if engine == "postgres":
        return PostgresStore(place, max_connections=4, timeout=timeout, clock=clock)
    return RedisStore(place, timeout=timeout, clock=clock)


def bound_of(strategy: str, rate: float = 1.0) -> dict[str, Any]:
    """How late a read may be, by true clocks."""
    if strategy == "lease":
        return {"within": PARAMETERS["lease"]["ttl_ticks"] * TICK / rate}
    if strategy == "broadcast":
        return {"within": TICK / rate}
    if strategy == "access_count":
        return {"within": math.inf, "accesses": PARAMETERS[strategy]["max_accesses"]}
    return {"within": 0.0}


@contextmanager
def sharing(store: Store | None, settings: Settings) -> Iterator[tuple[CoherenceCore, FaultyBus]]:
    """The client that the agents of a process share, and its bus."""
    bus = FaultyBus(choose_bus(store, SPACE), zlib.crc32(settings.seed.encode()), **settings.faults)
    with (
        closing(bus),
        CoherenceCore(
            store,
            name=SET,
            strategy=settings.strategy,
            tick_seconds=TICK,
            bus=bus,
            mergers=MERGERS,
            crash_recovery=RECOVERY,
            instance_id=settings.instance,
            clock=skewed(settings.rate),
            **record_to(Path(settings.folder) / "logs"),
            **PARAMETERS[settings.strategy],
        ) as core,
    ):
        yield core, bus


def skewed(rate: float) -> Callable[[], float]:
    """A clock that runs too fast or too slow."""
    return time.monotonic if rate == 1.0 else lambda: time.monotonic() * rate


def work(
    core: CoherenceCore, bus: FaultyBus, settings: Settings, enough: Callable[[], bool]
) -> None:
    """Let the agents of a process work, each on its own thread."""
    path = Path(settings.folder) / f"{settings.process}.history"
    recorder = Recorder(path, settings.process)
    bound = bound_of(settings.strategy, settings.rate)
    make = Reader if settings.reads_only else Agent
    agents = [
        make(core, recorder, name, bound, f"{settings.seed} {name}") for name in settings.agents
    ]
    if settings.recover:
        for agent in agents:
            patiently(partial(core.recover, agent.agent))
    threads = [threading.Thread(target=agent.work, args=(enough,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_NOTED)
            note(bus, settings)
    recorder.close()


def note(bus: FaultyBus, settings: Settings) -> None:
    """Write down what was done to messages, so that also a killed process tells it."""
    path = Path(settings.folder) / f"{settings.process}.faults"
    started = path.with_suffix(".started")
    started.write_text(json.dumps({"messages": bus.messages, **bus.counts}))
    started.replace(path)


def live(path: Path) -> None:
    """Be a process of agents, until it is enough."""
    settings = Settings.read(path)
    stop, parent = path.parent / "stop", os.getppid()
    clock = skewed(settings.rate)
    opened = patiently(lambda: open_store(settings.engine, settings.place, clock, settings.timeout))
    with opened as store, sharing(store, settings) as (core, bus):
        # A test that was killed itself says nothing any more.
        work(core, bus, settings, lambda: stop.exists() or os.getppid() != parent)


def fork(path: Path) -> int:
    """Begin a process of agents; its number."""
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        with path.with_suffix(".errors").open("w") as errors:
            os.dup2(errors.fileno(), sys.stderr.fileno())
        faulthandler.enable()
        live(path)
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


def main() -> None:
    """Do what each line says."""
    for line in sys.stdin:
        what, _, argument = line.rstrip("\n").partition(" ")
        if what == "start":
            answer = fork(Path(argument))
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(int(argument), 0)[1])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
