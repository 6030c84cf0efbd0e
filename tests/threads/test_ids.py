"""Ids that are made sort by birth."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from ropewalk.threads.message import Ticks, new_id

FORKED = """
import os
from ropewalk.threads import message

message._ticks._lock.acquire()  # as another thread would, at the moment of the fork
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, "\\n".join(message.new_id() for _ in range(100)).encode())
    os._exit(0)
message._ticks._lock.release()
os.close(write)
for one in (message.new_id() for _ in range(100)):
    print(one)
print(os.read(read, 10_000).decode())
"""


def test_an_id_is_short_and_plain() -> None:
    one = new_id()

    assert len(one) == 24
    assert one.isascii()
    assert one.isalnum()
    assert one == one.lower()


def test_ids_of_threads_are_different_and_grow_in_each() -> None:
    made: list[list[str]] = []
    start = threading.Barrier(4)

    def make() -> None:
        start.wait()
        made.append([new_id() for _ in range(2_000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert [ids == sorted(ids) for ids in made] == [True] * 4
    assert len({id for ids in made for id in ids}) == 8_000


def test_ids_grow_while_the_clock_stands_still_or_goes_back() -> None:
    clock = iter([5_000_000, 5_000_000, 3_000_000, 4_000_000, 6_000_000])
    ticks = Ticks(lambda: next(clock))

    numbers = [ticks.next() for _ in range(5)]

    assert numbers == sorted(set(numbers))
    assert [number >> 20 for number in numbers] == [5, 5, 5, 5, 6]


def test_a_count_that_is_full_goes_on_in_the_next_millisecond() -> None:
    ticks = Ticks(lambda: 5_000_000)
    first = ticks.next()

    ticks._last += 2**20 - 1

    assert ticks.next() == first + 2**20


def test_an_id_says_its_time_first() -> None:
    before = time.time_ns() // 1_000_000

    number = int(new_id(), 32)

    # Ids that were made faster than the clock's step may be a little ahead.
    assert before <= number >> 72 <= time.time_ns() // 1_000_000 + 1_000


def test_ids_of_a_forked_process_are_different_and_the_fork_does_not_hang() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True, timeout=60
    )

    assert len(set(done.stdout.split())) == 200
