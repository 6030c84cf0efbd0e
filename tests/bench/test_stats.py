from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench._clock import buckets, growth, slope, summarise


def test_a_summary_is_the_median_between_the_lowest_and_the_highest() -> None:
    found = summarise([3.0, 1.0, 2.0, 10.0])

    assert (found.low, found.median, found.high) == (1.0, 2.5, 10.0)
    assert found.values == (3.0, 1.0, 2.0, 10.0)


def test_nothing_cannot_be_summarised() -> None:
    with pytest.raises(ValueError, match="nothing"):
        summarise([])


@given(st.floats(-100, 100), st.floats(-100, 100))
def test_the_slope_of_a_line_is_its_own(steepness: float, start: float) -> None:
    xs = [float(x) for x in range(10)]

    found = slope(xs, [start + steepness * x for x in xs])

    assert found == pytest.approx(steepness, abs=1e-9)


def test_the_slope_of_scattered_points_is_the_least_squares_one() -> None:
    assert slope([0, 1, 2, 3], [0, 2, 1, 3]) == pytest.approx(0.8)


@pytest.mark.parametrize(("xs", "ys"), [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1, 1], [1, 2])])
def test_a_slope_needs_two_positions(xs: list[float], ys: list[float]) -> None:
    with pytest.raises(ValueError, match="slope"):
        slope(xs, ys)


@given(st.lists(st.floats(0, 1), min_size=1), st.integers(1, 30))
def test_buckets_are_few_and_cover_all_values(values: list[float], count: int) -> None:
    found = buckets(values, count)

    assert 1 <= len(found) <= count
    assert all(0 <= middle <= len(values) - 1 for middle, _ in found)
    assert all(min(values) <= each <= max(values) for _, each in found)


def test_buckets_give_the_middle_position_and_the_median() -> None:
    assert buckets([1, 2, 9, 4, 5, 6, 7], 3) == [(1.0, 2), (4.0, 5), (6.0, 7)]


def test_growth_is_in_microseconds_per_item() -> None:
    seconds = [0.001 + 3e-6 * items for items in range(1000)]

    assert growth(seconds) == pytest.approx(3.0)


def test_a_few_disturbed_steps_do_not_bend_the_growth() -> None:
    seconds = [0.001 + 3e-6 * items for items in range(1000)]
    for disturbed in range(7, 1000, 100):
        seconds[disturbed] += 1.0

    assert growth(seconds) == pytest.approx(3.0, rel=0.02)
