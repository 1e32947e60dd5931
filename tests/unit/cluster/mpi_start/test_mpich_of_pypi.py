"""MPICH's wheel: where Slurm would lose its addresses, and where its launcher is another's."""

import importlib.metadata
import os

import pytest

from mpistrat.cluster.mpi_start import mpich_of_pypi
from mpistrat.cluster.mpi_start.mpich_of_pypi import prepare
from mpistrat.errors import ClusterError

STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "PMI_FD": "7",
    "PMI_RANK": "0",
}
PREFIXES = ("OMPI_", "PMI_", "PMIX_", "PALS_", "MV2_", "SLURM", "FLUX_", "MPI_LOCAL", "MPI4PY_")
MODULE, PROVIDER = "MPIR_CVAR_CH4_NETMOD", "FI_PROVIDER"


@pytest.fixture
def setenv(monkeypatch):
    for name in [n for n in os.environ if n.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("MPISTRAT_ALLOW_SINGLETON", raising=False)
    for name in (MODULE, PROVIDER):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "5.0.2")
    return lambda variables: [monkeypatch.setenv(*item) for item in variables.items()]


def test_between_nodes(setenv):
    setenv(STEP)
    prepare()
    assert (os.environ[MODULE], os.environ[PROVIDER]) == ("ofi", "^sockets")


def test_the_provider_that_the_user_has_chosen(setenv):
    setenv(STEP | {PROVIDER: "verbs"})
    prepare()
    assert (os.environ[MODULE], os.environ[PROVIDER]) == ("ofi", "verbs")


@pytest.mark.parametrize("has_infiniband", [False, True])
def test_it_is_told_aloud_where_ucx_would_be_faster(setenv, monkeypatch, tmp_path, has_infiniband):
    told = []
    monkeypatch.setattr(mpich_of_pypi, "_INFINIBAND", tmp_path)
    monkeypatch.setattr(mpich_of_pypi, "warn_once", lambda *call: told.append(call))
    if has_infiniband:
        (tmp_path / "mlx5_0").mkdir()
    setenv(STEP)
    prepare()
    assert told[0][3] == ("WARNING" if has_infiniband else "INFO")
    assert "start the program by mpirun in the batch script" in told[0][2]
    monkeypatch.delenv(MODULE)
    setenv(STEP | {"PMI_RANK": "1"})
    prepare()
    assert len(told) == 1


@pytest.mark.parametrize(
    "variables",
    [
        {},
        STEP | {"SLURM_STEP_NUM_NODES": "1"},
        STEP | {"MPI_LOCALRANKID": "0"},  # mpirun's own server takes long addresses
        STEP | {"MPICH_CH4_NETMOD": "ucx"},
        STEP | {"MPI4PY_LIBMPI": "/opt/mpi/libmpi.so"},
        {name: value for name, value in STEP.items() if name != "PMI_FD"},
    ],
    ids=["no Slurm", "one node", "mpirun", "chosen", "other library", "no server"],
)
def test_elsewhere(setenv, variables):
    setenv(variables)
    prepare()
    assert MODULE not in os.environ


def test_what_the_user_has_chosen(setenv):
    setenv(STEP | {MODULE: "ucx"})
    prepare()
    assert os.environ[MODULE] == "ucx"


def test_another_mpich(setenv, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    setenv(STEP)
    prepare()
    assert MODULE not in os.environ


PMIX = {"PMIX_NAMESPACE": "prterun-host-7@1", "PMIX_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}


def test_a_launcher_that_speaks_pmix(setenv, monkeypatch):
    """MPICH would end the process, without a word of what to do."""
    setenv(PMIX)
    with pytest.raises(ClusterError) as caught:
        prepare()
    text = str(caught.value)
    assert "speaks PMIx (PMIX_NAMESPACE=prterun-host-7@1), which MPICH of PyPI does not" in text
    assert "mpirun -n 4 " in text
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE")
    with pytest.raises(ClusterError, match=r"mpirun -n \.\.\. "):
        prepare()


def test_srun_that_speaks_pmix(setenv):
    step = {name: value for name, value in STEP.items() if not name.startswith("PMI_")}
    slurm = {"PMIX_NAMESPACE": "slurm.pmix.7.0", "PMIX_RANK": "0", "SLURM_MPI_TYPE": "pmix"}
    setenv(step | slurm | {"SLURM_STEP_NUM_TASKS": "4", "PATH": "/no/such/folder"})
    with pytest.raises(ClusterError, match="start it by `srun --mpi=pmi2 -N 2 -n 4 "):
        prepare()


@pytest.mark.parametrize(
    "more",
    [
        *({"PMI_RANK": "0"}, {"MPI4PY_LIBMPI": "/opt/mpi/libmpi.so"}),
        *({"MPIR_CVAR_PMI_VERSION": "x"}, {"MPISTRAT_ALLOW_SINGLETON": "1"}),
    ],
    ids=str,
)
def test_what_can_start_under_pmix(setenv, more):
    setenv(PMIX | more)
    prepare()
    assert MODULE not in os.environ
