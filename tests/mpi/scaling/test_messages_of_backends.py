"""The backend `mpi` makes one exchange of headers and one call of MPI's; `shm` sends nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.message_counts.job import Phase, counted_job
from mpistrat import built_in_sizes
from mpistrat.collectives.backends.base import HEAD_BYTES
from mpistrat.system.kernels import why_no_kernels
from mpistrat.testing.sets import repeats, takes_long

PROGRAM = "helpers.message_counts.collectives_program"
BLOCK = 4 << 10


def phases_of(backend: str, ranks: int, folder: Path) -> dict[str, Phase]:
    arguments = ["-m", PROGRAM, backend, str(BLOCK * ranks)]
    phases = counted_job(arguments, ranks, 0, folder, timeout_s=40 + 4 * ranks)
    return {name.split()[0]: phase for name, phase in phases.items()}


@takes_long()
@pytest.mark.parametrize("ranks", [4, pytest.param(64, marks=repeats())])
def test_mpi_makes_one_call_of_its_own(ranks: int, tmp_path: Path) -> None:
    phases, nbytes = phases_of("mpi", ranks, tmp_path), BLOCK * ranks
    payload = built_in_sizes.INLINE_BYTES if ranks <= built_in_sizes.INLINE_MAX_RANKS else 0
    gate = {"Allgather": (1, (HEAD_BYTES + payload) * ranks)}
    data = {
        "allreduce": "Allreduce",
        "reduce": "Reduce",
        "bcast": "Bcast",
        "reduce_scatter": "Reduce_scatter",
        "allgather": "Allgatherv",
        "gather": "Gatherv",
        "scatter": "Scatterv",
        "alltoall": "Alltoallv",
    }
    for call, name in data.items():
        expected = {**gate, name: (1, nbytes)}
        found = phases[call].collectives()
        if call == "scatter":  # only the root knows the shape, which it tells first
            assert found.pop("Bcast") <= (1, 160)
            expected |= {"Allgather": (2, 2 * gate["Allgather"][1])}
        if call == "alltoall":  # the lengths first; a byte says whether any rank's are too long
            expected |= {name: (2, nbytes + 8 * ranks), "Allreduce": (2, 2)}
        assert found == expected, call
        assert phases[call].most("messages") == 0
    for call in ("barrier", "close"):
        assert phases[call].collectives() == gate


@takes_long()
@pytest.mark.skipif(why_no_kernels() is not None, reason=str(why_no_kernels()))
@pytest.mark.parametrize("ranks", [4, pytest.param(64, marks=repeats())])
def test_shm_sends_nothing(ranks: int, tmp_path: Path) -> None:
    for call, phase in phases_of("shm", ranks, tmp_path).items():
        if call == "start":
            assert phase.most("messages") == 0
            assert phase.collectives()["Comm_dup"] == (1, 0)
        else:
            for kind in ("messages", "datagrams", "writes", "connections"):
                assert phase.most(kind) == 0, call
            assert not phase.collectives(), call
