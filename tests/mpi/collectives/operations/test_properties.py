"""Every collective against NumPy in double precision, on MPI ranks.

Cases are drawn from a generator that starts alike on all ranks.
"""

import numpy as np
import pytest

from mpistrat.testing.backends.cases import run_body
from mpistrat.testing.backends.properties import CHECKS, random_case
from mpistrat.testing.sets import takes_long, with_all

NAMES = [check.__name__ for check in CHECKS]


@takes_long()
@pytest.mark.mpi(ranks=[2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_collective_agrees_with_numpy(name):
    from mpi4py import MPI  # on the ranks only: it starts MPI

    check = CHECKS[NAMES.index(name)]
    random = np.random.default_rng(2026)

    def body(comm):
        for _ in range(150 if with_all() else 60):
            check(comm, random_case(random))

    run_body(MPI.COMM_WORLD, "mpi", body)
