"""A model of 2 ranks and of pairs of hosts predicts four hosts, whose times were measured.

data/four_hosts.jsonl: seven collectives of 8 B to 4 MiB, three repeats, on hosts with links of 200
Mbit/s: namespaces on one machine of two processors, where other work ran meanwhile (load 6 to 15).
So the least of the repeats is fitted. The wire decides from some KiB on; shorter calls of 4 and 8
ranks wait for the two processors, which no model of links knows: they take up to ten times as long
as predicted. Broadcasts of 128 KiB along a chain are faster than predicted (by a third): the first
32 KiB on each idle link pass its token bucket at once.
"""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydantic")

from mpistrat.bench.cost_model.fitting.fit import MachineFit, fit_machine
from mpistrat.bench.cost_model.fitting.measurements import Measured, collectives_of
from mpistrat.bench.cost_model.formulas.counts import NAMES
from mpistrat.bench.cost_model.validation import Comparison, compare, hold_out, median_error
from mpistrat.bench.results.file import read_points
from mpistrat.testing.sets import takes_long

FILE = Path(__file__).parent / "data" / "four_hosts.jsonl"
WIRE = 200e6 / 8  # bytes a second


@pytest.fixture(scope="module")
def fitted() -> tuple[MachineFit, list[Measured]]:
    points, held = hold_out(read_points([FILE]), ["nodes=4"])
    fit = fit_machine(collectives_of(points, "least"))
    assert {(m.layout.nodes, m.layout.ranks) for m in fit.measured} == {(1, 2), (2, 2), (2, 4)}
    return fit, collectives_of(held, "least")


def predicted(
    fitted: tuple[MachineFit, list[Measured]], ranks: int, least_bytes: int = 0
) -> list[Comparison]:
    fit, held = fitted
    return compare(
        fit, [one for one in held if one.layout.ranks == ranks and one.nbytes >= least_bytes]
    )


@takes_long()
def test_the_link_is_as_fast_as_it_was_set(fitted: tuple[MachineFit, list[Measured]]) -> None:
    """A byte takes 1/25 us and the headers of TCP/IP, which are 3 to 6 %."""
    per_byte = fitted[0].parameters[NAMES.index("wire_bytes")]
    assert 1.0 < per_byte * WIRE < 1.07


@pytest.mark.parametrize(("ranks", "median"), [(4, 0.05), (8, 0.12)])
def test_four_hosts_are_predicted(
    fitted: tuple[MachineFit, list[Measured]], ranks: int, median: float
) -> None:
    """Over all operations and sizes; the issue asks for 15 %."""
    found = predicted(fitted, ranks)
    assert len(found) == 43
    assert median_error(found) < median


@pytest.mark.parametrize("ranks", [4, 8])
def test_every_all_reduce_from_16_kib_is_within_15_percent(
    fitted: tuple[MachineFit, list[Measured]], ranks: int
) -> None:
    found = [one for one in predicted(fitted, ranks, 16384) if one.what.startswith("allreduce")]
    assert len(found) == 5
    for one in found:
        assert abs(one.error) < 0.15, one


@pytest.mark.parametrize("ranks", [4, 8])
def test_most_calls_from_1_mib_are_within_15_percent_and_all_within_25(
    fitted: tuple[MachineFit, list[Measured]], ranks: int
) -> None:
    """The others are all-to-alls, whose messages meet in the receivers' links."""
    errors = np.array([abs(one.error) for one in predicted(fitted, ranks, 1 << 20)])
    assert len(errors) == 12
    assert np.mean(errors < 0.15) >= 0.8
    assert errors.max() < 0.25


@pytest.mark.parametrize(
    ("least", "most", "four", "eight"),
    [
        (0, 32, 0.73, 0.91),
        (2048, 2048, 0.21, 0.61),
        (16384, 16384, 0.03, 0.03),
        (131072, 524288, 0.40, 0.48),
        (1 << 20, 1 << 22, 0.18, 0.22),
    ],
)
def test_the_worst_errors_are_those_of_the_manual(
    fitted: tuple[MachineFit, list[Measured]], least: int, most: int, four: float, eight: float
) -> None:
    """docs/scaling.md has them, by size."""
    fit, held = fitted
    for ranks, expected in ((4, four), (8, eight)):
        sizes = [m for m in held if m.layout.ranks == ranks and least <= m.nbytes <= most]
        worst = max(abs(one.error) for one in compare(fit, sizes))
        assert worst == pytest.approx(expected, abs=0.011)


def test_cross_validation_does_not_promise_more_than_it_keeps(
    fitted: tuple[MachineFit, list[Measured]],
) -> None:
    assert 0.01 < np.median(fitted[0].errors) < 0.15
