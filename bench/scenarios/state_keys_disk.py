"""One of 100,000 keys of a state on disk changes; then the state is opened to read one."""

from __future__ import annotations

from bench._model import Metric, Scenario
from bench.scenarios._held import DISK_NOTES, NOTES, bytes_target, metrics, targets
from bench.scenarios._sides import HELD_ON_DISK, HELD_RELAXED, PEERS_HELD_ON_DISK
from bench.scenarios.keys_disk import OPENED, run
from bench.scenarios.state_keys import KEYED, LOAD

SCENARIO = Scenario(
    name="state-keys-disk",
    title="One of 100,000 keys of a state on disk changed",
    run=run,
    engines=(HELD_ON_DISK, HELD_RELAXED, *PEERS_HELD_ON_DISK),
    metrics=metrics(
        Metric("open_ms", "wall to open it and read one key", "ms", 1),
        Metric("cold_ms", "the same with its imports", "ms", 1),
        LOAD,
        on_disk=True,
    ),
    size={"keys": 100_000, "changes": 100, "worst": 1, "opens": 5, "seconds": 10},
    quick={"keys": 5_000, "changes": 10, "worst": 1, "opens": 1, "seconds": 20},
    targets=(
        bytes_target(HELD_ON_DISK),
        *targets("commits_cpu", "CPU of the best peer over ours", 1.0, on_disk=True),
        *targets("open_ms", "opening it and reading one key: the same", 1.0, on_disk=True),
    ),
    notes=(*NOTES, *DISK_NOTES, *KEYED, OPENED),
    order=260,
    repeat=3,
)
