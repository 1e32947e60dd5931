"""NUMA domains in the cost model: steps and bytes between them have costs of their own."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("pydantic")

from helpers.bench.results import point, step
from mpistrat.bench.cost_model.fitting.fit import MachineFit, fit_machine
from mpistrat.bench.cost_model.fitting.measurements import Measured, collectives_of
from mpistrat.bench.cost_model.formulas.counts import DOMAINS, NAMES, Counts
from mpistrat.bench.cost_model.formulas.layout import Layout, Node, layout_of
from mpistrat.bench.cost_model.formulas.library import OPS, call
from mpistrat.bench.cost_model.formulas.on_node import on_node
from mpistrat.bench.cost_model.projection.breaking import network_statements
from mpistrat.bench.cost_model.projection.step import StepWork, measured_steps
from mpistrat.bench.results.point import Placement, Point, Setup
from mpistrat.testing.sets import takes_long

TRUE = dict(zip(NAMES, (20e-6, 1e-6, 40e-9, 1e-6, 3e-6, 0.2e-9, 0.3e-9, 0.1e-9), strict=True))
WORK = StepWork("given", 100_000_000, 0.2, 0.05)
SIZES = (8, 2048, 16384, 131072, 1 << 20, 1 << 22)
LAYOUTS = (
    Layout(2, 1),
    Layout(2, 1, 2),
    Layout(4, 1, 2),
    Layout(4, 1),
    Layout(2, 2),
    Layout(8, 2, 2),
)


def seconds(counts: Counts) -> float:
    return float(counts.vector() @ np.array([TRUE[name] for name in NAMES]))


def fit(layouts: tuple[Layout, ...], noise: float = 0.0) -> MachineFit:
    random = np.random.default_rng(1)
    return fit_machine(
        [
            Measured(op, size, layout, seconds(call(op, size, layout)) * factor)
            for layout in layouts
            for op in OPS
            for size in SIZES
            for factor in [np.exp(noise * random.standard_normal())]
        ]
    )


@pytest.mark.parametrize(
    ("op", "nbytes", "node", "far"),
    [
        ("allgather", 1 << 20, Node(4, 2), 0.5),  # two of four ranks' blocks
        ("alltoall", 1 << 20, Node(8, 4), 0.75),
        ("reduce_scatter", 1 << 20, Node(4, 2), 0.5),
        ("bcast", 1 << 20, Node(4, 2), 1),  # to those that are not in the root's domain
        ("allreduce", 1 << 20, Node(4, 2), 1),  # half of a slice, and half of the results
        ("allreduce", 1 << 10, Node(4, 2), 2),  # two of four arrays
        ("allreduce", 1 << 10, Node(2, 2), 1),
        ("barrier", 0, Node(4, 2), 0),
    ],
)
def test_far_bytes_are_those_of_ranks_in_other_domains(
    op: str, nbytes: int, node: Node, far: float
) -> None:
    counts, near = on_node(op, nbytes, node), on_node(op, nbytes, Node(node.ranks))
    assert counts.far_bytes == pytest.approx(far * nbytes)
    assert (counts.steps, counts.node_steps) == (0, near.steps)
    assert (near.far_bytes, near.node_steps) == (0, 0)
    assert (counts.copied, counts.reduced) == (near.copied, near.reduced)


def test_their_costs_are_found() -> None:
    found = fit(LAYOUTS)
    assert found.used == NAMES
    for name, value in TRUE.items():
        assert found.parameters[NAMES.index(name)] == pytest.approx(value, rel=1e-3), name


@takes_long()
@pytest.mark.parametrize("op", OPS)
def test_noisy_times_predict_more_nodes(op: str) -> None:
    found = fit(LAYOUTS, 0.03)
    for nbytes in (1 << 12, 1 << 18, 1 << 24):
        counts = call(op, nbytes, Layout(64, 16, 2))
        assert found.seconds(counts) == pytest.approx(seconds(counts), rel=0.15)


def test_steps_of_several_domains_cost_those_of_one_where_they_were_not_measured() -> None:
    found = fit((Layout(2, 1), Layout(4, 1)))
    assert not set(DOMAINS) & set(found.used)
    barrier = call("barrier", 0, Layout(4, 1, 2))
    assert found.seconds(barrier) == pytest.approx(TRUE["steps"], rel=1e-3)
    found = fit((Layout(4, 1, 2), Layout(8, 1, 4)))
    assert found.seconds(call("barrier", 0, Layout(4, 1))) == pytest.approx(3e-6, rel=1e-3)


@takes_long()
def test_projected_nodes_have_the_measured_domains() -> None:
    found = fit(LAYOUTS)
    assert found.node == Node(4, 2)
    assert [found.node_of(ranks) for ranks in (1, 2, 4, 64)] == [
        *(Node(1, 1), Node(2, 1), Node(4, 2), Node(64, 2))
    ]
    assert layout_of(64, found.node) == Layout(64, 16, 2)
    assert [layout_of(ranks, Node(8, 2)).domains for ranks in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 2]
    with pytest.raises(
        ValueError, match="2 ranks of a node in 3 NUMA domains: expected a rank in"
    ):
        Layout(4, 2, 3)


def test_full_domains_are_filled_before_the_next() -> None:
    assert [layout_of(ranks, Node(3, 2)).domains for ranks in (1, 2, 3)] == [1, 1, 2]
    assert [layout_of(ranks, Node(7, 4)).domains for ranks in (2, 3, 4, 7)] == [1, 2, 2, 4]


@takes_long()
def test_a_few_calls_across_domains_widen_no_band() -> None:
    near = (Layout(2, 1), Layout(4, 1), Layout(8, 2))
    measured = list(fit(near).measured)
    lone = Layout(4, 1, 2)
    counts = call("barrier", 0, lone)
    measured.append(Measured("barrier", 0, lone, seconds(replace(counts, steps=1, node_steps=0))))
    band = fit_machine(measured).band(call("barrier", 0, Layout(64, 32)), Layout(64, 32))
    assert band.high < 1.5 * band.value


@takes_long()
def test_the_check_of_headers_costs_the_same_however_a_step_is_called() -> None:
    told = []
    for domains in (1, 2):
        layouts = (Layout(2, 1), Layout(4, 1, domains), Layout(2, 2), Layout(8, 2, domains))
        alike = {**TRUE, "node_steps": TRUE["steps"], "far_bytes": 0.0}
        costs = np.array([alike[name] for name in NAMES])
        found = fit_machine(
            [
                Measured(op, size, one, float(call(op, size, one).vector() @ costs))
                for one in layouts
                for op in OPS
                for size in SIZES
            ]
        )
        said = network_statements(found, WORK, Node(4, domains))
        told.append([one.text for one in said if "all ranks call the same" in one.text])
    assert told[0] == told[1] != []


def test_a_step_is_read_with_the_domains_of_its_ranks() -> None:
    placement = tuple(
        Placement(rank=rank, host="h", cores=(rank,), domains=(rank,)) for rank in (0, 1)
    )
    record = {**step("shm", 9000.0), "ranks": 2, "nodes": 1, "bytes": 1 << 20, "kind": "backend"}
    found = measured_steps([point(record, placement=placement)])
    assert [one.layout for one in found] == [Layout(2, 1, 2)]


@pytest.mark.parametrize(
    ("domains", "want"),
    [
        ([[0], [0], [0], [0]], 1),
        ([[0], [1], [0], [1]], 2),
        ([[0], [0], [0], [1]], 2),  # of the node that has most
        ([[0, 1]] * 4, 1),  # ranks that are not bound
        ([[], [], [], []], 1),
    ],
)
def test_domains_are_read_from_where_the_ranks_were(domains: list[list[int]], want: int) -> None:
    record = {
        "op": "barrier",
        "bytes": 0,
        "ranks": 4,
        "nodes": 2,
        "kind": "backend",
        "backend": "auto",
        "side": "mpistrat",
        "time_us": {"median": 5.0},
    }
    run = Point(
        setup=Setup(case="collectives", ranks=4, nodes=2),
        records=(record,),
        placement=tuple(
            Placement(rank=rank, host=f"h{rank // 2}", cores=(rank,), domains=tuple(here))
            for rank, here in enumerate(domains)
        ),
    )
    assert [one.layout for one in collectives_of([run])] == [Layout(4, 2, want)]
    one_machine = tuple(one.model_copy(update={"host": "h0"}) for one in run.placement)
    pretended = run.model_copy(update={"placement": one_machine})
    assert [one.layout for one in collectives_of([pretended])] == [Layout(4, 2)]
