"""Test the installed Horovod: a small all-reduce of 2 ranks under mpirun, with a deadline."""

from __future__ import annotations

from mpistrat.errors import BackendUnavailableError
from mpistrat.testing.launcher import LauncherError, run_job

__all__ = ["try_on_two_ranks"]

_PROGRAM = "mpistrat.horovod_build.two_ranks"


def try_on_two_ranks(timeout_s: float) -> float:
    """Sum tensors by Horovod on 2 ranks of this machine; return how long the job took, in seconds.

    Raises
    ------
    BackendUnavailableError
        There is no mpirun, or the job failed or passed its deadline; its output is in the message.
    """
    try:
        return run_job(["-m", _PROGRAM], 2, timeout_s).check().duration_s
    except LauncherError as error:
        raise BackendUnavailableError(
            f"Horovod is installed, but its test on 2 ranks fails: {error}\n"
            "`mpistrat doctor` checks launcher and MPI library; `mpistrat horovod build --rebuild`"
            " compiles Horovod again"
        ) from error
