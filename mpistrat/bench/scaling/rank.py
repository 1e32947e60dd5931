"""The program of each rank of a run: tell where it is, then run the case.

Run as ``python -m mpistrat.bench.scaling.rank FILE CASE OPTIONS``, by :mod:`one_run`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from mpistrat.bench.__main__ import application
from mpistrat.bench.harness.json_lines import facts
from mpistrat.cluster import mpi
from mpistrat.cluster.topology import host_name
from mpistrat.system.cpus.numa import domains_of

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Write the placement of all ranks to a file, and run a case. **Collective.**"""
    file, *words = arguments
    comm = mpi.world()
    cores = os.sched_getaffinity(0)
    mine = {"host": host_name(), "cores": sorted(cores), "domains": domains_of(cores)}
    everyone: list[Any] = [mine] if comm is None else comm.gather(mine) or []
    if everyone:  # rank 0
        placement = [{"rank": rank, **one} for rank, one in enumerate(everyone)]
        line = json.dumps({"placement": placement, "facts": facts()})
        Path(file).write_text(line + "\n", encoding="utf-8")
    application(only=words[0])(words, prog_name="python -m mpistrat.bench")


if __name__ == "__main__":
    main(sys.argv[1:])
