"""The engines for teams: clients of one server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from threading import BrokenBarrierError, Thread
from typing import Any, NamedTuple

from bench._clock import Bounds, Stopwatch
from bench._model import Engine, EngineInfo, Measured, Metric, Place, Scenario, Target
from bench._registry import engines
from bench._servers import Server, running
from bench._text import Text, message, payload_bytes, small_state
from bench.engines.servers import Client
from bench.scenarios._sides import EMBEDDED, ENGINES, EVERY_SERVED, FLOOR_OF, SAVER, SAVER_STEP
from bench.scenarios.commits import Small
from bench.scenarios.documents import Again, documents
from bench.scenarios.values import Step, Work, take

BLOCK = 5
PATIENCE = 300.0
"""Seconds to wait for the other processes."""

OVER = Metric("over_ms", "wall above the floor", "ms", 3)
AMPLIFICATION = Metric("amplification", "stored / payload", "x", 3)
_BEFORE = (
    Metric("commits", "commits", digits=0),
    Metric("wall_ms", "1 client: wall per commit, median", "ms", 3),
)
_AFTER = (
    Metric("rate", "commits", "1/s", 0),
    Metric("client_ms", "CPU of the client per commit", "ms", 3),
    Metric("server_ms", "CPU of the server per commit", "ms", 3),
    Metric("stored_mb", "stored by all commits", "MB", 3),
    Metric("kb", "stored per commit", "KB", 2),
    Metric("log_kb", "written to the server's log per commit", "KB", 2),
    Metric("rate_together", "16 clients: commits", "1/s", 0),
    Metric("wall_together_ms", "wall per commit, median", "ms", 2),
    Metric("client_together_ms", "CPU of the clients per commit", "ms", 3),
    Metric("server_together_ms", "CPU of the server per commit", "ms", 3),
    Metric("fairness", "slowest / fastest client", "x"),
)
NOTES = (
    "The server runs on the same two cores as its clients, on loopback, with its data in a "
    "temporary folder: Postgres with fsync and synchronous_commit on, Redis with appendfsync "
    "always, SeaweedFS as it comes. A fresh server is started for each unit.",
    "The 16 clients are 4 processes of 4 threads, as a program with a few workers has them: 16 "
    "interpreters would take the two cores from the server. Each client has a history of its "
    "own (a space, a thread of the saver), and they commit for a fixed time. Afterwards the "
    "last value of each must read back through a store that was opened anew.",
    "CPU of a server is that of all its processes. Stored is the size of the database, the "
    "memory of Redis, the objects in the bucket or the folder, after the client left; the log "
    "is the WAL of Postgres and the AOF of Redis.",
)


def metrics(*own: Metric, last: tuple[Metric, ...] = ()) -> tuple[Metric, ...]:
    """The figures of every scenario of clients, with some of its own among them."""
    return (*_BEFORE, *own, *_AFTER, *last)


def as_embedded(metric: str) -> tuple[Target, ...]:
    """What an engine stores must be what the embedded one does, give or take a tenth."""
    text = "stored over what the embedded engine stores"
    return tuple(
        Target(metric, 1.1, f"{name}: {text}", side=name, over=(EMBEDDED,)) for name in ENGINES
    )


def beside_savers(limit: float, what: str) -> tuple[Target, ...]:
    """How much more several clients must commit than with LangGraph's saver on Postgres."""
    savers = {"PostgresSaver": SAVER, "PostgresSaver as in a graph": SAVER_STEP}
    return tuple(
        Target(
            "rate_together",
            limit,
            f"{what}: commits over those of {label}",
            "at least",
            side=ENGINES[0],
            over=(name,),
        )
        for label, name in savers.items()
    )


Together = Callable[[Mapping[str, int], int], Work]
"""The work of the n-th of several clients. It is made in another process."""


def run(
    info: EngineInfo,
    size: Mapping[str, int],
    alone: Work,
    together: Together,
    beside: Callable[[], Work] | None = None,
) -> Measured:
    """Start the server; commit alone, in turns with the floor if asked for, and together."""
    with TemporaryDirectory() as name, running(info.server, Path(name)) as server:
        place = Place(Path(name), url=server.url)
        warm_up(info, place)
        found = _alone(info, server, place, alone, size)
        if beside:
            found.figures |= _beside_floor(info, place, size["blocks"], beside)
        found.figures |= _run_together(info, server, place, size, together)
    return found


def warm_up(info: EngineInfo, place: Place) -> None:
    """Let the side make its tables, which are no commit's."""
    with closing(opened(info, replace(place, branch="first"))) as client:
        client.commit({"first": 1})


