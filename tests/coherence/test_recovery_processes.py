"""Real processes that die or are stopped while they hold an artifact, on servers and files."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ropewalk.coherence import CoherenceCore, CrashRecoveryConfig
from ropewalk.errors import ArtifactHeld, Unavailable
from ropewalk.store import PostgresStore, RedisStore, Store
from ropewalk.testing.helpers import PATIENCE
from tests.coherence.grant_worker import ARTIFACT, Worker
from tests.postgres import running_postgres
from tests.store.redis.servers import KEEPS_ALL, configured

TICK, BEATS = 1.0, 4
"""A grant is given up after 4 seconds: a machine that stands still for 2 ends none."""
RESTART = 120
"""Ticks after which one is given up that is to outlive a restart, however slow that is."""


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, memory_folder: Path) -> str:
    """The address of a store that processes share."""
    if request.param == "sqlite":
        return str(memory_folder / "shared.ropewalk")
    found = str(request.getfixturevalue(f"{request.param}_url"))
    return found + ("?durability=relaxed" if request.param == "redis" else "")


@pytest.fixture
def start(url: str) -> Iterator[Callable[[], Worker]]:
    """Start a process with an agent."""
    with ExitStack() as stack:

        def one() -> Worker:
            worker = Worker(url, TICK, BEATS)
            stack.callback(worker.kill)
            return worker

        yield one


@pytest.fixture
def core(url: str) -> Iterator[CoherenceCore]:
    """A client in this process that looks for holders that are gone."""
    with _client(url, enabled=True) as made:
        yield made


def _client(
    url: str | Store, *, enabled: bool, beats: int = BEATS, **options: Any
) -> CoherenceCore:
    config = CrashRecoveryConfig(enabled=enabled, heartbeat_timeout_ticks=beats)
    return CoherenceCore(url, tick_seconds=TICK, crash_recovery=config, **options)


def _until(done: Callable[[], bool]) -> None:
    moment = threading.Event()
    for _ in range(int(PATIENCE * 100)):
        if done():
            return
        moment.wait(0.01)
    raise AssertionError("it did not come")


def test_the_grant_of_a_killed_process_is_reclaimed_in_the_background(
    url: str, start: Callable[[], Worker]
) -> None:
    log: list[Any] = []
    core = _client(url, enabled=True, state_log=log.append)
    worker = start()
    worker.ask("hold")
    worker.ask("write first")
    with pytest.raises(ArtifactHeld):
        core.write("other", ARTIFACT, "refused")

    worker.kill()
    _until(lambda: any(one["trigger"].startswith("reclaim") for one in log))

    ended = [one for one in log if one["trigger"].startswith("reclaim")]
    assert [(one["agent_name"], one["trigger"]) for one in ended] == [
        ("worker", "reclaim_heartbeat")
    ]
    assert core.write("other", ARTIFACT, "second").version == 2
    core.close()


def test_who_needs_the_artifact_of_a_killed_process_gets_it_without_any_setting(
    url: str, start: Callable[[], Worker]
) -> None:
    worker = start()
    worker.ask("hold")
    worker.ask("write first")
    worker.kill()

    with _client(url, enabled=False) as core:
        edited = core.edit("other", ARTIFACT, lambda value: f"{value} second")

    assert (edited.value, edited.version) == ("first second", 2)


def test_a_living_process_keeps_its_grant_however_long_it_does_nothing(
    core: CoherenceCore, start: Callable[[], Worker]
) -> None:
    worker = start()
    token = worker.ask("hold")
    seen: set[int] = set()

    def beat() -> bool:
        (record,) = core._authority.leases()
        seen.add(record.beat)
        return len(seen) > 4  # More than its whole time, unrenewed.

    _until(beat)

    assert [record.token for record in core._authority.leases()] == [token]
    assert worker.ask("write mine") == 1


def test_a_stopped_process_wakes_up_without_its_rights(
    core: CoherenceCore, start: Callable[[], Worker]
) -> None:
    worker = start()
    worker.ask("hold")
    worker.ask("write old")
    assert worker.ask("read") == ["old", "cache_hit", False]
    worker.stop()
    for command in ("read", "state", "write zombie", "plain zombie", "read"):
        worker.tell(command)  # Waiting for it the moment that it wakes up.
    written = core.edit("other", ARTIFACT, lambda value: "new", timeout=PATIENCE)

    os.kill(worker.pid, signal.SIGCONT)

    assert worker.answer() == ["new", "fetch", False]
    assert worker.answer() in ("SHARED", "EXCLUSIVE", "INVALID", "MODIFIED")
    assert worker.answer() == {"error": "GrantLost", "trigger": "reclaim_heartbeat"}
    assert worker.answer() == {"error": "GrantLost", "trigger": "reclaim_heartbeat"}
    assert worker.answer()[0] == "new"
    assert core.read("other", ARTIFACT).version == written.version
    worker.ask("release")
    assert worker.ask("plain again") == written.version + 1


def test_a_process_that_was_stopped_for_long_goes_on_if_nobody_wanted_the_artifact(
    start: Callable[[], Worker], url: str
) -> None:
    worker = start()
    worker.ask("hold")
    worker.ask("write old")
    worker.stop()
    threading.Event().wait(1.5 * TICK * BEATS)  # Time itself is what must pass.
    os.kill(worker.pid, signal.SIGCONT)

    assert worker.ask("read")[0] == "old"
    assert worker.ask("write new") == 2


# A server that is killed and started again.


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], Any]]:
    """Servers of their own, which are killed."""
    with ExitStack() as stack:
        made: dict[str, Any] = {}

        def one(name: str) -> Any:
            if name not in made:
                made[name] = stack.enter_context(
                    running_postgres() if name == "postgres" else configured(KEEPS_ALL)
                )
            return made[name]

        yield one


@pytest.mark.filterwarnings("ignore::ropewalk.coherence.CoherenceDegradedWarning")
@pytest.mark.parametrize("engine", ["postgres", "redis"])
def test_agents_go_on_while_their_server_is_restarted(
    servers: Callable[[str], Any], engine: str
) -> None:
    server = servers(engine)
    url = server.new_database() if engine == "postgres" else server.url
    options: dict[str, Any] = {"name": "degrading", "mergers": {("n",): "add"}}
    store = PostgresStore(url) if engine == "postgres" else RedisStore(url)
    with store, _client(store, enabled=True, on_error="degrade", **options) as core:
        _outlives_a_restart(core, server)
        with _client(url, enabled=False, **options) as other:
            assert other.read("c", "plan").value == {"n": 3}


def _outlives_a_restart(core: CoherenceCore, server: Any) -> None:
    core.write("a", "plan", {"n": 1})
    core.read("b", "plan")
    server.kill()

    seen = core.read("a", "plan")
    core.edit("a", "plan", lambda value: {"n": value["n"] + 1})
    again = core.edit("b", "plan", lambda value: {"n": value["n"] + 1})
    with pytest.raises(Unavailable):
        core.read("a", "never seen")

    assert (seen.value, seen.degraded) == ({"n": 1}, True)
    assert (again.value, again.degraded) == ({"n": 3}, True)
    server.start()
    _until(lambda: not core.is_degraded)
    found = core.read("a", "plan")
    assert (found.value, found.degraded) == ({"n": 3}, False)
    assert core.kept() == []


@pytest.mark.parametrize("engine", ["postgres", "redis"])
def test_a_grant_outlives_a_restart_of_its_server(
    servers: Callable[[str], Any], engine: str
) -> None:
    server = servers(engine)
    url = server.new_database() if engine == "postgres" else server.url
    with _client(url, enabled=True, beats=RESTART, name="granting") as core:
        with core.hold("a", "plan") as grant:
            grant.write(1)
            server.kill()
            server.start()
            _until(lambda: _tried(lambda: core.read("b", "plan")))
            with pytest.raises(ArtifactHeld):
                core.write("b", "plan", 2)
            assert grant.write(3).version == 2

        assert core.write("c", "plan", 4).version == 3


def _tried(call: Callable[[], object]) -> bool:
    try:
        call()
    except Unavailable:
        return False
    return True
