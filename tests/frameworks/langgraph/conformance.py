"""Runs LangGraph's conformance suite for checkpointers on every engine, and publishes the result.

    python -m tests.frameworks.langgraph.conformance --write docs/reference/langgraph-conformance.md

`make conformance` does that. It fails if a clause fails, and if the suite ran fewer clauses than
it has: a suite that found nothing to run calls that full conformance.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from ropewalk.adapters.langgraph import RopewalkSaver
from tests.frameworks.langgraph.delta_clauses import FORKS, OURS, RECONSTRUCTION, UPSTREAM, Clause
from tests.frameworks.langgraph.engines import ENGINES, places, saver_at
from tests.frameworks.langgraph.families import FAMILIES, SyncFamily

CLAUSES = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}
"""How many clauses each capability has in release 0.0.2 of the suite: 81."""
DELTA: dict[str, Sequence[Clause]] = {
    "delta_channel_history": (*UPSTREAM, *OURS),
    "delta_channel_reconstruction": RECONSTRUCTION,
    "delta_channel_forks": FORKS,
}
"""The clauses of each capability that the release does not have."""
EXPECTED = {**CLAUSES, **{name: len(clauses) for name, clauses in DELTA.items()}}
PACKAGES = (
    "langgraph-checkpoint-conformance",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langgraph",
    "langchain-core",
    "ropewalk",
)


Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes a checkpointer on an empty place."""


@dataclass
class Result:
    """How many clauses of each capability were passed, and what failed."""

    passed: dict[str, int]
    failures: list[str]


Results: TypeAlias = dict[tuple[str, str], Result]


def check(opening: Opening, family: str) -> Result:
    """Ask one family of methods everything; each capability gets a checkpointer of its own."""
    return asyncio.run(_check(opening, family))


async def _check(opening: Opening, family: str) -> Result:
    async def fresh() -> AsyncIterator[Any]:
        async with opening() as saver:
            yield saver if family == "async" else SyncFamily(saver)

    async with opening() as saver:
        lacking = set() if family == "async" else _lacking(saver)
    report = await validate(RegisteredCheckpointer(family, fresh, lacking))
    passed = {name: one.tests_passed for name, one in report.results.items()}
    failures = [told for one in report.results.values() for told in one.failures]
    async with opening() as saver:
        asked = saver if family == "async" else SyncFamily(saver)
        for name, clauses in DELTA.items():
            failed = [told for one in clauses if (told := await _failure(one, asked))]
            passed[name] = len(clauses) - len(failed)
            failures += failed
    return Result(passed, failures)


def _lacking(saver: Any) -> set[str]:
    """What a checkpointer does not implement; the suite sees that only of asynchronous methods."""
    return {
        name
        for name in CLAUSES
        if getattr(type(saver), name, None) in (None, getattr(BaseCheckpointSaver, name, None))
    }


async def _failure(clause: Clause, saver: Any) -> str | None:
    try:
        await clause(saver)
    except Exception as error:  # noqa: BLE001  Whatever it is, the clause failed.
        return f"{clause.__name__}: {error!r}"
    return None


def page(ours: Results, official: Results, when: datetime) -> str:
    """What is published."""
    suite, delta = sum(CLAUSES.values()), sum(len(one) for one in DELTA.values())
    lines = [
        "# Conformance to LangGraph",
        "",
        "`RopewalkSaver` on every engine, asked by LangGraph's own suite for checkpointers, "
        f"`langgraph-checkpoint-conformance` {version(PACKAGES[0])}. The suite asks only "
        "asynchronous methods; the rows `sync` are the synchronous ones, called through a class "
        f"whose asynchronous methods call them. The last capabilities, of delta channels, are not "
        f"in that release: {len(UPSTREAM)} clauses of `delta_channel_history` are those of the "
        "suite's main branch, and the others our own; all are in our words "
        "(`tests/frameworks/langgraph/delta_clauses.py`). `delta_channel_forks` asks a graph "
        "whose delta channel must hold the same as a plain one beside it, after forks from older "
        "checkpoints.",
        "",
        "`make conformance` runs it all again and writes this page. `make test` runs the rows of "
        f"`RopewalkSaver` too, and counts: {suite} of {suite} and {delta} of {delta} for each.",
        "",
        *_table("engine", ours),
        "",
        "`cached` is a `CachedStore` in front of SQLite.",
        "",
        "LangGraph's own checkpointers, asked in the same run; what one does not implement "
        "counts as not passed. The clauses of forks repeat versions of channels on both sides, and "
        "so do the rows `sync` of graphs; where a checkpointer names values by their versions, as "
        "these do, that counts against it, although LangGraph's own versions do not repeat:",
        "",
        *_table("checkpointer", official),
        "",
        f"Run on {when:%Y-%m-%d} with Python {platform.python_version()}: "
        f"{', '.join(f'{name} {version(name)}' for name in PACKAGES)}.",
    ]
    return "\n".join(lines) + "\n"


