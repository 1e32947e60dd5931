"""``bench tune`` writes a table, and rank 0's table holds for all ranks."""

import json
from pathlib import Path

import numpy as np
import pytest

from mpistrat.collectives import Communicator
from mpistrat.collectives.native import why_no_kernels
from mpistrat.collectives.shared import tuning
from mpistrat.collectives.shared.tuning import CALLS, HALVES, Tuning
from mpistrat.testing.launcher import run_job

pytest.importorskip("typer")
pytestmark = pytest.mark.skipif(why_no_kernels() is not None, reason="there are no kernels")

LISTENS = """
import mpistrat, numpy as np
from mpistrat.collectives.shm import ShmBackend
told = []
tune = ShmBackend.tune
ShmBackend.tune = lambda self, tunings: (told.append(tunings), tune(self, tunings))
comm = mpistrat.Communicator(backend="shm")
assert comm.allreduce(np.ones(100_000))[-1] == comm.size
print(len(told[0]), told[0]["alltoall"].chunk_bytes)
"""


def test_a_table_is_measured_and_written(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    tuning.write(file, 3, {"bcast": Tuning(chunk_bytes=65536)})
    argv = ["-m", "mpistrat.bench", "tune", "--rounds", "1", "--calls", "scatter"]
    said = run_job([*argv, "--out", str(file)], 3, timeout_s=60).check().ranks[0].stdout
    assert "scatter, 4194304 bytes" in said
    assert list(json.loads(file.read_text())[tuning.key(3)]) == ["bcast", "scatter"]


def test_an_unknown_call_is_named() -> None:
    result = run_job(["-m", "mpistrat.bench", "tune", "--calls", "sum"], 2, timeout_s=30)
    assert result.returncode != 0
    assert "expected some of" in result.output


def test_what_is_no_table_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    file.write_text("[]")
    result = run_job(["-m", "mpistrat.bench", "tune", "--out", str(file)], 2, timeout_s=30)
    assert result.returncode != 0
    assert "expected an object" in result.output
    assert "of the time" not in result.output


@pytest.mark.mpi(ranks=3)
def test_chunks_of_any_size_are_whole_elements():
    from mpi4py import MPI

    with Communicator(MPI.COMM_WORLD, "shm") as comm:
        for nbytes in (1, 65, 12345, 100_001):
            comm.backend.tune({"allreduce": Tuning(chunk_bytes=nbytes, flat_bytes=1)})
            total = comm.allreduce(np.arange(30_000) + comm.rank)
            assert (total == 3 * np.arange(30_000) + 3).all()


def test_rank_0s_table_holds_for_all(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    entry = Tuning(chunk_bytes=65536, flat_bytes=4096, whole_bytes=1 << 20)
    tuning.write(file, 2, {name + kind: entry for name in CALLS for kind in ("", HALVES)})
    program = tmp_path / "listens.py"
    program.write_text(
        "import os\nfrom mpi4py import MPI\n"
        "if MPI.COMM_WORLD.Get_rank(): os.environ['MPISTRAT_TUNING'] = '/nowhere'\n" + LISTENS
    )
    env = {"MPISTRAT_TUNING": str(file)}
    result = run_job([str(program)], 2, timeout_s=30, env=env).check()
    assert [rank.stdout.split() for rank in result.ranks] == [["16", "65536"]] * 2
