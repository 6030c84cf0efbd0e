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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from holdfast.adapters.langgraph import HoldfastSaver
from tests.frameworks.langgraph.delta_clauses import OURS, UPSTREAM
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
DELTA = "delta_channel_history"
EXPECTED = {**CLAUSES, DELTA: len(UPSTREAM) + len(OURS)}
PACKAGES = (
    "langgraph-checkpoint-conformance",
    "langgraph-checkpoint",
    "langgraph",
    "langchain-core",
    "holdfast",
)


@dataclass
class Result:
    """How many clauses of each capability were passed, and what failed."""

    passed: dict[str, int]
    failures: list[str]


def check(opening: Callable[[], AbstractContextManager[HoldfastSaver]], family: str) -> Result:
    """Ask one family of methods everything; each capability gets a checkpointer of its own."""
    return asyncio.run(_check(opening, family))


async def _check(
    opening: Callable[[], AbstractContextManager[HoldfastSaver]], family: str
) -> Result:
    async def fresh() -> AsyncIterator[Any]:
        with opening() as saver:
            yield saver if family == "async" else SyncFamily(saver)

    report = await validate(RegisteredCheckpointer(f"HoldfastSaver, {family}", fresh))
    passed = {name: one.tests_passed for name, one in report.results.items()}
    failures = [told for one in report.results.values() for told in one.failures]
    with opening() as saver:
        asked = saver if family == "async" else SyncFamily(saver)
        passed[DELTA], more = await _check_history(asked)
    return Result(passed, failures + more)


async def _check_history(saver: Any) -> tuple[int, list[str]]:
    failures = []
    for clause in (*UPSTREAM, *OURS):
        try:
            await clause(saver)
        except Exception as error:  # noqa: BLE001  Whatever it is, the clause failed.
            failures.append(f"{clause.__name__}: {error!r}")
    return len(UPSTREAM) + len(OURS) - len(failures), failures


def page(results: dict[tuple[str, str], Result], when: datetime) -> str:
    """What is published."""
    names = list(EXPECTED)
    lines = [
        "# Conformance to LangGraph",
        "",
        "`HoldfastSaver` on every engine, asked by LangGraph's own suite for checkpointers, "
        f"`langgraph-checkpoint-conformance` {version(PACKAGES[0])}. The suite asks only "
        "asynchronous methods; the rows `sync` are the synchronous ones, called through a class "
        f"whose asynchronous methods call them. The last capability, `{DELTA}`, is not in that "
        f"release: its {len(UPSTREAM)} clauses are those of the suite's next one and the other "
        f"{len(OURS)} our own, all in our words "
        "(`tests/frameworks/langgraph/delta_clauses.py`).",
        "",
        "`make conformance` runs it all again and writes this page. `make test` runs it too, and "
        f"counts: {sum(CLAUSES.values())} of {sum(CLAUSES.values())} and "
        f"{EXPECTED[DELTA]} of {EXPECTED[DELTA]} for each row.",
        "",
        f"| engine | methods | {' | '.join(f'`{name}`' for name in names)} | suite | all |",
        f"|---|---|{'---|' * len(names)}---|---|",
        *(_row(engine, family, one) for (engine, family), one in results.items()),
        "",
        f"Run on {when:%Y-%m-%d} with Python {platform.python_version()}: "
        f"{', '.join(f'{name} {version(name)}' for name in PACKAGES)}.",
        "",
        "`cached` is a `CachedStore` in front of SQLite.",
    ]
    return "\n".join(lines) + "\n"


def _row(engine: str, family: str, result: Result) -> str:
    counts = [f"{result.passed.get(name, 0)}/{count}" for name, count in EXPECTED.items()]
    suite = sum(result.passed.get(name, 0) for name in CLAUSES)
    everything = f"{sum(result.passed.values())}/{sum(EXPECTED.values())}"
    return (
        f"| {engine} | {family} | {' | '.join(counts)} | **{suite}/{sum(CLAUSES.values())}** "
        f"| {everything} |"
    )


@contextmanager
def _saver(engine: str, address: Callable[[], str]) -> Iterator[HoldfastSaver]:
    with saver_at(engine, address()) as saver:
        yield saver


def main() -> int:
    """Run everything; 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="only this one")
    given = parser.parse_args()
    results = {}
    for engine in given.engine or ENGINES:
        with places(engine) as address:
            for family in FAMILIES:
                result = check(partial(_saver, engine, address), family)
                results[engine, family] = result
                print(_row(engine, family, result), *result.failures, sep="\n", flush=True)
    if given.write:
        given.write.write_text(page(results, datetime.now(UTC)))
    return int(any(result.passed != EXPECTED for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
