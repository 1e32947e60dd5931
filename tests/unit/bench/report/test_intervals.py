"""Intervals of a median cover it as often as they say: all cases are counted, none is drawn."""

from itertools import product

import pytest

from mpistrat.bench.report.analysis.intervals import Interval, hull, interval_of, record_interval


@pytest.mark.parametrize("count", [1, 2, 5, 6, 8, 9, 12])
def test_the_coverage_is_the_share_of_outcomes_that_contain_the_median(count):
    # The true median is 0; each value is above or below it like heads and tails.
    contained = [
        interval.low <= 0 <= interval.high
        for signs in product((-1.0, 1.0), repeat=count)
        if (interval := interval_of([sign * (1 + n) for n, sign in enumerate(signs)]))
    ]
    claimed = interval_of(list(range(count))).coverage
    assert claimed == pytest.approx(sum(contained) / 2**count)


@pytest.mark.parametrize(
    ("count", "low", "high", "coverage"),
    [
        (6, 1, 6, 1 - 2 / 64),
        (9, 2, 8, 1 - 2 * (1 + 9) / 512),
        (10, 2, 9, 1 - 2 * (1 + 10) / 1024),
        (20, 6, 15, 1 - 2 * (1 + 20 + 190 + 1140 + 4845 + 15504) / 2**20),
    ],
)
def test_the_ends_are_the_innermost_values_that_cover_95_percent(count, low, high, coverage):
    interval = interval_of([float(value) for value in range(count, 0, -1)])
    assert (interval.low, interval.high) == (low, high)
    assert interval.median == (count + 1) / 2
    assert interval.coverage == pytest.approx(coverage)
    assert interval.is_95


def test_fewer_than_6_values_give_their_range_and_do_not_claim_95_percent():
    interval = interval_of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (interval.low, interval.median, interval.high) == (1, 3, 5)
    assert interval.coverage == 1 - 2 / 32
    assert not interval.is_95


def test_values_of_a_record_count_more_than_its_extremes():
    record = {"time_us": {"min": 0.0, "median": 3.5, "max": 99.0}, "rounds": 6}
    assert record_interval(record) == Interval(0, 3.5, 99, 6, 1 - 2 / 64)
    steps = record | {"steps_us": [1, 2, 3, 4, 5, 6]}
    assert record_interval(steps) == interval_of([1.0, 2, 3, 4, 5, 6])


def test_figures_are_read_with_and_without_their_unit():
    figures = {"min_us": 1.0, "median_us": 2.0, "max_us": 4.0}
    assert record_interval({"time_us": figures}) == Interval(1, 2, 4, 0, 0.0)


@pytest.mark.parametrize("figures", [None, 3.0, {}, {"min": 1.0, "median": 2.0}])
def test_a_record_without_a_time_has_no_interval(figures):
    assert record_interval({"time_us": figures}) is None


def test_a_time_of_0_cannot_be_compared():
    assert record_interval({"time_us": {"min": 0.0, "median": 0.0, "max": 0.0}}) is None


def test_few_repeats_reach_over_all_of_their_intervals():
    repeats = [Interval(1, 2, 3, 7, 0.98), Interval(2, 4, 5, 7, 0.96), Interval(2, 3, 4, 7, 0.97)]
    assert hull(repeats) == Interval(1, 3, 5, 7, 0.96, 3)
    assert hull(repeats[:1]) == repeats[0]


def test_many_repeats_have_the_interval_of_their_medians():
    repeats = [Interval(0, float(n), 100, 7, 0.98) for n in range(1, 11)]
    assert hull(repeats) == interval_of([float(n) for n in range(1, 11)])


def test_a_ratio_reaches_from_the_least_to_the_most_that_both_allow():
    ratio = Interval(6, 8, 9, 7, 0.98).over(Interval(2, 4, 6, 9, 0.97))
    assert (ratio.low, ratio.median, ratio.high, ratio.values) == (1, 2, 4.5, 7)
    assert ratio.coverage == pytest.approx(0.95)


def test_intervals_that_touch_overlap():
    assert Interval(1, 2, 3, 7, 1).overlaps(Interval(3, 4, 5, 7, 1))
    assert not Interval(1, 2, 3, 7, 1).overlaps(Interval(3.1, 4, 5, 7, 1))
