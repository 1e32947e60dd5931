"""Ranks of one node that start MPI, and ranks that end without it, see each other's lines."""

import os
import subprocess

import pytest

from mpistrat.cluster.mpi_start import ranks_without_mpi
from mpistrat.errors import ClusterError

LAUNCHERS = {
    "hydra": {"PMI_FD": "9", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3"},
    "prte": {
        "PMIX_NAMESPACE": "prterun-host-7@1",
        "OMPI_COMM_WORLD_SIZE": "3",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
    },
}
PREFIXES = ("OMPI_", "PMI_", "PMIX_", "PALS_", "MV2_", "SLURM", "FLUX_", "MPI_LOCAL")


@pytest.fixture(params=LAUNCHERS)
def rank(request, monkeypatch, tmp_path):
    """Give a function that makes this process another rank of one job."""
    for name in [n for n in os.environ if n.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(ranks_without_mpi, "_PARENT", os.getpid())  # pytest's own may be process 1
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for item in LAUNCHERS[request.param].items():
        monkeypatch.setenv(*item)
    name = "PMI_RANK" if request.param == "hydra" else "OMPI_COMM_WORLD_RANK"
    return lambda number: monkeypatch.setenv(name, str(number))


def test_all_start(rank, tmp_path):
    for number in range(3):
        rank(number)
        ranks_without_mpi.start()
    ranks_without_mpi.forget()
    ranks_without_mpi.forget()  # each rank does
    assert not list(tmp_path.iterdir())


def test_all_leave(rank, tmp_path):
    for number in range(3):
        assert len(list(tmp_path.iterdir())) == (number > 0)
        rank(number)
        assert ranks_without_mpi.leave() is None
    assert not list(tmp_path.iterdir())


def test_who_leaves_sees_who_waits(rank):
    for number in (2, 0):
        rank(number)
        ranks_without_mpi.start()
    rank(1)
    assert "rank 1/3 ended before starting MPI, but ranks 0, 2 cannot" in ranks_without_mpi.leave()


def test_who_starts_sees_who_left(rank):
    rank(1)
    assert ranks_without_mpi.leave() is None
    for number in (0, 2):
        rank(number)
        with pytest.raises(ClusterError, match=rf"rank {number}/3 cannot start MPI: rank 1 ended"):
            ranks_without_mpi.start()


def test_a_rank_may_leave_after_its_error(rank):
    """It no longer waits; so nobody is stopped if all come to the same end."""
    rank(1)
    ranks_without_mpi.leave()
    rank(0)
    with pytest.raises(ClusterError):
        ranks_without_mpi.start()
    assert ranks_without_mpi.leave() is None


def test_another_job_is_not_seen(rank, monkeypatch, tmp_path):
    rank(1)
    ranks_without_mpi.leave()
    (other,) = tmp_path.iterdir()
    rank(0)
    monkeypatch.setenv("PMIX_NAMESPACE", "another")
    ranks_without_mpi.start()  # which would raise for a rank of its own job that has left
    assert {other} < set(tmp_path.iterdir())


def test_what_a_rank_starts_is_no_rank(rank, monkeypatch, tmp_path):
    """Nor is one of several programs that a script starts: who started it has its variables."""
    rank(1)
    monkeypatch.setattr(ranks_without_mpi, "_is_rank", lambda pid, variable: pid == os.getpid())
    assert ranks_without_mpi.leave() is None
    assert not list(tmp_path.iterdir())


def test_the_environment_of_another_process():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(["cat"], env={"FIRST": "1", "SOME_RANK": "0"}, **pipes)
    process.stdin.write(b"up\n")
    process.stdin.flush()
    process.stdout.readline()  # it runs: its environment is in place
    found = [
        ranks_without_mpi._is_rank(process.pid, name) for name in ("FIRST", "SOME_RANK", "RANK")
    ]
    process.communicate()
    assert found == [True, True, False]


def test_another_parent_is_not_seen(rank, monkeypatch, tmp_path):
    rank(1)
    ranks_without_mpi.leave()
    (other,) = tmp_path.iterdir()
    rank(0)
    monkeypatch.setattr(ranks_without_mpi, "_PARENT", os.getppid())
    ranks_without_mpi.start()
    assert {other} < set(tmp_path.iterdir())
    ranks_without_mpi.forget()


@pytest.mark.parametrize("doubt", ["parent", "child", "folder", "link", "text", "launcher"])
def test_whatever_is_in_doubt_stops_nobody(rank, monkeypatch, tmp_path, doubt):
    rank(1)
    ranks_without_mpi.leave()
    (file,) = tmp_path.iterdir()
    rank(0)
    if doubt == "parent":
        monkeypatch.setattr(ranks_without_mpi, "_PARENT", 2**30)
    elif doubt == "child":
        monkeypatch.setattr(ranks_without_mpi, "_OWNER", 1)
    elif doubt == "folder":
        monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    elif doubt == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    elif doubt == "text":
        file.write_text("what is this\n")
    else:
        for name in ("PMI_FD", "PMIX_NAMESPACE"):
            monkeypatch.delenv(name, raising=False)
    ranks_without_mpi.start()
    assert ranks_without_mpi.leave() is None
