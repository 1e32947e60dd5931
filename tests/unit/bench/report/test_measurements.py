"""Repeats are merged, competitors kept apart, and what failed or was wrong is left out."""

import re

import pytest

pytest.importorskip("pydantic")

from helpers.bench.results import collective, point, servers, times, training
from mpistrat.bench.report.analysis.measurements import (
    left_out,
    measurements_of,
    options_of,
    wrong_answers,
)


def test_repeats_become_one_measurement_with_the_middle_record():
    repeats = [point(collective(time), repeat=n) for n, time in enumerate((3.0, 1, 2))]
    (found,) = measurements_of(repeats)
    assert found.repeats == 3
    assert found.time.median == 2
    assert found.time.low == pytest.approx(0.99)
    assert found.time.high == pytest.approx(3.03)
    assert found.get("time_us")["median"] == 2


def test_other_sizes_sides_ranks_and_options_are_other_measurements():
    points = [
        point(collective(1.0)),
        point(collective(1.0, nbytes=16)),
        point(collective(1.0, side="mpi4py")),
        point(collective(1.0), ranks=4),
        point(collective(1.0), nodes=2),
        point(collective(1.0), options={"backends": "mpi"}),
    ]
    assert len(measurements_of(points)) == 6


def test_how_long_it_was_measured_is_no_difference():
    points = [
        point(collective(1.0), options={"ops": "allreduce", "seconds": "1", "json": "a"}),
        point(collective(1.0), options={"seconds": "2", "rounds": "9", "ops": "allreduce"}),
    ]
    (found,) = measurements_of(points)
    assert found.repeats == 2
    assert options_of(points[1]) == "--ops allreduce"


def test_failed_points_and_wrong_answers_are_left_out():
    wrong = point(collective(1.0, correct=False))
    failed = point(collective(1.0), status="failed", message="x")
    assert measurements_of([wrong, failed]) == []
    assert wrong_answers([wrong, failed]) == [(wrong, wrong.records[0])]


def test_sides_of_one_record_are_measurements_of_their_own():
    both = servers(100.0)
    both["times"]["memcpy"] = {"median_us": 50.0, "min_us": 40.0, "max_us": 60.0}
    found = measurements_of([point(both, ranks=4)])
    assert [(m.side, m.time.median, m.ranks) for m in found] == [
        ("mpistrat", 100, 4),
        ("memcpy", 50, 4),
    ]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (collective(1.0, bytes="many"), "record 1: bytes: .*got 'many'"),
        (collective(1.0, busbw_GBps="fast"), "busbw_GBps"),
        (collective(1.0, time_us=times(-1.0, 0.0)), "time_us.min"),
        (collective(1.0, time_us={"median": float("nan")}), "time_us.median"),
        (training("strong", [1.0], by_rank=[{"rank": 0}]), "by_rank.0.host"),
        (training("train", [1.0], parts_us={"compute": "x"}), "parts_us.compute"),
        ({"case": "ps", "rows": 1}, "times: Field required"),
    ],
)
def test_a_record_of_other_types_is_left_out_and_named(record, words):
    points = [point(record), point(collective(3.0))]
    assert [m.time.median for m in measurements_of(points)] == [3.0]
    ((where, told),) = left_out(points)
    assert where is points[0]
    assert re.search(words, told)


@pytest.mark.parametrize("value", [float("inf"), 1e308, 5e-324, 2**62, "x", True, None, []])
@pytest.mark.parametrize("name", ["min", "median", "max"])
def test_a_time_that_no_clock_can_tell_is_none(value, name):
    figures = {**times(1.0, 0.1), name: value}
    (found,) = measurements_of([point({"case": "mine", "time_us": figures})])
    assert found.interval is None
    assert len(left_out([point(collective(1.0, time_us=figures))])) == 1


def test_times_of_0_are_no_times():
    zeros = training("strong", [0.0, 0.0])
    (found,) = measurements_of([point(zeros)])
    assert found.interval is None


def test_cases_of_other_people_may_write_anything():
    (found,) = measurements_of([point({"case": "mine", "bytes": "many", "time_us": "x"})])
    assert found.interval is None
