"""Files of the same code are seldom called a regression, and a real one is found: simulated."""

import random
from statistics import median

import pytest

pytest.importorskip("pydantic")

from helpers.bench.results import collective, point
from mpistrat.bench.report.analysis.comparison import compare
from mpistrat.testing.sets import takes_long

_SIZES = [8 << number for number in range(8)]
_PAIRS = 150


def measured(draw, shape, between, within, factor=1.0):
    """Return the points of 8 sizes, whose times differ by run and by round as log-normal ones."""
    repeats, rounds = shape
    return [
        point(record(draw, rounds, 100 * factor * draw.lognormvariate(0, between), within, size))
        for _ in range(repeats)
        for size in _SIZES
    ]


def record(draw, rounds, time, within, size):
    values = sorted(time * draw.lognormvariate(0, within) for _ in range(rounds))
    figures = {"min": values[0], "median": median(values), "max": values[-1]}
    return collective(1.0, nbytes=size, time_us=figures, rounds=rounds)


def is_regression(draw, shapes, between, within, factor=1.0):
    old = measured(draw, shapes[0], between, within)
    return compare(old, measured(draw, shapes[1], between, within, factor), 0.05).is_regression


@takes_long()
@pytest.mark.parametrize("noise", [(0.02, 0.005), (0.05, 0.005), (0.05, 0.03)])
@pytest.mark.parametrize(
    "shapes",
    [((3, 1), (3, 1)), ((3, 3), (3, 3)), ((3, 7), (3, 7)), ((3, 7), (8, 7)), ((6, 3), (6, 3))],
)
def test_the_same_code_is_called_a_regression_in_under_5_percent_of_files(shapes, noise):
    draw = random.Random(f"{shapes} {noise}")
    alarms = sum(is_regression(draw, shapes, *noise) for _ in range(_PAIRS))
    assert alarms < 0.05 * _PAIRS


@takes_long()
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (1, 21), (2, 3)])
def test_one_or_two_runs_give_no_alarm_however_many_rounds(shape):
    draw = random.Random(f"{shape}")
    assert not any(is_regression(draw, (shape, shape), 0.1, 0.01) for _ in range(20))


@pytest.mark.parametrize("noise", [(0.03, 0.01), pytest.param((0.03, 0.03), marks=takes_long())])
@pytest.mark.parametrize("repeats", [3, pytest.param(6, marks=takes_long())])
def test_a_slowdown_by_half_is_found(repeats, noise):
    draw = random.Random(f"{repeats} {noise}")
    shapes = ((repeats, 7), (repeats, 7))
    found = sum(is_regression(draw, shapes, *noise, factor=1.5) for _ in range(40))
    assert found >= 39
