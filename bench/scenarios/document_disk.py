"""500 documents of 10 KB and a counter on disk, handed over again with the counter changed."""

from __future__ import annotations

from collections.abc import Mapping

from bench._model import EngineInfo, Measured, Scenario, Target
from bench.scenarios._again import Again
from bench.scenarios._on_disk import AMPLIFICATION, NOTES, RESTART, metrics, run_on_disk
from bench.scenarios._sides import EVERY_ON_DISK, OURS_ON_DISK
from bench.scenarios.document import documents


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Make the documents and hand them over again and again."""
    return run_on_disk(info, Again(documents(size["documents"])), size["commits"], size)


SCENARIO = Scenario(
    name="document-disk",
    title="A 5 MB list of documents and a counter, committed durably again with the counter "
    "changed",
    run=run,
    engines=EVERY_ON_DISK,
    metrics=metrics(AMPLIFICATION, RESTART),
    size={"documents": 500, "commits": 200, "worst": 10, "seconds": 60},
    quick={"documents": 100, "commits": 10, "worst": 3, "seconds": 20},
    targets=(
        Target("amplification", 1.1, "folder after close over raw payload", side=OURS_ON_DISK),
    ),
    notes=NOTES,
    order=120,
    repeat=3,
)
