"""Test the installed Horovod: a small all-reduce of 2 ranks under mpirun, with a deadline."""

from __future__ import annotations

from mpistrat.errors import BackendUnavailableError
from mpistrat.testing.launcher import LauncherError, run_job

__all__ = ["try_on_two_ranks"]

_PROGRAM = "mpistrat.horovod_build.two_ranks"


def try_on_two_ranks(timeout_s: float) -> str:
    """Sum tensors by Horovod on 2 ranks of this machine; return what was tried, and how long.

    Raises
    ------
    BackendUnavailableError
        There is no mpirun, or the job failed or passed its deadline; its output is in the message.
    """
    try:
        done = run_job(["-m", _PROGRAM], 2, timeout_s).check()
    except LauncherError as error:
        raise BackendUnavailableError(
            f"Horovod is installed, but its test on 2 ranks fails: {error}\n"
            "`mpistrat doctor` checks launcher and MPI library; `mpistrat horovod build --rebuild`"
            " compiles Horovod again"
        ) from error
    said = done.ranks[0].stdout.strip().splitlines()[-1:] or ["it ended well"]
    return f"{said[0]} ({done.duration_s:.0f} s)"