def opened(info: EngineInfo, place: Place) -> Client:
    """The first client of a process."""
    client = info.open(place)
    assert isinstance(client, Client), f"{info.name} has no clients"
    return client


# -- One client ---------------------------------------------------------------------------


class _Sizes(NamedTuple):
    stored: int
    log: int


def _sizes(server: Server) -> _Sizes:
    return _Sizes(server.stored_bytes(), server.log_bytes())


def _alone(
    info: EngineInfo, server: Server, place: Place, work: Work, size: Mapping[str, int]
) -> Measured:
    empty, watch = _sizes(server), Stopwatch()
    with closing(opened(info, place)) as client:
        work.begin(client)
    first = _sizes(server)
    with closing(opened(info, place)) as client:
        bounds, before = Bounds(size["seconds"], folder=server.folder), server.cpu_seconds()
        cap = take(islice(work.steps(), size["commits"]), client, watch, bounds)
        used = server.cpu_seconds() - before
    last, commits = _sizes(server), len(watch.wall)
    with closing(opened(info, place)) as client:
        work.check(client)
    figures = {
        "commits": commits,
        "wall_ms": median(watch.wall) * 1e3,
        "rate": commits / sum(watch.wall),
        "client_ms": sum(watch.cpu) / commits * 1e3,
        "kb": (last.stored - first.stored) / commits / 1e3,
        "stored_mb": (last.stored - empty.stored) / 1e6,
        "amplification": (last.stored - empty.stored) / work.payload(),
    }
    if server.serves:
        figures["server_ms"] = used / commits * 1e3
    if last.log:
        figures["log_kb"] = (last.log - first.log) / commits / 1e3
    notes = [f"one client was stopped at {commits} of {size['commits']} commits by {cap}"]
    return Measured(figures, notes if cap else [])


def _beside_floor(
    info: EngineInfo, place: Place, blocks: int, work: Callable[[], Work]
) -> dict[str, float]:
    """How far the median of a commit is above that of the floor, block by block."""
    floor = FLOOR_OF.get(info.server)
    if floor in (None, info.name):
        return {}
    place = replace(place, branch="beside")
    with ExitStack() as stack:
        sides = [_Side(one, place, work()) for one in (info, engines()[floor])]
        for side in sides:
            stack.callback(side.client.close)
        for _ in range(blocks):
            for side in sides:
                side.block()
    ours, bare = (median(side.watch.wall) * 1e3 for side in sides)
    return {"floor_ms": bare, "over_ms": ours - bare}


class _Side:
    """An open side with its own work and watch."""

    def __init__(self, info: EngineInfo, place: Place, work: Work) -> None:
        self.client, self.watch = opened(info, place), Stopwatch()
        work.begin(self.client)
        self._steps: Iterator[Step] = work.steps()
        next(self._steps)(self.client)  # Connections and prepared statements.

    def block(self) -> None:
        """Take a few steps."""
        take(islice(self._steps, BLOCK), self.client, self.watch, Bounds(PATIENCE))


# -- Several clients ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Done:
    """What the clients of one process did."""

    commits: tuple[int, ...] = ()
    walls: tuple[float, ...] = ()
    """Of each commit."""
    took: float = 0.0
    cpu: float = 0.0
    failure: str = ""


class _Task(NamedTuple):
    """What one process does."""

    side: str
    place: Place
    number: int
    threads: int
    size: Mapping[str, int]
    together: Together


def _run_together(
    info: EngineInfo,
    server: Server,
    place: Place,
    size: Mapping[str, int],
    together: Together,
) -> dict[str, float]:
    context = get_context("spawn")
    count = size["processes"]
    barrier, answers = context.Barrier(count + 1), context.Queue()
    tasks = [
        _Task(info.name, place, number, size["threads"], size, together) for number in range(count)
    ]
    workers = [context.Process(target=_worker, args=(task, barrier, answers)) for task in tasks]
    for worker in workers:
        worker.start()
    used = _server_cpu(server, barrier)
    found: list[_Done] = [answers.get(timeout=PATIENCE) for _ in workers]
    for worker in workers:
        worker.join(PATIENCE)
    failures = [one.failure for one in found if one.failure]
    assert not failures, failures[0]
    return _together_figures(server, found, used)


