"""Every collective against NumPy in double precision; ranks are threads, cases hypothesis's."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpistrat.testing.backends.cases import run_body
from mpistrat.testing.backends.properties import CHECKS, Case
from mpistrat.testing.backends.samples import DTYPES, ops_for
from mpistrat.testing.sets import takes_long
from mpistrat.testing.threads import run_ranks


@st.composite
def cases(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 6) | st.just(70), max_size=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1)) if shape else 0
    op = draw(st.sampled_from(ops_for(dtype)))
    return Case(dtype, shape, axis, op, draw(st.integers(0, 11)), draw(st.integers(0, 2**31)))


@takes_long()
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@settings(
    max_examples=50,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(size=st.integers(1, 4), some=st.lists(cases(), min_size=1, max_size=4))
def test_collective_agrees_with_numpy(check, size, some):
    def body(comm):
        for case in some:
            check(comm, case)

    with np.errstate(all="ignore"):
        run_ranks(size, run_body, "threads", body)
