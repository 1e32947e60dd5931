"""Tell which batch job and which site a suite runs in."""

from __future__ import annotations

import os
import socket

from mpistrat.sites.lookup import of_host

__all__ = ["job_facts", "site_name"]

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


def site_name() -> str | None:
    """Return the name of the site whose file names this host, or None."""
    return of_host(socket.getfqdn()) or of_host(socket.gethostname())