def _table(first: str, results: Results) -> list[str]:
    names = list(EXPECTED)
    return [
        f"| {first} | methods | {' | '.join(f'`{name}`' for name in names)} | suite | all |",
        f"|---|---|{'---|' * len(names)}---|---|",
        *(_row(name, family, one) for (name, family), one in results.items()),
    ]


def _row(engine: str, family: str, result: Result) -> str:
    counts = [f"{result.passed.get(name, 0)}/{count}" for name, count in EXPECTED.items()]
    suite = sum(result.passed.get(name, 0) for name in CLAUSES)
    everything = f"{sum(result.passed.values())}/{sum(EXPECTED.values())}"
    return (
        f"| {engine} | {family} | {' | '.join(counts)} | **{suite}/{sum(CLAUSES.values())}** "
        f"| {everything} |"
    )


@asynccontextmanager
async def ours(engine: str, address: Callable[[], str]) -> AsyncIterator[RopewalkSaver]:
    """A RopewalkSaver on a new place."""
    with saver_at(engine, address()) as saver:
        yield saver


@asynccontextmanager
async def _memory(address: Callable[[], str]) -> AsyncIterator[Any]:
    yield InMemorySaver()


@asynccontextmanager
async def _sqlite(address: Callable[[], str]) -> AsyncIterator[Any]:
    with SqliteSaver.from_conn_string(":memory:") as saver:
        yield saver


@asynccontextmanager
async def _postgres(address: Callable[[], str]) -> AsyncIterator[Any]:
    with PostgresSaver.from_conn_string(address()) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def _async_sqlite(address: Callable[[], str]) -> AsyncIterator[Any]:
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        yield saver


@asynccontextmanager
async def _async_postgres(address: Callable[[], str]) -> AsyncIterator[Any]:
    async with AsyncPostgresSaver.from_conn_string(address()) as saver:
        await saver.setup()
        yield saver


OFFICIAL = {
    ("InMemorySaver", "sync"): ("memory", _memory),
    ("InMemorySaver", "async"): ("memory", _memory),
    ("SqliteSaver", "sync"): ("sqlite", _sqlite),
    ("AsyncSqliteSaver", "async"): ("sqlite", _async_sqlite),
    ("PostgresSaver", "sync"): ("postgres", _postgres),
    ("AsyncPostgresSaver", "async"): ("postgres", _async_postgres),
}


def _ask_ours(engines: Sequence[str]) -> Results:
    results = {}
    for engine in engines:
        with places(engine) as address:
            for family in FAMILIES:
                result = check(partial(ours, engine, address), family)
                results[engine, family] = result
                print(_row(engine, family, result), *result.failures, sep="\n", flush=True)
    return results


def _ask_official() -> Results:
    results = {}
    for (name, family), (engine, opening) in OFFICIAL.items():
        with places(engine) as address:
            results[name, family] = check(partial(opening, address), family)
            print(_row(name, family, results[name, family]), flush=True)
    return results


def main() -> int:
    """Run everything; 1 if ours failed in something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="only this one")
    given = parser.parse_args()
    results = _ask_ours(given.engine or ENGINES)
    if given.write:
        given.write.write_text(page(results, _ask_official(), datetime.now(UTC)))
    return int(any(result.passed != EXPECTED for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