def _server_cpu(server: Server, barrier: Barrier) -> float:
    """What the server used between the start of the clients and their end.

    All wait while it is read, because on a busy machine who reads it may come late.
    """
    try:
        barrier.wait(PATIENCE)
        before = server.cpu_seconds()
        barrier.wait(PATIENCE)
        barrier.wait(PATIENCE)
        used = server.cpu_seconds() - before
        barrier.wait(PATIENCE)
        return used
    except BrokenBarrierError:  # A client has failed, and says how.
        return 0.0


def _together_figures(server: Server, found: list[_Done], used: float) -> dict[str, float]:
    each = [commits for one in found for commits in one.commits]
    walls = [wall for one in found for wall in one.walls]
    commits = sum(each)
    figures = {
        "rate_together": commits / max(one.took for one in found),
        "wall_together_ms": median(walls) * 1e3,
        "client_together_ms": sum(one.cpu for one in found) / commits * 1e3,
        "fairness": min(each) / max(each),
    }
    if server.serves:
        figures["server_together_ms"] = used / commits * 1e3
    return figures


def _worker(task: _Task, barrier: Barrier, answers: Queue[Any]) -> None:
    try:
        answers.put(_commit_for(task, barrier))
    except BaseException as failure:
        barrier.abort()
        answers.put(_Done(failure=f"process {task.number}: {failure!r}"))


