"""A process that counts in an item of a memory, beside others that do.

    python -m tests.frameworks.langgraph.store_worker PLACE TIMES

It says `ready`, and begins when a line comes in.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from ropewalk.adapters.langgraph import RopewalkStore
from ropewalk.errors import VersionConflict

COUNTERS = ("counters",)


def count(memory: RopewalkStore, times: int) -> None:
    """Add 1 so many times, each time to what was read."""
    done = 0
    while done < times:
        found = memory.get(COUNTERS, "n")
        number, version = (found.value["n"], found.version) if found else (0, 0)
        with suppress(VersionConflict):
            memory.put(COUNTERS, "n", {"n": number + 1}, if_version=version)
            done += 1


def main() -> None:
    place, times = sys.argv[1:]
    with RopewalkStore(place) as memory:
        memory.position()
        print("ready", flush=True)
        sys.stdin.readline()
        count(memory, int(times))


if __name__ == "__main__":
    main()
