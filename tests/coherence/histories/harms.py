"""What is done to agents while they work, and the proof that it was done.

A run that nobody disturbs keeps every promise. So each kind of harm is done at least once and
counted, the faults of messages are waited for, and at the end, when all is well again, every
agent must still be at work.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ropewalk.store import Move, Store, ref_name, space_name
from ropewalk.tree import TreeWriter
from tests.coherence.buses import proxied
from tests.coherence.histories.campaign import DEAF, Campaign, Network, Process
from tests.coherence.histories.recording import OK, THINKING, Operation, load
from tests.coherence.histories.worker import (
    FAULTS,
    PATIENCE,
    RECOVERY,
    TICK,
    Settings,
    open_store,
)
from tests.proxy import Proxy

ENOUGH = 400_000
"""Bytes of history: on a slow machine it takes longer until agents have done as much."""
MUCH = 20 * ENOUGH
"""So much that it takes long to look for some of everything, and that it is there."""
PAUSE = 2.5 * RECOVERY.heartbeat_timeout_ticks * TICK
"""Seconds for which a process is stopped or cut off: so long that others take over what it holds,
and write."""
WAIT = 2.0
"""Seconds for which a holder is looked for at most."""
LONG = 20.0
"""Seconds from which on a campaign has time for an outage that is longer than any timeout."""
OUTAGE = 4.0


@contextmanager
def networks(place: str, processes: Iterable[int]) -> Iterator[dict[int, Network]]:
    """A network of its own between each of these processes and a server."""
    with ExitStack() as opened:
        yield {number: Network(*opened.enter_context(proxied(place))) for number in processes}


class Harms:
    """Does harm to the processes of one campaign."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._choose = random.Random(f"{campaign.seed} harms")
        self._kinds: Mapping[str, Callable[[Process], None]] = {
            "kill": lambda process: process.kill(),
            "pause": lambda process: process.pause(self._seconds()),
            "collect": lambda process: self._collect(),
            "restart": lambda process: self._restart(),
            "network": lambda process: self._disturb(),
        }

    def __call__(self, processes: Sequence[Process]) -> list[str]:
        """Do harm until the time is over, first each kind once; what came to a stop by it."""
        campaign, choose = self._campaign, self._choose
        until = time.monotonic() + campaign.seconds
        left = list(campaign.harms)
        choose.shuffle(left)
        most = min(campaign.seconds / (len(left) + 1), 2.0)
        while left or time.monotonic() < until:
            time.sleep(choose.uniform(0.5, 1.0) * most)
            kind = left.pop() if left else choose.choice(campaign.harms)
            process = choose.choice(processes)
            if kind in ("kill", "pause"):
                process = self._holder(processes) or process
            self._note(kind, process.settings.process)
            self._kinds[kind](process)
        _wait_for(lambda: has_enough(campaign))
        _wait_for(lambda: all(faults(campaign.folder)[name] for name in (*FAULTS, BY_DEAF)))
        # All is well again: whoever does nothing now has come to a stop.
        attendance = Attendance([one.settings for one in processes], campaign.folder)
        _wait_for(lambda: not attendance.missing())
        return [f"{agent} came to a stop" for agent in attendance.missing()]

    def _holder(self, processes: Sequence[Process]) -> Process | None:
        """One whose agent thinks while it holds something, mostly: to it a harm does most harm."""
        if self._choose.random() < 0.3:
            return None
        until = time.monotonic() + min(WAIT, self._campaign.seconds / 2)
        while time.monotonic() < until:
            for process in processes:
                mark = self._campaign.folder / f"{process.settings.process}{THINKING}"
                if mark.exists():
                    self._campaign.counts["holders harmed"] += 1
                    return process
            time.sleep(0.005)
        return None

    def _note(self, kind: str, at: object) -> None:
        self._campaign.counts[kind] += 1
        self._campaign.told.append(f"{kind} {at} at {time.monotonic():.3f}")

    def _seconds(self) -> float:
        return PAUSE * self._choose.uniform(0.7, 1.5)

    def _collect(self) -> None:
        with open_store(self._campaign.engine, self._campaign.place) as store:
            leave_waste(store, f"{self._campaign.counts['collect']}")
            self._campaign.counts["objects collected"] += store.gc(recent=10).freed

    def _restart(self) -> None:
        assert self._campaign.restart is not None
        self._campaign.restart()

    # A bad network.

    def _disturb(self) -> None:
        number, network = self._choose.choice(sorted(self._campaign.networks.items()))
        kinds = [_slow, _stall, _cut, _part, _lose_replies]
        if self._campaign.seconds >= LONG:
            kinds.append(_outage)
        kind = self._choose.choice(kinds)
        self._note(f"network: {kind.__name__.strip('_').replace('_', ' ')}", number)
        try:
            kind(network.proxy, self._seconds())
        finally:
            heal(network.proxy)


