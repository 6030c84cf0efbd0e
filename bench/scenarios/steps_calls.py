"""How many of our own functions a step calls, and through how many modules it goes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench.scenarios._sides import OUR_SAVER


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """Count what a checkpoint and a superstep call."""
    from bench._calls import checkpoint, superstep

    found = Measured()
    for work in (checkpoint, superstep):
        with TemporaryDirectory() as name:
            found.figures |= work(Path(name))
    return found


def _bound(metric: str, limit: float, text: str) -> Target:
    return Target(metric, limit, text, side=OUR_SAVER)


SCENARIO = Scenario(
    name="steps-calls",
    title="Calls of our own functions in a checkpoint of a small dict, and in a superstep",
    run=run,
    engines=(OUR_SAVER,),
    metrics=(
        Metric("checkpoint_calls", "checkpoint: calls", digits=0),
        Metric("checkpoint_modules", "modules", digits=0),
        Metric("checkpoint_behind", "calls of threads behind it", digits=0),
        Metric("superstep_calls", "superstep: calls", digits=0),
        Metric("superstep_modules", "modules", digits=0),
        Metric("superstep_behind", "calls of threads behind it", digits=0),
    ),
    size={},
    quick={},
    targets=(
        _bound("checkpoint_calls", 80, "calls of a checkpoint"),
        _bound("checkpoint_modules", 15, "modules that a checkpoint passes"),
        _bound("superstep_calls", 150, "calls of a superstep"),
        _bound("superstep_modules", 18, "modules that a superstep passes"),
    ),
    notes=(
        "Events `call` of `sys.setprofile` in files of Ropewalk, third run. Supersteps are those "
        "of a graph of one node with a state of 600 bytes, in its third invoke, with all that "
        "LangGraph asks of the saver for one: `get_next_version`, `put_writes` and `put`. Threads "
        "that Ropewalk has behind them are counted apart.",
    ),
    order=24,
    repeat=3,
    environment="python-3.12",
)