def _commit_for(task: _Task, barrier: Barrier) -> _Done:
    info, seconds = engines()[task.side], task.size["together_seconds"]
    with closing(opened(info, _place(task, 0))) as first:
        others = [first.another(_place(task, at).branch) for at in range(1, task.threads)]
        runs = [_Run(client, _work(task, at)) for at, client in enumerate([first, *others])]
        barrier.wait(PATIENCE)
        barrier.wait(PATIENCE)
        began, cpu = time.monotonic(), time.process_time()
        threads = [Thread(target=run.until, args=(began + seconds,)) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        barrier.wait(PATIENCE)  # Closing costs too, so nobody does it while others are measured.
        barrier.wait(PATIENCE)
    _check(info, task, runs)
    walls = tuple(wall for run in runs for wall in run.walls)
    return _Done(tuple(len(run.walls) for run in runs), walls, took, cpu)


def _place(task: _Task, at: int) -> Place:
    return replace(task.place, branch=f"client-{_number(task, at)}")


def _number(task: _Task, at: int) -> int:
    return task.number * task.threads + at


def _work(task: _Task, at: int) -> Work:
    return task.together(task.size, _number(task, at))


class _Run:
    """One client, its work, and how long each commit took."""

    def __init__(self, client: Client, work: Work) -> None:
        self.work, self.walls = work, list[float]()
        self.failure: BaseException | None = None
        self._client, self._steps = client, work.steps()
        work.begin(client)
        next(self._steps)(client)  # Connections and prepared statements.

    def until(self, ends: float) -> None:
        """Commit until a time."""
        try:
            while time.monotonic() < ends:
                step = next(self._steps)
                began = time.perf_counter()
                step(self._client)
                self.walls.append(time.perf_counter() - began)
        except BaseException as failure:
            self.failure = failure


def _check(info: EngineInfo, task: _Task, runs: list[_Run]) -> None:
    for run in runs:
        if run.failure:
            raise run.failure
    with closing(opened(info, _place(task, 0))) as first:
        for at, run in enumerate(runs):
            client = first.another(_place(task, at).branch) if at else first
            run.work.check(client)


def client_small(size: Mapping[str, int], number: int) -> Work:
    """The work of one of several clients."""
    return Small(number)


def run_small(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Commit alone, together, and in turns with the floor."""
    return run(info, size, Small(1), client_small, beside=lambda: Small(1))


_READY = 200  # Messages that are there before the time runs; the others cost a tenth of a ms.


class Conversation(Work):
    """A state with a list of messages, which grows by one at each step."""

    def __init__(self, seed: int, history: int, ready: int = 0) -> None:
        self._text = Text(seed)
        self.value: dict[str, list[Any]] = {"messages": []}
        self._messages = self.value["messages"]
        self._messages += [message(self._text, number) for number in range(history)]
        self._ready = [message(self._text, history + number) for number in range(ready)]
        self._ready.reverse()

    def begin(self, engine: Engine) -> bool:
        engine.commit(self.value)
        return True

    def steps(self) -> Iterator[Step]:
        while True:
            number = len(self._messages)
            new = self._ready.pop() if self._ready else message(self._text, number)
            self._messages.append(new)
            yield self._record

    def _record(self, engine: Engine) -> None:
        path = ("messages", len(self._messages) - 1)
        engine.change(self.value, path, self._messages[-1])

    def check(self, engine: Engine) -> None:
        assert engine.read() == self.value, "the messages did not read back"

    def payload(self) -> int:
        return payload_bytes(self.value)


def client_chat(size: Mapping[str, int], number: int) -> Work:
    """The work of one of several clients."""
    return Conversation(number + 2, size["history"], _READY)


def run_chat(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """One client grows a chat from nothing; several go on with theirs."""
    return run(info, size, Conversation(1, 0), client_chat)


_documents = cache(documents)  # Their making takes longer than their storing.


def _of_client(count: int, number: int) -> dict[str, Any]:
    """The same documents with other words, so that no two clients store the same."""
    made = _documents(count)["documents"]
    others = [{**one, "text": one["text"].replace("the", f"the {number}")} for one in made]
    return {"counter": 0, "documents": others}


def client_document(size: Mapping[str, int], number: int) -> Work:
    """The work of one of several clients."""
    return Again(_of_client(size["documents"], number))


def run_document(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Count up beside the documents."""
    return run(info, size, Again(documents(size["documents"])), client_document)


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


def run_agents(info: EngineInfo, size: Mapping[str, int]) -> Measured:
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


SCENARIOS = (
    Scenario(
        name="engines-small",
        title="One key changes in a state of 600 bytes: a durable commit on each engine",
        run=run_small,
        engines=EVERY_SERVED,
        metrics=metrics(OVER),
        size={
            "commits": 600,
            "seconds": 20,
            "blocks": 80,
            "processes": 4,
            "threads": 4,
            "together_seconds": 5,
        },
        quick={
            "commits": 100,
            "seconds": 10,
            "blocks": 10,
            "processes": 2,
            "threads": 2,
            "together_seconds": 1,
        },
        targets=(
            *(
                Target("over_ms", 1.0, f"{name}: wall of a small commit above the floor", side=name)
                for name in ENGINES
            ),
            *beside_savers(1.5, "16 clients"),
            *as_embedded("kb"),
        ),
        notes=(
            *NOTES,
            "Wall above the floor is the difference of two medians: blocks of 5 commits take turns "
            "with blocks of the floor, in the same process and on the same server.",
        ),
        order=310,
        repeat=3,
    ),
    Scenario(
        name="engines-chat",
        title="Messages of 1 KB: a chat grows from nothing by one client, and many go on with "
        "500 each",
        run=run_chat,
        engines=EVERY_SERVED,
        metrics=metrics(last=(AMPLIFICATION,)),
        size={
            "commits": 2000,
            "seconds": 30,
            "history": 500,
            "processes": 4,
            "threads": 4,
            "together_seconds": 6,
        },
        quick={
            "commits": 200,
            "seconds": 10,
            "history": 100,
            "processes": 2,
            "threads": 2,
            "together_seconds": 1,
        },
        targets=(
            *beside_savers(5.0, "16 clients with 500 messages"),
            *(
                Target("amplification", 2.0, f"{name}: stored over raw payload", side=name)
                for name in ENGINES
            ),
            *as_embedded("amplification"),
        ),
        notes=NOTES,
        order=320,
        repeat=3,
    ),
    Scenario(
        name="engines-document",
        title="A counter changes beside 500 documents of 10 KB: a durable commit on each engine",
        run=run_document,
        engines=tuple(name for name in EVERY_SERVED if name != SAVER_STEP),
        metrics=metrics(last=(AMPLIFICATION,)),
        size={
            "documents": 500,
            "commits": 100,
            "seconds": 30,
            "processes": 4,
            "threads": 4,
            "together_seconds": 5,
        },
        quick={
            "documents": 100,
            "commits": 20,
            "seconds": 10,
            "processes": 2,
            "threads": 2,
            "together_seconds": 1,
        },
        targets=(
            *(
                Target("amplification", 1.1, f"{name}: stored over raw payload", side=name)
                for name in ENGINES
            ),
            *as_embedded("amplification"),
        ),
        notes=(
            *NOTES,
            "Ropewalk is handed all documents at each commit and finds that only the counter "
            "changed. PostgresSaver and the floors are told so, and never look at the documents.",
        ),
        order=330,
        repeat=3,
    ),
    Scenario(
        name="engines-agents",
        title="Agents become more, each with a history of its own and a state of 600 bytes",
        run=run_agents,
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
            "One client adds the agents, one commit each. The reads are of agents by chance, "
            "through a store that was opened anew and has read nothing yet.",
        ),
        order=340,
        repeat=3,
    ),
)
