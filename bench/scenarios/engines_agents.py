"""Many agents on one engine: what a first commit and a first read cost as they become more."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench._clock import Bounds, Stopwatch
from bench._model import EngineInfo, Measured, Metric, Place, Scenario
from bench._servers import Server, running
from bench._text import Text
from bench._values import small_state
from bench.engines.servers import Client
from bench.scenarios._clients import opened, warm_up
from bench.scenarios._sides import EMBEDDED, ENGINES

_PARTS = 10


class _Agents:
    """Agents with a small state each. The name of an agent is its number."""

    def __init__(self, client: Client) -> None:
        self._client, self._state, self.count = client, small_state(Text(1)), 0

    def state(self, number: int) -> dict[str, Any]:
        """What the first commit of an agent holds."""
        return {**self._state, "agent": number}

    def add(self, watch: Stopwatch) -> None:
        """One more agent commits for the first time."""
        agent = self._client.another(f"agent-{self.count}")
        watch(partial(agent.commit, self.state(self.count)))
        self.count += 1

    def look(self, number: int, watch: Stopwatch) -> None:
        """Somebody who knows nothing of an agent reads its newest state."""
        agent = self._client.another(f"agent-{number}")
        assert watch(agent.read) == self.state(number), "an agent did not read back"


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Add agents; then read some of them, with a store that has seen none."""
    with TemporaryDirectory() as name, running(info.server, Path(name)) as server:
        place = Place(Path(name), url=server.url)
        warm_up(info, place)
        empty, bounds = server.stored_bytes(), Bounds(size["seconds"], folder=server.folder)
        with closing(opened(info, place)) as client:
            agents = _Agents(client)
            figures, cap = _grow(agents, server, size["agents"], bounds)
        stored = server.stored_bytes() - empty
        with closing(opened(info, place)) as client:
            figures |= _look(client, server, agents.count, size["reads"])
    figures |= {"agents": agents.count, "kb": stored / agents.count / 1e3}
    early = agents.count < size["agents"]
    notes = [f"stopped at {agents.count} of {size['agents']} agents by {cap}"] if early else []
    return Measured(figures, notes)


def _grow(
    agents: _Agents, server: Server, count: int, bounds: Bounds
) -> tuple[dict[str, float], str | None]:
    watch, used, cap = Stopwatch(), list[float](), None
    part = max(count // _PARTS, 1)
    while agents.count < count and not cap:
        before = server.cpu_seconds()
        for _ in range(part):
            agents.add(watch)
        used.append((server.cpu_seconds() - before) / part)
        cap = bounds.reached()
    figures = {
        "first_ms": median(watch.wall[:part]) * 1e3,
        "last_ms": median(watch.wall[-part:]) * 1e3,
        "client_ms": sum(watch.cpu) / len(watch.cpu) * 1e3,
    }
    if server.serves:
        figures |= {"server_first_ms": used[0] * 1e3, "server_last_ms": used[-1] * 1e3}
    return figures, cap


def _look(client: Client, server: Server, count: int, reads: int) -> dict[str, float]:
    agents, watch = _Agents(client), Stopwatch()
    chosen = Random(1).choices(range(count), k=reads)
    before = server.cpu_seconds()
    for number in chosen:
        agents.look(number, watch)
    used = server.cpu_seconds() - before
    figures = {"read_ms": median(watch.wall) * 1e3, "read_client_ms": sum(watch.cpu) / reads * 1e3}
    if server.serves:
        figures["read_server_ms"] = used / reads * 1e3
    return figures


SCENARIO = Scenario(
    name="engines-agents",
    title="Agents become more, each with a history of its own and a state of 600 bytes",
    run=run,
    engines=(*ENGINES, EMBEDDED),
    metrics=(
        Metric("agents", "agents", digits=0),
        Metric("first_ms", "wall of a commit, first tenth", "ms", 3),
        Metric("last_ms", "wall of a commit, last tenth", "ms", 3),
        Metric("server_first_ms", "CPU of the server, first tenth", "ms", 3),
        Metric("server_last_ms", "CPU of the server, last tenth", "ms", 3),
        Metric("client_ms", "CPU of the client per commit", "ms", 3),
        Metric("kb", "stored per agent", "KB", 2),
        Metric("read_ms", "wall of a first read", "ms", 3),
        Metric("read_client_ms", "CPU of the client", "ms", 3),
        Metric("read_server_ms", "CPU of the server", "ms", 3),
    ),
    size={"agents": 4000, "reads": 500, "seconds": 40},
    quick={"agents": 300, "reads": 50, "seconds": 10},
    notes=(
        "One client adds the agents, one commit each. The reads are of agents by chance, through "
        "a store that was opened anew and has read nothing yet.",
    ),
    order=340,
    repeat=3,
)
