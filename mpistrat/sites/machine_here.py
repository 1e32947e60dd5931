"""Find what the machine that renders a script tells of it: which Python, and how ranks start."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

from mpistrat.sites.lookup import is_host_of
from mpistrat.sites.mpi_probe import probe
from mpistrat.sites.rendering.launch import Mpi
from mpistrat.sites.rendering.options import Options
from mpistrat.sites.rendering.script import Here
from mpistrat.sites.schema import Site

__all__ = ["here_of", "notices_of_python"]

_ANY = "generic-slurm"  # the site that every machine with Slurm may be


def here_of(site: Site, options: Options) -> Here:
    """Return which Python is to run, and how its ranks start. **Local.**

    Srun and the MPI library of this machine are asked where it is one of the site's, as far as
    its name tells: those of a laptop say nothing of another machine.
    """
    python = _python(options)
    folder, name = os.path.split(python)
    is_open = options.mpi is None and options.container is None
    if not is_open or site.launcher.command.value != "srun":
        return Here(folder, name)
    if not _is_here(site):
        why = f"by its name, {socket.gethostname()} is not known to be {site.name}"
        return Here(folder, name, Mpi(reason=why))
    staged = options.stage_environment
    return Here(folder, name, probe(f"{staged}/bin/python" if staged else python))


def notices_of_python(site: Site, options: Options, here: Here) -> Iterator[str]:
    """Yield that the Python of this machine may not be the site's, where nobody has named one."""
    is_given = options.python or options.container or options.stage_environment
    if not is_given and not _is_here(site):
        yield (
            f"the script puts {here.python_folder} of this machine first in PATH; if"
            f" {site.name} has it elsewhere, --python names it"
        )


def _is_here(site: Site) -> bool:
    return site.name == _ANY or is_host_of(site, socket.gethostname())


def _python(options: Options) -> str:
    """Return the Python that runs the program, which a job finds from any folder."""
    if options.python is None:
        return "python" if options.stage_environment else sys.executable
    python = os.path.expanduser(options.python)
    return os.path.abspath(python) if "/" in python else python
