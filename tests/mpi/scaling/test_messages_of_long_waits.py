"""Messages while one rank is late: a few of the others tell all, not each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.message_counts.formulas import Shape
from helpers.message_counts.job import counted_job
from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.sets import repeats, takes_long

pytestmark = takes_long(unit="file")

PROGRAM = ["-m", "helpers.message_counts.late_rank_program"]
COMMUNICATORS = 2


@pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))
@pytest.mark.parametrize(
    "ranks", [8, pytest.param(16, marks=repeats()), pytest.param(64, marks=repeats())]
)
def test_notices_of_a_long_wait(ranks: int, tmp_path: Path) -> None:
    phases = counted_job(PROGRAM, ranks, 1, tmp_path, timeout_s=40 + 4 * ranks)
    call = ranks * Shape(ranks, 1).allreduce(8).messages
    notices = phases["wait"].total("messages") - call
    assert notices % (ranks - 1) == 0
    # One or two ranks speak, through each communicator; more where the machine is loaded.
    assert 1 <= notices // (ranks - 1) <= COMMUNICATORS * ranks // 2
    assert phases["after"].total("messages") > 0
    assert phases["end"].total("messages") == 0
