"""One memory for several threads and processes: no update is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ropewalk.adapters.langgraph import RopewalkStore
from ropewalk.errors import NotStorable, RopewalkError, StoreFull, VersionConflict
from ropewalk.store import MemoryStore
from ropewalk.testing import Fault, FaultStore
from tests.conftest import SOAK
from tests.frameworks.langgraph.store_worker import COUNTERS, count
from tests.frameworks.turn import ROOT

THREADS = 8
PROCESSES = 4
TIMES = 100 if SOAK else 12


@pytest.fixture(params=["sqlite", "files", "postgres", "redis"])
def place(request: pytest.FixtureRequest, memory_folder: Path) -> str:
    """Where a store is that processes can share: a path or a URL."""
    match request.param:
        case "sqlite":
            return str(memory_folder / "store")
        case "files":
            return f"file://{memory_folder / 'store'}"
        case "postgres":
            return str(request.getfixturevalue("postgres_url"))
        case _:
            return f"{request.getfixturevalue('redis_url')}?durability=relaxed"


def test_threads_that_count_in_one_item_lose_nothing(place: str) -> None:
    with RopewalkStore(place) as memory:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda _: count(memory, TIMES), range(THREADS)))
        found = memory.get(COUNTERS, "n")

    assert found.value == {"n": THREADS * TIMES} and found.version == THREADS * TIMES


def put_at_once(memory: RopewalkStore, puts: list[tuple[str, Any, dict[str, Any]]]) -> list[Any]:
    """Put from as many threads, all of which wait for one moment; what each raised."""

    def put(one: tuple[str, Any, dict[str, Any]]) -> Any:
        key, value, options = one
        try:
            memory.put(COUNTERS, key, value, **options)
        except RopewalkError as error:
            return error
        return None

    group = memory._group
    with ThreadPoolExecutor(len(puts)) as pool:
        with group._turn:
            futures = []
            for number, one in enumerate(puts):
                futures.append(pool.submit(put, one))
                while len(group._waiting) <= number:
                    pass
        return [future.result() for future in futures]


def test_threads_that_wait_for_each_other_share_a_commit() -> None:
    memory = RopewalkStore()
    memory.put(COUNTERS, "old", {"n": 0})
    puts: list[Any] = [(f"k{n}", {"n": n}, {}) for n in range(5)]
    raised = put_at_once(
        memory,
        [*puts, ("old", {"n": 1}, {"if_version": 7}), ("k0", {"n": 9}, {}), ("k5", {"n": 5}, {})],
    )
    made = memory.store.view(memory._history.space).sequence

    assert made == 3, "two of the same key are in two commits"
    assert [type(one) for one in raised if one] == [VersionConflict]
    assert memory.get(COUNTERS, "old").version == 1
    assert [one.value for one in memory.history(COUNTERS, "k0")] == [{"n": 9}, {"n": 0}]
    assert memory.get(COUNTERS, "k5").value == {"n": 5}


def test_a_value_that_cannot_be_stored_fails_alone() -> None:
    memory = RopewalkStore()
    raised = put_at_once(memory, [("a", {}, {}), ("b", {"x": object()}, {}), ("c", {}, {})])

    assert [type(one) for one in raised] == [type(None), NotStorable, type(None)]
    assert [item.key for item in memory.search(COUNTERS)] == ["c", "a"]


def test_all_that_wait_are_told_when_the_store_is_full() -> None:
    memory = RopewalkStore(FaultStore(MemoryStore(), [Fault.full(1, method="commit")]))
    raised = put_at_once(memory, [("a", {}, {}), ("b", {}, {})])
    memory.put(COUNTERS, "c", {})

    assert [type(one) for one in raised] == [StoreFull, StoreFull]
    assert [item.key for item in memory.search(COUNTERS)] == ["c"]


def test_processes_that_count_in_one_item_lose_nothing(place: str) -> None:
    command = [sys.executable, "-m", "tests.frameworks.langgraph.store_worker", place, str(TIMES)]
    workers = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    ended = [worker.communicate("go\n") for worker in workers]
    with RopewalkStore(place) as memory:
        found = memory.get(COUNTERS, "n")
        versions = [one.value["n"] for one in memory.history(COUNTERS, "n") if one.value]
        report = memory.store.check(read_data=True)

    assert [worker.returncode for worker in workers] == [0] * PROCESSES, ended
    assert found.value == {"n": PROCESSES * TIMES} and found.version == PROCESSES * TIMES
    assert versions == list(range(PROCESSES * TIMES, 0, -1)) and report.problems == ()


def test_tasks_that_count_in_one_item_lose_nothing(place: str) -> None:
    async def work(memory: RopewalkStore) -> None:
        done = 0
        while done < 5:
            found: Any = await memory.aget(COUNTERS, "n")
            number, version = (found.value["n"], found.version) if found else (0, 0)
            try:
                await memory.aput(COUNTERS, "n", {"n": number + 1}, if_version=version)
            except VersionConflict:
                continue
            done += 1

    async def all_at_once() -> None:
        async with RopewalkStore(place) as memory:
            await asyncio.gather(*(work(memory) for _ in range(THREADS)))

    asyncio.run(all_at_once())
    with RopewalkStore(place) as memory:
        assert memory.get(COUNTERS, "n").value == {"n": THREADS * 5}


def test_another_process_searches_by_meaning_what_this_one_put(memory_folder: Path) -> None:
    program = (
        "import sys\n"
        "from ropewalk.adapters.langgraph import RopewalkStore\n"
        "def embed(texts):\n"
        "    assert texts == ['b'], 'only the query is embedded here'\n"
        "    return [[0.0, 1.0]]\n"
        "index = {'dims': 2, 'embed': embed, 'fields': ['text']}\n"
        "with RopewalkStore(sys.argv[1], index=index) as memory:\n"
        "    print([item.key for item in memory.search(('n',), query='b')])\n"
    )

    def embed(texts: list[str]) -> list[list[float]]:
        return [[float(text.count("a")), float(text.count("b"))] for text in texts]

    with RopewalkStore(
        memory_folder / "store", index={"dims": 2, "embed": embed, "fields": ["text"]}
    ) as memory:
        memory.put(("n",), "a", {"text": "aa"})
        memory.put(("n",), "b", {"text": "bb"})
        said = subprocess.run(
            [sys.executable, "-c", program, str(memory_folder / "store")],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    assert said == "['b', 'a']\n"
