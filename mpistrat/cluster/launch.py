"""Read what the launcher (mpirun, srun, ...) set in the environment, before MPI starts."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NoReturn

from mpistrat.system import standard_output

__all__ = [
    "end_job_on_early_failure",
    "expected_rank",
    "expected_size",
    "leave_at_end",
    "local_size",
    "variables",
    "was_launched",
]

_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "PALS_SIZE")
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID")
_LOCAL_SIZE_VARIABLES = (
    *("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"),
    *("PALS_LOCAL_SIZE",),
)
_LAUNCH_PREFIXES = (
    *("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "PALS_", "MV2_COMM_", "FLUX_TASK_"),
    *("ALPS_APP_", "MPI_LOCALRANKID", "JSM_NAMESPACE_"),
)
_SLURM_STEP = ("SLURM_STEP_ID", "SLURM_PROCID")
_SETTINGS = "PMIX_MCA_"  # users set these for all their jobs, also where there is none


class _Leaving:
    """Whether the program ends without MPI_Finalize, and its exit status."""

    is_wanted = False
    status = 0


_leaving = _Leaving()


def leave_at_end() -> None:
    """Let this process end without MPI_Finalize, once its program is over. **Local.**"""
    _leaving.is_wanted = True


def was_launched() -> bool:
    """Tell whether a parallel launcher (mpirun, srun, ...) started this process. **Local.**"""
    return bool(variables())


def variables() -> dict[str, str]:
    """Return the launcher's variables in the environment, such as rank and size. **Local.**"""
    found = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_LAUNCH_PREFIXES) and not name.startswith(_SETTINGS)
    }
    is_step = all(name in os.environ for name in _SLURM_STEP)
    return found | {name: os.environ[name] for name in _SLURM_STEP if is_step}


def expected_size() -> tuple[str, int] | None:
    """Return (variable, number of ranks) that the launcher announced, or None. **Local.**"""
    in_step = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"] if _is_in_step() else []
    return _number([*_SIZE_VARIABLES, *in_step])


def expected_rank() -> tuple[str, int] | None:
    """Return (variable, rank) that the launcher gave this process, or None. **Local.**"""
    return _number([*_RANK_VARIABLES, *(["SLURM_PROCID"] if _is_in_step() else [])])


def local_size() -> tuple[str, int] | None:
    """Return (variable, number of ranks on this node), or None. **Local.**"""
    return _number(_LOCAL_SIZE_VARIABLES)


def _is_in_step() -> bool:
    return "SLURM_STEP_ID" in os.environ


def _number(names: Iterable[str]) -> tuple[str, int] | None:
    values = ((name, os.environ.get(name, "")) for name in names)
    return next(((name, int(value)) for name, value in values if value.isdigit()), None)


def end_job_on_early_failure() -> None:
    """End the whole job when a rank ends before MPI starts and others would wait for it.

    They may be in MPI_Init by then, without a deadline, and some launchers (MPICH's) do not mind
    a rank that exits without having started MPI. They do mind one that ends by a signal. A
    failure ends the job always, a good end only if another rank has begun to start MPI
    (:mod:`mpistrat.cluster.start_check`). After a failure between MPI's start and the first
    strategy the job is aborted: nobody could be told. **Local.**
    """
    if not _is_one_of_several():
        return
    from mpistrat.cluster import start_check  # noqa: F401 - it notes who started this process

    failures: list[object] = []
    owner, previous, leave = os.getpid(), _hook_of_one_write(), sys.exit

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failures.append(error)
        previous(kind, error, trace)

    def note_exit(code: Any = None) -> NoReturn:
        _leaving.status = code if isinstance(code, int) else int(code is not None)
        if code not in (None, 0) and not _mpi_is_started():
            failures.append(code)
        leave(code)

    def end() -> None:
        if os.getpid() != owner:
            return
        if not _mpi_is_started():
            _end_without_mpi(is_failure=bool(failures))
        elif any(isinstance(failure, BaseException) for failure in failures):
            standard_output.wait_until_read()
            sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(1)
        elif _leaving.is_wanted:
            standard_output.flush()
            os._exit(_leaving.status)

    sys.excepthook, sys.exit = note, note_exit
    atexit.register(end)  # the first to be registered is the last to run


def _is_one_of_several() -> bool:
    """Tell whether this is a rank of a larger job, and no child process of one."""
    from mpistrat.cluster import child_processes

    expected = expected_size()
    return expected is not None and expected[1] > 1 and not child_processes.is_child()


def _hook_of_one_write() -> Callable[..., object]:
    """Return the hook for uncaught errors; in place of Python's own one that writes once."""
    return standard_output.show_error if sys.excepthook is sys.__excepthook__ else sys.excepthook


def _end_without_mpi(is_failure: bool) -> None:
    from mpistrat.cluster import start_check

    if is_failure:
        start_check.forget()
    elif reason := start_check.leave():
        sys.stderr.write(f"[mpistrat] {reason}\n")
    else:
        return
    standard_output.wait_until_read()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _mpi_is_started() -> bool:
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and bool(module.Is_initialized())