def leave_waste(store: Store, name: str) -> None:
    """Store what nothing reaches any more: agents leave nothing that could be collected."""
    space = space_name("waste", name)
    for number in range(8):
        (one,) = TreeWriter().write(f"waste {name} {number}").objects
        ref = ref_name("branch", f"{number}")
        store.commit(space, [one], moves=[Move(ref, None, one.id)])
        store.commit(space, moves=[Move(ref, one.id, None)])


def heal(proxy: Proxy) -> None:
    """Let a network be as it should."""
    proxy.delay = 0.0
    proxy.keep_replies()
    proxy.resume()


def _slow(proxy: Proxy, seconds: float) -> None:
    proxy.delay = seconds / 50
    time.sleep(seconds)


def _stall(proxy: Proxy, seconds: float) -> None:
    proxy.stall()
    time.sleep(seconds)


def _cut(proxy: Proxy, seconds: float) -> None:
    """Once, in the middle of whatever is on its way."""
    proxy.cut()


def _part(proxy: Proxy, seconds: float) -> None:
    """Nobody comes through: what connects is cut off at once."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        proxy.cut()
        time.sleep(0.01)


def _lose_replies(proxy: Proxy, seconds: float) -> None:
    """What is asked for is done, and nobody is told."""
    proxy.drop_replies()
    time.sleep(seconds)


def _outage(proxy: Proxy, seconds: float) -> None:
    """Longer than clients wait."""
    proxy.stall()
    time.sleep(OUTAGE)
    proxy.cut()


# The proof.

BY_DEAF = "lost by the deaf"
KINDS = {"read", "write", "edit", "swap", "publish", "snapshot", "delete", "hold"}
"""What agents do; a run in which they never did one of these proves little."""


def kinds_done(operations: Iterable[Operation]) -> set[str]:
    """What agents did, and it was done."""
    return {one.kind for one in operations if one.outcome == OK}


def faults(folder: Path) -> Counter[str]:
    """What was done to the messages of all processes; what the deaf one lost is counted apart."""
    found: Counter[str] = Counter()
    for path in folder.glob("*.faults"):
        counts = json.loads(path.read_text())
        if path.stem.startswith(f"p{DEAF}l"):
            counts = {BY_DEAF: counts["lose"]}
        found.update(counts)
    return found


class Attendance:
    """Which agents have done something since this began."""

    def __init__(self, processes: Sequence[Settings], folder: Path) -> None:
        self._tails = [Tail(folder / f"{one.process}.history") for one in processes]
        self._missing = {agent for one in processes for agent in one.agents}

    def missing(self) -> list[str]:
        """Those who have done nothing yet."""
        for tail in self._tails:
            self._missing.difference_update(tail.done())
        return sorted(self._missing)


class Tail:
    """The operations of a process that begin from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A line that is just being written is seen in part, and belongs to what is to come.
        self._position = path.read_bytes().rfind(b"\n") + 1
        self._agents: dict[str, str] = {}

    def done(self) -> Iterator[str]:
        """The agents that have done something since the last look."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            yield from self._done(json.loads(line))

    def _done(self, line: Mapping[str, Any]) -> Iterator[str]:
        if "begin" in line:
            self._agents[line["begin"]] = line["agent"]
        elif line["outcome"] in ("ok", "absent") and line["end"] in self._agents:
            yield self._agents[line["end"]]


def _wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so, or for as long as anybody would."""
    until = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)


def has_enough(campaign: Campaign) -> bool:
    """Whether much was done, and some of everything: who only reads may be far ahead of others."""
    paths = list(campaign.folder.glob("p*.history"))
    size = sum(path.stat().st_size for path in paths)
    return size > MUCH or (size > ENOUGH and kinds_done(load(paths)) >= KINDS)
