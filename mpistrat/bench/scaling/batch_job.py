"""Tell which batch job and which site a suite runs in."""

from __future__ import annotations

import math
import os
import socket
import time

from mpistrat.sites.lookup import of_host

__all__ = ["job_facts", "left_s", "site_name"]

_FOR_THE_REPORT = 0.25, 120.0  # of what is left of a job: a share, and seconds at most

_VARIABLES = {
    "id": ("SLURM_JOB_ID", "PBS_JOBID"),
    "nodes": ("SLURM_JOB_NODELIST",),
    "partition": ("SLURM_JOB_PARTITION", "PBS_QUEUE"),
    "cluster": ("SLURM_CLUSTER_NAME",),
}


def job_facts() -> dict[str, str]:
    """Return id, node list, partition and cluster of the batch job; empty outside of one."""
    found = {}
    for name, variables in _VARIABLES.items():
        values = [os.environ[one] for one in variables if os.environ.get(one)]
        if values:
            found[name] = values[0]
    return found


def left_s() -> float:
    """Return how many seconds of this batch job runs may take; infinity where that is unknown."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    if not end.isascii() or not end.isdecimal():
        return math.inf
    share, most = _FOR_THE_REPORT
    left = max(0.0, int(end) - time.time())
    return left - min(share * left, most)


def site_name() -> str | None:
    """Return the name of the site whose file names this host, or None."""
    return of_host(socket.getfqdn()) or of_host(socket.gethostname())
