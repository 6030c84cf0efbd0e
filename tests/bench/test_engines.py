from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench import _registry as registry
from bench import _unit as unit
from bench._environment import ROOT
from bench._model import Place
from bench._processes import tree_cpu_seconds
from bench._servers import Server, running
from bench.engines.servers import Client
from bench.engines.values import replayed
from bench.scenarios import servers as clients
from bench.scenarios._sides import (
    EMBEDDED,
    ENGINES,
    EVERY_SERVED,
    EVERY_SHARED_SERVED,
    FLOOR_OF,
    SERVED_SAVERS,
    TOLD_SERVED,
)
from bench.scenarios.commits import Small
from bench.scenarios.servers import client_small as small_client

OWN = [EMBEDDED, *ENGINES, *FLOOR_OF.values()]
FEW = {"processes": 1, "threads": 2, "together_seconds": 1, "seconds": 60}

Started = Callable[[str], Server]


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    """Gives the server of a side, which is started when first asked for.

    Not in a folder of pytest's: each run of pytest shuts all of them to other users as it begins,
    and Postgres is run by another one.
    """
    servers: dict[str, Server] = {}
    with ExitStack() as stack:

        def of_side(name: str) -> Server:
            kind = registry.engines()[name].server
            if kind not in servers:
                folder = stack.enter_context(TemporaryDirectory(prefix="ropewalk-bench-"))
                servers[kind] = stack.enter_context(running(kind, Path(folder)))
            return servers[kind]

        yield of_side


def opened(name: str, server: Server, branch: str) -> Client:
    client = registry.engines()[name].open(Place(server.folder, branch=branch, url=server.url))
    assert isinstance(client, Client)
    return client


@pytest.mark.parametrize("name", OWN)
def test_a_client_goes_on_after_another_was_closed(name: str, started: Started) -> None:
    value = {"counter": 0, "items": ["a"]}
    with closing(opened(name, started(name), "one")) as client:
        client.commit(value)
    value["counter"] = 1
    with closing(opened(name, started(name), "one")) as client:
        client.change(value, ("counter",), 1)

    with closing(opened(name, started(name), "one")) as client:
        assert client.read() == value


@pytest.mark.parametrize("name", OWN)
def test_clients_of_one_process_keep_apart(name: str, started: Started) -> None:
    with closing(opened(name, started(name), "first")) as first:
        second = first.another("second")
        first.commit({"client": 1})
        second.commit({"client": 2})

        assert (first.read(), second.read()) == ({"client": 1}, {"client": 2})


@pytest.mark.parametrize("name", OWN)
def test_a_server_holds_more_after_a_client_has_left(name: str, started: Started) -> None:
    server = started(name)
    before = server.stored_bytes()
    with closing(opened(name, server, "large")) as client:
        client.commit({"data": os.urandom(200_000)})

    assert server.stored_bytes() - before > 150_000


@pytest.mark.parametrize("name", ENGINES)
def test_a_unit_measures_small_commits_beside_the_floor(name: str) -> None:
    figures = unit.measure("engines-small", name, {"commits": 10, "blocks": 1, **FEW})["figures"]

    assert figures["commits"] == 10
    assert figures["rate_together"] > 0
    assert figures["floor_ms"] > 0
    assert figures["server_ms"] >= 0


def test_a_unit_measures_a_chat_alone_and_one_that_is_long() -> None:
    size = {"commits": 20, "history": 30, **FEW}

    figures = unit.measure("engines-chat", EMBEDDED, size)["figures"]

    assert figures["commits"] == 20
    assert 0 < figures["amplification"] < 3
    assert 0 <= figures["fairness"] <= 1


def test_a_unit_measures_documents_that_no_two_clients_share() -> None:
    size = {"documents": 10, "commits": 3, **FEW}

    figures = unit.measure("engines-document", EMBEDDED, size)["figures"]

    assert figures["amplification"] < 1.5
    assert figures["rate_together"] > 0


@pytest.mark.parametrize("name", [EMBEDDED, "engine-redis"])
def test_a_unit_measures_agents_as_they_become_more(name: str) -> None:
    size = {"agents": 20, "reads": 5, "seconds": 60}

    figures = unit.measure("engines-agents", name, size)["figures"]

    assert figures["agents"] == 20
    assert type(figures["kb"]) is float  # The memory of a server may fall meanwhile.
    assert figures["read_ms"] > 0


def test_a_client_that_fails_among_several_fails_the_unit() -> None:
    unknown = replace(registry.engines()[EMBEDDED], name="nobody")

    with pytest.raises(AssertionError, match=r"process 0: KeyError\('nobody'\)"):
        clients.run(unknown, {"commits": 2, **FEW}, Small(1), small_client)


def test_every_side_on_a_server_says_which() -> None:
    infos = registry.engines()

    served = {name for name, info in infos.items() if info.server}
    agents = {name for name in infos if name.startswith("deepagents-memory-")}
    assert served == {*EVERY_SERVED, *SERVED_SAVERS, *EVERY_SHARED_SERVED, *TOLD_SERVED, *agents}


def test_the_cpu_of_a_process_counts_children_that_have_ended() -> None:
    # The system counts in hundredths, and rounds each of its counts down.
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        until = time.monotonic() + 60
        while tree_cpu_seconds(process.pid) < 0.2 and time.monotonic() < until:
            time.sleep(0.01)
        found = tree_cpu_seconds(process.pid)
        process.communicate(b"\n")

    assert found >= 0.2


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom bench._servers import Redis\n"
        "server = Redis(Path(sys.argv[1]))\nserver.start()\n"
        "print(server.port, flush=True)\nos.kill(os.getpid(), 9)"
    )

    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)

    assert stops_answering(int(done.stdout))


def stops_answering(port: int) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.01)
    return False


def test_a_floor_reads_what_all_its_changes_make() -> None:
    changes = [((), {"a": [1]}), (("a", 1), 2), (("b",), 3)]

    assert replayed(changes) == {"a": [1, 2], "b": 3}
