"""A counter changes beside a document of 5 MB, on each engine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios import _clients as clients
from bench.scenarios._again import Again
from bench.scenarios._sides import ENGINES, EVERY_SERVED, SAVER_STEP
from bench.scenarios._work import Work
from bench.scenarios.document import documents

_documents = cache(documents)  # Their making takes longer than their storing.


def _of_client(count: int, number: int) -> dict[str, Any]:
    """The same documents with other words, so that no two clients store the same."""
    made = _documents(count)["documents"]
    others = [{**one, "text": one["text"].replace("the", f"the {number}")} for one in made]
    return {"counter": 0, "documents": others}


def client(size: Mapping[str, int], number: int) -> Work:
    """The work of one of several clients."""
    return Again(_of_client(size["documents"], number))


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Count up beside the documents."""
    return clients.run(info, size, Again(documents(size["documents"])), client)


SCENARIO = Scenario(
    name="engines-document",
    title="A counter changes beside 500 documents of 10 KB: a durable commit on each engine",
    run=run,
    engines=tuple(name for name in EVERY_SERVED if name != SAVER_STEP),
    metrics=clients.metrics(last=(clients.AMPLIFICATION,)),
    size={
        "documents": 500, "commits": 100, "seconds": 30,
        "processes": 4, "threads": 4, "together_seconds": 5,
    },
    quick={
        "documents": 100, "commits": 20, "seconds": 10,
        "processes": 2, "threads": 2, "together_seconds": 1,
    },
    targets=(
        *(
            Target("amplification", 1.1, f"{name}: stored over raw payload", side=name)
            for name in ENGINES
        ),
        *clients.as_embedded("amplification"),
    ),
    notes=(
        *clients.NOTES,
        "Ropewalk is handed all documents at each commit and finds that only the counter "
        "changed. PostgresSaver and the floors are told so, and never look at the documents.",
    ),
    order=330,
    repeat=3,
)  # fmt: skip
