"""Agents in processes that are killed, paused and misled: every promise holds on every engine."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from ropewalk.coherence import replay
from tests.coherence.histories.accounts import account, expect_harm, expect_work
from tests.coherence.histories.agents import STARTS, Watched
from tests.coherence.histories.campaign import (
    Campaign,
    Nursery,
    register,
    run,
    versions_told,
    write_once_more,
)
from tests.coherence.histories.checker import check
from tests.coherence.histories.harms import Harms, has_enough, networks
from tests.coherence.histories.recording import Record, Recorder, load
from tests.coherence.histories.worker import PARAMETERS, PATIENCE, sharing, work
from tests.conftest import SOAK
from tests.postgres import Postgres, running_postgres
from tests.store.redis.servers import KEEPS_ALL, Configured, configured

SKEW = 0.1
SECONDS = float(os.environ.get("ROPEWALK_SECONDS") or (120.0 if SOAK else 1.0))
SEED = os.environ.get("ROPEWALK_SEED") or ("9" if not SOAK else str(random.randrange(10**6)))
MIXED = tuple(PARAMETERS)
"""Agents with different strategies share artifacts too."""
NAMES = {**{name: (name,) for name in PARAMETERS}, "mixed": MIXED}
SHORT = ("broadcast", "mixed")
"""What `make test` runs on servers: each strategy within the mix, and the one that counts on
messages most also alone. Alone, the others run on SQLite there, and on servers in `make soak`."""
CELLS = [
    pytest.param(
        engine,
        strategies,
        id=f"{engine}-{name}",
        marks=[] if engine == "sqlite" or name in SHORT else pytest.mark.soak,
    )
    for engine in ("sqlite", "postgres", "redis")
    for name, strategies in NAMES.items()
]
HARMS = ["kill", "pause", "collect"]
SERVER_HARMS = ["restart", "network"]


@dataclass(frozen=True)
class Server:
    """Where processes share, and how the server there is restarted."""

    engine: str
    place: str
    restart: Callable[[], object] | None = None


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """A server that these tests may restart."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def own_redis() -> Iterator[Configured]:
    """A server that these tests may restart, and that keeps all."""
    with configured(KEEPS_ALL) as server:
        yield server


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """What starts processes."""
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def server(request: pytest.FixtureRequest, memory_folder: Path) -> Server:
    """The engine that a test asks for, with nothing in it."""
    engine = request.param
    if engine == "postgres":
        postgres: Postgres = request.getfixturevalue("own_postgres")
        return Server(engine, postgres.new_database(), lambda: _restart(postgres))
    if engine == "redis":
        redis: Configured = request.getfixturevalue("own_redis")
        redis.clear()
        return Server(engine, redis.url, lambda: _restart(redis))
    return Server(engine, str(memory_folder / "store"))


def _restart(server: Postgres | Configured) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize(("server", "strategies"), CELLS, indirect=["server"])
def test_every_promise_holds_whatever_happens(
    server: Server, strategies: tuple[str, ...], nursery: Nursery, tmp_path: Path
) -> None:
    run_and_check(server, strategies, nursery, tmp_path)


@pytest.mark.parametrize("server", ["files"], indirect=True)
def test_every_promise_holds_on_plain_files(
    server: Server, nursery: Nursery, tmp_path: Path
) -> None:
    run_and_check(server, MIXED, nursery, tmp_path)


def run_and_check(
    server: Server, strategies: tuple[str, ...], nursery: Nursery, tmp_path: Path
) -> None:
    """Let agents work on a server, do them harm, and check what they recorded."""
    # As many processes as strategies, so that each of a mix is there.
    processes = max(4, len(strategies))
    with ExitStack() as opened:
        between = {}
        if server.restart is not None:
            # The first process stands beside the server, all others reach it over a network.
            between = opened.enter_context(networks(server.place, range(1, processes)))
        campaign = Campaign(
            folder=tmp_path,
            engine=server.engine,
            place=server.place,
            strategies=strategies,
            seed=f"{SEED} {server.engine} {strategies}",
            seconds=SECONDS,
            harms=[*HARMS, *(SERVER_HARMS if server.restart is not None else [])],
            restart=server.restart,
            networks=between,
            processes=processes,
        )
        record, trouble = run(campaign, nursery, Harms(campaign))
    counts = account(campaign, record)
    (tmp_path / "account.json").write_text(json.dumps(counts))

    told = f"ROPEWALK_SEED={SEED} gives this run again, {campaign.told}"
    assert trouble == [], told
    assert [str(one) for one in check(record)][:20] == [], told
    expect_work(record)
    expect_harm(campaign, counts)
    # The logs that agents' clients write themselves say the same. Clocks run too fast or too slow.
    replayed = replay(tmp_path / "logs", skew_seconds=SKEW)
    assert [str(one) for one in replayed.findings if one.certain][:20] == [], told
    assert replayed.writes > 0
    assert not replayed.unbounded


@pytest.mark.parametrize("strategy", list(PARAMETERS))
def test_every_promise_holds_among_threads(strategy: str, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, "memory", "", [strategy], SEED, SECONDS, processes=1)
    settings = campaign.settings(0)
    with sharing(None, settings) as (core, bus):
        recorder = Recorder(tmp_path / "own.history", "own")
        own = Watched(core, recorder, "own", {})
        for artifact in STARTS:
            register(core, own, artifact)
        until = time.monotonic() + SECONDS

        def is_over() -> bool:
            now = time.monotonic()
            return now > until and (has_enough(campaign) or now > until + PATIENCE)

        work(core, bus, settings, is_over)
        for artifact in STARTS:
            write_once_more(core, own, artifact)
        recorder.close()
    operations = load(tmp_path.glob("*.history"))
    record = Record(operations, tuple(versions_told(operations)))

    assert [str(one) for one in check(record)][:20] == [], f"ROPEWALK_SEED={SEED}"
    expect_work(record)
