"""Known parameters are found again from noisy times, and unseen times lie in the band."""

import numpy as np
import pytest

pytest.importorskip("pydantic")

from mpistrat.bench.cost_model.fitting.fit import MachineFit, fit_machine
from mpistrat.bench.cost_model.fitting.least_squares import non_negative, relative_fit
from mpistrat.bench.cost_model.fitting.measurements import Measured
from mpistrat.bench.cost_model.formulas.counts import DOMAINS, NAMES, Counts
from mpistrat.bench.cost_model.formulas.layout import Layout
from mpistrat.bench.cost_model.formulas.library import call
from mpistrat.errors import UsageError

# One NUMA domain a node: steps of several are taken to cost as much, and far bytes nothing.
TRUE = np.array([20e-6, 1e-6, 40e-9, 2e-6, 2e-6, 0.2e-9, 0, 0.1e-9])
SIZES = (8, 2048, 16384, 131072, 1 << 20, 1 << 22, 1 << 24)
OPS = ("allreduce", "bcast", "allgather", "reduce_scatter")
SMALL = (Layout(2, 1), Layout(2, 2), Layout(4, 2))


def times(layouts: tuple[Layout, ...], noise: float, seed: int = 1) -> list[Measured]:
    random = np.random.default_rng(seed)
    return [
        Measured(op, size, layout, float(call(op, size, layout).vector() @ TRUE * factor))
        for layout in layouts
        for op in OPS
        for size in SIZES
        for factor in [np.exp(noise * random.standard_normal())]
    ]


@pytest.fixture(scope="module")
def fit() -> MachineFit:
    return fit_machine(times(SMALL, 0.03))


def test_exact_times_give_the_parameters_back() -> None:
    found = fit_machine(times(SMALL, 0.0))
    assert found.parameters == pytest.approx(TRUE, rel=1e-3)
    assert found.used == tuple(name for name in NAMES if name not in DOMAINS)
    assert np.max(found.errors) < 1e-3


def test_noisy_times_predict_more_ranks(fit: MachineFit) -> None:
    """Within a few times the noise of 3 %, at sizes and ranks that were not measured."""
    for layout in (Layout(8, 4), Layout(64, 16), Layout(4096, 1024)):
        for nbytes in (64, 1 << 18, 1 << 26):
            counts = call("allreduce", nbytes, layout)
            assert fit.seconds(counts) == pytest.approx(counts.vector() @ TRUE, rel=0.15)


def test_intervals_hold_the_true_parameters(fit: MachineFit) -> None:
    for name in ("messages", "wire_bytes", "steps"):
        value, low, high = fit.spread(name)
        assert low <= value <= high
        assert low * 0.97 <= TRUE[NAMES.index(name)] <= high * 1.03


def test_nearly_all_unseen_times_lie_in_the_band(fit: MachineFit) -> None:
    unseen = times((Layout(4, 4), Layout(8, 4)), 0.03, seed=2)
    bands = [fit.band(call(one.op, one.nbytes, one.layout), one.layout) for one in unseen]
    inside = [b.low <= one.time_s <= b.high for b, one in zip(bands, unseen, strict=True)]
    assert np.mean(inside) >= 0.85
    assert all(b.low <= b.value <= b.high for b in bands)
    assert np.median([b.high / b.low for b in bands]) < 1.4


def test_the_same_times_give_the_same_model(fit: MachineFit) -> None:
    again = fit_machine(times(SMALL, 0.03))
    layout = Layout(1000, 100)
    counts = call("allreduce", 1 << 20, layout)
    assert again.band(counts, layout) == fit.band(counts, layout)


def test_bad_times_do_not_move_the_rest() -> None:
    disturbed = [
        Measured(one.op, one.nbytes, one.layout, one.time_s * (30 if number % 10 == 3 else 1))
        for number, one in enumerate(times(SMALL, 0.0))
    ]
    found = fit_machine(disturbed)
    assert found.parameters[NAMES.index("wire_bytes")] == pytest.approx(40e-9, rel=0.05)
    assert found.parameters[NAMES.index("messages")] == pytest.approx(20e-6, rel=0.2)


def test_one_size_cannot_be_fitted() -> None:
    one_size = [one for one in times((Layout(4, 2),), 0.0) if one.nbytes == 8]
    with pytest.raises(
        UsageError, match=r"4 ranks on 2 nodes: 4 measurements of 1 sizes"
    ) as error:
        fit_machine(one_size)
    assert "mpirun -n 4 --host HOST1,HOST2 mpistrat bench collectives" in str(error.value)


def test_no_times_cannot_be_fitted() -> None:
    with pytest.raises(UsageError, match=r"no time of a collective.*mpirun -n 2 mpistrat bench"):
        fit_machine([])


def test_an_assumed_network_replaces_the_measured_one(fit: MachineFit) -> None:
    assumed = fit.with_network(1e-6, 10e9)
    assert assumed.seconds(Counts(messages=3, wire_bytes=10e9)) == pytest.approx(1 + 3e-6)
    assert fit_machine(times((Layout(2, 1),), 0.0)).has_network is False


def test_least_squares_are_not_negative() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        matrix, target = random.standard_normal((12, 5)), random.standard_normal(12)
        found = non_negative(matrix, target)
        gradient = matrix.T @ (target - matrix @ found)
        assert (found >= 0).all()
        # The conditions of Karush, Kuhn and Tucker: nothing can be improved from 0 upwards.
        assert (gradient <= 1e-8).all()
        assert np.abs(gradient * found).max() < 1e-8


def test_small_and_large_times_count_alike() -> None:
    counts = np.array([[1.0, 1.0], [1.0, 1e6]])
    found = relative_fit(counts, np.array([3e-6, 2.0]))
    assert counts @ found == pytest.approx([3e-6, 2.0])


def test_few_times_still_cost_for_their_bytes() -> None:
    few = [one for one in times((Layout(3, 1),), 0.3) if one.op == "allreduce"]
    found = fit_machine(few)
    short, long = (found.seconds(call("allreduce", n, Layout(3, 1))) for n in (1 << 20, 1 << 30))
    assert long > 100 * short
    with pytest.raises(UsageError, match="3 ranks on 1 node: 4 measurements of 4 sizes"):
        fit_machine(few[:4])
