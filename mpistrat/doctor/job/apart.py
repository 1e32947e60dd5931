"""Wait for the report of rank 0 where the ranks are no job of MPI.

Some launchers end all processes when one ends with an error, and rank 0 would not come to report.
The processes of a node find each other by a socket whose name is that of their job.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping

from mpistrat.system.waiting import wait_until

__all__ = ["await_report", "reporting"]

_JOB = ("SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "PALS_APID", "FLUX_JOB_ID")
_NAP_S = 0.05


@contextlib.contextmanager
def reporting(environment: Mapping[str, str]) -> Iterator[None]:
    """Let the others of this node wait until the end of the block. **Local.**"""
    with socket.socket(socket.AF_UNIX) as listener:
        # If the name is taken, or there are no such names, the others wait for their time.
        with contextlib.suppress(OSError):
            listener.bind(_name(environment))
            listener.listen()
        yield


def await_report(environment: Mapping[str, str], timeout_s: float) -> None:
    """Wait until rank 0 has reported; on another node, for the whole time. **Local.**"""
    end = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX) as connection:

        def is_there() -> bool:
            return connection.connect_ex(_name(environment)) == 0

        if wait_until(is_there, timeout_s, _NAP_S):
            connection.settimeout(max(_NAP_S, end - time.monotonic()))
            with contextlib.suppress(OSError):
                connection.recv(1)  # it ends when the other side closes


def _name(environment: Mapping[str, str]) -> str:
    """Return the name of the job's socket, which is no file: it begins with a zero byte."""
    job = [environment.get(name, "") for name in _JOB]
    facts = job if any(job) else [str(os.getppid())]
    return "\0" + "-".join(["mpistrat-doctor", str(os.getuid()), *facts])[:100]
