"""One of 100,000 keys of a state changes; then the state is opened to read one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import median

from bench._clock import Stopwatch
from bench._model import EngineInfo, Measured, Metric, Scenario
from bench.scenarios._held import NOTES, Reopened, bytes_target, metrics, run_in_memory, targets
from bench.scenarios._sides import EVERY_HELD, HELD
from bench.scenarios.keys import Keys

LOAD = Metric("load_s", "CPU to set and commit all keys", "s")
KEYED = (
    "A round assigns one key and commits. AgentRef has no keys: they are one dict in its field, "
    "which is read, changed and assigned again. To read one key kvgit opens a snapshot, which is "
    "cheaper than its worktree; to change one it needs the worktree, as the first round shows.",
)


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Load the keys, change one at a time, and open the state to read one."""
    work = Keys(size["keys"])
    more = partial(_open_and_read, work, size["opens"])
    return run_in_memory(info, work, size["changes"], size, more)


def _open_and_read(work: Keys, opens: int, reopened: Reopened) -> Mapping[str, float]:
    state, watch = reopened(), Stopwatch()
    for _ in range(opens):
        watch(partial(state.get, work.changed))  # With a new handle each time.
    return {"open_ms": median(watch.cpu) * 1e3}


SCENARIO = Scenario(
    name="state-keys",
    title="One of 100,000 keys of a state changed",
    run=run,
    engines=EVERY_HELD,
    metrics=metrics(
        Metric("open_ms", "CPU to open it and read one key", "ms", 3), LOAD, on_disk=False
    ),
    size={"keys": 100_000, "changes": 100, "opens": 20, "seconds": 10},
    quick={"keys": 5_000, "changes": 10, "opens": 3, "seconds": 20},
    targets=(
        bytes_target(HELD),
        *targets("commits_cpu", "CPU of the best peer over ours", 1.0, on_disk=False),
        *targets("open_ms", "opening it and reading one key: the same", 1.0, on_disk=False),
    ),
    notes=(*NOTES, *KEYED),
    order=250,
    repeat=3,
)
