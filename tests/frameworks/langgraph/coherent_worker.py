"""A process whose agent works on shared items, beside others that do.

    python -m tests.frameworks.langgraph.coherent_worker PLACE AGENT STRATEGY TIMES TICK_SECONDS

PLACE is a path or URL; after `ttl:` the items of the store there may end.

It says `ready`, and does what lines that come in say: `count` adds 1 to a shared item so many
times, `get KEY` says an item as JSON, `put KEY JSON` writes it, and says `done`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ropewalk.adapters.langgraph import CoherentStore
from ropewalk.errors import VersionConflict

SCOPE = "shared"
PATIENT = 6.0
"""Seconds of a tick: a process that the machine stops keeps its grant."""


def count(store: CoherentStore, agent: str, times: int) -> None:
    """Add 1 so many times: by `edit`, and by `put` of what was read, in turns."""
    done = 0
    while done < times:
        if done % 2:
            store.edit((agent, SCOPE), "n", add, default={"n": 0})
            done += 1
            continue
        found = store.get((agent, SCOPE), "n")
        number, version = (found.value["n"], found.version) if found else (0, 0)
        with suppress(VersionConflict):
            store.put((agent, SCOPE), "n", {"n": number + 1}, if_version=version)
            done += 1


def add(value: Any) -> Any:
    """One more."""
    return {"n": value["n"] + 1}


def answer(store: CoherentStore, agent: str, times: int, line: str) -> str:
    """Do what a line says; what to say to it."""
    verb, _, rest = line.partition(" ")
    if verb == "count":
        count(store, agent, times)
        return "done"
    if verb == "put":
        key, _, value = rest.partition(" ")
        store.put((agent, SCOPE), key, json.loads(value))
        return "done"
    found = store.get((agent, SCOPE), rest)
    return json.dumps(None if found is None else [found.version, found.value])


@contextmanager
def opened(
    place: str, strategy: str = "lazy", tick_seconds: float = PATIENT
) -> Iterator[CoherentStore]:
    """The store that is meant by a place."""
    options: dict[str, Any] = {"ttl": {}} if place.startswith("ttl:") else {}
    where = place.removeprefix("ttl:")
    with CoherentStore(strategy, store=where, tick_seconds=tick_seconds, **options) as store:
        yield store


def main() -> None:
    place, agent, strategy, times, tick_seconds = sys.argv[1:]
    with opened(place, strategy, float(tick_seconds)) as store:
        print("ready", flush=True)
        for line in sys.stdin:
            print(answer(store, agent, int(times), line.strip()), flush=True)


if __name__ == "__main__":
    main()
