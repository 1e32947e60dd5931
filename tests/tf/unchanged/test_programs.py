"""Programs written for tf.distribute run unchanged on ranks, and end as in one process.

The programs do what TensorFlow's and Keras's guides to distributed training show, on small data.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

from mpistrat.testing.launcher import run_job
from mpistrat.testing.placement import slower
from mpistrat.testing.sets import repeats, takes_long

pytestmark = pytest.mark.deadline(400)

PROGRAMS = Path(__file__).with_name("programs")
NAMES = [
    *("keras_fit", "custom_loop", "distributed_input", "save_and_load", "keras_guide"),
    *("multi_worker_keras", "multi_worker_loop"),
]
RUN = ["-m", "mpistrat", "run"]


def found(text):
    """Return what each program printed of itself, by its name."""
    lines = [line.removeprefix("FOUND ") for line in text.splitlines() if line.startswith("FOUND")]
    return {name: results for line in lines for name, results in json.loads(line).items()}


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory):
    """What the programs end with under TensorFlow's own strategies."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "all_programs.py"), "--alone", *NAMES],
        capture_output=True,
        text=True,
        timeout=180 * slower(),
        check=False,
        cwd=tmp_path_factory.mktemp("one_process"),
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    return found(done.stdout)


@takes_long()
@pytest.mark.parametrize(
    "ranks", [pytest.param(1, marks=repeats()), 2, pytest.param(3, marks=repeats())]
)
def test_they_end_as_in_one_process(ranks, in_one_process, tmp_path):
    program = str(PROGRAMS / "all_programs.py")
    result = run_job([*RUN, "--explain", program, *NAMES], ranks, 240, cwd=tmp_path).check()
    assert in_one_process.keys() == {*NAMES}
    for rank, output in enumerate(result.ranks):
        mine = found(output.stdout)
        for name, want in in_one_process.items():
            for part, values in want["RESULTS"].items():
                np.testing.assert_allclose(
                    mine[name]["RESULTS"][part],
                    values,
                    rtol=1e-5,
                    atol=2e-6,
                    err_msg=f"{name}, {part}, rank {rank}/{ranks}",
                )
        # Its own TF_CONFIG said two workers, of which every process was the first.
        assert mine["multi_worker_keras"]["ROLES"] == [rank == 0, ranks, True]
    said = result.ranks[0].stderr
    assert f"worker 0 of 2 worker) is replaced by what MPI says: worker 0 of {ranks}" in said
    assert "keras_fit.py:11: tf.distribute.MirroredStrategy is mpistrat.tensorflow." in said
    assert f"mpistrat run: rank 0 of {ranks}" in said
