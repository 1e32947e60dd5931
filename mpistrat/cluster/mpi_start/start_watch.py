"""Look after the start of MPI, which waits for all ranks: end this rank where some do not come.

The kernels do that (kernels/common/start_watch.cc), since no Python code runs meanwhile. Without
them nobody does.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from mpistrat import config
from mpistrat.cluster.launcher.launch_variables import expected_rank, expected_size, local_size
from mpistrat.cluster.mpi_start import ranks_without_mpi
from mpistrat.system.kernels import compiled_module
from mpistrat.system.processes import process_status

__all__ = ["watched"]

_ENDED_AFTER_S = 5.0  # launchers start their ranks within less
_HYDRA = "hydra_"  # MPICH's processes that start ranks; other launchers see ranks end themselves


@contextmanager
def watched() -> Generator[None, None, None]:
    """End this rank, with a reason, if MPI does not start in a block. **Local.**

    That is after ``MPISTRAT_TIMEOUT``, or when a rank of this node has ended.
    """
    module, size = compiled_module(), expected_size()
    if module is None or size is None:
        yield
        return
    rank, here = expected_rank(), local_size()
    try:
        watch = module.StartWatch(
            f"rank {rank[1] if rank else '?'}/{size[1]}",
            rank[0] if rank else "",
            ranks_without_mpi.state_file() or "",
            here[1] if here else 0,
            size[1],
            _launcher() if here else 0,
            config.valid_or(config.timeout_s, config.DEFAULT_TIMEOUT_S),
            _ENDED_AFTER_S,
        )
    except RuntimeError:  # a limit on threads: MPI starts without
        yield
        return
    try:
        yield
    finally:
        watch.end()


def _launcher() -> int:
    """Return the process whose children are the ranks of this node; 0 if it is not certain."""
    launcher = ranks_without_mpi.launcher()
    if launcher is None:
        return 0
    try:
        name = process_status.read(launcher).name
    except OSError:
        return 0
    return launcher if name.startswith(_HYDRA) else 0
