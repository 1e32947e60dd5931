"""The table of ``bench tune`` for GPUs: it is measured, written, and used by all ranks."""

import json
import os
import sys
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from helpers.gpu.devices import needs_gpus
from helpers.gpu.ranks import carried_by, communicator_on_gpus
from mpistrat.collectives.backends.gpu.carriers import one_shot, peer_memory
from mpistrat.collectives.backends.gpu.facts import facts
from mpistrat.collectives.backends.gpu.tuning import GPU, GpuTuning, gpu_key
from mpistrat.collectives.backends.shared_memory import tuning_table
from mpistrat.testing.launcher import run_job
from mpistrat.testing.sets import takes_long

KIB = 1 << 10

TUNES = """
import sys
from pathlib import Path
from mpistrat.bench.cases.tune import command
from mpistrat.bench.tuning import on_gpus
on_gpus._ONE_SHOT = on_gpus._WHOLE = (1 << 10, 2 << 10)  # on the host a GPU takes its time
on_gpus._BUFFERS = (4 << 10, 8 << 10, 16 << 10)
command(1, "gpu", Path(sys.argv[1]))
"""


@takes_long()
@pytest.mark.deadline(100)
@pytest.mark.parametrize("gpus", [3, 1])
def test_a_table_is_measured_and_written(tmp_path, gpus):
    pytest.importorskip("typer")
    needs_gpus(gpus)
    file = tmp_path / "tuning.json"
    tuning_table.write(file, "others", {GPU: GpuTuning(1, 2, 4096)})
    env = {
        **carried_by("one_shot"),
        "HIP_VISIBLE_DEVICES": "0,1,2"[: 2 * gpus - 1],
        "CUDA_VISIBLE_DEVICES": "0,1,2"[: 2 * gpus - 1],
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    said = run_job(["-c", TUNES, str(file)], 3, timeout_s=90, env=env).check().ranks[0].stdout
    table = json.loads(file.read_text())
    assert table.pop("others") == {GPU: asdict(GpuTuning(1, 2, 4096))}
    [(key, entry)] = table.items()
    assert key.endswith(f", 3 ranks on {gpus} GPUs")
    found = GpuTuning.from_mapping(entry[GPU])
    assert ("with one_shot_bytes=" in said) == (found.one_shot_bytes > 0) == (gpus == 3)
    assert found.whole_bytes in (1, KIB, 2 * KIB)
    assert found.buffer_bytes in (4 * KIB, 8 * KIB, 16 * KIB)
    for name in ("whole_bytes", "buffer_bytes"):
        assert f"of the time with {name}=" in said.replace("\n", " ")


@contextmanager
def table_of_rank_0(rank, tuning, places):
    """Let rank 0 alone find a tuning in its table, for ranks on GPUs of these numbers."""
    everyone = [facts(place) for place in places]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        file = Path(folder) / "tuning.json"
        if rank == 0:
            tuning_table.write(file, gpu_key(everyone), {GPU: tuning})
        patch.setenv("MPISTRAT_TUNING", str(file))
        yield


@pytest.mark.mpi(ranks=3, timeout_s=60)
def test_rank_0s_sizes_hold_for_all():
    needs_gpus(3)
    from mpi4py import MPI

    rank, tuning = MPI.COMM_WORLD.rank, GpuTuning(1 * KIB, 3 * KIB, 8 * KIB)
    for carrier, places in (("one_shot", (0, 1, 2)), ("peer_memory", (0, 0, 0))):
        with (
            table_of_rank_0(rank, tuning, places),
            calls_noted() as noted,
            communicator_on_gpus(carrier) as (comm, cupy),
        ):
            for nbytes in (KIB, KIB + 4, 3 * KIB, 3 * KIB + 4, 20 * KIB):
                total = comm.allreduce(cupy.ones(nbytes // 4, np.float32))
                assert (total.get() == comm.size).all()
        if carrier == "one_shot":
            assert noted == [("one kernel", KIB)]
        else:
            assert noted == [("in slices", 3 * KIB + 4), ("in slices", 20 * KIB)]


@contextmanager
def calls_noted():
    """Yield a list of the all-reduces by one kernel, and of those in slices."""
    noted = []
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, what in (
            (one_shot.OneShotAllreduce, "allreduce", "one kernel"),
            (peer_memory.PeerMemory, "_by_slices", "in slices"),
        ):
            real = getattr(owner, name)

            def note(self, send, recv, op, real=real, what=what):
                noted.append((what, send.nbytes))
                return real(self, send, recv, op)

            patch.setattr(owner, name, note)
        yield noted
