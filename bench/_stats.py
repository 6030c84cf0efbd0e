"""Pure statistics: medians, spread and growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

MICRO = 1e6


@dataclass(frozen=True)
class Summary:
    """What several repetitions of one measurement say."""

    median: float
    low: float
    high: float
    values: tuple[float, ...]


def summarise(values: Sequence[float]) -> Summary:
    """The median of the values and how far they spread."""
    if not values:
        raise ValueError("there is nothing to summarise")
    return Summary(median(values), min(values), max(values), tuple(values))


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The least-squares slope of `ys` over `xs`."""
    if len(xs) != len(ys) or len(xs) < 2:
        raise ValueError("a slope needs two sequences of the same length, at least 2")
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    if spread == 0:
        raise ValueError("a slope needs at least two different positions")
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread


def buckets(values: Sequence[float], count: int) -> list[tuple[float, float]]:
    """Cut the values into at most `count` runs: (middle position, median) of each."""
    size = max(1, -(-len(values) // count))
    runs = [(at, values[at : at + size]) for at in range(0, len(values), size)]
    return [(at + (len(run) - 1) / 2, median(run)) for at, run in runs]


def growth(seconds: Sequence[float], count: int = 20) -> float:
    """How much longer a step takes for each item already there, in microseconds.

    `seconds[i]` is the time of the step that found `i` items. Medians of runs come
    first, so that a few disturbed steps do not bend the line.
    """
    points = buckets(seconds, count)
    return slope([x for x, _ in points], [y for _, y in points]) * MICRO
