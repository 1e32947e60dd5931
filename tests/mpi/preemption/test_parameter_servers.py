"""With parameter servers the chief saves and ends the job; those that serve outlive the signal."""

import re

import pytest

from helpers.preemption.servers import STEPS
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

pytestmark = pytest.mark.deadline(120)


def run(folder, at):
    environment = {"MPISTRAT_OUTCOME_FILE": str(folder / "outcome")}
    arguments = ["-m", "helpers.preemption.servers", str(folder / "ckpt"), str(at)]
    job = run_job(arguments, 4, 60, environment).check()
    return job, (folder / "outcome").read_text().strip()


@takes_long()
def test_the_chief_saves_and_ends_the_job(tmp_path):
    stopped, outcome = run(tmp_path, 4)
    assert outcome == "REQUEUE"
    assert "SIGUSR1 came to rank 0; all ranks stop after step" in stopped.output
    assert "ps was signalled: True" in stopped.output
    assert "worker was signalled: True" in stopped.output
    assert "sum" not in stopped.ranks[0].stdout
    rest, outcome = run(tmp_path, -1)
    assert outcome == "DONE"
    first = int(re.search(r"from (\d+)", rest.output)[1])
    assert 5 <= first <= 6
    assert f"sum {[float(sum(range(STEPS)))] * 3}" in rest.output
