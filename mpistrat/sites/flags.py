"""Names of schedulers' options: ``-A x``, ``--account x`` and ``--account=x`` are one option."""

from __future__ import annotations

import re

__all__ = ["option_name"]

_LONG = {
    "-A": "--account",
    "-B": "--extra-node-info",
    "-C": "--constraint",
    "-D": "--chdir",
    "-F": "--nodefile",
    "-G": "--gpus",
    "-H": "--hold",
    "-J": "--job-name",
    "-L": "--licenses",
    "-M": "--clusters",
    "-N": "--nodes",
    "-O": "--overcommit",
    "-S": "--core-spec",
    "-a": "--array",
    "-b": "--begin",
    "-c": "--cpus-per-task",
    "-d": "--dependency",
    "-e": "--error",
    "-i": "--input",
    "-k": "--no-kill",
    "-m": "--distribution",
    "-n": "--ntasks",
    "-o": "--output",
    "-p": "--partition",
    "-q": "--qos",
    "-s": "--oversubscribe",
    "-t": "--time",
    "-w": "--nodelist",
    "-x": "--exclude",
}


def option_name(directive: str, scheduler: str = "slurm") -> str:
    """Return the name of a directive's option, long where Slurm has both.

    Examples
    --------
    >>> option_name("-w node1"), option_name("--mem=4G"), option_name("-N4")
    ('--nodelist', '--mem', '--nodes')
    >>> option_name("-l filesystems=home:eagle", "pbs"), option_name("-q prod", "pbs")
    ('-l filesystems', '-q')
    """
    if scheduler == "pbs":
        found = re.match(r"-[lW] *([a-z_]+)", directive)
        return f"{directive[:2]} {found[1]}" if found else directive[:2]
    if directive.startswith("--"):
        return re.split(r"[ =]", directive, maxsplit=1)[0]
    return _LONG.get(directive[:2], directive[:2])
