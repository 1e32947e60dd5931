"""The GPU kernels on the host, against NumPy: plain, in other orders, under sanitizers."""

from __future__ import annotations

import pytest

from gpu.pretend import kernels_on_host
from helpers.gpu_kernels.process import checks_fail
from helpers.gpu_kernels.program import CHECKS
from mpistrat.testing.sets import repeats, takes_long

pytestmark = pytest.mark.skipif(
    kernels_on_host.why_not() is not None, reason=str(kernels_on_host.why_not())
)
RUNS = [
    ("plain", "numbered"),
    ("plain", "reversed"),
    ("plain", "7"),
    pytest.param("address", "numbered", marks=takes_long()),
    pytest.param("address", "reversed", marks=repeats()),
    pytest.param("thread", "7", marks=repeats()),
]


@takes_long()
@pytest.mark.deadline(300)
@pytest.mark.parametrize(("mode", "order"), RUNS)
@pytest.mark.parametrize("family", CHECKS)
def test_results_are_numpys(family, mode, order):
    assert checks_fail(family, mode, order) is None


@takes_long()
@pytest.mark.deadline(300)
@pytest.mark.parametrize(
    "family",
    # Of the others no thread reads what another one writes.
    [
        one
        if one in ("one_shot", "row_order", "scatter_add")
        else pytest.param(one, marks=repeats())
        for one in CHECKS
    ],
)
def test_threads_do_not_race(family):
    assert checks_fail(family, "thread") is None


@repeats()
@pytest.mark.deadline(600)
@pytest.mark.parametrize("mode", ["plain", "address"])
@pytest.mark.parametrize("family", CHECKS)
def test_all_ops_dtypes_and_sizes(family, mode):
    assert checks_fail(family, mode, are_all=True, timeout_s=300) is None
