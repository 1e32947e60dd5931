"""Say what to type where launcher and MPI library do not belong together."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mpistrat.cluster.launcher import launch_variables
from mpistrat.cluster.slurm.mpi_types import library_kind, read_types, understood_types

__all__ = ["how_to_start"]

_LIST_S = 5.0
_MOST_CHARACTERS = 160
_DOCTOR = (
    "`mpistrat doctor`, started in the same way in place of the program, checks launcher, MPI and"
    " node"
)


def how_to_start(size: int | None, version: str = "") -> str:
    """Return the command line that starts this program on `size` ranks, and what to try else.

    Parameters
    ----------
    size
        The ranks that the launcher was asked for; None if it does not say.
    version
        What names the MPI library, such as MPI_Get_library_version's text.

    Notes
    -----
    **Local.** In a Slurm step it asks ``srun --mpi=list``, for 5 s at most.
    """
    ranks = "..." if size is None else str(size)
    lines = [(_by_srun if launch_variables.is_srun() else _by_mpirun)(ranks, version)]
    if "SLURM_HET_SIZE" in os.environ:
        lines.append(
            "this is a heterogeneous job, which not every MPI library can span: let doctor try it"
            " with one rank in each component, or ask for all ranks in one component"
        )
    return "; ".join([*lines, _DOCTOR])


def _by_srun(size: str, version: str) -> str:
    used, offered = os.environ.get("SLURM_MPI_TYPE", ""), _offered()
    library, understood = library_kind(version), understood_types(version)
    if not understood:
        return f"use {_each_type(understood)} ({_shown(offered)})"
    fitting = [name for name in understood if offered is None or name in offered]
    # The one that was used did not connect the ranks.
    fitting = [name for name in fitting if name != used]
    if fitting:
        return f"the MPI library is {library}: start it by `{_srun(fitting[0], size)}`"
    return (
        f"the MPI library is {library}, which needs {_each_type(understood)}"
        f" ({_shown(offered)}{f', used {used}' if used else ''}): start it by"
        f" `{_mpirun(size)}` in the batch script, without srun"
    )


def _by_mpirun(size: str, version: str) -> str:
    library = library_kind(version)
    whose = f" ({library})" if library else ""
    is_in_slurm = "SLURM_JOB_ID" in os.environ
    by_slurm = f", or {_each_type(understood_types(version))}" if is_in_slurm else ""
    return (
        f"use the mpirun that came with the MPI library of this environment{whose}:"
        f" `{_mpirun(size)}`{by_slurm}"
    )


def _each_type(understood: Sequence[str]) -> str:
    if not understood:
        return "`srun --mpi=pmi2` for MPICH and `srun --mpi=pmix` for Open MPI"
    return f"`srun --mpi={understood[0]}`"


def _srun(plugin: str, size: str) -> str:
    nodes = os.environ.get("SLURM_STEP_NUM_NODES", "")
    where = f" -N {nodes}" if nodes.isdecimal() else ""
    return f"srun --mpi={plugin}{where} -n {size} {_program()}"


def _mpirun(size: str) -> str:
    beside = Path(sys.executable).with_name("mpirun")
    return f"{beside if beside.exists() else 'mpirun'} -n {size} {_program()}"


def _program() -> str:
    """Return the command line of this process, as far as it is short."""
    words = [Path(sys.executable).name, *sys.orig_argv[1:]]
    text = shlex.join(words)
    is_short = len(text) <= _MOST_CHARACTERS and "\n" not in text
    return text if is_short else f"{words[0]} ..."


def _offered() -> list[str] | None:
    """Return the plug-ins that ``srun --mpi=list`` prints; None if it cannot be asked."""
    srun = shutil.which("srun")
    if srun is None:
        return None
    try:
        done = subprocess.run(
            [srun, "--mpi=list"], capture_output=True, text=True, timeout=_LIST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Old versions print the list to the other stream.
    names = read_types(f"{done.stdout}\n{done.stderr}")
    return [name for name in names if name != "none"] if names else None


def _shown(offered: list[str] | None) -> str:
    return (
        "`srun --mpi=list` names those of this site"
        if offered is None
        else (f"this Slurm offers {', '.join(offered) or 'nothing'}")
    )
