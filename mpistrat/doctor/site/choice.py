"""Guess the site by the names of the machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from mpistrat.sites import lookup
from mpistrat.sites.schema import Site

__all__ = ["guessed", "host_names"]


def host_names() -> Sequence[str]:
    """Return the names by which this machine is known: its own, its node's, and its cluster's."""
    names = [socket.gethostname(), socket.getfqdn(), os.environ.get("SLURMD_NODENAME", "")]
    names += [os.environ.get(name, "") for name in ("SLURM_SUBMIT_HOST", "SLURM_CLUSTER_NAME")]
    return [name for name in dict.fromkeys(names) if name]


def guessed() -> Site | None:
    """Return the site whose patterns match one of this machine's names, or None."""
    for host in host_names():
        if name := lookup.of_host(host):
            return lookup.find(name)
    return None
