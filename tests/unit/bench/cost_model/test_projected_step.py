"""The projected step is one of those measured, and only its times are drawn beside it."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pydantic")

from mpistrat.bench.cost_model.build import Assumptions, model_of
from mpistrat.bench.cost_model.model_file import as_json
from mpistrat.bench.cost_model.projection.step import measured_steps, step_work
from mpistrat.bench.results.file import read_points
from mpistrat.bench.results.point import Point, Setup
from mpistrat.testing.sets import takes_long

FILE = Path(__file__).parent / "data" / "four_hosts.jsonl"
NAME = "step (dense, 128 examples a rank; 10 ms alone)"


def step_point(case: str, ranks: int, rank_batch: int, compute_us: float, time_us: float) -> Point:
    """Return a run of the case ``weak`` or ``strong``, with a rank on each node."""
    record = {
        "case": case,
        "kind": "backend",
        "network": "dense",
        "bytes": 4000,
        "ranks": ranks,
        "nodes": ranks,
        "rank_batch": rank_batch,
        "global_batch": rank_batch * ranks,
        "time_us": {"median": time_us},
        "parts_us": {"input": 1e3, "compute": compute_us, "communication": 0, "idle": 0},
    }
    return Point(setup=Setup(case=case, ranks=ranks, nodes=ranks), records=(record,))


STEPS = [
    step_point("strong", 1, 256, 1.6e4, 1.7e4),
    step_point("strong", 2, 128, 1.2e4, 2.2e4),
    step_point("weak", 2, 128, 1.3e4, 2.1e4),
    step_point("weak", 1, 128, 8e3, 9e3),
    step_point("weak", 1, 128, 1e4, 1.1e4),
    step_point("weak", 1, 64, 5e3, 6e3),
]


def overlapped_point(ranks: int, hidden: float | None, compute_us: float) -> Point:
    records = [
        {
            "case": "step",
            "kind": "backend",
            "model": "resnet50",
            "scale": 0.5,
            "bytes": 1_000_000,
            "ranks": ranks,
            "nodes": 1,
            "compute_ms": 3.0,
            "overlap": is_overlapped,
            "overlapped": hidden if is_overlapped else None,
            "compute_us": {"median_us": compute_us},
            "time_us": {"median_us": 4000.0},
        }
        for is_overlapped in (False, True)
    ]
    return Point(setup=Setup(case="step", ranks=ranks, nodes=1), records=tuple(records))


def test_computation_is_that_of_the_fewest_ranks() -> None:
    """More ranks slow each other on a machine whose memory or processors they share."""
    work = step_work(STEPS)
    assert (work.nbytes, work.compute_s, work.input_s) == (4000, pytest.approx(0.009), 0.001)
    assert work.title == "dense, 128 examples a rank; 10 ms alone"
    assert work.description == f"{work.title}, measured on 1 rank on 1 node"
    assert len(measured_steps(STEPS)) == 6


def test_what_overlap_hides_is_that_of_the_most_ranks() -> None:
    """One rank has nothing to hide; of two repeats neither is preferred."""
    points = [
        overlapped_point(1, 0.9, 3000.0),
        overlapped_point(2, 0.2, 3500.0),
        overlapped_point(2, 0.6, 3600.0),
    ]
    work = step_work(points)
    assert work.compute_s == pytest.approx(0.003)
    assert work.hidden == pytest.approx(0.4)
    assert work.title == "resnet50 at scale 0.5, overlapped; 3 ms alone"
    assert step_work(points[:1]).hidden == 0


@takes_long()
def test_only_times_of_the_projected_step_are_drawn_and_series_name_it() -> None:
    model = model_of([*read_points([FILE]), *STEPS], given=Assumptions(ranks_per_node=1))
    series = {one["name"]: one for one in as_json(model)["series"]}
    weak = series[f"{NAME}: weak scaling (measured)"]
    assert (weak["x"], weak["y"]) == ([1, 2], pytest.approx([0.010, 0.021]))
    predicted = series[f"{NAME}: weak scaling"]
    assert (predicted["x"][0], predicted["y"][0]) == (1, pytest.approx(0.010))
    # The strong study has another batch: 256 examples in all, not 128.
    assert f"{NAME}: strong scaling of 128 examples" in series
    assert [one for one in series if one.endswith("(measured)") and "strong" in one] == []


@takes_long()
def test_a_strong_study_is_drawn_where_it_is_what_is_projected() -> None:
    model = model_of([*read_points([FILE]), *STEPS[:2]], given=Assumptions(ranks_per_node=1))
    series = {one["name"]: one for one in as_json(model)["series"]}
    name = NAME.replace("128", "256").replace("10 ms", "17 ms")
    assert series[f"{name}: strong scaling of 256 examples (measured)"]["x"] == [1, 2]
    assert f"{name}: weak scaling (measured)" not in series


@takes_long()
def test_times_of_other_layouts_are_not_drawn() -> None:
    model = model_of([*read_points([FILE]), *STEPS], given=Assumptions(ranks_per_node=2))
    series = {one["name"]: one for one in as_json(model)["series"]}
    assert series[f"{NAME}: weak scaling (measured)"]["x"] == [1]


@takes_long()
def test_a_step_of_options_has_no_measurements() -> None:
    given = Assumptions(ranks_per_node=1, step_bytes=1 << 20, compute_ms=5.0)
    written = as_json(model_of([*read_points([FILE]), *STEPS], given=given))
    steps = [one["name"] for one in written["series"] if one["name"].startswith("step")]
    assert steps[0] == "step (1 MiB of gradients and 6 ms alone, as options say): weak scaling"
    assert not any(one.endswith("(measured)") for one in steps)


@takes_long()
def test_an_assumed_step_is_named_in_series_and_statements() -> None:
    written = as_json(model_of(read_points([FILE])))
    names = {one["name"].partition(": ")[0] for one in written["series"]}
    assert "step (assumed ResNet-50's gradients, 100 ms)" in names
    text = json.dumps(written["statements"])
    assert "scaling of the step (assumed: ResNet-50's gradients, 100 ms)" in text
