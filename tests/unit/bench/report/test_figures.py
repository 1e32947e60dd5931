"""Figures have the right subjects: those that are chosen, who wins, and a word of the rest."""

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("pydantic")

from helpers.bench.results import by_rank, collective, point, servers, step, training
from mpistrat.bench.report import sections, summaries
from mpistrat.bench.report.analysis import operations, winners
from mpistrat.bench.report.analysis.measurements import measurements_of
from mpistrat.bench.report.analysis.rates import server_value
from mpistrat.bench.report.analysis.scaling_curves import studies
from mpistrat.bench.report.figures import best_side, projection, scaling, stragglers
from mpistrat.bench.report.figures import servers as server_figures
from mpistrat.bench.report.figures.axes import time_axis
from mpistrat.bench.report.figures.style import BOUND, applied, looks_of, new_figure
from mpistrat.bench.report.headline import headline
from mpistrat.bench.report.projection_file import Series


def test_each_operation_comes_once_before_any_comes_twice():
    points = [
        point(collective(1.0, op=op), ranks)
        for op in ("scatter", "bcast", "allreduce")
        for ranks in (2, 4, 8)
    ]
    found = operations.families(measurements_of(points))
    order = [(family[0].get("op"), family[0].ranks) for family in found]
    assert order[:4] == [("allreduce", 8), ("bcast", 8), ("scatter", 8), ("allreduce", 4)]
    assert len(order) == 9


def test_what_is_not_drawn_is_named(monkeypatch):
    monkeypatch.setitem(sections._MOST, "sizes", 1)
    points = [
        point(collective(1.0, size, op=op)) for op in ("allreduce", "bcast") for size in (8, 16)
    ]
    points.append(point(collective(1.0, op="reduce")))
    with applied():
        made = sections.sections_of(points, measurements_of(points), None)
    (found,) = (one for one in made if one.title == "Collectives")
    assert [one.title for one in found.figures] == ["allreduce, float32, 2 ranks on 1 node"]
    assert found.left_out == ["bcast, float32, 2 ranks on 1 node"]
    (alone,) = found.tables
    assert alone.rows[0][0].startswith("reduce"), "one size is no line"


@pytest.mark.parametrize(("spread", "is_clear"), [(0.01, True), (0.4, False)])
def test_a_winner_is_clear_if_the_intervals_are_apart(spread, is_clear):
    sides = [point(collective(time, side=f"{time}", spread=spread)) for time in (3.0, 1.5, 9.0)]
    found = winners.winner(measurements_of(sides))
    assert found.first.side == "1.5"
    assert found.second is not None
    assert found.second.side == "3.0"
    assert found.gain == 2
    assert found.is_clear is is_clear


def test_a_bound_never_wins_and_one_side_is_no_map():
    sides = {"shm": "backend", "mpi4py": "peer", "memcpy": "bound"}
    points = [
        point(collective(9.0 - 2 * place, side=side, kind=kind))
        for place, (side, kind) in enumerate(sides.items())
    ]
    (((found,),),) = winners.maps(measurements_of(points))
    assert found.first.side == "mpi4py"
    assert winners.maps(measurements_of(points[:1])) == []


def test_sizes_that_were_rounded_for_equal_pieces_share_a_column():
    points = [
        point(collective(1.0 + place, nbytes, side=side), ranks)
        for ranks, nbytes in ((2, 4096), (3, 4092))
        for place, side in enumerate(("a", "b"))
    ]
    ((low, high),) = winners.maps(measurements_of(points))
    with applied():
        figure = best_side.best_side([low, high], looks_of(["a", "b"]))
    axes = figure.drawing.axes[0]
    assert [one.get_text() for one in axes.get_xticklabels()] == ["4 KiB"]
    assert [row[2] for row in figure.table.rows] == ["4 KiB", "4.00 KiB"]


def test_of_many_ranks_the_slowest_are_drawn_and_all_are_in_the_table():
    ranks = by_rank(*(f"n{rank // 8}" for rank in range(100)))
    for rank, one in enumerate(ranks):
        one["median"] = 65.0 + rank / 10
    (measured,) = measurements_of([point(training("weak", [1.0] * 6, by_rank=ranks), 100, 13)])
    with applied():
        figure = stragglers.stragglers(measured)
    labels = [one.get_text() for one in figure.drawing.axes[0].get_xticklabels()]
    assert labels == [str(rank) for rank in range(52, 100)]
    assert "The 48 slowest ranks are shown" in figure.caption
    assert "slowest is rank 99 on n12" in figure.alt
    assert len(figure.table.rows) == 100


