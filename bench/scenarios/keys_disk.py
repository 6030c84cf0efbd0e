"""One of 100,000 keys of a map on disk changes; then the store is opened to read one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from bench._environment import ROOT
from bench._model import EngineInfo, Measured, Metric, Place, Scenario, Target
from bench.scenarios._on_disk import NOTES, metrics, run_on_disk
from bench.scenarios._sides import EVERY_ON_DISK, OURS_ON_DISK
from bench.scenarios.keys import Keys

OPENED = (
    "The store is opened in a fresh process each time, by wall time without the start of the "
    "interpreter: once with all modules loaded, once with the side's own imports in it. Its "
    "files are in the memory of the system."
)


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Load the keys, change one at a time, and open the store in fresh processes."""
    work = Keys(size["keys"])
    closed = partial(_open_and_read, work, size["opens"])
    return run_on_disk(info, work, size["changes"], size, closed)


def _open_and_read(work: Keys, opens: int, info: EngineInfo, place: Place) -> dict[str, float]:
    """Open the store and read one key, each time in a fresh process."""
    key = work.changed
    found = [_fresh(info, place, key) for _ in range(opens)]
    assert all(one["value"] == work.pairs[key] for one in found), f"{key} did not read back"
    return {name: median(one[name] for one in found) for name in ("open_ms", "cold_ms")}


def _fresh(info: EngineInfo, place: Place, key: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench._open", info.name, str(place.folder), key]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"the store did not open in a fresh process: {done.stderr[-300:]}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


SCENARIO = Scenario(
    name="keys-disk",
    title="One of 100,000 keys of a map changed and committed durably",
    run=run,
    engines=EVERY_ON_DISK,
    metrics=metrics(
        Metric("open_ms", "open and read one key", "ms", 1),
        Metric("cold_ms", "the same with its imports", "ms", 1),
        Metric("load_s", "CPU to load all keys", "s"),
    ),
    size={"keys": 100_000, "changes": 100, "worst": 5, "opens": 5, "seconds": 40},
    quick={"keys": 5_000, "changes": 10, "worst": 2, "opens": 1, "seconds": 20},
    targets=(
        Target("kb", 16.0, "new bytes per commit", side=OURS_ON_DISK),
        Target("worst_kb", 16.0, "new bytes of the worst commit", side=OURS_ON_DISK),
        Target("open_ms", 50.0, "opening the store and reading one key", side=OURS_ON_DISK),
    ),
    notes=(
        *NOTES,
        "Ropewalk, kvgit and agex are told the key that changed, and so is the bare transaction. "
        "The others have no keys: they are handed their whole dict.",
        OPENED,
    ),
    order=150,
    repeat=3,
)
