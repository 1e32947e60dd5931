"""Find out before MPI starts whether MPICH's wheel from PyPI can, and choose its network module.

It speaks PMI-1, as its own mpirun and Slurm's ``--mpi=pmi2`` do, and ends a process whose launcher
speaks PMIx only.

Its network module for UCX, the default, publishes 4096 bytes from where its address begins,
whatever lies in memory behind it, in values of up to 1022 characters. Slurm's server reads lines
of up to 1024 characters, their keys included, and loses what is longer: then MPI_Init fails,
hangs or connects the wrong ranks. It depends on what the program has done before, and happens
between nodes only. The module for OFI publishes short addresses; but OFI's own `sockets`, which
MPICH prefers to its `tcp`, hung in MPI_Init in 1 of 10 jobs of several ranks a node. Seen with
MPICH 5.0.2 and Slurm 22.05; https://github.com/pmodels/mpich/issues/6924 tells of older ones.
"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

from mpistrat import config
from mpistrat.cluster.launcher import launch_variables
from mpistrat.cluster.launcher.advice import how_to_start
from mpistrat.errors import ClusterError
from mpistrat.system.log import get_logger, warn_once

__all__ = ["prepare"]

_MODULE = "MPIR_CVAR_CH4_NETMOD"
_MODULES = (_MODULE, "MPIR_PARAM_CH4_NETMOD", "MPICH_CH4_NETMOD")  # MPICH reads all of them
_PROVIDER = "FI_PROVIDER"
_INFINIBAND = Path("/sys/class/infiniband")
_VERSIONS = ("MPIR_CVAR_PMI_VERSION", "MPIR_PARAM_PMI_VERSION", "MPICH_PMI_VERSION")
_OTHER_LIBRARY = "MPI4PY_LIBMPI"
_SERVER, _SERVERS = "PMI_FD", ("PMI_FD", "PMI_PORT", "PMI_RANK")
_PMIX = "PMIX_NAMESPACE"
_NODES = "SLURM_STEP_NUM_NODES"


def prepare() -> None:
    """Prepare the environment for this library, if it is the one that will start. **Local.**

    Raises
    ------
    ClusterError
        It cannot talk to the launcher.
    """
    if _OTHER_LIBRARY in os.environ or not _is_installed():
        return
    _check_launcher()
    if _publishes_to_slurm() and not any(name in os.environ for name in _MODULES):
        os.environ[_MODULE] = "ofi"
        os.environ.setdefault(_PROVIDER, "^sockets")  # all others
        _tell()


def _tell() -> None:
    if (launch_variables.expected_rank() or ("", 0))[1]:
        return  # the log of the other ranks is not off before MPI starts
    text = (
        f"{_MODULE}=ofi, {_PROVIDER}={os.environ[_PROVIDER]}: Slurm's PMI server cannot take the"
        " addresses of MPICH's module for UCX; to use that, start the program by mpirun in the"
        " batch script"
    )
    has_infiniband = next(_INFINIBAND.glob("*"), None) is not None
    level = "WARNING" if has_infiniband else "INFO"  # for which UCX is the faster one
    warn_once(get_logger(__name__), "OFI", text, level)


def _is_installed() -> bool:
    try:
        importlib.metadata.version("mpich")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _check_launcher() -> None:
    is_chosen = any(name in os.environ for name in _VERSIONS) or config.allows_singleton()
    if _PMIX not in os.environ or is_chosen or any(name in os.environ for name in _SERVERS):
        return
    expected = launch_variables.expected_size()
    raise ClusterError(
        f"the launcher speaks PMIx ({_PMIX}={os.environ[_PMIX]}), which MPICH of PyPI does not;"
        f" {how_to_start(expected[1] if expected else None, 'MPICH')}"
    )


def _publishes_to_slurm() -> bool:
    is_by_pmi = launch_variables.is_srun() and _SERVER in os.environ
    return is_by_pmi and os.environ.get(_NODES, "") not in {"", "1"}
