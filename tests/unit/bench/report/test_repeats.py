"""Two repeats that contradict each other: each figure is of both, and fits to the time shown."""

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("pydantic")

from helpers.bench.results import by_rank, collective, point, servers, step, training
from mpistrat.bench.report.analysis import rates, step_shares
from mpistrat.bench.report.analysis.measurements import measurements_of
from mpistrat.bench.report.analysis.scaling_curves import studies
from mpistrat.bench.report.figures import by_size, overlap, scaling, step_parts, stragglers
from mpistrat.bench.report.figures.style import applied, looks_of
from mpistrat.bench.report.headline import headline
from mpistrat.bench.report.tables import io_table

MIB = 1 << 20
OURS, PEER = (10.0, 30.0), (20.0, 12.0)  # µs in each repeat: 2.00 and 0.40 times as fast


def repeated(*sides):
    """Return a point for each repeat, with a record for each side."""
    return [
        point(sides[0][repeat], repeat=repeat, records=tuple(side[repeat] for side in sides))
        for repeat in range(2)
    ]


def contradicting(nbytes=MIB):
    speedups = [{"mpi4py": theirs / mine} for mine, theirs in zip(OURS, PEER, strict=True)]
    ours = [
        collective(time, nbytes, spread=0.1, speedup=one)
        for time, one in zip(OURS, speedups, strict=True)
    ]
    peer = [collective(time, nbytes, side="mpi4py", kind="peer") for time in PEER]
    return ours, peer


def test_a_bandwidth_is_the_bytes_over_the_time_shown():
    ours, _ = measurements_of(repeated(*contradicting()))
    found = rates.bus_bandwidth(ours)
    assert ours.time.median == 20
    assert found.median == pytest.approx(MIB / 20 / 1e3)
    assert (found.low, found.high) == pytest.approx((MIB / 33 / 1e3, MIB / 9 / 1e3))


def test_a_ratio_is_that_of_the_times_shown_with_the_range_of_the_runs():
    ours, peer = measurements_of(repeated(*contradicting()))
    ratio = ours.over["mpi4py"]
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((0.4, 16 / 20, 2.0))
    assert not peer.over
    figure = drawn([ours, peer])
    (row,) = (row for row in figure.table.rows if row[0] == "shm")
    assert row[2] == "20.0 µs"
    assert row[4].startswith("52.4 ")
    assert row[5] == "mpi4py 0.80× (0.40× to 2.00× by run)"
    told = " ".join(headline(repeated(*contradicting()), [ours, peer]))
    assert "0.80 times as fast as mpi4py" in told


def test_bars_of_the_bandwidth_reach_as_far_as_those_of_the_time():
    ours, peer = measurements_of(repeated(*contradicting()))
    figure = drawn([ours, peer])
    bars = figure.drawing.axes[1].containers[0].lines[2][0]
    (low, high), *_ = (segment[:, 1] for segment in bars.get_segments())
    assert (low, high) == pytest.approx((MIB / 33 / 1e3, MIB / 9 / 1e3))


def test_a_ratio_without_its_peer_is_merged_from_the_records():
    ours, _ = contradicting()
    (found,) = measurements_of(repeated(ours))
    ratio = found.over["mpi4py"]
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((0.4, 1.2, 2.0))


def test_the_figures_of_a_step_are_of_the_merged_times():
    alone = [bound(5000.0), bound(7000.0)]
    sequence = [sided("shm, in sequence", 9000.0, 5000.0), sided("shm, in sequence", 15e3, 7e3)]
    over = [
        sided("shm, overlapped", 6000.0, 5000.0, overlap=True),
        sided("shm, overlapped", 14e3, 7e3, overlap=True),
    ]
    found = measurements_of(repeated(alone, sequence, over))
    with applied():
        figure = overlap.overlap(found)
    rows = {row[0]: row[1:] for row in figure.table.rows}
    # 6 ms of computation; steps of 12 ms and 10 ms.
    step_ms, _, computed, exposed, hidden, efficiency, _ = rows["shm, overlapped"]
    assert (step_ms, computed, exposed) == ("10.0 ms", "6.00 ms", "4.00 ms")
    assert (hidden, efficiency) == ("33%", "60%")
    assert step_shares.efficiency(found[1]) == pytest.approx(0.5)
    assert "efficiency 60%" in " ".join(headline(repeated(alone, sequence, over), found))


