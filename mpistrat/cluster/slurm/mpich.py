"""Choose a network module of MPICH whose addresses Slurm's PMI server can take.

The module for UCX, MPICH's default, publishes 4096 bytes from where its address begins, whatever
lies in memory behind it, in values of up to 1022 characters. Slurm's server (``--mpi=pmi2``) reads
lines of up to 1024 characters, their keys included, and loses what is longer: then MPI_Init fails,
hangs or connects the wrong ranks. It depends on what the program has done before, and happens
between nodes only. The module for OFI publishes short addresses. Seen with MPICH 5.0.2 from PyPI
and Slurm 22.05; https://github.com/pmodels/mpich/issues/6924 tells of older ones.
"""

from __future__ import annotations

import importlib.metadata
import os

from mpistrat.cluster import launch
from mpistrat.system.log import get_logger

__all__ = ["choose_network_module"]

_VARIABLE = "MPIR_CVAR_CH4_NETMOD"
_SAME = (_VARIABLE, "MPIR_PARAM_CH4_NETMOD", "MPICH_CH4_NETMOD")  # MPICH reads all of them
_OTHER_LIBRARY = "MPI4PY_LIBMPI"
_SERVER = "PMI_FD"
_NODES = "SLURM_STEP_NUM_NODES"


def choose_network_module() -> None:
    """Let MPICH of PyPI use OFI between the nodes of a Slurm step, before it starts. **Local.**

    It changes nothing where the user has chosen a module, or has another MPI library.
    """
    is_chosen = any(name in os.environ for name in (*_SAME, _OTHER_LIBRARY))
    if is_chosen or not _publishes_to_slurm() or not _is_mpich_of_pypi():
        return
    os.environ[_VARIABLE] = "ofi"
    get_logger(__name__).info(
        "%s=ofi: Slurm's PMI server cannot take the addresses of MPICH's module for UCX", _VARIABLE
    )


def _publishes_to_slurm() -> bool:
    is_by_pmi = launch.is_srun() and _SERVER in os.environ
    return is_by_pmi and os.environ.get(_NODES, "") not in {"", "1"}


def _is_mpich_of_pypi() -> bool:
    """Tell whether the wheel is installed: it has both modules, others may lack OFI."""
    try:
        importlib.metadata.version("mpich")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
