"""After an error a rank sends a few notices, each to all others, as `Peers` states."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.message_counts.formulas import Shape
from helpers.message_counts.job import counted_job
from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.sets import repeats, takes_long

PROGRAM = ["-m", "helpers.message_counts.failing_program"]
MOST_NOTICES = 3  # it failed, or gave up; whose process has ended; it leaves


@takes_long()
@pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))
@pytest.mark.parametrize("who", ["all", "one"])
@pytest.mark.parametrize("ranks", [4, pytest.param(16, marks=repeats())])
def test_notices_of_a_failure(ranks: int, who: str, tmp_path: Path) -> None:
    job = counted_job([*PROGRAM, who], ranks, 1, tmp_path, 40 + 4 * ranks, is_to_fail=True)
    phase, gate = job["failure"], Shape(ranks, 1).gate().messages
    assert ranks - 1 <= phase.most("messages") <= MOST_NOTICES * (ranks - 1) + gate
    assert phase.most("partners") == ranks - 1
    assert phase.most("nbytes") <= MOST_NOTICES * (ranks - 1) * 1300 + gate * 64
    assert not phase.collectives()
