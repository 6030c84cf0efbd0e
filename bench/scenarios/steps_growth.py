"""Ten times the commits: what writing, opening, reading and looking after the store take."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from tempfile import TemporaryDirectory

from bench._apart import elsewhere
from bench._model import EngineInfo, Measured, Metric, Scenario, Target
from bench.scenarios._sides import STEPS_ON_DISK

_VERBS = ("check", "stats")
_FEW, _MANY = "few", "many"


def run(info: EngineInfo, size: Mapping[str, int]) -> Measured:
    """The figures of many commits and of a tenth of them."""
    counts = {_FEW: size["steps"] // 10, _MANY: size["steps"]}
    found = Measured()
    for name, count in counts.items():
        found.figures |= {
            f"{name}_{key}": value for key, value in _grown(count, size["reads"]).items()
        }
    figures = found.figures
    figures["old"] = figures["many_old_ms"] / figures["many_newest_ms"]
    figures["old_cpu"] = figures["many_old_cpu_ms"] / figures["many_newest_cpu_ms"]
    for key in ("cpu_us", "open_ms", *(f"{verb}_us" for verb in _VERBS)):
        figures[f"{key}_grown"] = figures[f"many_{key}"] / figures[f"few_{key}"]
    return found


def _grown(count: int, reads: int) -> dict[str, float]:
    from bench._care import look, make, read

    with TemporaryDirectory() as folder:
        made = elsewhere(make, folder, count, reads)
        newest, old = made.pop("newest"), made.pop("old")
        pairs = [(elsewhere(read, folder, *newest), elsewhere(read, folder, *one)) for one in old]
        looked = {verb: elsewhere(look, folder, verb) for verb in _VERBS}
    figures: dict[str, float] = made
    for key in ("open_ms", "open_cpu_ms"):
        figures[key] = median(one[key] for pair in pairs for one in pair)
    for at, name in enumerate(("newest", "old")):
        for key in ("ms", "cpu_ms"):
            figures[f"{name}_{key}"] = median(pair[at][f"read_{key}"] for pair in pairs)
    for verb, one in looked.items():
        figures[f"{verb}_us"] = one["cpu_s"] / one["objects"] * 1e6
        figures[f"{verb}_commit_us"] = one["cpu_s"] / count * 1e6
        figures[f"{verb}_mb"] = one["peak_mb"]
    return figures


_EACH = (
    Metric("cpu_us", "CPU per commit", "us", 0),
    Metric("writer_mb", "memory of the writer", "MB", 1),
    Metric("folder_mb", "folder after close", "MB", 1),
    Metric("open_ms", "opening, wall", "ms", 2),
    Metric("open_cpu_ms", "opening, CPU", "ms", 2),
    Metric("newest_ms", "newest, read cold, wall", "ms", 2),
    Metric("newest_cpu_ms", "newest, CPU", "ms", 2),
    Metric("old_ms", "old, read cold, wall", "ms", 2),
    Metric("old_cpu_ms", "old, CPU", "ms", 2),
    Metric("check_us", "check, CPU per object", "us", 1),
    Metric("check_commit_us", "check, CPU per commit", "us", 1),
    Metric("check_mb", "check, memory", "MB", 1),
    Metric("stats_us", "stats, CPU per object", "us", 1),
    Metric("stats_commit_us", "stats, CPU per commit", "us", 1),
    Metric("stats_mb", "stats, memory", "MB", 1),
)


def _bound(metric: str, limit: float, text: str) -> Target:
    return Target(metric, limit, text, side=STEPS_ON_DISK)


SCENARIO = Scenario(
    name="steps-growth",
    title="100,000 checkpoints of a state of 600 bytes, beside a tenth of them",
    run=run,
    engines=(STEPS_ON_DISK,),
    metrics=(
        Metric("old", "random old checkpoint of many / newest, cold, wall", "x"),
        Metric("old_cpu", "the same, CPU", "x"),
        Metric("cpu_us_grown", "CPU per commit, many / few", "x"),
        Metric("open_ms_grown", "opening, many / few", "x"),
        *(Metric(f"{verb}_us_grown", f"{verb} per object, many / few", "x") for verb in _VERBS),
        *(
            Metric(f"{name}_{one.key}", f"{name}: {one.label}", one.unit, one.digits)
            for name in (_FEW, _MANY)
            for one in _EACH
        ),
    ),
    size={"steps": 100_000, "reads": 9},
    quick={"steps": 2_000, "reads": 3},
    targets=(
        _bound("old", 1.5, "a random old checkpoint, cold, over the newest"),
        _bound("cpu_us_grown", 1.1, "CPU per commit, with ten times the commits"),
        _bound("open_ms_grown", 1.2, "opening, with ten times the commits"),
        *(
            _bound(f"{name}_{verb}_us", 10, f"{verb}, {name}")
            for name in (_FEW, _MANY)
            for verb in _VERBS
        ),
        *(
            _bound(f"{verb}_us_grown", 1.1, f"{verb}, with ten times the commits")
            for verb in _VERBS
        ),
    ),
    notes=(
        "Made by one process, relaxed; then each opening with one read is a process of its own, "
        "nine of the newest and nine of old ones of the first half, in turns, and `check` and "
        "`stats` are one each. The files are in the system's cache. Memory is above that before.",
    ),
    order=25,
    repeat=1,
    timeout=1200,
    environment="python-3.12",
)
