"""Efficiency and Karp-Flatt fractions of runs whose times follow known laws."""

import pytest

pytest.importorskip("pydantic")

from helpers.bench.results import point, training
from mpistrat.bench.report.analysis.measurements import measurements_of
from mpistrat.bench.report.analysis.scaling_curves import studies

SERIAL = 0.1


def study(case, layouts, law, **keys):
    points = [
        point(training(case, [law(ranks) * 1e3] * 6, **keys), ranks, nodes)
        for ranks, nodes in layouts
    ]
    return studies(measurements_of(points))


def amdahl(ranks):
    return SERIAL + (1 - SERIAL) / ranks


def test_strong_scaling_by_amdahls_law():
    ((curve,),) = (one.curves for one in study("strong", [(4, 1), (1, 1), (2, 1)], amdahl))
    assert [one.ranks for one in curve.points] == [1, 2, 4]
    for one in curve.points[1:]:
        expected = 1 / (SERIAL * one.ranks + 1 - SERIAL)
        assert one.efficiency.median == pytest.approx(expected)
        assert one.efficiency.low == pytest.approx(expected), "all values are equal"
        assert one.serial_fraction == pytest.approx(SERIAL)
    assert curve.points[0].efficiency.median == 1
    assert curve.ideal_us(4) == pytest.approx(250)


def test_a_base_of_several_ranks_is_the_reference():
    ((curve,),) = (one.curves for one in study("strong", [(2, 1), (8, 1)], lambda p: 1 / p))
    assert curve.points[1].efficiency.median == pytest.approx(1)
    assert curve.points[1].serial_fraction is None, "Karp and Flatt's is over one rank"
    assert curve.ideal_us(8) == pytest.approx(125)


def test_weak_scaling_compares_equal_work_a_rank():
    found = study("weak", [(1, 1), (4, 1)], lambda p: 1 + 0.25 * (p > 1))
    ((curve,),) = (one.curves for one in found)
    assert curve.points[1].efficiency.median == pytest.approx(0.8)
    assert curve.ideal_us(4) == pytest.approx(1000)
    assert not found[0].is_strong


def test_the_interval_of_the_efficiency_comes_from_both_times():
    base = point(training("weak", [90.0, 95, 100, 100, 105, 110]), 1)
    more = point(training("weak", [180.0, 190, 200, 200, 210, 220]), 2)
    ((curve,),) = (one.curves for one in studies(measurements_of([base, more])))
    efficiency = curve.points[1].efficiency
    assert efficiency.low == pytest.approx(90 / 220)
    assert efficiency.median == pytest.approx(0.5)
    assert efficiency.high == pytest.approx(110 / 180)


def test_ranks_of_one_machine_and_of_several_are_curves_of_their_own():
    layouts = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 4), (4, 2)]
    ((curves),) = (one.curves for one in study("strong", layouts, lambda p: 1 / p))
    found = {
        curve.label: [(p.ranks, p.measurement.nodes) for p in curve.points] for curve in curves
    }
    assert found == {
        "one node": [(1, 1), (2, 1), (4, 1)],
        "1 rank a node": [(1, 1), (2, 2), (4, 4)],
        "2 ranks a node": [(2, 1), (4, 2)],
    }


def test_batches_and_networks_are_studies_of_their_own():
    small = study("weak", [(1, 1), (2, 1)], lambda _: 1.0)
    assert [one.title for one in small] == ["weak scaling of mlp (arrays), batch 64 a rank"]
    points = [
        point(training("strong", [1.0] * 6, global_batch=batch), ranks)
        for batch in (256, 512)
        for ranks in (1, 2)
    ]
    titles = [one.title for one in studies(measurements_of(points))]
    assert [title[-3:] for title in titles] == ["256", "512"]


def test_one_number_of_ranks_is_no_curve():
    assert study("strong", [(2, 1)], lambda _: 1.0) == []
