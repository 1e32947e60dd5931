"""What the launcher (mpirun, srun, ...) said about this process, before MPI starts."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import TracebackType

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
    one that ends by a signal. **Local.**
    """
    expected = expected_size()
    if expected is None or expected[1] == 1:
        return
    failures: list[BaseException] = []
    previous = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failures.append(error)
        previous(kind, error, trace)

    def end() -> None:
        module = sys.modules.get("mpi4py.MPI")
        if failures and not (module is not None and module.Is_initialized()):
            sys.stdout.flush()
            sys.stderr.flush()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    sys.excepthook = note
    atexit.register(end)  # the first to be registered is the last to run
