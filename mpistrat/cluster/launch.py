"""What the launcher (mpirun, srun, ...) said about this process, before MPI starts."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import TracebackType
from typing import Any, NoReturn

__all__ = ["end_job_on_early_failure", "expected_size", "was_launched"]

_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
_LAUNCH_PREFIXES = (
    *("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "PALS_", "MV2_COMM_", "FLUX_TASK_"),
    *("ALPS_APP_", "MPI_LOCALRANKID", "JSM_NAMESPACE_"),
)
_SETTINGS = "PMIX_MCA_"  # users set these for all their jobs, also where there is none


def was_launched() -> bool:
    """Tell whether a parallel launcher (mpirun, srun, ...) started this process. **Local.**"""
    names = (name for name in os.environ if not name.startswith(_SETTINGS))
    if any(name.startswith(_LAUNCH_PREFIXES) for name in names):
        return True
    return "SLURM_STEP_ID" in os.environ and "SLURM_PROCID" in os.environ


def expected_size() -> tuple[str, int] | None:
    """Return (variable, number of ranks) that the launcher announced, or None. **Local.**"""
    names = [*_SIZE_VARIABLES]
    if "SLURM_STEP_ID" in os.environ:
        names += ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]
    for name in names:
        if os.environ.get(name, "").isdigit():
            return name, int(os.environ[name])
    return None


def end_job_on_early_failure() -> None:
    """Let a failure before MPI starts end the whole job, if this process is a rank of one.

    The other ranks may be in MPI_Init by then, waiting for this one without a deadline, and some
    launchers (MPICH's) do not mind a rank that exits without having started MPI. They do mind
    one that ends by a signal. After a failure between MPI's start and the first
    strategy the job is aborted: nobody could be told. **Local.**
    """
    expected = expected_size()
    if expected is None or expected[1] == 1:
        return
    failures: list[object] = []
    owner, previous, leave = os.getpid(), sys.excepthook, sys.exit

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failures.append(error)
        previous(kind, error, trace)

    def note_exit(code: Any = None) -> NoReturn:
        if code not in (None, 0) and not _mpi_is_started():
            failures.append(code)
        leave(code)

    def end() -> None:
        if not failures or os.getpid() != owner:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        if not _mpi_is_started():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        elif any(isinstance(failure, BaseException) for failure in failures):
            sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(1)

    sys.excepthook, sys.exit = note, note_exit
    atexit.register(end)  # the first to be registered is the last to run


def _mpi_is_started() -> bool:
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_initialized())