def test_computation_alone_has_no_exposed_communication():
    found = measurements_of([point(bound(5000.0) | {"compute_us": {"median_us": 4000.0}})])
    with applied():
        figure = overlap.overlap(found)
    computed, exposed = [bar for bar in figure.drawing.axes[0].containers if len(bar) == 1]
    assert computed[0].get_width() == pytest.approx(5.0)
    assert exposed[0].get_width() == 0
    assert figure.table.rows[0][3] == "5.00 ms"


def test_communication_that_hides_nothing_is_0_percent_hidden():
    slow = sided("shm, overlapped", 12e3, 5e3, overlap=True)
    found = measurements_of([point(sided("shm, in sequence", 9e3, 5e3)), point(slow)])
    assert step_shares.hidden(found[1], found) == 0


def test_parts_of_a_step_are_of_all_repeats():
    parts = [{"compute": 10.0, "communication": 2.0}, {"compute": 30.0, "communication": 8.0}]
    repeats = [training("weak", [50.0], parts_us=one) for one in parts]
    found = measurements_of(repeated(repeats))
    with applied():
        figure = step_parts.step_parts(found)
    assert figure.table.rows[0][2:4] == ["20.0 µs (80%)", "5.00 µs (20%)"]


def test_boxes_of_ranks_are_of_all_repeats():
    first, second = by_rank("n1", "n2"), by_rank("n1", "n2")
    second[1] |= {"min": 10.0, "q1": 75.0, "median": 90.0, "q3": 95.0, "max": 200.0}
    repeats = [training("weak", [50.0], by_rank=one) for one in (first, second)]
    (found,) = measurements_of(repeated(repeats))
    with applied():
        figure = stragglers.stragglers(found)
    assert figure.table.rows[1] == [
        *("1", "n2", "10.0 µs", "70.0 µs", "80.0 µs", "85.0 µs", "200 µs")
    ]


def test_throughput_of_servers_is_of_the_merged_time():
    (found,) = measurements_of(repeated([servers(100.0), servers(300.0)]))
    assert rates.server_value(found).median == pytest.approx(2000 / 200)


def test_the_rate_of_a_checkpoint_is_of_the_merged_time():
    times = [{"min": one, "median": one, "max": one} for one in (1e3, 3e3)]
    base = {"case": "io", "op": "save", "bytes": 6_000_000, "rounds": 3}
    records = [base | {"time_us": one, "GBps": 6e3 / one["median"]} for one in times]
    found = measurements_of(repeated(records))
    table = io_table(found)
    assert table is not None
    assert table.rows[0][-1].startswith("3 ")


def test_two_runs_of_three_values_are_no_95_percent_interval():
    points = [
        point(training("weak", [90.0 * ranks, 100.0 * ranks, 110.0 * ranks]), ranks, repeat=repeat)
        for ranks in (1, 2)
        for repeat in range(2)
    ]
    found = measurements_of(points)
    assert not any(m.time.is_95 for m in found)
    (study,) = studies(found)
    with applied():
        figure = scaling.scaling(study)
    assert "95 %" not in figure.caption.replace("not a 95 %", "")
    assert figure.table.rows[1][4] == "2 × 3"
    told = " ".join(headline(points, found))
    assert "95 %" not in told
    assert "of the ideal from 1 rank (range " in told
    assert "2 repeats" in told


def test_a_time_is_the_median_that_its_record_tells():
    record = training("weak", [10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    record["time_us"] = {"min": 5.0, "median": 33.0, "max": 70.0}
    (found,) = measurements_of([point(record)])
    assert (found.time.low, found.time.median, found.time.high) == (10, 33, 60)


def bound(median):
    return sided("compute alone", median, median, kind="bound", speedup={})


def sided(side, median, compute, **keys):
    one = step(side, median, **keys)
    one["compute_us"] = {"median_us": compute, "min_us": compute, "max_us": compute}
    return one


def drawn(family):
    with applied():
        return by_size.by_size(family, looks_of(m.side for m in family))
