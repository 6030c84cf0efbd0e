"""Threads among processes: one order for all, nothing twice, and killing leaves nothing half."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ropewalk.testing.helpers import lines_until_killed
from ropewalk.threads import ThreadCheckpointer
from tests.conftest import SOAK
from tests.threads.workers import T, begin, start

PROCESSES = 8
EACH = 60 if SOAK else 12
ROUNDS = 60 if SOAK else 4


@pytest.fixture(params=["sqlite", "postgres", "redis", *(["files"] if SOAK else [])])
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


@pytest.fixture
def reader(place: str) -> Iterator[ThreadCheckpointer[object]]:
    with ThreadCheckpointer[object](place) as chat:
        chat.setup()
        yield chat


def read(chat: ThreadCheckpointer[object]) -> list[str]:
    return [str(one.id) for one in chat.list_messages(T)]


def test_processes_that_append_to_one_thread_store_each_message_once_in_one_order(
    place: str, reader: ThreadCheckpointer[object]
) -> None:
    workers = [start("append", place, f"p{number}", EACH) for number in range(PROCESSES)]
    seen: list[list[str]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            seen.append(read(reader))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        begin(*workers)
        outputs = [worker.communicate()[0] for worker in workers]
    finally:
        over.set()
        watching.join()

    final = read(reader)
    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    assert all(output.splitlines()[-1] == f"p{n}/{EACH - 1}" for n, output in enumerate(outputs))
    assert len(final) == len(set(final)) == PROCESSES * EACH
    for number in range(PROCESSES):
        own = [id for id in final if id.startswith(f"p{number}/")]
        assert own == [f"p{number}/{one}" for one in range(EACH)]
    for ids in seen:
        assert ids == final[: len(ids)], "what was read once stays where it was"
    with ThreadCheckpointer[object](place) as other:
        assert read(other) == final
        assert [one.id for one in other.list_messages(T, "said")] == final
        assert other.get_message(T).id == final[-1]
        assert other.store.check(read_data=True).problems == ()


def said_until_killed(worker: subprocess.Popen[str], count: int) -> list[list[str]]:
    """What a worker said until it was killed, after so many lines."""
    with worker:
        begin(worker)
        return [line.split() for line in lines_until_killed(worker, count)]


def test_a_killed_writer_leaves_state_messages_and_record_of_one_put(place: str) -> None:
    choose, sizes, done = random.Random(7), dict[int, int](), 0
    for number in range(ROUNDS):
        said = said_until_killed(start("write", place, number), choose.randrange(3, 30))
        with ThreadCheckpointer[dict[str, int]](place) as chat:
            state, info, messages = chat.get_state(T), chat.get_thread(T), chat.list_messages(T)
            for word, step, size in said:
                sizes[int(step)] = int(size)
                done = int(step) if word == "done" else done
            if state is None:
                assert (done, info, messages) == (0, None, [])
                continue
            newest = state["number"]
            assert newest in (done, done + 1)
            assert info is not None
            assert info.thread_name == str(newest)
            assert info.metadata == {"count": sizes[newest]}
            assert [one.id for one in messages] == [
                f"{step}/{one}" for step in range(1, newest + 1) for one in range(sizes[step])
            ]
            done = newest
            assert chat.store.check(read_data=number % 5 == 0).problems == ()

    assert done > ROUNDS