def test_rates_fall_and_times_grow_with_the_time_of_a_call():
    (rate,) = measurements_of([point(servers(100.0), 4)])  # 50 µs to 200 µs
    found = server_value(rate)
    assert (found.low, found.median, found.high) == pytest.approx((10, 20, 40))
    function = servers(50.0, kind="schedule", unit="us a function", median={"mpistrat": 50.0})
    (time,) = measurements_of([point(function, 4)])
    found = server_value(time)
    assert (found.low, found.median, found.high) == pytest.approx((25, 50, 100))


def test_servers_are_compared_with_peers_and_a_view_has_no_bar():
    sides = {"mpistrat": 50.0, "mpistrat, view": 0.1, "memcpy": 40.0, "tensorflow": 125.0}
    whole = servers(50.0)["times"]["mpistrat"]
    factors = {side: time / 50.0 for side, time in sides.items()}
    record = servers(
        50.0,
        times={
            side: {key: value * factor for key, value in whole.items()}
            for side, factor in factors.items()
        },
        median={side: 40.0 / factor for side, factor in factors.items()},
        ratios={side: factor for side, factor in factors.items() if side != "mpistrat"},
    )
    found = measurements_of([point(record, 4)])
    assert list(summaries.others(found)) == [
        "Parameter servers, pull, 4 ranks: 40 M rows/s; 2.50 times as fast as tensorflow."
    ]
    with applied():
        figure = server_figures.servers(found)
        (axes,) = figure.drawing.axes
        assert [bar.get_height() for bar in axes.patches] == pytest.approx([40.0, 50.0, 16.0])
    assert "A view copies nothing, and has no bar." in figure.caption
    assert len(figure.table.rows) == 4


def test_an_axis_of_times_within_a_decade_has_more_than_two_labels():
    with applied():
        _, (axes,) = new_figure(5, 4)
        time_axis(axes.yaxis, [8900.0, 22000.0])
        low, high = axes.get_ylim()
        shown = [one for one in axes.yaxis.get_majorticklocs() if low <= one <= high]
        told = [axes.yaxis.get_major_formatter()(one) for one in shown]
    assert told == ["7 ms", "10 ms", "15 ms", "20 ms"]


def test_a_serial_fraction_above_1_says_what_it_means():
    points = [point(training("strong", [9e3 * ranks] * 6), ranks) for ranks in (1, 2)]
    (study,) = studies(measurements_of(points))
    with applied():
        figure = scaling.scaling(study)
    assert figure.table.rows[1][-1] == "3.000 (above 1: slower than 1 rank)"
    assert "2.00 times as long as on 1 rank" in headline(points, measurements_of(points))[1]


def test_steps_of_fewer_ranks_come_first():
    points = [point(step("shm, in sequence", 9e3), ranks) for ranks in (4, 1, 2)]
    with applied():
        made = sections.sections_of(points, measurements_of(points), None)
    (found,) = (one for one in made if one.title.startswith("Overlap"))
    assert [one.name for one in found.figures] == [
        "overlap-resnet50-2-ranks",
        "overlap-resnet50-4-ranks",
    ]
    assert found.left_out == ["resnet50, 1 rank"]


def test_a_projection_of_one_number_of_ranks_is_not_drawn():
    alone = Series(name="step: weak scaling", x=(1,), y=(1.0,))
    line = Series(name="all-reduce of 1 MiB: ring", x=(1, 2), y=(1.0, 2.0), measured=True)
    assert projection.families([alone, line]) == [[line]]
    with applied():
        figure = projection.projection([line, line.model_copy(update={"measured": False})])
    assert figure.title == "Projected all-reduce of 1 MiB"
    (legend,) = figure.drawing.legends
    assert "the most ranks measured" in [one.get_text() for one in legend.get_texts()]


def test_series_differ_by_more_than_their_colour():
    looks = looks_of(map(str, range(8)), bounds=["bound"])
    series = [looks[str(name)] for name in range(8)]
    assert len({one.colour for one in series}) == 7
    assert len({one.marker for one in series}) == 8
    assert len({one.hatch for one in series}) == 8
    assert len({(str(one.line), one.marker) for one in series}) == 8
    assert looks["bound"] is BOUND
