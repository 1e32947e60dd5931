"""MPICH's network module is changed where Slurm's PMI server would lose its addresses."""

import importlib.metadata
import os

import pytest

from mpistrat.cluster.slurm.mpich import choose_network_module

STEP = {
    "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_NODES": "2", "PMI_FD": "7",
    "PMI_RANK": "0",
}
PREFIXES = ("OMPI_", "PMI_", "PMIX_", "PALS_", "MV2_", "SLURM", "FLUX_", "MPI_LOCAL", "MPI4PY_")
MODULE = "MPIR_CVAR_CH4_NETMOD"


@pytest.fixture
def setenv(monkeypatch):
    for name in [n for n in os.environ if n.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(MODULE, "")  # so that it is put back
    monkeypatch.delenv(MODULE)
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "5.0.2")
    return lambda variables: [monkeypatch.setenv(*item) for item in variables.items()]


def test_between_nodes(setenv):
    setenv(STEP)
    choose_network_module()
    assert os.environ[MODULE] == "ofi"


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
    choose_network_module()
    assert MODULE not in os.environ


def test_what_the_user_has_chosen(setenv):
    setenv(STEP | {MODULE: "ucx"})
    choose_network_module()
    assert os.environ[MODULE] == "ucx"


def test_another_mpich(setenv, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    setenv(STEP)
    choose_network_module()
    assert MODULE not in os.environ
