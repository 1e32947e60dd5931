"""Report on rank 0 and end on all ranks, without MPI: the others wait until rank 0 has reported.

Most launchers end all processes when one ends with an error, and rank 0 would not come to report.
The processes of a node find each other by a socket whose name is that of their job.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

from mpistrat.cluster.launcher.launch_variables import expected_rank, local_size, was_launched
from mpistrat.system.processes import process_status
from mpistrat.system.program_end import standard_output
from mpistrat.system.waiting import wait_until

__all__ = ["NOT_WRITTEN", "await_report", "is_reporter", "leave", "reporting"]

_JOB = ("SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "PALS_APID", "FLUX_JOB_ID")
_NAP_S = 0.05
_MEET_S = 3.0  # in which the others of the node come to the point where rank 0 reports
_REPORT_S = 10.0

NOT_WRITTEN = 2
"""The exit status where a file of the report, or its text, cannot be written."""


def is_reporter() -> bool:
    """Tell whether this process is the one that reports: rank 0, or it is alone. **Local.**"""
    return (expected_rank() or ("", 0))[1] == 0


def leave(
    code: int, report: Callable[[], bool], unheard: Callable[[], object] | None = None
) -> NoReturn:
    """Report on rank 0, and end this process with an exit status, the same on all ranks.

    Before MPI has started, at a point to which all ranks come. The ranks of rank 0's node wait
    until it has reported, those of other nodes for 10 s.

    Parameters
    ----------
    code
        The exit status.
    report
        Called on rank 0. It returns whether all was written; if not, the status of rank 0 is 2.
    unheard
        Called on another rank that has not heard rank 0 report, where rank 0 may not come here:
        the rank says itself what is wrong, and ends the job.
    """
    if not was_launched():
        raise SystemExit(code if report() else NOT_WRITTEN)
    if is_reporter():
        with reporting(os.environ):
            code = code if report() else NOT_WRITTEN
            standard_output.wait_until_read()
    elif not await_report(os.environ, _REPORT_S) and unheard is not None:
        unheard()
        raise SystemExit(code)
    standard_output.wait_until_read()
    os._exit(code)


@contextlib.contextmanager
def reporting(environment: Mapping[str, str]) -> Iterator[None]:
    """Let the others of this node wait until the end of the block. **Local.**"""
    with socket.socket(socket.AF_UNIX) as listener:
        # If the name is taken, or there are no such names, the others wait for their time.
        with contextlib.suppress(OSError):
            listener.bind(_name(environment))
            listener.listen()
        yield
        _meet_others(listener)


def _meet_others(listener: socket.socket) -> None:
    """Wait until all others of this node have connected: later ones would wait for their time."""
    _, ranks = local_size() or ("", 1)
    end = time.monotonic() + _MEET_S
    with contextlib.suppress(OSError):  # out of time, or it does not listen
        for _ in range(ranks - 1):
            listener.settimeout(max(_NAP_S, end - time.monotonic()))
            listener.accept()[0].close()


def await_report(environment: Mapping[str, str], timeout_s: float) -> bool:
    """Wait until rank 0 has reported; on another node, for the whole time. **Local.**

    Returns
    -------
    bool
        Whether this rank has found rank 0, which reports.
    """
    end = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX) as connection:

        def is_there() -> bool:
            return connection.connect_ex(_name(environment)) == 0

        if found := wait_until(is_there, timeout_s, _NAP_S):
            connection.settimeout(max(_NAP_S, end - time.monotonic()))
            with contextlib.suppress(OSError):
                connection.recv(1)  # it ends when the other side closes
    return found


def _name(environment: Mapping[str, str]) -> str:
    """Return the name of the job's socket, which is no file: it begins with a zero byte."""
    job = [environment.get(name, "") for name in _JOB]
    facts = job if any(job) else _parent()
    return "\0" + "-".join(["mpistrat-report", str(os.getuid()), *facts])[:100]


def _parent() -> list[str]:
    """Return the parent's number, when it began, and the namespace of process numbers.

    Containers of one network share such sockets; process numbers repeat between them, and in time.
    """
    parent = os.getppid()
    try:
        start, namespace = process_status.read(parent).start, os.readlink("/proc/self/ns/pid")
    except OSError:
        return [str(parent)]
    return [str(parent), str(start), namespace.strip("pid:[]")]
